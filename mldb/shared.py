"""What the queues and connections of one process share for one database file.

All short writes of ours in a process pass one fair lock per file: SQLite lets waiting writers starve. And there is one
connection of ours for writes that happen outside the user's own transactions.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol

import apsw

from mldb.connection import (
    end_transaction,
    open_reader,
    open_writer,
    plain_error,
    plain_errors,
    require_wal,
    run,
)
from mldb.errors import Forked, UsageError
from mldb.fairlock import FairLock

_MOST_IDLE_READERS = 4


class Listener(Protocol):
    """What wants to know of commits of this process: its pools."""

    def wake(self) -> None:
        """A job was committed."""

    def cancelled(self, job: int) -> None:
        """A job was cancelled."""


class SharedFile:
    """One database file, as this process uses it. Get it from `shared_file`."""

    def __init__(self, path: str, vfs: str | None, synchronous: str) -> None:
        self.path = path
        self.vfs = vfs
        self.synchronous = synchronous
        self.lock = FairLock()
        self.pid = os.getpid()
        self.listeners: list[Listener] = []
        self._queues = 0
        self._writer: apsw.Connection | None = None
        self._readers: list[apsw.Connection] = []

    def writing(self) -> Writing:
        """Hold the fair lock and give our connection, outside a transaction: one statement is one transaction then."""
        return Writing(self, begin=False)

    def transaction(self) -> Writing:
        """Hold the fair lock and a write transaction on our connection."""
        return Writing(self, begin=True)

    def writer(self) -> apsw.Connection:
        """Give our connection for writes; only for one who holds the lock."""
        if self._writer is None:
            # While it is open nobody can leave WAL, so this is looked at once.
            writer = open_writer(self.path, vfs=self.vfs, synchronous=self.synchronous)
            try:
                require_wal(writer)
            except BaseException:
                writer.close()
                raise
            self._writer = writer
        return self._writer

    def clear_up_after(self, thread: int) -> None:
        """Release what an interrupt left held in a thread that is not inside now."""
        if self.lock.left_behind_by(thread):
            if self._writer is not None and self._writer.in_transaction:
                run(self._writer, "ROLLBACK")
            self.lock.abandon(thread)

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Give a read-only connection that nobody else uses meanwhile."""
        self.require_same_process()
        with plain_errors(self.path):
            connection = None
            with contextlib.suppress(IndexError):  # another thread may be faster than a look at the length
                connection = self._readers.pop()
            if connection is None:
                connection = open_reader(self.path, vfs=self.vfs)
            try:
                yield connection
            finally:
                if len(self._readers) < _MOST_IDLE_READERS:
                    self._readers.append(connection)
                else:
                    connection.close()

    def wake(self) -> None:
        """Tell the pools of this process that a job was committed; those of others notice the write."""
        for listener in tuple(self.listeners):
            listener.wake()

    def cancelled(self, job: int) -> None:
        """Tell the pools of this process that a job was cancelled."""
        for listener in tuple(self.listeners):
            listener.cancelled(job)

    def require_same_process(self) -> None:
        """Raise Forked in a child process that inherited this from its parent by fork()."""
        if os.getpid() != self.pid:
            raise Forked(
                "this queue was opened before fork() and belongs to the parent process; "
                "start the child with the spawn method instead, and open the file there"
            )

    def join(self) -> None:
        """Count one more queue that uses the file."""
        with _guard:
            self._queues += 1

    def leave(self) -> None:
        """Count one queue less; the last one closes our connections. They open again when they are needed."""
        with _guard:
            self._queues -= 1
            last = self._queues <= 0
            if last:
                for key in [key for key, file in _files.items() if file is self]:
                    del _files[key]
        if last:
            self.close()

    def close(self) -> None:
        """Close our connections, the one that can fold the WAL into the database last."""
        with self.lock:
            while self._readers:
                self._readers.pop().close()
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()


class Writing:
    """As a context manager: hold the fair lock of a file and give our connection, in a transaction if *begin*.

    A class and not a generator, whose lock would stay held while a Ctrl-C that came at a bad moment is in flight.
    """

    __slots__ = ("_begin", "_file", "_turn")

    def __init__(self, file: SharedFile, *, begin: bool) -> None:
        self._file = file
        self._begin = begin
        self._turn: threading.Lock | None = None

    def __enter__(self) -> apsw.Connection:
        self._file.require_same_process()
        try:
            self._turn = self._file.lock.acquire()
            connection = self._file.writer()
            if connection.in_transaction:  # left behind by an interrupt
                run(connection, "ROLLBACK")
            if self._begin:
                run(connection, "BEGIN IMMEDIATE")
        except apsw.Error as error:
            self._leave(commit=False)
            raise plain_error(error, self._file.path) from error
        except BaseException:
            self._leave(commit=False)
            raise
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._leave(commit=kind is None)
        except apsw.Error as failure:
            raise plain_error(failure, self._file.path) from failure
        if isinstance(error, apsw.Error):
            plain = plain_error(error, self._file.path)
            if plain is not error:
                raise plain from error

    def _leave(self, *, commit: bool) -> None:
        try:
            if self._begin and self._file.lock.owns(self._turn):
                end_transaction(self._file.writer(), commit=commit)
        finally:
            self._file.lock.release(self._turn)


def require_unforked() -> None:
    """Raise Forked in a child of a process that had a queue open when it forked.

    SQLite's record of the locks that it holds, and its mutexes, were copied as they were: a file opened here would
    seem to be locked when it is not, or opening it would wait for ever.
    """
    if _forked:
        raise Forked(
            "this process was forked from one with a queue open, so SQLite cannot be used here; "
            "start it with the spawn method instead"
        )


def _note_fork() -> None:
    global _forked  # noqa: PLW0603 - one per process
    _forked = _forked or bool(_files)


_forked = False
os.register_at_fork(after_in_child=_note_fork)
_guard = threading.Lock()
_files: weakref.WeakValueDictionary[tuple[int, int, int] | None, SharedFile] = weakref.WeakValueDictionary()


def shared_file(path: str, *, vfs: str | None = None, synchronous: str = "FULL") -> SharedFile:
    """Give what this process shares for the file at a path. Raises UsageError for another *synchronous* than before.

    The file is known by device and inode (from stat, which opens nothing), so that two paths to it share one lock.
    """
    require_unforked()
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {path}")
    key = _identity(path)
    with _guard:
        found = _files.get(key)
        # A file that was deleted leaves its inode to another one, and one that was moved is not where we opened it.
        if found is None or _identity(found.path) != key:
            found = _files[key] = SharedFile(path, vfs, synchronous)
        elif found.synchronous != synchronous:
            raise UsageError(
                f"{path} is open in this process with synchronous {found.synchronous}; open it with the same"
            )
        return found


def _identity(path: str) -> tuple[int, int, int] | None:
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    return os.getpid(), status.st_dev, status.st_ino

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
from typing import Protocol

import apsw

from mldb.connection import open_reader, open_writer, transaction
from mldb.errors import Busy, Forked, MldbError, ReadOnly
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
        self._writer: apsw.Connection | None = None
        self._readers: list[apsw.Connection] = []

    @contextlib.contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """Hold the fair lock and give our connection, outside a transaction: one statement is one transaction then."""
        self.require_same_process()
        with self.lock:
            if self._writer is None:
                self._writer = open_writer(self.path, vfs=self.vfs, synchronous=self.synchronous)
            with plain_errors(self.path):
                yield self._writer

    @contextlib.contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """Hold the fair lock and a write transaction on our connection."""
        with self.writing() as connection, transaction(connection):
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Give a read-only connection that nobody else uses meanwhile."""
        self.require_same_process()
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = open_reader(self.path, vfs=self.vfs)
        try:
            with plain_errors(self.path):
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
                "open the file again in the child, or start the child with the spawn method"
            )

    def close(self) -> None:
        """Close our connections; they open again when they are needed."""
        with self.lock:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()
            while self._readers:
                self._readers.pop().close()


_guard = threading.Lock()
_files: weakref.WeakValueDictionary[tuple[int, int, int], SharedFile] = weakref.WeakValueDictionary()


def shared_file(path: str, *, vfs: str | None = None, synchronous: str = "FULL") -> SharedFile:
    """Give what this process shares for the file at a path; the first caller's settings hold.

    The file is known by device and inode (from stat, which opens nothing), so that two paths to it share one lock.
    """
    status = Path(path).stat()
    key = (os.getpid(), status.st_dev, status.st_ino)
    with _guard:
        found = _files.get(key)
        if found is None:
            found = _files[key] = SharedFile(path, vfs, synchronous)
        return found


@contextlib.contextmanager
def plain_errors(path: str) -> Iterator[None]:
    """Turn what SQLite says of locks and read-only files into errors that say what to do."""
    try:
        yield
    except apsw.ReadOnlyError as error:
        raise ReadOnly(
            f"{path} cannot be written here; open it for writing, or check the rights of the file"
        ) from error
    except apsw.BusyError as error:
        if getattr(error, "extendedresult", None) == apsw.SQLITE_BUSY_SNAPSHOT:
            raise Busy(
                "another connection committed since this transaction began to read; "
                "ROLLBACK, and begin it again with BEGIN IMMEDIATE"
            ) from error
        raise Busy("another connection holds the write lock of the database; let it COMMIT, then try again") from error
    except apsw.FullError as error:
        raise MldbError("the disk is full, nothing was written; free some space and try again") from error

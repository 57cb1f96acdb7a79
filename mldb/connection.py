"""Opens connections the way this project wants them: one place, one function per setting, each with its reason."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import apsw

from mldb.errors import Busy, MldbError, ReadOnly, UsageError

BUSY_TIMEOUT_MS = 30_000
_OPEN_ATTEMPTS = 50


def open_writer(path: str, *, vfs: str | None = None, synchronous: str = "FULL") -> apsw.Connection:
    """Open an existing database for the queue's own writes; raise MldbError when it cannot be opened."""
    connection = _open(path, apsw.SQLITE_OPEN_READWRITE, vfs, apsw.Connection)
    wait_for_locks(connection)
    distrust_the_schema(connection)
    be_durable(connection, synchronous)
    checkpoint_seldom(connection)
    return connection


def open_reader(path: str, *, vfs: str | None = None) -> apsw.Connection:
    """Open an existing database for reading only; raise MldbError when it cannot be opened."""
    connection = _open(path, apsw.SQLITE_OPEN_READONLY, vfs, apsw.Connection)
    wait_for_locks(connection)
    distrust_the_schema(connection)
    # A misspelt "column" in a query is an error, not a text.
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    run(connection, "PRAGMA query_only = 1")
    return connection


def open_setup(path: str, *, vfs: str | None, readonly: bool) -> apsw.Connection:
    """Open a database, which may not be there yet, to look whether it has a queue and to make one."""
    flags = apsw.SQLITE_OPEN_READONLY if readonly else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    connection = _open(path, flags, vfs, apsw.Connection)
    wait_for_locks(connection)
    distrust_the_schema(connection)
    return connection


Factory = TypeVar("Factory", bound=apsw.Connection)


def create(path: str, factory: type[Factory]) -> Factory:
    """Open a database as its user does, creating the file when there is none; raise MldbError when it cannot be."""
    return _open(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, None, factory)


def configure(connection: apsw.Connection, synchronous: str) -> None:
    """Make a connection that mldb opened for its user wait, sync and checkpoint as the queue does."""
    wait_for_locks(connection)
    be_durable(connection, synchronous)
    checkpoint_seldom(connection)


def wait_for_locks(connection: apsw.Connection) -> None:
    """Wait for other writers rather than fail: their transactions are short."""
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)


def distrust_the_schema(connection: apsw.Connection) -> None:
    """Keep views and triggers of a file from elsewhere away from functions that could do harm."""
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)


def be_durable(connection: apsw.Connection, synchronous: str) -> None:
    """Sync at each commit: with NORMAL an acknowledged job is lost in 28 of 100 power cuts."""
    levels = {
        "FULL": "PRAGMA synchronous = FULL",
        "NORMAL": "PRAGMA synchronous = NORMAL",
        "OFF": "PRAGMA synchronous = OFF",
    }
    run(connection, levels[synchronous])


def checkpoint_seldom(connection: apsw.Connection) -> None:
    """Checkpoint every 4000 pages, not 1000: that doubled single claims; and cut the WAL back to 64 MiB."""
    connection.wal_autocheckpoint(4000)
    run(connection, "PRAGMA journal_size_limit = 67108864")


def run(connection: apsw.Connection, sql: str, bindings: Any = None) -> list[Any]:
    """Run one statement to its end and give its rows; an unfinished cursor would keep it, and its lock, open."""
    return connection.execute(sql, bindings).fetchall()


@contextlib.contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """Hold a write transaction: committed at the end, rolled back when anything is raised.

    The only place that begins one. `with connection:` is not used: APSW waits there with the interpreter lock held.
    """
    try:
        # Inside, since Ctrl-C may come right after the lock was taken.
        run(connection, "BEGIN IMMEDIATE")
        yield
        end_transaction(connection, commit=True)
    except BaseException:
        end_transaction(connection, commit=False)
        raise


def end_transaction(connection: apsw.Connection, *, commit: bool) -> None:
    """Commit or roll back; when the commit fails, roll back and raise why."""
    try:
        if commit:
            run(connection, "COMMIT")
    finally:
        # After a full disk or an I/O error SQLite has rolled back already, and ROLLBACK would hide the cause.
        if connection.in_transaction:
            run(connection, "ROLLBACK")


def is_barred(connection: apsw.Connection) -> bool:
    """Tell whether a user's connection may not write: opened read-only, or `query_only`."""
    return bool(connection.readonly("main") or run(connection, "PRAGMA query_only")[0][0])


def journal_mode(connection: apsw.Connection) -> str:
    """Give the journal mode of the main database, in lower case."""
    return str(run(connection, "PRAGMA main.journal_mode")[0][0]).lower()


def require_wal(connection: apsw.Connection) -> None:
    """Raise UsageError unless the main database is in WAL mode."""
    mode = journal_mode(connection)
    if mode != "wal":
        raise UsageError(f"the queue needs journal mode WAL and the database is in mode {mode}; run SELECT ml_init()")


def require_shared(connection: apsw.Connection) -> None:
    """Raise UsageError when a connection locks its database exclusively."""
    if run(connection, "PRAGMA main.locking_mode")[0][0] != "normal":
        raise UsageError(
            "this connection locks the database exclusively and keeps workers out; run PRAGMA locking_mode = NORMAL"
        )


def main_file(connection: apsw.Connection) -> str:
    """Give the path of a connection's main database; raise UsageError when it has no file."""
    path = connection.db_filename("main")
    if not path:
        raise UsageError(
            "the queue needs a database in a file, because workers open it a second time; "
            "this connection is in memory or temporary; use mldb.open(':memory:') or a path"
        )
    return path


def _open(path: str, flags: int, vfs: str | None, factory: type[Factory]) -> Factory:
    # Opening may meet another process that recovers the WAL or deletes it as the last to close: that passes.
    for attempt in range(_OPEN_ATTEMPTS):
        try:
            return _try_open(path, flags, vfs, factory)
        except apsw.CantOpenError as error:
            if attempt + 1 < _OPEN_ATTEMPTS and Path(path).exists() and os.access(path, os.R_OK):
                time.sleep(0.02)
                continue
            raise MldbError(f"cannot open {path}; check that it exists and that you may read and write it") from error
        except apsw.NotADBError as error:
            raise MldbError(f"{path} is not a SQLite database; give another file") from error
    raise AssertionError("unreachable")


def _try_open(path: str, flags: int, vfs: str | None, factory: type[Factory]) -> Factory:
    connection = factory(path, flags=flags, vfs=vfs)
    try:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        run(connection, "SELECT count(*) FROM main.sqlite_schema")
    except BaseException:
        with contextlib.suppress(apsw.Error):  # the first error is the one to tell
            connection.close()
        raise
    return connection


@contextlib.contextmanager
def plain_errors(path: str) -> Iterator[None]:
    """Turn what SQLite says of locks and read-only files into errors that say what to do."""
    try:
        yield
    except (apsw.ReadOnlyError, apsw.BusyError, apsw.FullError) as error:
        raise plain_error(error, path) from error


def plain_error(error: apsw.Error, path: str) -> Exception:
    """Give the error that says what to do, or the same one when it says so itself."""
    if isinstance(error, apsw.ReadOnlyError):
        return ReadOnly(f"{path} cannot be written here; open it for writing, or check the rights of the file")
    if isinstance(error, apsw.FullError):
        return MldbError("the disk is full, nothing was written; free some space and try again")
    if not isinstance(error, apsw.BusyError):
        return error
    if getattr(error, "extendedresult", None) == apsw.SQLITE_BUSY_SNAPSHOT:
        return Busy(
            "another connection committed since this transaction began to read; "
            "ROLLBACK, and begin it again with BEGIN IMMEDIATE"
        )
    return Busy("another connection holds the write lock of the database; let it COMMIT, then try again")

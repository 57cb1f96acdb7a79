"""Opens connections the way this project wants them: one place, one function per setting, each with its reason."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import apsw

from mldb.errors import MldbError, UsageError

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
    run(connection, "BEGIN IMMEDIATE")
    try:
        yield
        run(connection, "COMMIT")
    except BaseException:
        # After a full disk or an I/O error SQLite has rolled back already, and ROLLBACK would hide the cause.
        if connection.in_transaction:
            run(connection, "ROLLBACK")
        raise


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
            connection = factory(path, flags=flags, vfs=vfs)
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            run(connection, "SELECT count(*) FROM main.sqlite_schema")
        except apsw.CantOpenError as error:
            if attempt + 1 < _OPEN_ATTEMPTS and Path(path).exists() and os.access(path, os.R_OK):
                time.sleep(0.02)
                continue
            raise MldbError(f"cannot open {path}; check that it exists and that you may read and write it") from error
        except apsw.NotADBError as error:
            raise MldbError(f"{path} is not a SQLite database; give another file") from error
        else:
            return connection
    raise AssertionError("unreachable")

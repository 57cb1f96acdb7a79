"""The SQL functions of the queue on a user's connection: arguments in, a value or an error out.

Where a call writes: inside the user's transaction, or under a statement that already writes, on the user's own
connection, so that the job comes and goes with their commit. In autocommit through our own connection, because a
running SELECT holds a snapshot, and SQLite refuses to write from it as soon as a worker has committed.
"""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

import apsw

from mldb import migrate
from mldb.connection import is_barred, main_file, plain_errors, require_shared
from mldb.errors import ReadOnly, UsageError
from mldb.identity import now_ms
from mldb.job import LARGEST_ID
from mldb.predict import Predictions
from mldb.queries import check_queries
from mldb.shared import SharedFile, shared_file
from mldb.store import about, jobs
from mldb.waiting import wait_for

PRUNE_LOCK_S: Final = 0.05
_FIRST_PRUNE: Final = 200


class Surface:
    """The functions `ml_*` on one connection. `file` is what this process shares for its database."""

    def __init__(self, connection: apsw.Connection, *, synchronous: str = "FULL") -> None:
        # Weak: the connection holds our functions, and must be free to go when its user lets it.
        self._weak = weakref.ref(connection)
        self._synchronous = synchronous
        self._file: SharedFile | None = None
        self._ready = False
        self._predictions = Predictions()

    def install(self) -> None:
        """Register the functions; each is DIRECTONLY, so that views and triggers of a foreign file cannot call it."""
        functions: list[tuple[str, Callable[..., Any], tuple[int, ...]]] = [
            ("ml_init", self.init, (0,)),
            ("ml_submit", self.submit, (3, 4)),
            ("ml_cancel", self.cancel, (1,)),
            ("ml_wait", self.wait, (1, 2)),
            ("ml_retry", self.retry, (1,)),
            ("ml_prune", self.prune, (1,)),
            ("ml_predict", self.predict, (2,)),
            ("ml_version", self.version, (0,)),
        ]
        for name, function, counts in functions:
            for count in counts:
                self._connection.create_scalar_function(name, function, count, flags=apsw.SQLITE_DIRECTONLY)

    @property
    def _connection(self) -> apsw.Connection:
        connection = self._weak()
        assert connection is not None
        return connection

    @property
    def file(self) -> SharedFile:
        """What this process shares for the file of the connection."""
        if self._file is None:
            self._file = shared_file(
                main_file(self._connection), vfs=self._connection.open_vfs, synchronous=self._synchronous
            )
        return self._file

    def init(self) -> int:
        """Create or migrate the schema and switch to WAL; 1 when that did something."""
        done = migrate.prepare(self._connection)
        self._ready = True
        return int(bool(done))

    def submit(self, kind: object, target: object, spec: object, options: object = None) -> int:
        """Add a job; see the README for the options. Gives its id."""
        self.require_writable()
        self.check_queries(kind, spec)
        if options is None:
            with self._writing() as connection:
                job = jobs.submit(connection, kind, target, spec, None, now_ms())
        else:
            with self._changing() as connection:
                job = jobs.submit(connection, kind, target, spec, options, now_ms())
        self.file.wake()
        return job

    def cancel(self, job: object) -> int:
        """Cancel a job: 1 when it was not over, 0 when it was or is unknown."""
        number = job_id("ml_cancel", job)
        self.require_writable()
        with self._writing() as connection:
            done = jobs.cancel(connection, number, now_ms())
        if done and not self._inside():
            self.file.cancelled(number)
        return int(done)

    def retry(self, job: object) -> int | None:
        """Add a job like a terminal one; NULL for an unknown one."""
        number = job_id("ml_retry", job)
        self.require_writable()
        with self._changing() as connection:
            new = jobs.retry(connection, number, now_ms())
        self.file.wake()
        return new

    def wait(self, job: object, seconds: object = None) -> str:
        """Give the status of a job once it is over, or at the deadline."""
        number = job_id("ml_wait", job)
        limit = None if seconds is None else seconds_of("ml_wait", seconds)
        self.require_writable()
        if self._inside():
            raise UsageError(
                "ml_wait cannot be used inside a transaction: workers could not write what they did; COMMIT first"
            )
        status = wait_for(self.file, number, limit, self._is_interrupted)
        if self._is_interrupted():
            raise apsw.InterruptError("ml_wait was interrupted")
        return status

    def prune(self, seconds: object) -> int:
        """Remove terminal jobs that finished at least *seconds* ago; give how many."""
        before = now_ms() - round(seconds_of("ml_prune", seconds) * 1000)
        self.require_writable()
        if self._inside():
            with self._writing() as connection:
                return jobs.delete(connection, jobs.old(connection, before, 0, 2**31))
        return prune(self.file, before)

    def predict(self, model: object, row: object) -> Any:
        """Give a model's answer for a row, the text of a JSON object."""
        self.require_ready()
        return self._predictions.predict(self._connection, model, row)

    def version(self) -> str:
        """Give which versions are at work, how the database commits, and known faults, as a JSON object."""
        return about.report(self._connection)

    def check_queries(self, kind: object, spec: object) -> None:
        """Raise QueryRefused when a query in the spec of a new job cannot run."""
        check_queries(self.file, kind, spec, inside=self._connection.in_transaction)

    def require_ready(self) -> None:
        """Raise what to do first, unless the database has our schema and is in WAL mode."""
        self.file.require_same_process()
        if not self._ready:
            with plain_errors(self.file.path):
                migrate.check(self._connection)
            self._ready = True

    def require_writable(self) -> None:
        """As require_ready; raises ReadOnly as well where the user's own connection may not write."""
        self.require_ready()
        connection = self._connection
        require_shared(connection)
        if is_barred(connection):
            raise ReadOnly(
                "this connection is read-only, so it cannot change jobs or wait for them; open it for writing"
            )

    def _inside(self) -> bool:
        connection = self._connection
        return connection.in_transaction or connection.txn_state("main") == apsw.SQLITE_TXN_WRITE

    @contextlib.contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        """Give the connection to write on, for one statement."""
        if not self._inside():
            with self.file.writing() as connection:
                yield connection
            return
        connection = self._connection
        before = connection.last_insert_rowid()
        try:
            with plain_errors(self.file.path):
                yield connection
        finally:
            # last_insert_rowid() is the user's: it tells what their own INSERT made.
            connection.set_last_insert_rowid(before)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[apsw.Connection]:
        """As _writing, for several statements that hold together."""
        if self._inside():
            with self._writing() as connection:
                yield connection
        else:
            with self.file.transaction() as connection:
                yield connection

    def _is_interrupted(self) -> bool:
        return bool(self._connection.is_interrupted)


def prune(file: SharedFile, before: int) -> int:
    """Remove terminal jobs that finished at or before a time, in batches that hold the write lock for a moment."""
    removed, after, count = 0, 0, _FIRST_PRUNE
    while True:
        with file.reading() as connection:
            found = jobs.old(connection, before, after, count)
        if not found:
            return removed
        began = time.monotonic()
        with file.transaction() as connection:
            removed += jobs.delete(connection, found)
        took = max(time.monotonic() - began, 1e-6)
        after = found[-1]
        count = max(1, min(int(count * PRUNE_LOCK_S / 2 / took), count * 2, 10_000))


def job_id(function: str, value: object) -> int:
    """Give an argument as a job's id; raise UsageError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{function}: the id of a job is a whole number, not {shown(value)}")
    return value if -LARGEST_ID <= value <= LARGEST_ID else 0  # what SQLite cannot hold is no job's id either


def seconds_of(function: str, value: object) -> float:
    """Give an argument as seconds from 0; raise UsageError."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or not 0 <= value <= 1e10
    ):
        raise UsageError(f"{function}: seconds must be a number from 0, not {shown(value)}")
    return float(value)


def shown(value: object) -> str:
    """Give a value as SQL would write it, shortened."""
    return (
        apsw.format_sql_value(value)[:60]
        if isinstance(value, (str, int, float, bytes, type(None)))
        else repr(value)[:60]
    )

"""The queue of one database, for Python."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import apsw

from mldb.connection import plain_errors
from mldb.errors import QueueClosed, ReadOnly, UsageError
from mldb.identity import now_ms
from mldb.job import STATUSES, Job
from mldb.outcome import as_json
from mldb.pool import Pool
from mldb.queries import check_queries
from mldb.shared import SharedFile
from mldb.store import jobs
from mldb.surface import job_id, prune, seconds_of
from mldb.waiting import wait_for

_CHUNK = 1000


class Queue:
    """A database with its queue, and the threads of this process that run its jobs. Made by `open` and `attach`.

    Its methods may be called from any thread, and never use `connection`: that one belongs to the thread that works
    with it. To enqueue in a transaction of your own, use SQL on it, or `submit(..., connection=...)`.
    As a context manager: drains at the end of the block, and puts running jobs back when the block raised.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        file: SharedFile,
        pool: Pool | None,
        *,
        user_thread: Callable[[], int],
        close: Callable[[], None],
        barred: bool,
    ) -> None:
        file.join()
        self._connection = connection
        self._barred = barred
        self._file = file
        self._pool = pool
        self._user_thread = user_thread
        self._close = close
        self._closed = False

    @property
    def connection(self) -> apsw.Connection:
        """The connection with the SQL functions and ML_JOBS."""
        self._file.require_same_process()
        return self._connection

    @property
    def path(self) -> str:
        """The file of the database."""
        return self._file.path

    @property
    def workers(self) -> int:
        """How many threads of this process run jobs."""
        return 0 if self._pool is None else self._pool.threads

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of job that this process runs."""
        return () if self._pool is None else self._pool.kinds

    def submit(
        self,
        kind: str,
        target: str,
        spec: Mapping[str, Any] | str | None = None,
        *,
        connection: apsw.Connection | None = None,
        **options: Any,
    ) -> int:
        """Add a job and give its id. The options are those of ml_submit.

        With `connection` (one that `attach` or `open` made ready) the job is part of its transaction. Without it the
        job is committed when this returns. Raises UsageError for what cannot be right, and QueryRefused.
        """
        text = spec if spec is None or isinstance(spec, str) else _json("spec", spec)
        given = _json("options", options) if options else None
        if connection is not None:
            self._file.require_same_process()
            with plain_errors(self.path):
                try:
                    return int(connection.execute("SELECT ml_submit(?, ?, ?, ?)", (kind, target, text, given)).get)
                except apsw.SQLError as error:
                    if "no such function" not in str(error):
                        raise
                    raise UsageError(
                        "the connection has no ml_submit; use mldb.attach() or mldb.equip() first"
                    ) from error
        self._require_free_lock("submit")
        check_queries(self._file, kind, text, inside=False)
        with self._file.transaction() if given else self._file.writing() as ours:
            job = jobs.submit(ours, kind, target, text, given, now_ms())
        self._file.wake()
        return job

    def get(self, job: int) -> Job | None:
        """Give a job, or None when there is none of this id."""
        with self._file.reading() as connection:
            return jobs.get(connection, job_id("get", job))

    def list(self, status: str | None = None, kind: str | None = None) -> list[Job]:
        """Give the jobs, of a status and a kind if given, oldest first. For very many use ML_JOBS, which streams."""
        if status is not None and status not in STATUSES:
            raise UsageError(f"there is no status {status!r}; the statuses are {', '.join(STATUSES)}")
        found: list[Job] = []
        first: int | None = 0
        with self._file.reading() as connection:
            while first is not None:
                statuses = None if status is None else (status,)
                rows, first = jobs.rows(connection, first=first, statuses=statuses, kind=kind, count=_CHUNK)
                found += [Job(*row) for row in rows]
        return found

    def cancel(self, job: int) -> bool:
        """Cancel a job; False when it was over or is unknown."""
        number = job_id("cancel", job)
        self._require_free_lock("cancel")
        with self._file.writing() as connection:
            done = jobs.cancel(connection, number, now_ms())
        if done:
            self._file.cancelled(number)
        return done

    def wait(self, job: int, timeout: float | None = None) -> Job:
        """Give a job once it is over, or as it is after *timeout* seconds. Raises UsageError for an unknown one."""
        number = job_id("wait", job)
        self._require_free_lock("wait")
        wait_for(self._file, number, None if timeout is None else seconds_of("wait", timeout))
        found = self.get(number)
        if found is None:
            raise UsageError(f"job {number} was removed meanwhile")
        return found

    def retry(self, job: int) -> int | None:
        """Add a job like a terminal one and give its id; None for an unknown one. Raises UsageError for a live one."""
        number = job_id("retry", job)
        self._require_free_lock("retry")
        with self._file.transaction() as connection:
            new = jobs.retry(connection, number, now_ms())
        self._file.wake()
        return new

    def prune(self, seconds: float) -> int:
        """Remove terminal jobs that finished at least *seconds* ago; give how many."""
        before = now_ms() - round(seconds_of("prune", seconds) * 1000)
        self._require_free_lock("prune")
        return prune(self._file, before)

    def idle_seconds(self) -> float:
        """Give for how long this process has had no job in hand; raises QueueClosed when it runs none."""
        if self._pool is None:
            raise QueueClosed("this process runs no jobs of this queue; open it with workers=1 or more")
        return self._pool.idle_seconds()

    def shutdown(self, drain: bool = True, timeout: float | None = None) -> None:
        """Stop running jobs in this process; may be called more than once, from any thread, also from a handler.

        With `drain`, what can be run here and is queued now is run first, for at most *timeout* seconds (None: no
        limit). Without, bodies that run get *timeout* seconds (None: none). Then what still runs is put back in the
        queue, without loss of an attempt. From a handler it returns at once, and goes on behind it.
        A submit afterwards is accepted and stays queued.
        """
        limit = None if timeout is None else seconds_of("shutdown", timeout)
        self._file.require_same_process()
        self._file.clear_up_after(threading.get_ident())
        if self._pool is not None:
            self._require_free_lock("shutdown", writes=False)
            stopped = self._pool.stop(drain=drain, timeout=limit)
            if not stopped:
                return
        if not self._closed:
            self._file.leave()
            self._closed = True
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        unfinished = threading.get_ident() == self._user_thread() and self._is_writing()
        if unfinished:
            self._connection.execute("ROLLBACK")
        self.shutdown(drain=kind is None)
        if unfinished and kind is None:
            raise UsageError("the block ended inside a transaction, which was rolled back; COMMIT at its end")

    def _is_writing(self) -> bool:
        try:
            return self._connection.txn_state("main") == apsw.SQLITE_TXN_WRITE
        except (apsw.ConnectionClosedError, apsw.ThreadingViolationError):
            return False

    def _require_free_lock(self, what: str, *, writes: bool = True) -> None:
        """Refuse to write where the user may not, and to wait for a write lock that this very thread holds."""
        self._file.require_same_process()
        if self._barred and writes:
            raise ReadOnly("the connection of this queue is read-only, so it cannot change jobs; open it for writing")
        if threading.get_ident() != self._user_thread():
            return
        if self._is_writing():
            raise UsageError(
                f"this thread has a write transaction open on queue.connection, so {what}() would wait for itself; "
                "use SQL on that connection (or submit(..., connection=queue.connection)), or COMMIT first"
            )


def _json(what: str, value: object) -> str:
    if not isinstance(value, Mapping):
        raise UsageError(f"{what} is a dict or the text of a JSON object, not a {type(value).__name__}")
    return as_json(dict(value), what)

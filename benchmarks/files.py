"""Database files for measuring: made new, filled by plain SQL, looked over afterwards, and removed."""

from __future__ import annotations

import contextlib
import gc
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw

import mldb
from mldb import connection as connections
from mldb import migrate
from mldb.connection import run, transaction
from mldb.registry import Function
from mldb.shared import shared_file

MANY_NAMES = """
INSERT INTO t (name)
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
SELECT 'name ' || i FROM n
"""
MANY_JOBS = """
INSERT INTO ml_job (kind, target_name, spec_json, created_at_ms)
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
SELECT 'noop', 'name ' || i, '{}', 1700000000000 + i FROM n
"""
ONCE = "SELECT count(*), coalesce(sum(status = 'completed' AND attempt = 1 AND crashes = 0), 0) FROM ml_job"
LEVELS = {"NORMAL": 1, "FULL": 2}


@contextlib.contextmanager
def new_database(folder: Path, *, jobs: int = 0, names: int = 0) -> Iterator[str]:
    """Give the path of a new database with a queue: so many queued no-op jobs, and a table t of so many names.

    A connection stays open on it until the end, so that nobody else is the last to close: that one would copy the
    whole WAL into the database within a measurement.
    """
    gc.collect()  # what the measurement before left is not to be collected within this one
    with tempfile.TemporaryDirectory(dir=folder, prefix="mldb-bench-") as place:
        path = str(Path(place) / "bench.db")
        with contextlib.closing(connections.create(path, apsw.Connection)) as keeper:
            migrate.prepare(keeper)
            with transaction(keeper):
                run(keeper, "CREATE TABLE t (name TEXT)")
                if names:
                    run(keeper, MANY_NAMES, {"count": names})
                if jobs:
                    run(keeper, MANY_JOBS, {"count": jobs})
            run(keeper, "PRAGMA wal_checkpoint(TRUNCATE)")
            yield path


@contextlib.contextmanager
def plain(path: str, synchronous: str) -> Iterator[apsw.Connection]:
    """Give a bare connection with the settings of the queue's own: WAL, page cache, checkpoints, synchronous."""
    with contextlib.closing(connections.open_writer(path, synchronous=synchronous)) as connection:
        yield connection


def opened(path: str, synchronous: str, *, workers: int = 0, handlers: dict[str, Function] | None = None) -> mldb.Queue:
    """Open the queue of a file; the caller shuts it down."""
    queue = mldb.open(path, workers=workers, handlers=handlers, synchronous=synchronous)
    # The first queue on a file decides: a measurement at another level would compare apples with pears.
    level = run(queue.connection, "PRAGMA synchronous")[0][0]
    if shared_file(path, synchronous=synchronous).synchronous != synchronous or level != LEVELS[synchronous]:
        raise AssertionError(f"the queue does not write at synchronous = {synchronous}")
    return queue


def require_queued(path: str, jobs: int) -> None:
    """Raise AssertionError unless the file has so many jobs, all queued."""
    with plain(path, "NORMAL") as connection:
        found = run(connection, "SELECT count(*), sum(status = 'queued') FROM ml_job")[0]
    if found != (jobs, jobs):
        raise AssertionError(f"{jobs} jobs were submitted; in the file are {found[0]}, {found[1]} of them queued")


def require_done_once(path: str, jobs: int, ran: Sequence[int] | None = None) -> None:
    """Raise AssertionError unless all jobs of the file, so many, are completed and *ran* names each once."""
    with plain(path, "NORMAL") as connection:
        found = run(connection, ONCE)[0]
        ids = [row[0] for row in run(connection, "SELECT id FROM ml_job ORDER BY id")]
    if found != (jobs, jobs):
        raise AssertionError(f"of {jobs} jobs {found[0]} are in the file and {found[1]} completed at the first attempt")
    if ran is not None and sorted(ran) != ids:
        raise AssertionError(f"{jobs} jobs were run {len(ran)} times, {len(set(ran))} of them at least once")

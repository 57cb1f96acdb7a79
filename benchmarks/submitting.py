"""How many jobs a second can be submitted, one by one and many at once, beside plain INSERTs of the same rows.

The plain INSERTs go into the queue's own table, with its checks, triggers and indexes, on a connection with the
queue's settings. Each function gives jobs per second; no pool runs meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from files import new_database, opened, plain, require_queued

from mldb.connection import run, transaction
from mldb.identity import now_ms

BARE = "INSERT INTO ml_job (kind, target_name, spec_json, created_at_ms) VALUES (?, ?, ?, ?)"
BARE_MANY = "INSERT INTO ml_job (kind, target_name, spec_json, created_at_ms) SELECT 'noop', name, '{}', ? FROM t"


def bare_one_by_one(folder: Path, jobs: int, synchronous: str) -> float:
    with new_database(folder) as path:
        with plain(path, synchronous) as connection:
            execute = connection.execute
            rate = _each(jobs, lambda: execute(BARE, ("noop", "name", "{}", now_ms())))
        require_queued(path, jobs)
    return rate


def queue_submit(folder: Path, jobs: int, synchronous: str) -> float:
    with new_database(folder) as path:
        with opened(path, synchronous) as queue:
            submit = queue.submit
            rate = _each(jobs, lambda: submit("noop", "name", "{}"))
        require_queued(path, jobs)
    return rate


def select_ml_submit(folder: Path, jobs: int, synchronous: str) -> float:
    with new_database(folder) as path:
        with opened(path, synchronous) as queue:
            execute = queue.connection.execute
            rate = _each(jobs, lambda: execute("SELECT ml_submit(?, ?, ?)", ("noop", "name", "{}")).get)
        require_queued(path, jobs)
    return rate


def bare_insert_select(folder: Path, jobs: int, synchronous: str) -> float:
    with new_database(folder, names=jobs) as path:
        with plain(path, synchronous) as connection:
            begin = time.perf_counter()
            run(connection, BARE_MANY, (now_ms(),))
            seconds = time.perf_counter() - begin
        require_queued(path, jobs)
    return jobs / seconds


def insert_into_ml_jobs(folder: Path, jobs: int, synchronous: str) -> float:
    sql = "INSERT INTO ML_JOBS (kind, target_name, spec_json) SELECT 'noop', name, '{}' FROM t"
    return _in_one_statement(folder, jobs, synchronous, sql)


def ml_submit_in_transaction(folder: Path, jobs: int, synchronous: str) -> float:
    return _in_one_statement(folder, jobs, synchronous, "SELECT ml_submit('noop', name, '{}') FROM t")


def _in_one_statement(folder: Path, jobs: int, synchronous: str, sql: str) -> float:
    with new_database(folder, names=jobs) as path:
        with opened(path, synchronous) as queue:
            begin = time.perf_counter()
            with transaction(queue.connection):
                run(queue.connection, sql)
            seconds = time.perf_counter() - begin
        require_queued(path, jobs)
    return jobs / seconds


def _each(jobs: int, action: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    for _ in range(jobs):
        action()
    return jobs / (time.perf_counter() - begin)

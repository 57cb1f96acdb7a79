"""How many no-op jobs a second go through the queue, beside the queue's SQL alone; and submits while workers drain."""

from __future__ import annotations

import json
import statistics
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from files import new_database, opened, plain, require_done_once

from mldb.connection import run, transaction
from mldb.handlers.noop import noop
from mldb.identity import now_ms
from mldb.job import LARGEST_ID
from mldb.queue import Queue
from mldb.registry import Function
from mldb.statements import statements
from mldb.task import Task

THREADS = 4
SUBMITTERS = 16
_BATCH = 500
_OWNER = "bench"


@dataclass(frozen=True, slots=True)
class Crowd:
    """How submitting while workers drain went. Times are seconds; waits are those of single submits.

    `wal_bytes` is the size of the WAL at the last submit: it begins anew only when nobody reads an older state.
    """

    submitting: float
    until_done: float
    longest_wait: float
    median_wait: float
    wal_bytes: int


def bare_claim_and_complete(folder: Path, jobs: int, synchronous: str) -> float:
    """Claim and complete batches of 500 in one thread by the queue's statements, with nothing around them."""
    pool = statements("pool")
    limits = {"kind": "noop", "count": _BATCH, "last": LARGEST_ID}
    with new_database(folder, jobs=jobs) as path:
        begin = time.perf_counter()
        with plain(path, synchronous) as connection:
            held: list[tuple[int, int, str]] = []
            while True:
                with transaction(connection):
                    if held:
                        endings = {"endings": json.dumps(held), "owner": _OWNER, "now": now_ms()}
                        run(connection, pool["complete_jobs"], endings)
                    ids = [row[0] for row in run(connection, pool["waiting_jobs"], limits)]
                    claim = {"ids": json.dumps(ids), "owner": _OWNER, "now": now_ms()}
                    held = [(row[0], row[5], "{}") for row in run(connection, pool["claim_jobs"], claim)]
                if not held:
                    break
            seconds = time.perf_counter() - begin
        require_done_once(path, jobs)
    return jobs / seconds


def drain(folder: Path, jobs: int, synchronous: str) -> float:
    """Open a queue with four threads on a file of queued jobs, and shut it down: it drains."""
    ran: list[int] = []
    with new_database(folder, jobs=jobs) as path:
        begin = time.perf_counter()
        opened(path, synchronous, workers=THREADS, handlers={"noop": _counted(ran)}).shutdown()
        seconds = time.perf_counter() - begin
        require_done_once(path, jobs, ran)
    return jobs / seconds


def select_while_draining(folder: Path, jobs: int, synchronous: str) -> Crowd:
    """Submit a job per row of a table in one SELECT outside a transaction, while four workers commit."""
    ran: list[int] = []
    with new_database(folder, names=jobs) as path:
        queue = opened(path, synchronous, workers=THREADS, handlers={"noop": _counted(ran)})
        begin = last = time.perf_counter()
        waits: list[float] = []
        wal = 0
        for _ in queue.connection.execute("SELECT ml_submit('noop', name, '{}') FROM t"):
            now = time.perf_counter()
            waits.append(now - last)
            last = now
            if len(waits) == jobs:
                wal = _size_of_wal(path)  # before the SELECT ends: the next commit cuts it back
        queue.shutdown()
        done = time.perf_counter()
        require_done_once(path, jobs, ran)
    return _crowd(begin, last, done, waits, wal)


def threads_while_draining(folder: Path, jobs: int, synchronous: str) -> Crowd:
    """Submit from sixteen threads of one process, while four workers of it commit."""
    ran: list[int] = []
    waits: list[float] = []
    errors: list[BaseException] = []
    with new_database(folder) as path:
        queue = opened(path, synchronous, workers=THREADS, handlers={"noop": _counted(ran)})
        gate = threading.Barrier(SUBMITTERS + 1)
        each = jobs // SUBMITTERS
        threads = [threading.Thread(target=_submit, args=(queue, each, gate, waits, errors)) for _ in range(SUBMITTERS)]
        for thread in threads:
            thread.start()
        gate.wait()
        begin = time.perf_counter()
        for thread in threads:
            thread.join()
        last = time.perf_counter()
        wal = _size_of_wal(path)
        queue.shutdown()
        done = time.perf_counter()
        if errors:
            raise errors[0]
        require_done_once(path, each * SUBMITTERS, ran)
    return _crowd(begin, last, done, waits, wal)


def _submit(queue: Queue, jobs: int, gate: threading.Barrier, waits: list[float], errors: list[BaseException]) -> None:
    mine = []
    gate.wait()
    try:
        for _ in range(jobs):
            begin = time.perf_counter()
            queue.submit("noop", "name", "{}")
            mine.append(time.perf_counter() - begin)
    except BaseException as error:  # noqa: BLE001 - told by the main thread
        errors.append(error)
    waits.extend(mine)


def _counted(ran: list[int]) -> Function:
    """Give the no-op handler, which also notes the ids of the jobs that it ran."""

    def handle(task: Task) -> dict[str, object]:
        ran.append(task.id)
        return noop(task)

    return handle


def _size_of_wal(path: str) -> int:
    return Path(f"{path}-wal").stat().st_size


def _crowd(begin: float, last: float, done: float, waits: list[float], wal_bytes: int) -> Crowd:
    return Crowd(last - begin, done - begin, max(waits), statistics.median(waits), wal_bytes)

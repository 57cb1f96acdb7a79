"""Whether what a user and a worker do costs the same with a thousand jobs in the file and with a million.

Half of the jobs are completed, half wait. Each action is timed in turns on the small file and on the large one.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
from files import new_database, opened, plain

from mldb.connection import run, transaction
from mldb.identity import now_ms
from mldb.queue import Queue
from mldb.store import work

SMALL = 1000
TIMES = 200
_BEGIN = "UPDATE ml_job SET status = 'running', owner = 'bench', started_at_ms = 1, attempt = 1 WHERE id <= ?"
_COMPLETE = """
UPDATE ml_job
   SET status = 'completed', progress = 100, finished_at_ms = 2, stopped_at_ms = 2, metrics_json = '{}'
 WHERE id <= ?
"""


@dataclass(slots=True)
class Grown:
    """A file with so many jobs; `claims` are those that were claimed while measuring, `doomed` are to be cancelled."""

    queue: Queue
    writer: apsw.Connection
    jobs: int
    dice: random.Random
    doomed: list[int]
    claims: list[work.Claim] = field(default_factory=list)


def microseconds(folder: Path, large: int, synchronous: str) -> dict[str, tuple[list[float], list[float]]]:
    """Give the microseconds of each action, all times, with 1,000 jobs in the file and with *large* ones."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    with _grown(folder, SMALL, synchronous) as small, _grown(folder, large, synchronous) as big:
        for name, action in ACTIONS.items():
            times: tuple[list[float], list[float]] = ([], [])
            for turn in range(TIMES):
                for place in (0, 1) if turn % 2 else (1, 0):
                    times[place].append(_timed(action, (small, big)[place]))
            found[name] = times
    return found


def one_job(grown: Grown) -> None:
    row = run(grown.queue.connection, "SELECT * FROM ML_JOBS WHERE id = ?", (grown.dice.randint(1, grown.jobs),))
    assert len(row) == 1


def ten_queued_jobs(grown: Grown) -> None:
    rows = run(grown.queue.connection, "SELECT * FROM ML_JOBS WHERE status = 'queued' LIMIT 10")
    assert len(rows) == 10


def submit(grown: Grown) -> None:
    assert grown.queue.submit("noop", "name", "{}") > grown.jobs


def cancel(grown: Grown) -> None:
    assert grown.queue.cancel(grown.doomed.pop())


def claim(grown: Grown) -> None:
    with transaction(grown.writer):
        taken = work.claim(grown.writer, ["noop"], "bench", free=1, ahead=0, tiny=frozenset(), last=None, now=now_ms())
    grown.claims += taken
    assert len(taken) == 1


def set_progress(grown: Grown) -> None:
    """The write behind it; the call itself touches no file."""
    held = grown.dice.choice(grown.claims)
    noted = {"id": held.id, "owner": "bench", "attempt": held.attempt, "progress": 50, "message": None}
    with transaction(grown.writer):
        assert work.write_each(grown.writer, "note_progress", [noted])


ACTIONS: dict[str, Callable[[Grown], None]] = {
    "SELECT * FROM ML_JOBS WHERE id = ?": one_job,
    "SELECT * FROM ML_JOBS WHERE status = 'queued' LIMIT 10": ten_queued_jobs,
    "queue.submit": submit,
    "queue.cancel of a queued job": cancel,
    "claim of one job": claim,
    "set_progress, the write behind it": set_progress,
}


@contextlib.contextmanager
def _grown(folder: Path, jobs: int, synchronous: str) -> Iterator[Grown]:
    with new_database(folder, jobs=jobs) as path, plain(path, synchronous) as writer:
        with transaction(writer):
            for sql in (_BEGIN, _COMPLETE):
                run(writer, sql, (jobs // 2,))
        run(writer, "PRAGMA wal_checkpoint(TRUNCATE)")
        dice = random.Random(1)
        doomed = dice.sample(range(jobs * 3 // 4, jobs), TIMES)
        with opened(path, synchronous) as queue:
            yield Grown(queue, writer, jobs, dice, doomed)


def _timed(action: Callable[[Grown], Any], grown: Grown) -> float:
    begin = time.perf_counter_ns()
    action(grown)
    return (time.perf_counter_ns() - begin) / 1000

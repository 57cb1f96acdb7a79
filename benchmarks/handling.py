"""What a handler pays for reporting, and how soon after its submit a job begins."""

from __future__ import annotations

import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from files import new_database, opened

from mldb.task import Task

THREADS = 4
_PAUSE_S = 0.002


def nanoseconds_per_call(folder: Path, calls: int, synchronous: str) -> dict[str, float]:
    """Give the cost of a call in a tight loop of a handler, in nanoseconds; the loop itself is part of it."""
    with (
        new_database(folder) as path,
        opened(path, synchronous, workers=THREADS, handlers={"loop": _loop}) as queue,
    ):
        job = queue.wait(queue.submit("loop", "", {"calls": calls}))
    if job.status != "completed":
        raise AssertionError(f"the loop did not end well: {job.error_message}")
    return job.metrics


def submit_to_start(folder: Path, jobs: int, synchronous: str) -> list[float]:
    """Give, for jobs submitted to an idle queue, the milliseconds from the call of submit to the handler's first line.

    The commit of the submit and that of the claim are part of it.
    """
    begun: SimpleQueue[int] = SimpleQueue()

    def note(_task: Task) -> None:
        begun.put(time.perf_counter_ns())

    found = []
    with new_database(folder) as path, opened(path, synchronous, workers=THREADS, handlers={"note": note}) as queue:
        for _ in range(jobs):
            begin = time.perf_counter_ns()
            job = queue.submit("note", "")
            found.append((begun.get() - begin) / 1e6)
            queue.wait(job)
            time.sleep(_PAUSE_S)  # the dispatcher comes to rest
    return found


def _loop(task: Task) -> dict[str, Any]:
    calls = range(task.spec["calls"])
    empty = _now()
    for _ in calls:
        pass
    progress = _now()
    for _ in calls:
        task.set_progress(50.0)
    cancelled = _now()
    for _ in calls:
        task.is_cancelled()
    end = _now()
    return {
        "the loop alone": (progress - empty) / len(calls),
        "task.set_progress": (cancelled - progress) / len(calls),
        "task.is_cancelled": (end - cancelled) / len(calls),
    }


_now = time.perf_counter_ns

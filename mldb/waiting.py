"""Waits until a job is over, wherever its worker runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from mldb.connection import open_reader
from mldb.errors import UsageError
from mldb.job import TERMINAL
from mldb.shared import SharedFile
from mldb.store import jobs
from mldb.watch import Watch

_LONGEST_S = 3600.0


def wait_for(file: SharedFile, job: int, seconds: float | None, interrupted: Callable[[], bool] | None = None) -> str:
    """Give the status of a job once it is over, or as it is after *seconds* (None: no limit).

    Wakes when somebody commits. *interrupted* is asked a few times a second and ends the wait when it says True.
    Raises UsageError for an unknown job, also one that is pruned meanwhile.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    with file.reading() as connection:
        status = _status(jobs.status(connection, job), job)
    if status in TERMINAL or (seconds is not None and seconds <= 0):
        return status
    with (
        contextlib.closing(open_reader(file.path, vfs=file.vfs)) as connection,
        contextlib.closing(Watch(connection)) as watch,
    ):
        while True:
            status = _status(jobs.status(connection, job), job)
            left = _LONGEST_S if deadline is None else deadline - time.monotonic()
            if status in TERMINAL or left <= 0 or (interrupted is not None and interrupted()):
                return status
            watch.wait(left, poll=interrupted)


def _status(found: tuple[str, bool] | None, job: int) -> str:
    if found is None:
        raise UsageError(f"there is no job {job}; SELECT id FROM ML_JOBS lists those there are")
    return found[0]

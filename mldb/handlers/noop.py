"""A job that does nothing, or waits: for trying out and for measuring the queue."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from mldb.errors import UsageError

if TYPE_CHECKING:
    from mldb.task import Task

STEP_SECONDS = 0.05


def noop(task: Task) -> dict[str, Any]:
    """Return at once, or after `sleep` seconds of the spec, with progress and cancellation meanwhile.

    Raises UsageError when `sleep` is no number of seconds from 0.
    """
    if not task.spec:
        return {}
    seconds = task.spec.get("sleep", 0)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise UsageError(f'"sleep" is a number of seconds, 0 or more; got {seconds!r}')
    begin = time.monotonic()
    while (left := begin + seconds - time.monotonic()) > 0:
        task.raise_if_cancelled()
        task.set_progress(100 * (1 - left / seconds), f"{left:.1f} s left")
        time.sleep(min(STEP_SECONDS, left))
    return {}

"""A job as its users see it: one row of ML_JOBS."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

STATUSES: Final = ("queued", "running", "completed", "failed", "cancelled")
TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
LARGEST_ID: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Job:
    """One row of ML_JOBS; the fields are its columns, in order. Unset is None.

    Times are milliseconds since 1970 (UTC). `progress` is 0 to 100. `stopped_at_ms` stays None
    while the body of a cancelled or timed-out job still runs.
    """

    id: int
    kind: str
    target_name: str
    status: str
    progress: int
    created_at_ms: int
    started_at_ms: int | None
    finished_at_ms: int | None
    error_message: str | None
    spec_json: str
    metrics_json: str | None
    priority: int
    run_at_ms: int | None
    attempt: int
    max_attempts: int
    owner: str | None
    stopped_at_ms: int | None
    duration_ms: int | None
    message: str | None
    tag: str | None
    retry_of: int | None

    @property
    def is_terminal(self) -> bool:
        """True once the job is completed, failed or cancelled."""
        return self.status in TERMINAL

    @property
    def metrics(self) -> dict[str, Any]:
        """The result of the handler; empty while there is none."""
        return json.loads(self.metrics_json) if self.metrics_json else {}

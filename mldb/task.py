"""What a handler gets: the job to do, and the ways to read, to report and to write.

Nothing here touches the queue. Reports are noted in memory and written in groups by the pool, so that a handler may
report in a tight loop; reads and writes go through the `Access` that the pool provides.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from mldb.errors import Cancelled, UsageError
from mldb.outcome import as_text

if TYPE_CHECKING:
    import numpy as np

    from mldb.outcome import StoredModel
    from mldb.rows import Rows

MOST_LINES: Final = 10_000
LONGEST_LINE: Final = 10_000
MOST_VALUES: Final = 100_000


class Access(Protocol):
    """How a task reaches the database."""

    def rows(self, task: Task, sql: str, params: Sequence[object] | Mapping[str, object]) -> Rows:
        """See Task.rows."""

    def tables(self, sql: str) -> tuple[str, ...]:
        """See Task.tables."""

    def model(self, reference: str) -> StoredModel:
        """See Task.model."""

    def write(
        self, task: Task, table: str, rows: Sequence[Mapping[str, object]], key: str | None, checkpoint: object
    ) -> None:
        """See Task.write."""

    def restore(self, job: int) -> Any:
        """See Task.restore."""


class Task:
    """One attempt at one job. `target` is the job's target_name, `attempt` counts from 1."""

    __slots__ = (
        "_access",
        "_cancelled",
        "_changed",
        "_lines",
        "_message",
        "_noted",
        "_progress",
        "_report",
        "_spec",
        "_spec_json",
        "_values",
        "attempt",
        "id",
        "kind",
        "target",
    )

    def __init__(
        self,
        job: int,
        kind: str,
        target: str,
        spec_json: str | None,
        attempt: int,
        access: Access,
        report: Callable[[Task], None],
    ) -> None:
        self.id = job
        self.kind = kind
        self.target = target
        self.attempt = attempt
        self._lines: Series | None = None
        self._values: Series | None = None
        self._spec_json = spec_json
        self._spec: dict[str, Any] | None = None
        self._access = access
        self._report = report
        self._cancelled = False
        self._changed = False
        self._noted = False
        self._progress = 0
        self._message: str | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """The spec of the job, a JSON object."""
        if self._spec is None:
            self._spec = json.loads(self._spec_json) if self._spec_json else {}
        return self._spec

    def set_progress(self, percent: float, message: str | None = None) -> None:
        """Say how far the job is, 0 to 100 (more and less are clamped), and perhaps in words what it does.

        Costs next to nothing: the pool writes the last one a few times a second. May go back.
        """
        if percent == percent:  # noqa: PLR0124 - not NaN, which says nothing about progress
            self._progress = 0 if percent <= 0 else 100 if percent >= 100 else int(percent)
        if message is not None:
            self._message = as_text(message)[:LONGEST_LINE]
        self._changed = True
        if not self._noted:
            self._noted = True
            self._report(self)

    def is_cancelled(self) -> bool:
        """Tell whether the job was cancelled, timed out or taken away: the body should return soon."""
        return self._cancelled

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled when is_cancelled() is true; let it pass, its result is dropped anyway."""
        if self._cancelled:
            raise Cancelled(f"job {self.id} was cancelled")

    def log(self, text: str) -> None:
        """Add a line to ML_JOB_LOG; readable while the job runs. At most 10,000 lines are kept per attempt."""
        if self._lines is None:
            self._lines = Series(MOST_LINES)
        if self._lines.add((time.time_ns() // 1_000_000, as_text(text)[:LONGEST_LINE])):
            self._note()

    def log_metric(self, name: str, value: float, step: int | None = None) -> None:
        """Add a value to ML_JOB_METRICS; readable while the job runs. At most 100,000 are kept per attempt."""
        if not isinstance(name, str) or not name or as_text(name) != name:
            raise UsageError("the name of a metric is a text, such as 'loss'")
        if step is not None and not -(2**63) <= step < 2**63:
            raise UsageError("the step of a metric is a whole number of at most 64 bits")
        if self._values is None:
            self._values = Series(MOST_VALUES)
        if self._values.add((time.time_ns() // 1_000_000, name, None if step is None else int(step), float(value))):
            self._note()

    def rows(self, sql: str, params: Sequence[object] | Mapping[str, object] = ()) -> Rows:
        """Run one SELECT and give its rows, copied out: the read has ended when this returns.

        The query runs in the sandbox: it reads the user's tables and calls SQLite's own functions, nothing else.
        Raises QueryRefused, or Cancelled when the job is cancelled meanwhile.
        """
        return self._access.rows(self, sql, params)

    def columns(self, sql: str, params: Sequence[object] | Mapping[str, object] = ()) -> dict[str, np.ndarray]:
        """Run one SELECT and give its columns as arrays; `mldb.rows.to_columns` states the dtypes. As rows() else."""
        from mldb.rows import to_columns

        with self.rows(sql, params) as rows:
            return to_columns(rows)

    def tables(self, sql: str) -> tuple[str, ...]:
        """Give the tables that a SELECT reads, sorted. Raises QueryRefused."""
        return self._access.tables(sql)

    def model(self, reference: str) -> StoredModel:
        """Give a model: "churn" is its active version, "churn@3" its third. Raises ModelError."""
        return self._access.model(reference)

    def write(
        self,
        table: str,
        rows: Sequence[Mapping[str, object]],
        key: str | None = None,
        checkpoint: object = None,
    ) -> None:
        """Write rows to a user's table, in one transaction with a checkpoint (any JSON value).

        All rows have the same columns; values are None, int, float, str or bytes. The table is made when it is
        missing, with `key` as its primary key; a row whose `key` is there already takes its place.
        Raises Cancelled or JobLost, writing nothing, when the job is not this task's any more.
        """
        self._access.write(self, table, rows, key, checkpoint)

    def restore(self) -> Any:
        """Give the last checkpoint that this job wrote, in this attempt or an earlier one; None when there is none."""
        return self._access.restore(self.id)

    def _note(self) -> None:
        if not self._noted:
            self._noted = True
            self._report(self)

    # For the pool.

    def stop(self) -> None:
        """Make is_cancelled() true."""
        self._cancelled = True

    def take_progress(self) -> tuple[int, str | None] | None:
        """Give progress and message when they changed since the last call. Comes before the other takes."""
        self._noted = False
        if not self._changed:
            return None
        self._changed = False
        return self._progress, self._message

    def take_lines(self) -> list[tuple[Any, ...]]:
        """Give the log lines that were not taken yet: time in ms, text."""
        return [] if self._lines is None else self._lines.take()

    def take_values(self) -> list[tuple[Any, ...]]:
        """Give the measured values that were not taken yet: time in ms, name, step, value."""
        return [] if self._values is None else self._values.take()


class Series:
    """Entries on their way from a handler's thread to the pool's: bounded in number."""

    __slots__ = ("_count", "_entries", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: deque[tuple[Any, ...]] = deque()
        self._count = 0

    def add(self, entry: tuple[Any, ...]) -> bool:
        """Keep an entry; False when there are too many."""
        if self._count >= self._most:
            return False
        self._count += 1
        self._entries.append(entry)
        return True

    def take(self) -> list[tuple[Any, ...]]:
        """Give the entries that were not taken yet."""
        # One by one: the handler may add meanwhile, and nothing may fall between two lists.
        return [self._entries.popleft() for _ in range(len(self._entries))]

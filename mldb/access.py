"""How the tasks of a pool reach the database: reads in the sandbox, fenced writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mldb import sandbox, user_table
from mldb.connection import open_reader
from mldb.errors import Cancelled, JobLost
from mldb.identity import now_ms
from mldb.outcome import as_json
from mldb.shared import SharedFile
from mldb.store import jobs, models, work

if TYPE_CHECKING:
    from mldb.outcome import StoredModel
    from mldb.rows import Rows
    from mldb.task import Task


class PoolAccess:
    """The `Access` that a pool gives its tasks; see `Task` for what each method does."""

    __slots__ = ("_file", "_owner")

    def __init__(self, file: SharedFile, owner: str) -> None:
        self._file = file
        self._owner = owner

    def rows(self, task: Task, sql: str, params: Sequence[object] | Mapping[str, object]) -> Rows:
        # A connection of its own: a long read must not keep one that others wait for.
        connection = open_reader(self._file.path, vfs=self._file.vfs)
        try:
            return sandbox.read(connection, sql, params, stopped=task.is_cancelled)
        finally:
            connection.close()

    def tables(self, sql: str) -> tuple[str, ...]:
        with self._file.reading() as connection:
            return sandbox.tables_read(connection, sql)

    def model(self, reference: str) -> StoredModel:
        with self._file.reading() as connection:
            name, version, _ = models.find(connection, reference)
            return models.load(connection, name, version)

    def write(
        self,
        task: Task,
        table: str,
        rows: Sequence[Mapping[str, object]],
        key: str | None,
        checkpoint: object,
    ) -> None:
        held = {"id": task.id, "owner": self._owner, "attempt": task.attempt}
        value = None if checkpoint is None else as_json(checkpoint, "a checkpoint")
        with self._file.transaction() as connection:
            if not work.write(connection, "still_held", held):
                found = jobs.status(connection, task.id)
                if found is not None and found[0] == "cancelled":
                    raise Cancelled(f"job {task.id} was cancelled; nothing was written")
                raise JobLost(f"job {task.id} is not this worker's any more; nothing was written")
            user_table.write(connection, table, rows, key)
            if value is not None:
                work.write(
                    connection,
                    "keep_checkpoint",
                    {"id": task.id, "attempt": task.attempt, "now": now_ms(), "value": value},
                )

    def restore(self, job: int) -> Any:
        with self._file.reading() as connection:
            return work.restore(connection, job)

"""`ML_JOBS`: the jobs as a table that can be read, inserted into, updated and deleted from.

It reads and writes on the user's own connection, so it shows what their transaction sees and comes and goes with it.
Rows are read in chunks, each a query of its own that has ended before the next row is given; the highest id is fixed
at the start, so a job that is added meanwhile does not appear, and each shows once.
"""

from __future__ import annotations

import json
import math
import weakref
from functools import cache
from typing import Any, Final

import apsw

from mldb import migrate
from mldb.connection import plain_error, plain_errors
from mldb.errors import UsageError
from mldb.identity import now_ms
from mldb.job import LARGEST_ID, STATUSES
from mldb.store import jobs
from mldb.surface import Surface, shown

_FIRST_CHUNK: Final = 64
_LARGEST_CHUNK: Final = 2048
# The columns that INSERT may set, with the option of ml_submit that each is.
_SUBMITTED: Final = {
    "kind": None,
    "target_name": None,
    "spec_json": None,
    "priority": "priority",
    "run_at_ms": "run_at",
    "max_attempts": "max_attempts",
    "tag": "tag",
}
_ID, _KIND, _TARGET, _STATUS, _SPEC = 0, 1, 2, 3, 9
_EQ, _GT, _GE, _LT, _LE = (
    apsw.SQLITE_INDEX_CONSTRAINT_EQ,
    apsw.SQLITE_INDEX_CONSTRAINT_GT,
    apsw.SQLITE_INDEX_CONSTRAINT_GE,
    apsw.SQLITE_INDEX_CONSTRAINT_LT,
    apsw.SQLITE_INDEX_CONSTRAINT_LE,
)
# What can be pushed down: (column, operator) and the word for it in the plan.
_PUSHED: Final = {
    (_ID, _EQ): "id",
    (_ID, _GT): "above",
    (_ID, _GE): "from",
    (_ID, _LT): "below",
    (_ID, _LE): "to",
    (_STATUS, _EQ): "status",
    (_KIND, _EQ): "kind",
    (_TARGET, _EQ): "target_name",
}
_COST: Final = {"id": 1.0, "status": 1000.0, "kind": 0.5, "target_name": 0.3}


@cache
def _columns() -> dict[str, str]:
    return jobs.columns(migrate.blank())


class JobsModule:
    """The module behind ML_JOBS on one connection."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface

    def Connect(
        self, connection: apsw.Connection, _module: str, _database: str, _table: str, *_arguments: Any
    ) -> tuple[str, JobsTable]:
        """Declare the columns: those of the view ml_job_list."""
        # No statement runs on the user's connection here: it is in the middle of preparing one.
        # Writable, so views and triggers of a file from elsewhere must not reach it.
        connection.vtab_config(apsw.SQLITE_VTAB_DIRECTONLY)
        columns = _columns()
        declared = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        return f"CREATE TABLE ML_JOBS ({declared})", JobsTable(connection, self._surface, tuple(columns))

    Create = None


class JobsTable:
    """ML_JOBS on one connection: plans reads, and turns writes into submits, cancels and deletes."""

    def __init__(self, connection: apsw.Connection, surface: Surface, names: tuple[str, ...]) -> None:
        self._connection = weakref.ref(connection)
        self.surface = surface
        self.names = names

    @property
    def connection(self) -> apsw.Connection:
        """The user's connection."""
        connection = self._connection()
        assert connection is not None
        return connection

    def BestIndexObject(self, index: apsw.IndexInfo) -> bool:
        """Choose what to push down, and write it as a JSON plan into idxStr."""
        used: list[str] = []
        limit = None
        clean = True  # all constraints are pushed down, so a LIMIT may be as well
        for number in range(index.nConstraint):
            operator = index.get_aConstraint_op(number)
            if operator == apsw.SQLITE_INDEX_CONSTRAINT_LIMIT:
                limit = number if index.get_aConstraint_usable(number) else None
                continue
            if operator == apsw.SQLITE_INDEX_CONSTRAINT_OFFSET:
                clean = False
                continue
            column = index.get_aConstraint_iColumn(number)
            word = _PUSHED.get((_ID if column == -1 else column, operator))
            again = word in used or (word == "status" and "statuses" in used)
            if word is None or again or not index.get_aConstraint_usable(number):
                clean = False
                continue
            if column >= 0 and index.get_aConstraint_collation(number) != "BINARY":
                clean = False
                continue
            if word == "status" and index.get_aConstraintUsage_in(number):
                index.set_aConstraintUsage_in(number, True)
                word = "statuses"
            used.append(word)
            index.set_aConstraintUsage_argvIndex(number, len(used))
            # SQLite checks each again: it costs little, and types decide (id = '5', status = 3).
            index.set_aConstraintUsage_omit(number, False)
        order = self._order(index)
        if limit is not None and clean and (order or index.nOrderBy == 0):
            used.append("limit")
            index.set_aConstraintUsage_argvIndex(limit, len(used))
        index.idxStr = json.dumps({"use": used, "down": order == "down"})
        cost = 1_000_000.0
        for word in used:
            cost = min(cost, _COST[word]) if word in ("id", "status") else cost * _COST.get(word, 0.7)
        index.estimatedCost = cost
        index.estimatedRows = max(1, int(cost))
        if "id" in used:
            index.idxFlags = apsw.SQLITE_INDEX_SCAN_UNIQUE
        return True

    def _order(self, index: apsw.IndexInfo) -> str | None:
        if index.nOrderBy == 1 and index.get_aOrderBy_iColumn(0) in (-1, _ID):
            index.orderByConsumed = True
            return "down" if index.get_aOrderBy_desc(0) else "up"
        return None

    def Open(self) -> JobsCursor:
        """Begin a read."""
        return JobsCursor(self)

    def Disconnect(self) -> None:
        """Nothing is held."""

    Destroy = Disconnect

    def Begin(self) -> None:
        """Refuse to write where the user's connection may not; asked once per statement or transaction."""
        self.surface.require_writable()

    def UpdateInsertRow(self, rowid: int | None, fields: tuple[Any, ...]) -> int:
        """Submit a job."""
        kind, target, spec = fields[_KIND], fields[_TARGET], fields[_SPEC]
        plain = (kind is not None) + (target is not None) + (spec is not None)
        options = None
        if rowid is not None or len(fields) - fields.count(None) > plain:
            options = self._options(rowid, fields)
        self.surface.check_queries(kind, spec)
        if target is None:
            target = ""
        try:
            if isinstance(target, (int, float)):
                target = jobs.as_text(self.connection, target)  # as a column of texts does
            return jobs.submit(self.connection, kind, target, spec, options, now_ms())
        except apsw.Error as error:
            raise plain_error(error, self.surface.file.path) from error

    def _options(self, rowid: int | None, fields: tuple[Any, ...]) -> str | None:
        row = dict(zip(self.names, fields, strict=True))
        given = {name for name, value in row.items() if value is not None}
        if rowid is not None or not given <= _SUBMITTED.keys():
            wrong = "id" if rowid is not None else min(given - _SUBMITTED.keys())
            raise UsageError(
                f"INSERT INTO ML_JOBS cannot set {wrong}; give {', '.join(_SUBMITTED)}, or use ml_submit()"
            )
        options = {option: row[name] for name, option in _SUBMITTED.items() if option and row[name] is not None}
        for name, value in options.items():
            if isinstance(value, bytes) or (isinstance(value, float) and not math.isfinite(value)):
                raise UsageError(f"INSERT INTO ML_JOBS: {name} must be a finite number or a text, not {shown(value)}")
        return json.dumps(options) if options else None

    def UpdateChangeRow(self, row: int, newrowid: int, fields: tuple[Any, ...]) -> None:
        """Cancel a job; anything else is refused."""
        changed = [name for name, value in zip(self.names, fields, strict=True) if value is not apsw.no_change]
        if row != newrowid or changed != ["status"] or fields[_STATUS] != "cancelled":
            raise UsageError(
                "the only change to ML_JOBS is SET status = 'cancelled'; submit another job for anything else"
            )
        with plain_errors(self.surface.file.path):
            jobs.cancel(self.connection, row, now_ms())

    def UpdateDeleteRow(self, row: int) -> None:
        """Delete a terminal job; the statement fails whole at a live one."""
        try:
            with plain_errors(self.surface.file.path):
                jobs.delete(self.connection, [row])
        except apsw.ConstraintError as error:
            if "live job" not in str(error):  # a foreign key or a trigger of the user
                raise
            raise UsageError(
                f"job {row} is not over, so it cannot be deleted; cancel it with ml_cancel({row}) first"
            ) from error


class JobsCursor:
    """One read of ML_JOBS."""

    def __init__(self, table: JobsTable) -> None:
        self._table = table
        self._rows: list[tuple[Any, ...]] = []
        self._place = 0
        self._more = False
        self._request: dict[str, Any] = {}
        self._left = 0
        self._exact = True
        self._chunk = _FIRST_CHUNK

    def Filter(self, _number: int, plan: str, arguments: tuple[Any, ...]) -> None:
        """Begin at the first row."""
        table = self._table
        table.surface.require_ready()
        wanted = json.loads(plan)
        request: dict[str, Any] = {
            "first": 0,
            "last": jobs.last_id(table.connection),
            "descending": wanted["down"],
        }
        self._left, self._exact, possible = LARGEST_ID, True, True
        for word, value in zip(wanted["use"], arguments, strict=True):
            if word == "limit":
                self._left = value if value >= 0 else LARGEST_ID  # a negative LIMIT is none
            elif word in ("statuses", "status"):
                statuses = {value} if word == "status" else set(value)
                request["statuses"] = statuses & set(STATUSES)
                possible = possible and bool(request["statuses"])
            elif value is None:
                possible = False  # nothing compares with NULL
            elif word in ("kind", "target_name") and isinstance(value, str):
                request[word] = value
            elif word not in ("kind", "target_name") and isinstance(value, (int, float)):
                possible = _narrow(request, word, value) and possible
            else:
                self._exact = False  # SQLite decides what another type equals
        if not self._exact:
            self._left = LARGEST_ID
        self._request, self._chunk = request, _FIRST_CHUNK
        self._more = possible and request["first"] <= request["last"]
        self._rows, self._place = [], 0
        self._fill()

    def _fill(self) -> None:
        while self._more and self._place >= len(self._rows):
            count = min(self._chunk, self._left)
            if count <= 0:
                self._more = False
                break
            rows, edge = jobs.rows(self._table.connection, **self._request, count=count)
            self._chunk = min(self._chunk * 2, _LARGEST_CHUNK)
            self._rows, self._place = rows, 0
            self._left -= len(rows)
            self._more = edge is not None
            self._request["last" if self._request["descending"] else "first"] = edge

    def Eof(self) -> bool:
        """Tell whether there are no more rows."""
        return self._place >= len(self._rows)

    def Next(self) -> None:
        """Go to the next row."""
        self._place += 1
        if self._place >= len(self._rows):
            self._fill()

    def Rowid(self) -> int:
        """Give the id of the job."""
        return int(self._rows[self._place][_ID])

    def Column(self, number: int) -> Any:
        """Give a value of the job."""
        row = self._rows[self._place]
        return row[_ID] if number < 0 else row[number]

    def ColumnNoChange(self, number: int) -> Any:
        """Tell SQLite that an UPDATE leaves a column alone."""
        return apsw.no_change

    def Close(self) -> None:
        """Let the rows go."""
        self._rows = []


def _narrow(request: dict[str, Any], word: str, value: float) -> bool:
    """Narrow the range of ids by a number, exactly; False when no id can match."""
    if value != value:  # noqa: PLR0124 - NaN
        return False
    value = max(min(value, LARGEST_ID), -1)
    low, high = math.floor(value), math.ceil(value)
    if word == "id":
        request["first"], request["last"] = max(request["first"], high), min(request["last"], low)
    elif word in ("above", "from"):
        request["first"] = max(request["first"], low + 1 if word == "above" else high)
    else:
        request["last"] = min(request["last"], high - 1 if word == "below" else low)
    return True

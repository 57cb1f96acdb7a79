"""Runs the SQL of users inside jobs: one SELECT, on a read-only connection, under a list of what it may do.

SQLite's authorizer is what enforces it. Opening read-only, `query_only`, a statement's own `readonly` flag
and parsing the text can each be got round: ATTACH counts as reading, `query_only` can be switched off, and
a function may do anything. The authorizer is asked about every table, column and function when a statement
is prepared, also inside views, and what is not on the list does not get prepared.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

import apsw

from mldb import query
from mldb.errors import Cancelled, QueryRefused, UsageError
from mldb.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mldb.errors import MldbError

OUR_TABLES = frozenset(
    """
    ml_job ml_move ml_schema ml_worker ml_worker_kind ml_log ml_metric ml_checkpoint ml_spec ml_model
    ml_model_version ml_model_content ml_job_list ml_job_log ml_job_metrics ml_workers ml_models ml_jobs
    """.split()  # noqa: SIM905 - read as a list of words
)
"""The names of ours, in lower case, that users' queries may not read. Other names in ml_ are users' own."""

FUNCTIONS = frozenset(
    """
    -> ->> abs avg char coalesce concat concat_ws count format glob group_concat hex if ifnull iif instr
    length like likelihood likely lower ltrim match max median min nullif octet_length percentile
    percentile_cont percentile_disc printf quote random replace round rtrim sign sqlite_version string_agg
    substr substring sum total trim typeof unhex unicode unistr unistr_quote unlikely upper

    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number

    current_date current_time current_timestamp date datetime julianday strftime time timediff unixepoch

    acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2 mod pi
    pow power radians sin sinh sqrt tan tanh trunc

    json json_array json_array_insert json_array_length json_error_position json_extract json_group_array
    json_group_object json_insert json_object json_patch json_pretty json_quote json_remove json_replace
    json_set json_type json_valid jsonb jsonb_array jsonb_array_insert jsonb_extract jsonb_group_array
    jsonb_group_object jsonb_insert jsonb_object jsonb_patch jsonb_remove jsonb_replace jsonb_set

    bm25 highlight matchinfo offsets snippet
    """.split()  # noqa: SIM905 - read as a list of words
)
"""The functions a query may call: those that only compute. `random` is there for sampling."""

TABLE_FUNCTIONS = frozenset({"json_each", "json_tree", "jsonb_each", "jsonb_tree", "generate_series"})
"""The tables a query may read that are not in the database but made by SQLite."""

MAX_ROWS = 50_000_000
MAX_BYTES = 8 * 1024**3  # as kept by Rows, most of it in a temporary file
MAX_VALUE_BYTES = 64 * 1024**2  # one text or blob; printf('%1000000000s') would ask for a gigabyte
MAX_SQL_CHARACTERS = 1_000_000

_PRAGMAS = frozenset({"data_version", "page_size"})  # FTS5 and FTS4 ask for them
_FRAME_ROWS = 64  # read at once at most, fewer where rows are wide, so that the caps are seen in time
_FRAME_BYTES = 1024**2
_STEPS = 5_000  # instructions of SQLite between two looks at the clock: well under a millisecond
_BLANK = re.compile(r"(?>[\s;]|--[^\n]*|/\*.*?(?:\*/|\Z))*+", re.DOTALL)  # never tries a way twice
_UNSAFE = re.compile(r'unsafe use of (?:(\w+\(\))|virtual table "(.+)")')
_FAULTS = (  # raised when the query is at fault, not the file, the disk or another connection
    apsw.SQLError, apsw.AuthError, apsw.BindingsError, apsw.ConstraintError, apsw.MismatchError,
    apsw.RangeError, apsw.TooBigError, UnicodeDecodeError,
)  # fmt: skip


def check(connection: apsw.Connection, sql: str) -> tuple[str, ...]:
    """Prepare a query without running it and give the names of its columns.

    No statement may be running on `connection`: a change of its settings would abort it.

    Raises QueryRefused, which says what was refused and what to do, unless it is one SELECT (or VALUES) that
    reads users' tables and views, calls only `FUNCTIONS`, and gives each column a name of its own.
    """
    with _Sandbox(connection, sql) as sandbox:
        sandbox.prepare()
        return sandbox.columns


def tables_read(connection: apsw.Connection, sql: str) -> tuple[str, ...]:
    """Give the tables whose rows a query reads, sorted, those behind its views too. Raises as `check` does.

    SQLite itself names them. A common table expression that has the name of a table may count as that table.
    """
    with _Sandbox(connection, sql) as sandbox:
        sandbox.prepare()
        # The first time connects virtual tables, and those read tables of their own.
        sandbox.prepare()
        return tuple(sorted(name for name, kind in sandbox.sources.items() if kind == "table"))


def read(
    connection: apsw.Connection,
    sql: str,
    params: Sequence[Any] | Mapping[str, Any] = (),
    *,
    deadline: float | None = None,
    max_rows: int | None = None,
    max_bytes: int | None = None,
    stopped: Callable[[], bool] | None = None,
) -> Rows:
    """Run a query and give its rows, copied out: the read transaction has ended when this returns.

    `connection` is read-only, used by no other thread, and has no transaction open. `params` are the values
    of the query's parameters. `deadline` is in seconds from now; None is none. `max_rows` (None: 50
    million) and `max_bytes` (None: 8 GiB) bound the result. `stopped` is asked every few thousand
    instructions of SQLite; once it says True, Cancelled is raised. Neither it nor the deadline can cut a
    single call of a function short.

    Raises QueryRefused as `check` does, and for a query that fails, takes too long or gives too much;
    UsageError for an open transaction; APSW's own errors when the file cannot be read.
    """
    if connection.in_transaction:
        raise UsageError("the connection has a transaction open; end it before reading rows")
    most_rows = MAX_ROWS if max_rows is None else max_rows
    most_bytes = MAX_BYTES if max_bytes is None else max_bytes
    with _Sandbox(connection, sql) as sandbox, _bounded(connection, deadline, stopped) as check_time:
        cursor = sandbox.start(params)
        rows = Rows(sandbox.columns)
        many = 1
        try:
            while frame := list(islice(cursor, many)):
                before = rows.size
                rows.append(frame)
                many = min(2 * many, _FRAME_ROWS) if rows.size - before < _FRAME_BYTES else max(1, many // 2)
                if len(rows) > most_rows:
                    raise QueryRefused(f"the query gives more than {most_rows:,} rows; narrow it with WHERE")
                if rows.size > most_bytes:
                    raise QueryRefused(f"the query gives more than {most_bytes:,} bytes; select fewer columns")
                check_time()
        except BaseException:
            rows.close()
            raise
        finally:
            cursor.close(True)
        return rows


class _Sandbox:
    """A connection under the list for one query until the end of a `with` block; then it is as it was before.

    Errors that are the query's fault leave the block as QueryRefused.
    """

    def __init__(self, connection: apsw.Connection, sql: str) -> None:
        if "\0" in sql:
            raise QueryRefused("the query holds a NUL character; take it out")
        if len(sql) > MAX_SQL_CHARACTERS:
            raise QueryRefused(f"a query is text of at most {MAX_SQL_CHARACTERS:,} characters; shorten it")
        self.columns: tuple[str, ...] = ()
        self.sources: dict[str, str] = {}  # the tables and views it reads, each with its type
        self._connection = connection
        self._sql = sql
        self._trusting = False  # while we look into the schema ourselves
        self._refusal: str | None = None
        self._selects = False
        self._reads: set[str] = set()

    def __enter__(self) -> Self:
        connection = self._connection
        self._authorizer = connection.authorizer
        self._length = connection.limit(apsw.SQLITE_LIMIT_LENGTH)
        self._quotes = connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, -1)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, min(self._length, MAX_VALUE_BYTES))
        # Otherwise a misspelt "column" in double quotes is a constant text, and a model is trained on it.
        connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
        connection.authorizer = self._authorize
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        try:
            if isinstance(error, _FAULTS):
                self._trusting = True
                raise QueryRefused(self._worded(error)) from error
        finally:
            self._connection.authorizer = self._authorizer
            self._connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, self._quotes)
            self._connection.limit(apsw.SQLITE_LIMIT_LENGTH, self._length)

    def prepare(self) -> None:
        """Fill in `columns` and `sources` without running anything."""
        with contextlib.suppress(apsw.ExecTraceAbort):
            # As APSW's query_info does: values are not known yet.
            nothing = apsw._null_bindings  # type: ignore[attr-defined]  # noqa: SLF001
            self._execute(nothing, run=False)

    def start(self, params: Sequence[Any] | Mapping[str, Any]) -> apsw.Cursor:
        """Begin to run the query, once all is known to be allowed."""
        return self._execute(params, run=True)

    def _execute(self, params: Any, *, run: bool) -> apsw.Cursor:
        judged = False

        # APSW calls this after preparing a statement and before its first step.
        def trace(cursor: apsw.Cursor, statement: str, _params: object) -> bool:
            nonlocal judged
            if judged:
                return _is_blank(statement)  # a comment behind the query
            self._judge(cursor, statement)
            judged = True
            return run

        self._reads.clear()
        cursor = self._connection.cursor()
        cursor.exec_trace = trace
        # A cached statement may have been prepared without the list.
        return cursor.execute(self._sql, params, can_cache=False)

    def _authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, inside: str | None
    ) -> int:
        if self._trusting or action == apsw.SQLITE_RECURSIVE:
            return apsw.SQLITE_OK
        where = f" (inside {inside})" if inside else ""
        if action == apsw.SQLITE_SELECT:
            self._selects = True
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_FUNCTION:
            if (second or "").lower() in FUNCTIONS:
                return apsw.SQLITE_OK
            return self._deny(_may_not_call(f"{second}(){where}"))
        if action == apsw.SQLITE_READ:
            name = (first or "").lower()
            if name not in OUR_TABLES and not name.startswith("sqlite_") and database in {None, "main"}:
                self._reads.add(first or "")
                return apsw.SQLITE_OK
            return self._deny(_may_not_read(f"{first}{where}"))
        if action == apsw.SQLITE_PRAGMA and first in _PRAGMAS and second is None:
            return apsw.SQLITE_OK
        words = str(apsw.mapping_authorizer_function[action]).removeprefix("SQLITE_").replace("_", " ")
        return self._deny(self._not_a_select(f"one that would {words} {first or ''}".rstrip()))

    def _deny(self, refusal: str) -> int:
        self._refusal = self._refusal or refusal
        return apsw.SQLITE_DENY

    def _judge(self, cursor: apsw.Cursor, statement: str) -> None:
        """Refuse what the authorizer lets pass: other statements, a second one, tables made by modules."""
        if not self._sql.startswith(statement) or not _is_blank(self._sql[len(statement) :]):
            what = query.found(self._sql)
            several = what if what.endswith("statements") else "several statements"
            raise QueryRefused(query.not_one_select(several))
        description = cursor.get_description()
        if not (self._selects and description and cursor.is_readonly) or cursor.is_explain:
            raise QueryRefused(self._not_a_select("nothing" if _is_blank(self._sql) else "another statement"))
        self._look_up_reads()
        names = tuple(str(column[0]) for column in description)
        seen: set[str] = set()
        for name in names:
            if not name or name.lower() in seen:
                problem = f'two columns are named "{name}"' if name else "a column has no name"
                raise QueryRefused(f"in the query's result {problem}; name each column with AS")
            seen.add(name.lower())
        self.columns = names

    def _not_a_select(self, otherwise: str) -> str:
        what = query.found(self._sql)
        return query.not_one_select(otherwise if what in {"a SELECT", "a query"} else what)

    def _look_up_reads(self) -> None:
        """Tell tables and views from the tables that modules make, such as those of the pragmas."""
        with self._trust():
            found = self._connection.execute(
                "SELECT s.name, s.type, r.value FROM json_each(?) AS r JOIN main.sqlite_schema AS s "
                "ON s.name = r.value COLLATE NOCASE AND s.type IN ('table', 'view')",
                (json.dumps(sorted(self._reads)),),
            ).fetchall()
            self.sources = {str(name): str(kind) for name, kind, _ in found}
            others = {one for one in self._reads if one.lower() not in TABLE_FUNCTIONS} - {row[2] for row in found}
            if others:
                modules = {row[0] for row in self._connection.execute("SELECT name FROM pragma_module_list")}
                for name in sorted(others):
                    # What is neither in the schema nor a module is a common table expression.
                    if name.lower() in modules:
                        raise QueryRefused(_may_not_read(name))

    @contextlib.contextmanager
    def _trust(self) -> Iterator[None]:
        self._trusting = True
        try:
            yield
        finally:
            self._trusting = False

    def _worded(self, error: BaseException) -> str:
        if self._refusal:
            return self._refusal
        if isinstance(error, apsw.TooBigError):
            return f"the query makes a value of more than {MAX_VALUE_BYTES:,} bytes; make it smaller"
        if isinstance(error, UnicodeDecodeError):
            return "the query gives text that is not valid UTF-8; select it as CAST(… AS BLOB), or correct it"
        if isinstance(error, apsw.BindingsError):
            problem = str(error).partition(".")[0]
            return f"the query's parameters do not fit ({problem}); give a value for each"
        if unsafe := _UNSAFE.match(str(error)):
            return _may_not_call(unsafe[1]) if unsafe[1] else _may_not_read(unsafe[2])
        kind, name = query.missing(str(error))
        if kind == "function" and name.lower().startswith("ml_"):
            return _may_not_call(f"{name}()")
        if kind == "table" and name.lower() in OUR_TABLES:
            return _may_not_read(name)
        offset = getattr(error, "error_offset", None)
        return query.explain(self._sql, str(error), offset=offset, known=self._known(kind))

    def _known(self, kind: str) -> Iterable[str]:
        if kind == "function":
            return FUNCTIONS
        if kind == "table":
            sql = "SELECT name FROM main.sqlite_schema WHERE type IN ('table', 'view')"
            names = [row[0] for row in self._connection.execute(sql)]
            return [one for one in names if one.lower() not in OUR_TABLES and not one.startswith("sqlite_")]
        if kind == "column":
            tables = query.tables(self._sql)
            sql = "SELECT name FROM pragma_table_xinfo(?)"
            return [name for table in tables for (name,) in self._connection.execute(sql, (table,))]
        return ()


@contextlib.contextmanager
def _bounded(
    connection: apsw.Connection, deadline: float | None, stopped: Callable[[], bool] | None
) -> Iterator[Callable[[], None]]:
    """Stop what runs on the connection when late or no longer wanted; the function given raises if so."""
    end = None if deadline is None else time.monotonic() + deadline
    late: MldbError | None = None

    def is_over() -> bool:
        nonlocal late
        if stopped is not None and stopped():
            late = Cancelled("the job was cancelled while it read its rows")
        elif end is not None and time.monotonic() > end:
            late = QueryRefused(f"the query took longer than {deadline:g} seconds; narrow it or add an index")
        return late is not None

    def check_time() -> None:
        if is_over() and late is not None:
            raise late

    connection.set_progress_handler(is_over, _STEPS, id=is_over)
    try:
        yield check_time
    except apsw.InterruptError as error:
        if late is None:
            raise
        raise late from error
    finally:
        connection.set_progress_handler(None, id=is_over)


def _may_not_call(name: str) -> str:
    return f"the query may not call {name}; use the functions of SQLite that only compute"


def _may_not_read(name: str) -> str:
    return f"the query may not read {name}; read your own tables and views"


def _is_blank(text: str) -> bool:
    return _BLANK.fullmatch(text) is not None

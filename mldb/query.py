"""Words what is wrong with a query. SQLite decides what a query may be; sqlglot helps to say where and what.

sqlglot is imported when the first bad query needs it.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import re
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LONGEST = 100_000  # characters; sqlglot would take seconds for more
_AROUND = 24  # characters of the query shown on either side of the fault
_MISSING = re.compile(r'no such (table|column|function): "?([^"]+?)"?(?: - should .*)?$')
_NEAR = re.compile(r'near "(.+)": syntax error', re.DOTALL)
_FIRST_WORD = re.compile(r"(?>\s|--[^\n]*|/\*.*?\*/)*+(\w+)", re.DOTALL)
_SELECTS = {"select", "union", "intersect", "except", "subquery", "values"}  # as sqlglot calls them
_STATEMENTS = {
    "alter", "analyze", "attach", "command", "commit", "create", "delete", "describe", "detach", "drop",
    "insert", "merge", "pragma", "rollback", "set", "transaction", "update", "use",
}  # fmt: skip
_NEXT = {
    "table": "create it first, or check the name",
    "column": "check the name; text stands in single quotes: 'text'",
    "": "correct the query",
    "function": "the functions built into SQLite are there, others are not",
}


def explain(sql: str, error: str, *, offset: int | None = None, known: Iterable[str] = ()) -> str:
    """Say what is wrong with a query that SQLite refused with the message `error`, where, and what to do.

    `offset` is where in the query's UTF-8 bytes SQLite saw the fault (APSW's `error_offset`), None or
    negative when it does not say. `known` are the names (tables, columns or functions) of which one
    may have been meant.

    >>> explain("SELECT agee FROM people", "no such column: agee", offset=7, known=["age", "name"])
    'no such column: agee, at line 1, column 8, in "SELECT agee FROM people"; did you mean "age"?'
    """
    if (what := found(sql)) not in {"a SELECT", "a query"}:
        return not_one_select(what)
    kind, name = missing(error)
    if kind:
        error = f"no such {kind}: {name}"
    if offset is not None and offset >= 0:
        at: int | None = len(sql.encode()[:offset].decode(errors="ignore"))
    elif error == "incomplete input":
        at, error = len(sql.rstrip(" \t\r\n;")), "the query ends too early"
    else:
        at = _name_offset(sql, name) if kind else _syntax_offset(sql, error)
    return f"{error}{_hint(sql, error)}{_place(sql, at)}; {_cure(kind, name, known)}"


def found(sql: str) -> str:
    """Say what a text holds: "a SELECT", "2 statements", "a DELETE", "nothing"; "a query" when unsure.

    >>> found("WITH old AS (SELECT 1) DELETE FROM t")
    'a DELETE'
    """
    statements, faults = _parse(sql)
    if len(statements) > 1:
        return f"{len(statements)} statements"
    if faults or len(sql) > _LONGEST:
        return "a query"
    if not statements:
        return "nothing"
    key = statements[0].key
    if key in _SELECTS:
        return "a SELECT"
    if key not in _STATEMENTS:
        return "a query"
    first = _FIRST_WORD.match(sql)
    name = first[1].upper() if first and first[1].upper() != "WITH" else key.upper()
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def not_one_select(what: str) -> str:
    """Say that a query is refused because of `what` it is, which `found` gives."""
    if what == "nothing":
        return "the query is empty; give one SELECT"
    return f"only one SELECT is allowed, not {what}; give one SELECT"


def missing(error: str) -> tuple[str, str]:
    """Give what SQLite says is missing: ("table", its name), "column" or "function" alike; else ("", "")."""
    match = _MISSING.match(error)
    return (match[1], match[2]) if match else ("", "")


def tables(sql: str) -> tuple[str, ...]:
    """Give the tables and views that a query names, sorted, as far as sqlglot can tell; () when it cannot.

    It serves to find the name that was meant. What a query really reads, `sandbox.tables_read` knows.

    >>> tables("WITH recent AS (SELECT * FROM main.orders) SELECT * FROM recent JOIN people USING (id)")
    ('orders', 'people')
    """
    from sqlglot import exp

    names = set()
    for statement in _parse(sql)[0]:
        inner = {cte.alias.lower() for cte in statement.find_all(exp.CTE)}
        for table in statement.find_all(exp.Table):
            if table.name and (table.db or table.name.lower() not in inner):
                names.add(table.name)
    return tuple(sorted(names))


def _parse(sql: str) -> tuple[list[Any], list[dict[str, Any]]]:
    """Give the statements that sqlglot sees in a text, or its faults; it cannot always say where one is."""
    if len(sql) > _LONGEST:
        return [], []
    with _quiet() as sqlglot:
        try:
            parsed = sqlglot.parse(sql, dialect="sqlite")
        except sqlglot.errors.ParseError as error:
            return [], list(error.errors)
        except (sqlglot.errors.SqlglotError, RecursionError):
            return [], [{}]
    return [one for one in parsed if one is not None and one.key != "semicolon"], []


def _hint(sql: str, error: str) -> str:
    """Give what sqlglot expected at a syntax error, when it says so plainly."""
    if "syntax error" in error:
        for fault in _parse(sql)[1]:
            if str(fault.get("description", "")).startswith("Expecting "):
                return f" ({fault['description'].lower()})"
    return ""


def _syntax_offset(sql: str, error: str) -> int | None:
    near = _NEAR.match(error)
    if near and sql.count(near[1]) == 1:
        return sql.index(near[1])
    for fault in _parse(sql)[1]:
        # sqlglot counts columns from 1 and points at the end of the token.
        if fault.get("line") and fault.get("col"):
            lines = sql.split("\n")
            before = sum(len(line) + 1 for line in lines[: fault["line"] - 1])
            return max(0, before + int(fault["col"]) - len(fault.get("highlight") or " "))
    return None


def _name_offset(sql: str, name: str) -> int | None:
    with _quiet() as sqlglot:
        try:
            tokens = sqlglot.tokenize(sql, dialect="sqlite") if len(sql) <= _LONGEST else []
        except sqlglot.errors.SqlglotError:
            return None
    last = name.rpartition(".")[2].lower()
    places = [i for i, token in enumerate(tokens) if token.text.lower() == last]
    after = [i for i in places if i and tokens[i - 1].text.upper() in {"FROM", "JOIN", "IN", ",", "(", "."}]
    chosen = after or places
    return int(tokens[chosen[0]].start) if chosen else None


def _place(sql: str, at: int | None) -> str:
    if at is None:
        return ""
    line = sql.count("\n", 0, at) + 1
    begin = sql.rfind("\n", 0, at) + 1
    end = sql.find("\n", at) if "\n" in sql[at:] else len(sql)
    first, last = max(begin, at - _AROUND), min(end, at + _AROUND)
    excerpt = f"{'…' if first > begin else ''}{sql[first:last].strip()}{'…' if last < end else ''}"
    return f', at line {line}, column {at - begin + 1}, in "{excerpt}"'


def _cure(kind: str, name: str, known: Iterable[str]) -> str:
    names = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.rpartition(".")[2].lower(), names, n=1)
    return f'did you mean "{names[near[0]]}"?' if kind and near else _NEXT[kind]


@contextlib.contextmanager
def _quiet() -> Iterator[Any]:
    """Give sqlglot, its log silenced for this thread only: it warns of statements it knows by name alone."""
    import sqlglot
    import sqlglot.errors

    thread = threading.get_ident()
    logger = logging.getLogger("sqlglot")

    def others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(others)
    try:
        yield sqlglot
    finally:
        logger.removeFilter(others)

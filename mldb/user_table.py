"""Writes rows of a handler into a table of the user.

The only SQL of ours that is made at run time, since names cannot be bound: they are quoted, and values are bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw

from mldb.errors import UsageError
from mldb.sandbox import OUR_TABLES

Rows = Sequence[Mapping[str, object]]


def write(connection: apsw.Connection, table: str, rows: Rows, key: str | None) -> None:
    """Insert rows of equal columns, making the table when it is missing; with a key, replace the row that has it.

    The caller holds a write transaction. Raises UsageError when table, columns or key cannot be right.
    """
    columns = _columns(table, rows, key)
    if not columns:
        return
    if not connection.execute("SELECT 1 FROM main.sqlite_schema WHERE lower(name) = lower(?)", (table,)).get:
        definitions = [quoted(column) + (" PRIMARY KEY" if column == key else "") for column in columns]
        connection.execute(f"CREATE TABLE main.{quoted(table)} ({', '.join(definitions)})")
    try:
        connection.executemany(_insert(table, columns, key), [tuple(row.values()) for row in _ordered(rows, columns)])
    except apsw.SQLError as error:
        if "ON CONFLICT clause" in str(error):
            raise UsageError(f"column {key!r} of table {table!r} is not unique; make a UNIQUE index on it") from error
        raise UsageError(f"cannot write to table {table!r}: {error}; write to a table with these columns") from error


def quoted(name: str) -> str:
    '''Give a name as SQL writes it.

    >>> print(quoted('odd "name"'))
    "odd ""name"""
    '''
    return '"' + name.replace('"', '""') + '"'


def _columns(table: str, rows: Rows, key: str | None) -> list[str]:
    if not isinstance(table, str) or not table or "\0" in table:
        raise UsageError("the name of a table is a text that is not empty")
    if table.lower() in OUR_TABLES or table.lower().startswith("sqlite_"):
        raise UsageError(f"table {table!r} is not a table of yours; write to another one")
    columns = list(rows[0]) if rows else []
    if any(row.keys() != rows[0].keys() for row in rows):
        raise UsageError("all rows must have the same columns; give None where there is no value")
    if key is not None and columns and key not in columns:
        raise UsageError(f"the key {key!r} is no column of the rows; they have {', '.join(columns)}")
    return columns


def _ordered(rows: Rows, columns: list[str]) -> Rows:
    return [row if list(row) == columns else {column: row[column] for column in columns} for row in rows]


def _insert(table: str, columns: list[str], key: str | None) -> str:
    names = ", ".join(map(quoted, columns))
    marks = ", ".join("?" for _ in columns)
    sql = f"INSERT INTO main.{quoted(table)} ({names}) VALUES ({marks})"
    if key is not None:
        others = [column for column in columns if column != key]
        changes = ", ".join(f"{quoted(column)} = excluded.{quoted(column)}" for column in others)
        sql += f" ON CONFLICT ({quoted(key)}) DO " + (f"UPDATE SET {changes}" if others else "NOTHING")
    return sql

from __future__ import annotations

import doctest
import logging
import subprocess
import sys

import apsw
import pytest

from mldb import query


def sqlite_says(sql):
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE people(name, age)")
    with pytest.raises(apsw.SQLError) as caught:
        connection.execute(sql)
    return str(caught.value), caught.value.error_offset


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (
            "SELECT name FORM people",
            'near "people": syntax error, at line 1, column 18, in "SELECT name FORM people"',
        ),
        ("SELECT name\nFROM people\nWHERE age = = 3", 'at line 3, column 13, in "WHERE age = = 3"'),
        ("SELECT (name FROM people", "syntax error (expecting )), at line 1, column 14"),
        ("SELECT name FROM people WHERE", "the query ends too early, at line 1, column 30"),
        ("SELECT 'ü€😀', FORM people WHERE )", 'at line 1, column 33, in "…'),
        ("SELECT 'name FROM people", 'unrecognized token: "\'name FROM people", at line 1, column 8'),
        ("SELECT name\nFROM persons", 'no such table: persons, at line 2, column 6, in "FROM persons"'),
        ("SELECT persons FROM main.persons", "at line 1, column 26"),
    ],
)
def test_a_bad_query_is_worded_with_the_place_of_the_fault(sql, words):
    error, offset = sqlite_says(sql)

    message = query.explain(sql, error, offset=offset)

    assert words in message
    assert "; " in message


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("SELECT a FROM t GROUP a", "line 1, column 23"),
        ("SELECT a\n  , b\nFROM t JOIN ON x", "line 3, column 13"),
        ("SELECT a FROM t WHERE", "line 1, column 17"),
    ],
)
def test_sqlglot_finds_the_place_when_sqlite_does_not_say(sql, place):
    message = query.explain(sql, "syntax error")

    assert f"at {place}, in " in message


def test_a_long_line_is_shown_in_excerpt():
    sql = "SELECT " + ", ".join(f"column_{i}" for i in range(50)) + ", agee FROM people"

    message = query.explain(sql, "no such column: agee", offset=sql.index("agee"))

    assert 'in "…, column_48, column_49, agee FROM people"' in message


@pytest.mark.parametrize(
    ("error", "known", "cure"),
    [
        ("no such column: agee", ["name", "Age"], 'did you mean "Age"?'),
        ("no such column: p.agee", ["name", "age"], 'did you mean "age"?'),
        (
            'no such column: "agee" - should this be a string literal in single-quotes?',
            [],
            "single quotes: 'text'",
        ),
        ("no such table: peopel", ["people", "orders"], 'did you mean "people"?'),
        ("no such table: zebra", ["people"], "create it first, or check the name"),
        ("no such function: ronud", ["round", "random"], 'did you mean "round"?'),
        ("no such function: xyzzy", ["round"], "the functions built into SQLite are there, others are not"),
    ],
)
def test_the_nearest_known_name_is_offered(error, known, cure):
    message = query.explain("SELECT agee FROM peopel", error, known=known)

    assert message.endswith(cure)


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT 1; SELECT 2", "2 statements"),
        ("DELETE FROM t", "a DELETE"),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "an INSERT"),
        ("-- note\n/* more */ REPLACE INTO t VALUES (1)", "a REPLACE"),
        ("EXPLAIN SELECT 1", "an EXPLAIN"),
        ("VACUUM INTO 'copy.db'", "a VACUUM"),
        ("ATTACH 'x' AS y", "an ATTACH"),
        ("PRAGMA query_only = 0", "a PRAGMA"),
    ],
)
def test_what_is_not_one_select_is_named(sql, what):
    assert query.found(sql) == what
    assert query.explain(sql, "not authorized") == f"only one SELECT is allowed, not {what}; give one SELECT"


@pytest.mark.parametrize("sql", ["", " ;", "-- nothing here"])
def test_an_empty_query_is_called_empty(sql):
    assert query.explain(sql, "") == "the query is empty; give one SELECT"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "VALUES (1)",
        "SELECT 1 UNION SELECT 2",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "SELECT 1;",
    ],
)
def test_each_form_of_select_is_known_as_one(sql):
    assert query.found(sql) == "a SELECT"


@pytest.mark.parametrize("sql", ["SELECT (" * 5000, "SELECT 1 " + "-- x\n" * 30_000, "SELECT 'open", "\x00", "💥"])
def test_a_text_that_sqlglot_cannot_take_is_still_worded_in_sqlites_words(sql):
    assert query.explain(sql, "SQLite says no").startswith("SQLite says no")


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ('SELECT * FROM people AS p JOIN "Order Lines" ON 1', ("Order Lines", "people")),
        ("WITH a AS (SELECT * FROM main.t) SELECT * FROM a, (SELECT * FROM u) AS b", ("t", "u")),
        ("WITH t AS (SELECT * FROM main.t) SELECT * FROM t", ("t",)),
        ("SELECT 1", ()),
        ("SELECT FROM (", ()),
    ],
)
def test_the_tables_a_query_names_are_found(sql, tables):
    assert query.tables(sql) == tables


def test_sqlglot_writes_nothing_to_the_log(caplog):
    with caplog.at_level(logging.DEBUG):
        query.explain("VACUUM INTO 'x'", "not authorized")
        query.found("EXPLAIN DELETE FROM t")

    assert caplog.records == []
    assert logging.getLogger("sqlglot").filters == []


def test_sqlglot_is_not_imported_before_it_is_needed():
    program = "import sys, mldb.query, mldb.sandbox, mldb.rows; print({'sqlglot', 'numpy'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"


def test_the_examples_in_the_docstrings_hold():
    assert doctest.testmod(query).failed == 0
    assert doctest.testmod(query).attempted >= 3

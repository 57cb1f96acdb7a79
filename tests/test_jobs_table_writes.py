"""ML_JOBS written to: what INSERT, UPDATE and DELETE do, and what they refuse."""

from __future__ import annotations

import apsw
import pytest
from test_jobs_table import CONTRACT, MORE, fill

import mldb
from mldb.job import STATUSES, TERMINAL


def test_an_insert_submits_jobs_in_one_transaction_and_lastrowid_is_right(connection, path, connect):
    cursor = connection.cursor()
    connection.execute("CREATE TABLE t (name TEXT)")
    connection.execute("INSERT INTO t VALUES ('a'), ('b'), ('c')")
    version = connect().pragma("data_version")

    cursor.execute(
        "INSERT INTO ML_JOBS (kind, target_name, spec_json) SELECT 'noop', name, json_object('n', name) FROM t"
    )

    assert connection.last_insert_rowid() == 3
    assert connection.execute("SELECT last_insert_rowid()").get == 3
    assert connection.execute("SELECT id, target_name, spec_json FROM ML_JOBS").fetchall() == [
        (1, "a", '{"n":"a"}'),
        (2, "b", '{"n":"b"}'),
        (3, "c", '{"n":"c"}'),
    ]
    assert version is not None


def test_lastrowid_is_right_for_a_large_spec_too(connection):
    connection.execute("INSERT INTO ML_JOBS (kind, spec_json) VALUES ('noop', json_object('a', hex(zeroblob(1000))))")

    assert connection.last_insert_rowid() == 1
    assert connection.execute("SELECT length(spec_json) FROM ML_JOBS WHERE id = 1").get == 2008


def test_an_insert_may_set_what_a_submission_can(connection):
    connection.execute(
        "INSERT INTO ML_JOBS (kind, target_name, spec_json, priority, run_at_ms, max_attempts, tag)"
        " VALUES ('noop', 't', NULL, 4, 1893456000000, 3, 'tag')"
    )

    assert connection.execute(
        "SELECT kind, target_name, spec_json, priority, run_at_ms, max_attempts, tag, status FROM ML_JOBS"
    ).fetchall() == [("noop", "t", "{}", 4, 1893456000000, 3, "tag", "queued")]


@pytest.mark.parametrize(
    ("given", "kept"), [("5", "5"), ("5.5", "5.5"), ("1e300", "1.0e+300"), ("NULL", ""), ("''", "")]
)
def test_a_target_that_is_a_number_is_kept_as_a_column_of_texts_keeps_it(connection, given, kept):
    connection.execute(f"INSERT INTO ML_JOBS (kind, target_name) VALUES ('noop', {given})")
    connection.execute("CREATE TABLE t (x TEXT)")

    assert connection.execute("SELECT target_name FROM ML_JOBS").get == kept


@pytest.mark.parametrize(
    "column",
    [
        name
        for name in CONTRACT + MORE
        if name not in ("kind", "target_name", "spec_json", "priority", "run_at_ms", "max_attempts", "tag")
    ]
    + ["rowid"],
)
def test_an_insert_that_sets_anything_else_is_refused_by_name(connection, column):
    with pytest.raises(
        mldb.UsageError, match=f"INSERT INTO ML_JOBS cannot set {'id' if column == 'rowid' else column}; give kind"
    ):
        connection.execute(f"INSERT INTO ML_JOBS (kind, {column}) VALUES ('noop', 1)")

    assert connection.execute("SELECT count(*) FROM ml_job").get == 0


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("kind) VALUES (NULL", "kind must be a text"),
        ("kind) VALUES (5", "kind must be a text"),
        ("kind) VALUES ('')--", "kind must have 1 to 200 characters"),
        ("target_name) VALUES ('x'", "kind must be a text"),
        ("kind, target_name) VALUES ('noop', x'00'", "target must be a text"),
        ("kind, spec_json) VALUES ('noop', 'broken'", "spec is not valid JSON"),
        ("kind, spec_json) VALUES ('noop', 5", "spec must be the text of a JSON object"),
        ("kind, priority) VALUES ('noop', 1.5", "option 'priority' must be"),
        ("kind, priority) VALUES ('noop', 'high'", "option 'priority' must be"),
        ("kind, priority) VALUES ('noop', x'00'", "priority"),
        ("kind, priority) VALUES ('noop', 9e999", "priority"),
        ("kind, run_at_ms) VALUES ('noop', -1", "run_at"),
        ("kind, run_at_ms) VALUES ('noop', 1893456000", "looks like seconds"),
        ("kind, max_attempts) VALUES ('noop', 0", "option 'max_attempts' must be"),
        ("kind, tag) VALUES ('noop', 5", "option 'tag' must be"),
        ("kind, spec_json) VALUES ('train', '{\"query\": \"DELETE FROM ml_job\"}'", "SELECT"),
    ],
)
def test_an_insert_that_cannot_be_right_is_refused_in_words(connection, columns, words):
    with pytest.raises(mldb.MldbError, match=words):
        connection.execute(f"INSERT INTO ML_JOBS ({columns})")

    assert connection.execute("SELECT count(*) FROM ml_job").get == 0


def test_an_insert_in_autocommit_refuses_a_query_on_a_table_that_is_not_there(connection):
    with pytest.raises(mldb.QueryRefused, match="nowhere"):
        connection.execute(
            "INSERT INTO ML_JOBS (kind, spec_json) VALUES ('train', '{\"query\": \"SELECT x FROM nowhere\"}')"
        )

    assert connection.execute("SELECT count(*) FROM ml_job").get == 0


@pytest.mark.parametrize("way", ["OR IGNORE", "OR REPLACE", "OR FAIL", "OR ABORT", "OR ROLLBACK"])
def test_a_conflict_clause_does_not_hide_an_error(connection, way):
    with pytest.raises(mldb.UsageError):
        connection.execute(f"INSERT {way} INTO ML_JOBS (kind, spec_json) VALUES ('noop', NULL), ('noop', 'broken')")

    assert connection.execute("SELECT count(*) FROM ml_job").get <= 1


def test_default_values_are_no_job(connection):
    with pytest.raises(mldb.UsageError, match="kind must be a text"):
        connection.execute("INSERT INTO ML_JOBS DEFAULT VALUES")


def test_an_update_to_cancelled_cancels_what_is_not_over_and_leaves_the_rest(connection, job_in):
    for status in STATUSES:
        job_in(connection, status)
    before = connection.execute("SELECT * FROM ml_job WHERE stopped_at_ms IS NOT NULL").fetchall()

    connection.execute("UPDATE ML_JOBS SET status = 'cancelled'")

    assert connection.execute("SELECT status, stopped_at_ms IS NULL FROM ML_JOBS").fetchall() == [
        ("cancelled", 0),
        ("cancelled", 1),
        ("completed", 0),
        ("failed", 0),
        ("cancelled", 0),
    ]
    assert connection.execute("SELECT * FROM ml_job WHERE id > 2").fetchall() == before


@pytest.mark.parametrize(
    ("where", "cancelled"),
    [
        ("id = 2", [2]),
        ("id IN (1, 3)", [1, 3]),
        ("status = 'queued'", list(range(1, 201))),
        ("kind = 'noop' AND id > 195", list(range(196, 201))),
        ("id % 100 = 0", [100, 200]),
        ("id = 999", []),
    ],
)
@pytest.mark.parametrize("begin", ["BEGIN", "SELECT 1"])
def test_an_update_cancels_the_jobs_that_its_condition_names(connection, begin, where, cancelled):
    fill(connection, 200)
    connection.execute(begin).fetchall()

    connection.execute(f"UPDATE ML_JOBS SET status = 'cancelled' WHERE {where}")

    assert connection.execute("SELECT id FROM ML_JOBS WHERE status = 'cancelled'").fetchall() == [
        (j,) for j in cancelled
    ]
    assert connection.changes() == len(cancelled)


@pytest.mark.parametrize(
    "change",
    [
        "status = 'queued'",
        "status = 'completed'",
        "status = 'CANCELLED'",
        "status = NULL",
        "status = 5",
        "progress = 50",
        "priority = 5",
        "kind = 'other'",
        "id = 77",
        "rowid = 77",
        "status = 'cancelled', priority = 5",
        "status = 'cancelled', id = 77",
        "message = 'x'",
        "tag = tag",
    ],
)
def test_any_other_update_is_refused_and_changes_nothing(connection, job_in, change):
    job_in(connection, "queued")
    before = connection.execute("SELECT * FROM ml_job").fetchall()

    with pytest.raises(mldb.UsageError, match="the only change to ML_JOBS is SET status = 'cancelled'"):
        connection.execute(f"UPDATE ML_JOBS SET {change}")

    assert connection.execute("SELECT * FROM ml_job").fetchall() == before


def test_a_delete_removes_jobs_that_are_over(connection, job_in):
    for status in sorted(TERMINAL):
        job_in(connection, status, spec_json='{"a": "' + "x" * 2000 + '"}')
    live = job_in(connection, "queued")

    connection.execute("DELETE FROM ML_JOBS WHERE status IN ('completed', 'failed', 'cancelled')")

    assert connection.execute("SELECT id FROM ML_JOBS").fetchall() == [(live,)]
    assert connection.execute("SELECT count(*) FROM ml_spec").get == 0


@pytest.mark.parametrize(
    ("status", "body"), [("queued", False), ("running", False), ("cancelled", True), ("failed", True)]
)
@pytest.mark.parametrize("begin", ["BEGIN", "SELECT 1"])
def test_a_delete_that_meets_a_live_job_fails_whole(connection, job_in, begin, status, body):
    fill(connection, 100, status="cancelled")
    live = job_in(connection, status, body=body)
    fill(connection, 100, kind="later", status="cancelled")
    connection.execute(begin).fetchall()

    with pytest.raises(
        mldb.UsageError, match=rf"job {live} is not over.*cannot be deleted; .*ml_cancel\({live}\)|job {live} "
    ):
        connection.execute("DELETE FROM ML_JOBS")

    assert connection.execute("SELECT count(*) FROM ml_job").get == 201
    assert connection.in_transaction == (begin == "BEGIN")


def test_a_delete_of_an_unknown_job_does_nothing(connection):
    connection.execute("DELETE FROM ML_JOBS WHERE id = 5")

    assert connection.changes() == 0


def test_an_upsert_or_returning_never_writes_something_else(connection):
    with pytest.raises(apsw.SQLError, match="virtual table"):
        connection.execute("INSERT INTO ML_JOBS (kind) VALUES ('noop') ON CONFLICT DO UPDATE SET status = 'cancelled'")

    rows = connection.execute("INSERT INTO ML_JOBS (kind) VALUES ('noop') RETURNING kind, id").fetchall()

    assert [row[0] for row in rows] == ["noop"]
    assert connection.execute("SELECT id, kind FROM ML_JOBS").fetchall() == [(1, "noop")]


def test_the_table_cannot_be_altered_dropped_or_indexed(connection):
    for sql in ("DROP TABLE ML_JOBS", "ALTER TABLE ML_JOBS ADD COLUMN x", "CREATE INDEX x ON ML_JOBS (kind)"):
        with pytest.raises(apsw.SQLError):
            connection.execute(sql)

    assert connection.execute("SELECT count(*) FROM ML_JOBS").get == 0

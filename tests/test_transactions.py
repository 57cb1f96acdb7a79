"""Where a call writes: in the caller's transaction when there is one, beside it otherwise."""

from __future__ import annotations

import threading

import apsw
import pytest

import mldb


@pytest.fixture
def names(connection):
    """A table of 1000 names, and the connection."""
    connection.execute("CREATE TABLE t (name TEXT)")
    connection.execute(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)"
        " INSERT INTO t SELECT 'n' || i FROM n"
    )
    return connection


def ids(connection):
    return [row[0] for row in connection.execute("SELECT id FROM ml_job ORDER BY id")]


def committed(path):
    """What another connection sees."""
    other = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return ids(other)
    finally:
        other.close()


def test_submits_of_a_running_select_go_through_while_another_connection_commits(names, connect):
    other = connect()
    given = []

    for number, (job,) in enumerate(names.execute("SELECT ml_submit('noop', name, '{}') FROM t")):
        given.append(job)
        if number % 10 == 0:
            other.execute("INSERT INTO ml_job (kind) VALUES ('other')")

    assert len(set(given)) == 1000
    assert names.execute("SELECT count(*) FROM ml_job WHERE kind = 'noop'").get == 1000
    assert names.execute("SELECT count(*) FROM ml_job").get == 1100


def test_cancels_of_a_running_select_go_through_while_another_connection_commits(names, connect):
    names.execute("INSERT INTO ML_JOBS (kind, target_name) SELECT 'noop', name FROM t")
    other = connect()
    answers = []

    for number, (_, done) in enumerate(names.execute("SELECT id, ml_cancel(id) FROM ML_JOBS")):
        answers.append(done)
        if number % 100 == 0:
            other.execute("INSERT INTO ml_job (kind) VALUES ('other')")

    assert answers == [1] * 1000
    assert names.execute("SELECT count(*) FROM ml_job WHERE status = 'cancelled'").get == 1000


def test_an_autocommit_submit_is_committed_at_once_and_each_for_itself(names, path):
    rows = names.execute("SELECT ml_submit('noop', name, '{}') FROM t")

    first = next(rows)[0]

    assert committed(path)[0] == first
    rows.close()


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "SAVEPOINT s"])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("options", ["NULL", '\'{"priority": 3, "unique": "k"}\''])
def test_inside_a_transaction_a_job_appears_with_the_commit_and_vanishes_with_the_rollback(
    connection, path, begin, end, options
):
    connection.execute(begin)
    job = connection.execute(f"SELECT ml_submit('noop', 'x', '{{}}', {options})").get

    assert ids(connection) == [job]
    assert committed(path) == []
    connection.execute(end)
    assert committed(path) == ([job] if end == "COMMIT" else [])


def test_rollback_to_a_savepoint_takes_back_what_came_after_it(connection, path):
    connection.execute("BEGIN")
    kept = connection.execute("SELECT ml_submit('noop', 'kept', NULL)").get
    connection.execute("SAVEPOINT s")
    lost = connection.execute("SELECT ml_submit('noop', 'lost', NULL)").get
    assert connection.execute("SELECT ml_cancel(?)", (kept,)).get == 1
    connection.execute("INSERT INTO ML_JOBS (kind) VALUES ('noop')")

    connection.execute("ROLLBACK TO s")
    connection.execute("COMMIT")

    assert lost > kept
    assert committed(path) == [kept]
    assert connection.execute("SELECT status FROM ML_JOBS").get == "queued"


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_cancel_retry_prune_and_ml_jobs_go_with_the_transaction_too(connection, path, job_in, end):
    old, live = job_in(connection, "completed"), job_in(connection, "queued")
    again = job_in(connection, "completed")
    connection.execute("BEGIN")

    connection.execute("SELECT ml_cancel(?)", (live,)).fetchall()
    new = connection.execute("SELECT ml_retry(?)", (again,)).get
    connection.execute("DELETE FROM ML_JOBS WHERE id = ?", (old,))
    removed = connection.execute("SELECT ml_prune(0)").get

    assert removed == 2
    assert committed(path) == [old, live, again]
    connection.execute(end)
    assert committed(path) == ([new] if end == "COMMIT" else [old, live, again])


def test_ml_jobs_shows_what_the_own_transaction_did(connection):
    connection.execute("BEGIN")
    job = connection.execute("SELECT ml_submit('noop', 'x', NULL)").get

    assert connection.execute("SELECT id FROM ML_JOBS").fetchall() == [(job,)]
    assert connection.execute("SELECT id FROM ML_JOBS WHERE id = ?", (job,)).fetchall() == [(job,)]
    assert connection.execute("SELECT id FROM ML_JOBS WHERE status = 'queued'").fetchall() == [(job,)]
    connection.execute("ROLLBACK")


def test_under_an_insert_into_the_main_database_jobs_and_rows_come_together(names, path):
    names.execute("CREATE TABLE started (name TEXT, job INTEGER)")

    names.execute("INSERT INTO started SELECT name, ml_submit('noop', name, NULL) FROM t")

    assert names.execute("SELECT count(*) FROM started JOIN ml_job ON id = job AND target_name = name").get == 1000
    assert len(committed(path)) == 1000


def test_under_an_insert_into_the_main_database_jobs_go_with_a_failure(names, path):
    names.execute("CREATE TABLE started (name TEXT CHECK (name <> 'n500'), job INTEGER)")

    with pytest.raises(apsw.ConstraintError):
        names.execute("INSERT INTO started SELECT name, ml_submit('noop', name, NULL) FROM t")

    assert committed(path) == []
    assert names.execute("SELECT count(*) FROM started").get == 0


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE t SET name = ml_submit('noop', name, NULL)",
        "DELETE FROM t WHERE ml_submit('noop', name, NULL) > 0",
        "INSERT OR REPLACE INTO keyed SELECT name, ml_submit('noop', name, NULL) FROM t",
        "CREATE TABLE made AS SELECT ml_submit('noop', name, NULL) AS job FROM t",
    ],
)
def test_under_any_statement_that_writes_each_row_submits_once(names, path, statement):
    names.execute("CREATE TABLE keyed (name TEXT PRIMARY KEY, job INTEGER)")

    names.execute(statement).fetchall()

    assert len(committed(path)) == 1000


@pytest.mark.parametrize("where", ["temp", "other"])
def test_under_an_insert_into_another_database_each_row_submits_once(names, tmp_path, connect, where):
    names.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
    names.execute(f"CREATE TABLE {where}.started (name TEXT, job INTEGER)")
    connect().execute("INSERT INTO ml_job (kind) VALUES ('another')")

    names.execute(f"INSERT INTO {where}.started SELECT name, ml_submit('noop', name, NULL) FROM t")

    assert (
        names.execute(f"SELECT count(*) FROM {where}.started JOIN ml_job ON id = job AND target_name = name").get
        == 1000
    )
    names.execute("DETACH other")


@pytest.mark.parametrize("where", ["temp", "other"])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_in_a_transaction_that_wrote_elsewhere_the_job_goes_with_it(connection, path, tmp_path, where, end):
    connection.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
    connection.execute(f"CREATE TABLE {where}.started (job INTEGER)")
    connection.execute("BEGIN")

    connection.execute(f"INSERT INTO {where}.started SELECT ml_submit('noop', 'x', NULL)")
    connection.execute(end)

    assert len(committed(path)) == (end == "COMMIT")
    assert connection.execute(f"SELECT count(*) FROM {where}.started").get == (end == "COMMIT")
    connection.execute("DETACH other")


def test_an_insert_returning_gives_the_id_of_the_job(connection, path):
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")

    rows = connection.execute(
        "INSERT INTO orders (name) VALUES ('x'), ('y') RETURNING id, ml_submit('noop', name, json_object('order', id))"
    ).fetchall()

    assert rows == [(1, 1), (2, 2)]
    assert connection.execute("SELECT target_name, spec_json FROM ML_JOBS").fetchall() == [
        ("x", '{"order":1}'),
        ("y", '{"order":2}'),
    ]
    assert committed(path) == [1, 2]


def test_an_insert_returning_in_a_transaction_goes_with_the_rollback(connection, path):
    connection.execute("CREATE TABLE orders (name TEXT)")
    connection.execute("BEGIN")
    connection.execute("INSERT INTO orders VALUES ('x') RETURNING ml_submit('noop', name, NULL)").fetchall()

    connection.execute("ROLLBACK")

    assert committed(path) == []


@pytest.mark.parametrize("spec", ["NULL", "json_object('a', hex(zeroblob(1000)))"])
@pytest.mark.parametrize(
    "call",
    [
        "SELECT ml_submit('noop', 'x', {spec})",
        "SELECT ml_submit('noop', 'x', {spec}, '{{\"delay\": 5, \"unique\": \"u\"}}')",
        "SELECT ml_cancel(1)",
        "SELECT ml_retry(2)",
        "SELECT ml_prune(0)",
        "UPDATE ML_JOBS SET status = 'cancelled'",
        "DELETE FROM ML_JOBS WHERE status = 'completed'",
    ],
)
@pytest.mark.parametrize("begin", ["BEGIN", "SELECT 1"])
def test_last_insert_rowid_stays_that_of_the_users_own_insert(connection, job_in, begin, call, spec):
    job_in(connection, "queued")
    job_in(connection, "completed", spec_json='{"a": "' + "x" * 2000 + '"}')
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")
    connection.execute(begin).fetchall()
    connection.execute("INSERT INTO orders VALUES (77, 'x')")

    connection.execute(call.format(spec=spec)).fetchall()

    assert connection.last_insert_rowid() == 77
    assert connection.execute("SELECT last_insert_rowid()").get == 77


def test_last_insert_rowid_under_the_users_own_insert_is_theirs(connection):
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, job INTEGER)")

    connection.execute("INSERT INTO orders SELECT 77, ml_submit('noop', 'x', json_object('a', hex(zeroblob(1000))))")

    assert connection.last_insert_rowid() == 77


@pytest.mark.parametrize("begin", ["BEGIN", "SELECT 1"])
def test_changes_counts_the_users_own_rows(names, begin):
    names.execute("CREATE TABLE started (job INTEGER)")
    names.execute(begin).fetchall()

    names.execute("INSERT INTO started SELECT ml_submit('noop', name, NULL) FROM t LIMIT 7")

    assert names.changes() == 7


@pytest.mark.parametrize("begin", ["BEGIN", "SELECT 1"])
def test_changes_counts_the_jobs_of_a_write_to_ml_jobs(connection, begin):
    connection.execute(begin).fetchall()
    connection.execute("INSERT INTO ML_JOBS (kind) VALUES ('a'), ('b'), ('c')")
    inserted = connection.changes()
    connection.execute("UPDATE ML_JOBS SET status = 'cancelled' WHERE id < 3")
    updated = connection.changes()
    connection.execute("DELETE FROM ML_JOBS WHERE id = 1")

    assert (inserted, updated, connection.changes()) == (3, 2, 1)


def test_a_failing_row_of_an_insert_into_ml_jobs_leaves_none(names, path):
    with pytest.raises(mldb.UsageError, match="spec is not valid JSON"):
        names.execute("INSERT INTO ML_JOBS (kind, spec_json) SELECT 'noop', iif(name = 'n500', 'broken', '{}') FROM t")

    assert committed(path) == []
    assert not names.in_transaction


def test_a_failing_row_in_a_transaction_leaves_what_was_before(names, path):
    names.execute("BEGIN")
    before = names.execute("SELECT ml_submit('noop', 'before', NULL)").get
    names.execute("INSERT INTO t VALUES ('mine')")

    with pytest.raises(mldb.UsageError):
        names.execute("INSERT INTO ML_JOBS (kind, spec_json) SELECT 'noop', iif(name = 'n500', 'broken', '{}') FROM t")

    assert names.in_transaction
    assert ids(names) == [before]
    names.execute("COMMIT")
    assert committed(path) == [before]
    assert names.execute("SELECT count(*) FROM t").get == 1001


def test_a_failing_row_of_submits_in_a_transaction_leaves_the_transaction_usable(names, path):
    names.execute("BEGIN")

    with pytest.raises(mldb.UsageError):
        names.execute("SELECT ml_submit('noop', name, iif(name = 'n5', 'broken', NULL)) FROM t").fetchall()

    assert names.in_transaction
    names.execute("COMMIT")
    assert len(committed(path)) == 4


def test_a_transaction_that_read_before_another_committed_is_told_to_begin_again(connection, connect):
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM ml_job").fetchall()
    connect().execute("INSERT INTO ml_job (kind) VALUES ('other')")
    begin_again = "another connection committed since .*; ROLLBACK, and begin it again with BEGIN IMMEDIATE"

    for call in (
        "SELECT ml_submit('noop', 'x', NULL)",
        "SELECT ml_submit('noop', 'x', NULL, '{\"priority\": 1}')",
        "SELECT ml_cancel(1)",
        "SELECT ml_prune(0)",
    ):
        with pytest.raises(mldb.Busy, match=begin_again):
            connection.execute(call).fetchall()

    assert connection.in_transaction
    connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    assert connection.execute("SELECT ml_submit('noop', 'x', NULL)").get == 2
    connection.execute("COMMIT")


def test_a_write_to_ml_jobs_from_an_old_snapshot_fails_and_leaves_the_transaction(connection, connect):
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM ml_job").fetchall()
    connect().execute("INSERT INTO ml_job (kind) VALUES ('other')")

    with pytest.raises((mldb.Busy, apsw.BusyError)):
        connection.execute("INSERT INTO ML_JOBS (kind) VALUES ('noop')")

    assert connection.in_transaction
    connection.execute("ROLLBACK")


def test_a_lock_that_another_holds_is_told_in_words(connection, connect):
    connect().execute("BEGIN IMMEDIATE")
    connection.set_busy_timeout(0)
    connection.execute("BEGIN")

    with pytest.raises(mldb.Busy, match=r"another connection holds the write lock .*; let it COMMIT, then try again"):
        connection.execute("SELECT ml_submit('noop', 'x', NULL)")

    connection.execute("ROLLBACK")


def refused(queue, call):
    with pytest.raises(mldb.UsageError, match=r"this thread has a write transaction open on queue.connection"):
        call(queue)


@pytest.mark.parametrize(
    "call",
    [
        lambda q: q.submit("noop", "x"),
        lambda q: q.submit("noop", "x", unique="k"),
        lambda q: q.cancel(1),
        lambda q: q.retry(1),
        lambda q: q.prune(0),
        lambda q: q.wait(1, timeout=0.05),
    ],
    ids=["submit", "submit with options", "cancel", "retry", "prune", "wait"],
)
def test_a_method_that_would_wait_for_its_own_thread_is_refused_at_once(impatient, queue, call):
    q = queue()
    q.submit("noop", "first")
    q.connection.execute("BEGIN IMMEDIATE")

    refused(q, call)

    q.connection.execute("ROLLBACK")


def test_a_method_is_refused_under_an_open_statement_that_writes(impatient, queue):
    q = queue()
    q.connection.execute("CREATE TABLE orders (name TEXT)")
    rows = q.connection.execute("INSERT INTO orders VALUES ('x'), ('y') RETURNING name")
    next(rows)

    refused(q, lambda q: q.submit("noop", "x"))

    rows.close()


def test_reading_and_a_deferred_transaction_that_only_read_do_not_refuse_a_submit(queue):
    q = queue()
    q.connection.execute("BEGIN")
    q.connection.execute("SELECT count(*) FROM ML_JOBS").fetchall()

    assert q.submit("noop", "x") == 1

    q.connection.execute("COMMIT")


def test_the_same_refusal_holds_for_an_attached_connection(impatient, connect):
    connection = connect()
    q = mldb.attach(connection, workers=0)
    connection.execute("BEGIN IMMEDIATE")

    refused(q, lambda q: q.submit("noop", "x"))

    connection.execute("ROLLBACK")
    q.shutdown()


def test_another_thread_waits_for_the_transaction_instead_of_being_refused(queue):
    q = queue()
    q.connection.execute("BEGIN IMMEDIATE")
    given, about_to = [], threading.Event()

    def submit():
        about_to.set()
        given.append(q.submit("noop", "from another thread"))

    thread = threading.Thread(target=submit)
    thread.start()
    about_to.wait()
    q.connection.execute("INSERT INTO ml_job (kind, target_name) VALUES ('noop', 'mine')")
    q.connection.execute("COMMIT")
    thread.join()

    assert given == [2]


def test_reads_of_the_queue_are_not_refused_in_a_write_transaction(queue):
    q = queue()
    job = q.submit("noop", "x")
    q.connection.execute("BEGIN IMMEDIATE")

    assert q.get(job).id == job
    assert [each.id for each in q.list()] == [job]

    q.connection.execute("ROLLBACK")


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_submit_with_a_connection_is_part_of_its_transaction(queue, path, end):
    q = queue()
    q.connection.execute("BEGIN IMMEDIATE")

    job = q.submit("noop", "x", {"a": 1}, connection=q.connection, priority=2)
    q.connection.execute(end)

    assert committed(path) == ([job] if end == "COMMIT" else [])


def test_a_submit_with_a_connection_that_was_not_equipped_says_what_to_do(queue, connect):
    q = queue()

    with pytest.raises(mldb.MldbError, match=r"has no ml_submit; .*attach"):
        q.submit("noop", "x", connection=connect())


def test_a_user_who_holds_a_read_cursor_open_keeps_nobody_from_submitting(queue):
    q = queue()
    for _ in range(3):
        q.submit("noop", "x")
    rows = q.connection.execute("SELECT id FROM ML_JOBS")
    next(rows)

    assert q.submit("noop", "y") == 4
    assert q.connection.execute("SELECT ml_submit('noop', 'z', NULL)").get == 5
    rows.close()


def test_a_submit_in_a_subquery_that_is_filtered_is_at_least_never_lost(connection):
    # SQLite itself evaluates the call once per use; the idiom for one call is MATERIALIZED.
    rows = connection.execute(
        "WITH submitted (id) AS MATERIALIZED (SELECT ml_submit('noop', 'x', NULL))"
        " SELECT id FROM submitted WHERE id > 0"
    ).fetchall()

    assert rows == [(1,)]
    assert ids(connection) == [1]


@pytest.mark.parametrize(
    "call",
    [
        "ml_submit('noop', 'x', NULL)",
        "ml_submit('noop', 'x', NULL, NULL)",
        "ml_cancel(1)",
        "ml_retry(1)",
        "ml_prune(0)",
        "ml_wait(1)",
        "ml_wait(1, 0)",
        "ml_init()",
        "ml_predict('m', '{}')",
        "(SELECT count(*) FROM ML_JOBS)",
    ],
)
def test_views_and_triggers_of_the_file_cannot_reach_the_queue(connection, call):
    connection.execute("CREATE TABLE t (x)")
    connection.execute(f"CREATE VIEW v AS SELECT {call} AS x")
    connection.execute(f"CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT {call}; END")

    for sql in ("SELECT * FROM v", "INSERT INTO t VALUES (1)"):
        with pytest.raises(apsw.SQLError, match="unsafe use"):
            connection.execute(sql).fetchall()

    assert ids(connection) == []


def test_a_trigger_of_the_file_cannot_write_to_ml_jobs(connection):
    connection.execute("CREATE TABLE t (x)")

    with pytest.raises(apsw.SQLError, match="unsafe use"):
        connection.execute(
            "CREATE TRIGGER r AFTER INSERT ON t BEGIN INSERT INTO ML_JOBS (kind) VALUES ('noop'); END"
        ).fetchall()
        connection.execute("INSERT INTO t VALUES (1)").fetchall()

    assert ids(connection) == []


@pytest.mark.parametrize(
    "table",
    [
        "t (x DEFAULT (ml_submit('noop', 'x', NULL)), y)",
        "t (y CHECK (ml_submit('noop', 'x', NULL) > 0))",
        "t (y, x AS (ml_submit('noop', 'x', NULL)))",
    ],
)
def test_a_table_cannot_hide_a_call_in_its_definition(connection, table):
    with pytest.raises(apsw.SQLError):
        connection.execute(f"CREATE TABLE {table}").fetchall()
        connection.execute("INSERT INTO t (y) VALUES (1)").fetchall()

    assert ids(connection) == []

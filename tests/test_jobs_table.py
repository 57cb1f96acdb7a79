"""ML_JOBS: what it shows, how little it reads for it, and what can be written to it."""

from __future__ import annotations

import random
import re
import tracemalloc

import pytest

import mldb
from mldb.job import STATUSES, TERMINAL
from mldb.store import jobs

CONTRACT = (
    *("id", "kind", "target_name", "status", "progress", "created_at_ms", "started_at_ms", "finished_at_ms"),
    *("error_message", "spec_json", "metrics_json"),
)
MORE = (
    *("priority", "run_at_ms", "attempt", "max_attempts", "owner", "stopped_at_ms", "duration_ms", "message", "tag"),
    "retry_of",
)


def fill(connection, number, *, kind="noop", status="queued"):
    """Add many jobs at once, and bring them to a status."""
    connection.execute("BEGIN")
    connection.execute(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        " INSERT INTO ml_job (kind, target_name) SELECT ?, 't' || i % 7 FROM n",
        (number, kind),
    )
    if status == "cancelled":
        connection.execute(
            "UPDATE ml_job SET status = 'cancelled', finished_at_ms = 1, stopped_at_ms = 1 WHERE kind = ?", (kind,)
        )
    connection.execute("COMMIT")


@pytest.fixture
def reads(monkeypatch):
    """How many rows each call of the store gave."""
    calls = []
    original = jobs.rows

    def counted(connection, **arguments):
        found = original(connection, **arguments)
        calls.append(len(found[0]))
        return found

    monkeypatch.setattr(jobs, "rows", counted)
    return calls


def steps_of(connection, sql, bindings=()):
    """Count the virtual machine's steps in a statement and in those that run beneath it."""
    steps = [0]
    connection.set_progress_handler(lambda: bool(steps.__setitem__(0, steps[0] + 1)), 1)
    try:
        connection.execute(sql, bindings).fetchall()
    finally:
        connection.set_progress_handler(None)
    return steps[0]


def test_the_columns_are_those_of_the_contract_and_then_the_others(connection):
    names = tuple(row[1] for row in connection.execute("PRAGMA table_info(ML_JOBS)"))

    assert names[:11] == CONTRACT
    assert names[11:21] == MORE


def test_the_names_of_the_columns_come_with_the_rows(connection, job_in):
    job_in(connection, "queued")

    cursor = connection.execute("SELECT * FROM ml_jobs")

    assert tuple(column[0] for column in cursor.get_description()) == CONTRACT + MORE
    cursor.close()


def test_what_is_not_set_is_null(connection, job_in):
    job_in(connection, "queued")

    row = dict(zip(CONTRACT + MORE, connection.execute("SELECT * FROM ML_JOBS").fetchone(), strict=True))

    assert {name for name, value in row.items() if value is None} == {
        *("started_at_ms", "finished_at_ms", "error_message", "metrics_json", "run_at_ms", "owner", "stopped_at_ms"),
        *("duration_ms", "tag", "retry_of"),
    }


@pytest.mark.parametrize("name", ["ML_JOBS", "ml_jobs", "Ml_Jobs", "main.ML_JOBS", '"ML_JOBS"'])
def test_the_table_is_found_however_it_is_written(connection, job_in, name):
    job_in(connection, "queued")

    assert connection.execute(f"SELECT id FROM {name}").fetchall() == [(1,)]


def test_python_gives_the_same_rows_as_the_table(queue, job_in):
    q = queue()
    for status in STATUSES:
        job_in(q.connection, status, tag="t", run_at_ms=5)

    rows = q.connection.execute("SELECT * FROM ML_JOBS").fetchall()

    assert [tuple(getattr(job, name) for name in CONTRACT + MORE) for job in q.list()] == rows
    assert [q.get(row[0]) for row in rows] == q.list()


@pytest.mark.parametrize("status", [None, *STATUSES])
@pytest.mark.parametrize("kind", [None, "noop", "other", "unknown"])
def test_python_lists_by_status_and_kind(queue, job_in, status, kind):
    q = queue()
    for each in STATUSES:
        for of in ("noop", "other"):
            job_in(q.connection, each, kind=of)

    found = [(job.status, job.kind) for job in q.list(status=status, kind=kind)]

    assert found == [(s, k) for s in STATUSES for k in ("noop", "other") if status in (None, s) and kind in (None, k)]


def test_python_lists_more_than_a_chunk(queue):
    q = queue()
    fill(q.connection, 2500)
    fill(q.connection, 5, kind="rare")

    assert [job.id for job in q.list()] == list(range(1, 2506))
    assert [job.id for job in q.list(status="queued", kind="rare")] == list(range(2501, 2506))


def test_python_refuses_an_unknown_status(queue):
    with pytest.raises(mldb.UsageError, match="there is no status 'done'; the statuses are queued, running"):
        queue().list(status="done")


# ---- the same rows as the view -------------------------------------------------------------------------------------

NUMBERS = [
    *("0", "1", "5", "64", "65", "150", "299", "301", "-1", "-5", "5.0", "5.5", "-0.5", "64.999", "1e300", "-1e300"),
    *("9e999", "-9e999", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "9.3e18", "NULL"),
    *("'5'", "'5.0'", "'abc'", "''", "x'35'", "'  7'", "(SELECT 5)", "(SELECT NULL)", "(1 + 4)", "CAST('5' AS BLOB)"),
]
TEXTS = {
    "status": [
        "'queued'",
        "'running'",
        "'completed'",
        "'failed'",
        "'cancelled'",
        "'QUEUED'",
        "'none'",
        "''",
        "NULL",
        "5",
        "x'717565756564'",
        "(SELECT 'queued')",
    ],
    "kind": ["'noop'", "'NOOP'", "'other'", "'1'", "1", "1.0", "'none'", "NULL", "x'6e6f6f70'", "''"],
    "target_name": ["''", "'t1'", "'T1'", "'5'", "5", "5.0", "'5.0'", "NULL", "'none'"],
}


def a_term(pick):
    """Write one random condition."""
    shape = pick.randrange(12)
    operator = pick.choice(["=", "=", "=", "<", "<=", ">", ">=", "<>", "IS", "IS NOT", "=="])
    if shape < 4:
        column = pick.choice(["id", "id", "rowid"])
        return f"{column} {operator} {pick.choice(NUMBERS)}"
    if shape == 4:
        return f"id {pick.choice(['', 'NOT '])}BETWEEN {pick.choice(NUMBERS)} AND {pick.choice(NUMBERS)}"
    if shape == 5:
        return f"id {pick.choice(['', 'NOT '])}IN ({', '.join(pick.choices(NUMBERS, k=pick.randrange(5)))})"
    if shape < 9:
        column = pick.choice(list(TEXTS))
        collation = pick.choice(["", "", "", " COLLATE NOCASE", " COLLATE RTRIM"])
        if pick.random() < 0.4:
            values = ", ".join(pick.choices(TEXTS[column], k=pick.randrange(4)))
            return f"{column}{collation} {pick.choice(['', '', 'NOT '])}IN ({values})"
        return f"{column} {operator} {pick.choice(TEXTS[column])}{collation}"
    if shape == 9:
        return pick.choice(
            ["id % 2 = 0", "status LIKE 'C%'", "progress > 10", "tag IS NULL", "tag = 'b'", "length(kind) = 4"]
        )
    if shape == 10:
        return f"({a_term(pick)} OR {a_term(pick)})"
    return pick.choice(
        [
            "id IN (SELECT retry_of FROM ml_job)",
            "status IN (SELECT becomes FROM ml_move)",
            "kind IN (SELECT 'noop')",
            "status IN (SELECT was FROM ml_move WHERE was = 'queued')",
            "NOT status = 'queued'",
        ]
    )


def a_query(pick):
    """Write one random query, with TABLE for the table; give it, and how its answers compare."""
    where = " AND ".join(a_term(pick) for _ in range(pick.choice([0, 1, 1, 1, 2, 2, 3])))
    order = pick.choice(
        [
            "",
            "id",
            "id ASC",
            "id DESC",
            "id DESC",
            "rowid",
            "status, id",
            "kind DESC, id DESC",
            "progress, id",
            "id, kind",
            "+id",
            "id COLLATE NOCASE",
            "1",
            "created_at_ms, id DESC",
            "id NULLS LAST",
            "id DESC NULLS FIRST",
        ]
    )
    limit = ""
    if pick.random() < 0.6:
        limit = f" LIMIT {pick.choice([0, 1, 2, 5, 10, 63, 64, 65, 130, 1000, -1])}"
        if pick.random() < 0.4:
            limit += f" OFFSET {pick.choice([0, 1, 3, 64, 100, 1000, -1])}"
    columns = pick.choice(
        [
            "id, status, kind, target_name",
            "*",
            "id",
            "id, message, spec_json",
            "count(*), min(id), max(id)",
            "DISTINCT id, kind",
        ]
    )
    if columns.startswith("count"):
        order = ""
    sql = f"SELECT {columns} FROM TABLE{' WHERE ' + where if where else ''}{' ORDER BY ' + order if order else ''}"
    return sql, limit, bool(order)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A queue of 300 jobs of all kinds and statuses, with gaps; nothing changes it."""
    pick = random.Random(20)
    q = mldb.open(tmp_path_factory.mktemp("jobs") / "shop.db", workers=0)
    connection = q.connection
    connection.execute("BEGIN")
    for number in range(1, 331):
        connection.execute(
            "INSERT INTO ml_job (kind, target_name, spec_json, tag, retry_of) VALUES (?, ?, ?, ?, ?)",
            (
                pick.choice(["noop", "noop", "noop", "NOOP", "other", "1"]),
                pick.choice(["", "t1", "T1", "5", "5.0", "t2 "]),
                pick.choice([None, "{}", '{"a": 1}', '{"a": "' + "x" * 1500 + '"}']),
                pick.choice([None, "a", "b"]),
                pick.choice([None, None, number // 2]),
            ),
        )
        status = pick.choice([*STATUSES, "queued", "completed"])
        if status == "cancelled":
            connection.execute(
                "UPDATE ml_job SET status = ?, finished_at_ms = 3, stopped_at_ms = 3 WHERE id = ?", (status, number)
            )
        elif status != "queued":
            connection.execute(
                "UPDATE ml_job SET status = 'running', owner = 'w', started_at_ms = 2, progress = 30 WHERE id = ?",
                (number,),
            )
            if status in TERMINAL:
                connection.execute(
                    "UPDATE ml_job SET status = ?, finished_at_ms = 4, stopped_at_ms = 4, error_message = ?,"
                    " progress = 100 WHERE id = ?",
                    (status, "no" if status == "failed" else None, number),
                )
    connection.execute("DELETE FROM ml_job WHERE id % 11 = 0 AND stopped_at_ms IS NOT NULL")
    connection.execute("COMMIT")
    yield connection
    q.shutdown()


@pytest.mark.parametrize("seed", range(30))
def test_any_query_gives_the_rows_that_the_view_gives(mixed, seed):
    pick = random.Random(seed)
    for _ in range(30):
        sql, limit, ordered = a_query(pick)
        ours, theirs = (sql.replace("TABLE", name) for name in ("ML_JOBS", "ml_job_list"))
        if "rowid" in sql:
            theirs = theirs.replace("rowid", "id")

        expected = mixed.execute(theirs + limit).fetchall()
        found = mixed.execute(ours + limit).fetchall()

        if ordered:
            assert found == expected, ours + limit
        elif not limit:
            assert sorted(found, key=repr) == sorted(expected, key=repr), ours
        else:  # without an order any of the rows may come, but so many and none twice
            whole = {repr(row) for row in mixed.execute(theirs)}
            assert len(found) == len(expected), ours + limit
            assert len({repr(row) for row in found}) == len(found), ours + limit
            assert {repr(row) for row in found} <= whole, ours + limit


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.id, b.id FROM TABLE AS a JOIN TABLE AS b ON b.id = a.retry_of ORDER BY 1, 2",
        "SELECT a.id, b.id FROM TABLE a LEFT JOIN TABLE b ON b.id = a.retry_of AND b.status = 'failed' ORDER BY 1, 2",
        "SELECT a.id, b.id FROM TABLE AS a JOIN TABLE AS b ON b.id < a.id AND b.id > a.id - 3 ORDER BY 1, 2",
        "SELECT job.id, log.becomes FROM TABLE AS job JOIN ml_move AS log ON log.was = job.status ORDER BY 1, 2",
        "SELECT log.was, job.id FROM ml_move AS log CROSS JOIN TABLE AS job ON job.status = log.was ORDER BY 1, 2",
        "SELECT status, count(*), sum(progress) FROM TABLE GROUP BY status ORDER BY status",
        "SELECT kind, count(*) AS n FROM TABLE WHERE id > 20 GROUP BY kind HAVING n > 3 ORDER BY n DESC, kind LIMIT 2",
        "SELECT max(id), min(id) FROM TABLE WHERE status = 'failed'",
        "SELECT id, row_number() OVER (PARTITION BY status ORDER BY id DESC) FROM TABLE ORDER BY id",
        "SELECT id FROM TABLE WHERE id = (SELECT max(id) FROM TABLE WHERE status = 'queued')",
        "SELECT id, (SELECT count(*) FROM TABLE AS b WHERE b.id < a.id) FROM TABLE AS a ORDER BY id LIMIT 20",
        "SELECT id FROM TABLE WHERE EXISTS (SELECT 1 FROM TABLE AS b WHERE b.retry_of = TABLE.id) ORDER BY id",
        "SELECT id FROM TABLE WHERE status = 'queued' UNION SELECT id FROM TABLE WHERE id > 9 ORDER BY id LIMIT 9",
        "SELECT * FROM (SELECT id FROM TABLE WHERE status = 'queued' ORDER BY id DESC LIMIT 70) ORDER BY id LIMIT 3",
        "SELECT id FROM (SELECT * FROM TABLE LIMIT 1000) WHERE status = 'queued' AND kind = 'noop' ORDER BY id",
        "SELECT DISTINCT status, kind FROM TABLE ORDER BY 1, 2 LIMIT 4",
        "SELECT id FROM TABLE WHERE status IN ('queued', 'running') AND status = 'queued' ORDER BY id LIMIT 30",
        "SELECT id FROM TABLE WHERE status = 'queued' AND status IN ('queued', 'running') ORDER BY id LIMIT 30",
        "SELECT id FROM TABLE WHERE status IN ('failed') AND status IN ('queued', 'failed') ORDER BY id LIMIT 30",
        "SELECT id FROM TABLE WHERE (id, status) > (100, 'f') ORDER BY id LIMIT 5",
        "SELECT id FROM TABLE WHERE kind = 'noop' AND status = 'queued' ORDER BY id LIMIT 30",
        "SELECT id FROM TABLE WHERE kind = 'noop' AND kind = 'noop' ORDER BY id DESC LIMIT 30",
        "SELECT id FROM TABLE ORDER BY id LIMIT 5 OFFSET 60",
        "SELECT id FROM TABLE ORDER BY id DESC LIMIT 5 OFFSET 64",
        "SELECT id FROM TABLE WHERE status = 'queued' ORDER BY id LIMIT 5 OFFSET 3",
    ],
)
def test_joins_groups_and_subqueries_give_what_the_view_gives(mixed, sql):
    expected = mixed.execute(sql.replace("TABLE", "ml_job_list")).fetchall()

    assert expected
    assert mixed.execute(sql.replace("TABLE", "ML_JOBS")).fetchall() == expected


def test_parameters_are_pushed_down_as_literals_are(mixed):
    for value in (5, 5.0, "5", b"5", None, 2**63 - 1, -1.5, float("inf"), float("nan"), ""):
        for column in ("id", "status", "kind", "target_name"):
            for operator in ("=", "<", ">="):
                sql = f"SELECT id FROM TABLE WHERE {column} {operator} ? ORDER BY id DESC LIMIT 7"

                found = mixed.execute(sql.replace("TABLE", "ML_JOBS"), (value,)).fetchall()

                assert found == mixed.execute(sql.replace("TABLE", "ml_job_list"), (value,)).fetchall(), (sql, value)


@pytest.mark.parametrize(
    ("sql", "ids"),
    [
        ("SELECT id FROM ML_JOBS WHERE id IN (1, 2) ORDER BY id LIMIT 5", [1, 2]),
        ("SELECT id FROM ML_JOBS WHERE kind IN ('noop', 'x') AND status IN ('queued') ORDER BY id LIMIT 2", [1, 2]),
        ("SELECT id FROM ML_JOBS WHERE id IN (SELECT 3) LIMIT 1", [3]),
        ("SELECT id FROM ML_JOBS LIMIT -1", [1, 2, 3]),
        ("SELECT id FROM ML_JOBS WHERE status = 'queued' ORDER BY id DESC LIMIT -1 OFFSET 1", [2, 1]),
    ],
)
def test_a_list_of_values_and_a_limit_go_together(connection, sql, ids):
    fill(connection, 3)

    assert [row[0] for row in connection.execute(sql)] == ids


def test_a_text_with_anything_in_it_is_only_a_text(connection):
    for text in ("O'Brien", '"', "%", "_", "a\nb", "日本語", "\U0001f600", "'; DROP TABLE ml_job; --", "$.a", "[1]"):
        job = connection.execute("SELECT ml_submit('noop', ?, NULL)", (text,)).get

        assert connection.execute("SELECT id FROM ML_JOBS WHERE target_name = ?", (text,)).fetchall() == [(job,)]
        assert connection.execute("SELECT id FROM ML_JOBS WHERE kind = ?", (text,)).fetchall() == []
        assert connection.execute("SELECT id FROM ML_JOBS WHERE status = ?", (text,)).fetchall() == []


# ---- how little it reads ------------------------------------------------------------------------------------------


@pytest.fixture
def many(connection):
    """5,000 cancelled jobs, then 100 queued ones."""
    fill(connection, 5000, kind="old", status="cancelled")
    fill(connection, 100)
    return connection


@pytest.mark.parametrize(
    ("where", "most"),
    [
        ("WHERE id = 5", 1),
        ("WHERE id = 5.0", 1),
        ("WHERE id = 5.5", 0),
        ("WHERE id = NULL", 0),
        ("WHERE id = -1", 0),
        ("WHERE id IN (5, 70, 5050)", 3),
        ("WHERE id BETWEEN 5 AND 9", 5),
        ("WHERE id > 5095", 5),
        ("WHERE id < 4", 3),
        ("WHERE id > 10 AND id <= 12.5", 2),
        ("WHERE status = 'running'", 0),
        ("WHERE status = 'unknown'", 0),
        ("WHERE status IN ('running', 'failed')", 0),
        ("WHERE status = 'queued'", 100),
        ("WHERE status = 'queued' LIMIT 10", 10),
        ("WHERE status = 'queued' ORDER BY id DESC LIMIT 10", 10),
        ("WHERE status IN ('queued', 'running') ORDER BY id LIMIT 10", 10),
        ("WHERE status = 'queued' AND id > 5095", 5),
        ("WHERE kind = 'old' LIMIT 10", 10),
        ("WHERE target_name = 't1' ORDER BY id LIMIT 3", 3),
        ("LIMIT 10", 10),
        ("LIMIT 0", 0),
        ("ORDER BY id DESC LIMIT 10", 10),
        ("ORDER BY id LIMIT 10 OFFSET 20", 64),
        ("WHERE progress = 0 LIMIT 10", 64),
    ],
)
def test_few_rows_are_read_for_a_few(many, reads, where, most):
    many.execute(f"SELECT id FROM ML_JOBS {where}").fetchall()

    assert sum(reads) <= most


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM ML_JOBS WHERE id = 5",
        "SELECT * FROM ML_JOBS WHERE id BETWEEN 5 AND 10",
        "SELECT * FROM ML_JOBS WHERE status = 'queued' LIMIT 10",
        "SELECT * FROM ML_JOBS WHERE status IN ('queued', 'running') ORDER BY id DESC LIMIT 10",
        "SELECT * FROM ML_JOBS WHERE status = 'failed'",
        "SELECT * FROM ML_JOBS ORDER BY id DESC LIMIT 10",
        "SELECT ml_submit('noop', 'x', NULL)",
        "SELECT ml_cancel(3)",
        "SELECT ml_wait(1, 0)",
        "UPDATE ML_JOBS SET status = 'cancelled' WHERE id = 4",
        "DELETE FROM ML_JOBS WHERE id = 1",
    ],
)
def test_what_a_user_does_costs_the_same_with_many_jobs(queue, tmp_path, sql):
    few, many = (queue(str(tmp_path / name)).connection for name in ("few.db", "many.db"))
    fill(few, 100)
    fill(many, 100)
    fill(many, 20_000, kind="old", status="cancelled")
    for connection in (few, many):
        connection.execute("SELECT ml_cancel(1)").fetchall()
        connection.execute("SELECT count(*) FROM ML_JOBS WHERE id = 1").fetchall()

    costs = []
    for connection in (few, many):
        connection.execute("BEGIN" if "ml_wait" not in sql else "SELECT 1").fetchall()
        costs.append(steps_of(connection, sql))

    assert costs[1] < costs[0] * 1.5 + 100


def test_a_filter_that_is_not_pushed_down_never_reads_a_row_twice(many, reads):
    many.execute("SELECT count(*) FROM ML_JOBS WHERE progress = 0 AND id % 3 = 0").fetchall()

    assert sum(reads) == 5100


def test_a_scan_holds_chunks_and_not_the_table(many):
    many.execute("SELECT id FROM ML_JOBS LIMIT 1").fetchall()
    tracemalloc.start()
    try:
        assert sum(1 for _ in many.execute("SELECT id FROM ML_JOBS WHERE id <= 2000")) == 2000
        _, small = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        fill(many, 30_000, kind="more")
        tracemalloc.reset_peak()
        assert sum(1 for _ in many.execute("SELECT id FROM ML_JOBS")) == 35_100
        _, large = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert large < small * 6


def test_the_first_row_comes_before_the_table_was_read(many, reads):
    rows = many.execute("SELECT id FROM ML_JOBS")
    next(rows)

    assert sum(reads) <= 64
    rows.close()


# ---- what happens meanwhile ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("begin", ["BEGIN", "SELECT 1"])
@pytest.mark.parametrize("where", ["", "WHERE status = 'queued'", "WHERE kind = 'noop'", "WHERE id > 0"])
def test_a_job_that_is_added_during_a_scan_does_not_appear(connection, begin, where):
    fill(connection, 200)
    connection.execute(begin).fetchall()
    seen = []

    for (job,) in connection.execute(f"SELECT id FROM ML_JOBS {where}"):
        seen.append(job)
        connection.execute("SELECT ml_submit('noop', 'x', NULL)").fetchall()

    assert seen == list(range(1, 201))
    assert connection.execute("SELECT count(*) FROM ML_JOBS").get == 400


@pytest.mark.parametrize("order", ["ORDER BY id", "ORDER BY id DESC", ""])
@pytest.mark.parametrize("where", ["", "WHERE status = 'queued'", "WHERE status IN ('queued', 'cancelled')"])
@pytest.mark.parametrize("begin", ["BEGIN", "SELECT 1"])
def test_each_job_shows_once_even_while_statuses_change(connection, begin, where, order):
    fill(connection, 300)
    connection.execute(begin).fetchall()
    seen = []

    for (job,) in connection.execute(f"SELECT id FROM ML_JOBS {where} {order}"):
        seen.append(job)
        connection.execute("SELECT ml_cancel(?)", (job,)).fetchall()

    assert sorted(seen) == list(range(1, 301))
    assert connection.execute("SELECT count(*) FROM ML_JOBS WHERE status = 'cancelled'").get == 300


@pytest.mark.parametrize("begin", ["BEGIN", "SELECT 1"])
def test_jobs_that_are_deleted_during_a_scan_do_no_harm(connection, begin):
    fill(connection, 300, status="cancelled")
    connection.execute(begin).fetchall()
    rows = connection.execute("SELECT id FROM ML_JOBS")
    first = next(rows)

    connection.execute("DELETE FROM ml_job WHERE id > 150").fetchall()
    seen = [first, *rows]

    assert seen == sorted(set(seen))
    assert {(job,) for job in range(1, 151)} <= set(seen)


def test_two_scans_of_one_connection_do_not_disturb_each_other(connection):
    fill(connection, 150)

    pairs = [
        (a, b)
        for (a,) in connection.execute("SELECT id FROM ML_JOBS WHERE id > 140 ORDER BY id DESC")
        for (b,) in connection.execute("SELECT id FROM ML_JOBS WHERE id <= 70")
    ]

    assert pairs == [(a, b) for a in range(150, 140, -1) for b in range(1, 71)]


def test_the_first_look_after_another_connection_changed_the_schema_works(connection, connect, job_in):
    job_in(connect(), "queued")
    connect().execute("CREATE TABLE another (x)")

    assert connection.execute("SELECT id FROM ML_JOBS").fetchall() == [(1,)]


def test_each_later_look_after_another_connection_changed_the_schema_works(connection, connect):
    connection.execute("SELECT id FROM ML_JOBS").fetchall()
    other = connect()

    for number in range(3):
        other.execute(f"CREATE TABLE another{number} (x)")
        connection.execute("INSERT INTO ML_JOBS (kind) VALUES ('noop')")
        other.execute(f"DROP TABLE another{number}")
        assert connection.execute("SELECT count(*) FROM ML_JOBS").get == number + 1


@pytest.mark.parametrize("sql", ["SELECT ml_submit('noop', 'x', NULL)", "SELECT ml_cancel(1)", "SELECT ml_prune(0)"])
@pytest.mark.parametrize("begin", ["BEGIN", "SELECT 1"])
def test_a_function_works_after_another_connection_changed_the_schema(connection, connect, begin, sql):
    connect().execute("CREATE TABLE another (x)")

    connection.execute(begin).fetchall()
    connection.execute(sql).fetchall()


def test_the_plan_says_what_is_pushed_down(connection):
    detail = connection.execute(
        "EXPLAIN QUERY PLAN SELECT * FROM ML_JOBS WHERE id > 5 AND status = 'queued' LIMIT 3"
    ).fetchall()

    assert len(detail) == 1
    assert re.search(r"VIRTUAL TABLE INDEX .*above.*status", detail[0][3])


def test_a_limit_counts_only_jobs_that_two_lists_of_statuses_both_hold(connection, job_in):
    for status in ("cancelled", "cancelled", "queued"):
        job_in(connection, status)

    found = connection.execute(
        "SELECT id FROM ML_JOBS WHERE status IN ('queued', 'running') AND status IN ('cancelled', 'queued') LIMIT 1"
    ).fetchall()

    assert found == [(3,)]

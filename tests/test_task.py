"""What a handler can do with its Task: report, log, measure, read."""

from __future__ import annotations

import math
import threading

import apsw
import pytest
from beside import Gate, over, spin, stopped, until

import mldb
from mldb.task import LONGEST_LINE, MOST_LINES, MOST_VALUES


def lines(q, job):
    return [line for (line,) in q.connection.execute("SELECT line FROM ml_job_log WHERE job_id = ?", (job,))]


def test_a_task_says_what_its_job_is(queue):
    def look(task):
        return {"is": [task.id, task.kind, task.target, task.spec, task.attempt]}

    q = queue(workers=1, handlers={"look": look})
    spec = {"query": "SELECT 'é'", "deep": {"list": [1, 2.5, None, True]}}

    job = over(q, q.submit("look", "spam", spec))

    assert job.metrics == {"is": [job.id, "look", "spam", spec, 1]}


def test_a_large_spec_arrives_whole(queue):
    q = queue(workers=1, handlers={"look": lambda task: {"length": len(task.spec["text"])}})

    assert over(q, q.submit("look", "x", {"text": "y" * 1_000_000})).metrics == {"length": 1_000_000}


def test_a_job_without_a_spec_has_an_empty_one(queue):
    q = queue(workers=1, handlers={"look": lambda task: {"spec": task.spec}})

    assert over(q, q.submit("look", "x")).metrics == {"spec": {}}


# Progress.


@pytest.mark.parametrize(
    ("said", "kept"), [(300, 100), (-1, 0), (41.9, 41), (99.99, 99), (math.inf, 100), (-math.inf, 0), (True, 1)]
)
def test_progress_is_clamped_to_0_to_100(queue, said, kept):
    gate = Gate()

    def report(task):
        task.set_progress(50)
        task.set_progress(said, "said")
        gate(task)

    q = queue(workers=1, handlers={"train": report})
    job = q.submit("train", "x")
    gate.has_begun()

    until(q.path, lambda: q.get(job).message == "said")

    assert q.get(job).progress == kept
    gate.go.set()


def test_a_progress_that_is_not_a_number_is_ignored_and_fails_no_job(queue):
    gate = Gate()

    def report(task):
        task.set_progress(50)
        task.set_progress(math.nan, "nan")
        gate(task)

    q = queue(workers=1, handlers={"train": report})
    job = q.submit("train", "x")

    until(q.path, lambda: q.get(job).message == "nan", seconds=5)

    assert q.get(job).progress == 50
    gate.go.set()
    assert over(q, job).status == "completed"


def test_progress_may_go_back(queue):
    back = Gate()

    def report(task):
        task.set_progress(80, "up")
        until(q.path, lambda: q.get(task.id).progress == 80)
        task.set_progress(20, "down")
        back(task)

    q = queue(workers=1, handlers={"train": report})
    job = q.submit("train", "x")
    back.has_begun()

    until(q.path, lambda: q.get(job).progress == 20)

    assert q.get(job).message == "down"
    back.go.set()


def test_progress_is_kept_when_the_job_fails(queue):
    def fail(task):
        task.set_progress(37, "at the third fold")
        raise ValueError("broken")

    q = queue(workers=1, handlers={"train": fail})

    job = over(q, q.submit("train", "x"))

    assert (job.status, job.progress, job.message) == ("failed", 37, "at the third fold")


def test_progress_after_the_end_is_ignored(queue):
    gate = Gate()
    q = queue(workers=1, handlers={"hold": gate, "next": lambda task: {}})
    job = q.submit("hold", "x")
    gate.has_begun()
    q.cancel(job)
    before = q.get(job)

    gate.task.set_progress(70, "late")
    gate.go.set()
    after = stopped(q, job)
    gate.task.set_progress(71, "later")
    over(q, q.submit("next", "x"))

    assert (after.progress, after.message) == (before.progress, None)
    assert q.get(job) == after


def test_the_last_message_stays_when_progress_comes_without_one(queue):
    def report(task):
        task.set_progress(10, "reading")
        task.set_progress(20)

    q = queue(workers=1, handlers={"train": report})

    assert over(q, q.submit("train", "x")).message == "reading"


def test_a_million_reports_cost_few_commits(queue, path):
    def report(task):
        for number in range(1_000_000):
            task.set_progress(number / 10_000)

    q = queue(workers=1, handlers={"train": report})
    watcher = apsw.Connection(path)
    job = q.submit("train", "x")
    versions = set()

    until(path, lambda: versions.add(watcher.execute("PRAGMA data_version").get) or q.get(job).is_terminal)
    watcher.close()

    assert q.get(job).status == "completed"
    assert len(versions) < 200


# Logs and values.


def test_log_lines_and_values_are_visible_in_order_while_the_job_runs(queue):
    gate = Gate()

    def work(task):
        for number in range(500):
            task.log(f"line {number}")
            task.log_metric("loss", number / 2, step=number)
        task.log_metric("final", 1)
        gate(task)

    q = queue(workers=1, handlers={"train": work})
    job = q.submit("train", "x")
    gate.has_begun()

    count = "SELECT count(*) FROM ml_job_metrics WHERE job_id = ?"
    until(q.path, lambda: q.connection.execute(count, (job,)).get == 501)

    assert q.get(job).status == "running"
    assert lines(q, job) == [f"line {number}" for number in range(500)]
    rows = q.connection.execute("SELECT name, step, value, attempt FROM ml_job_metrics").fetchall()
    assert rows[:-1] == [("loss", number, number / 2, 1) for number in range(500)]
    assert rows[-1] == ("final", None, 1.0, 1)
    gate.go.set()


def test_what_was_logged_just_before_the_end_is_there_when_the_job_is_over(queue):
    q = queue(workers=1, handlers={"train": lambda task: task.log(f"last of {task.id}")})

    for _ in range(50):
        job = over(q, q.submit("train", "x"))
        assert lines(q, job.id) == [f"last of {job.id}"]


def test_log_lines_are_bounded_in_number_and_length(queue):
    def talk(task):
        task.log("x" * (LONGEST_LINE + 5))
        for number in range(MOST_LINES + 10):
            task.log(str(number))

    q = queue(workers=1, handlers={"train": talk})

    job = over(q, q.submit("train", "x"))

    found = lines(q, job.id)
    assert len(found) == MOST_LINES
    assert len(found[0]) == LONGEST_LINE
    assert found[-1] == str(MOST_LINES - 2)


def test_values_are_bounded_in_number(queue):
    def measure(task):
        for number in range(MOST_VALUES + 10):
            task.log_metric("loss", number)

    q = queue(workers=1, handlers={"train": measure})

    job = over(q, q.submit("train", "x"))

    assert job.status == "completed"
    assert q.connection.execute("SELECT count(*), max(value) FROM ml_job_metrics").fetchall() == [
        (MOST_VALUES, MOST_VALUES - 1)
    ]


def test_threads_of_one_handler_may_log_and_nothing_is_lost(queue):
    def work(task):
        def talk(name):
            for number in range(1000):
                task.log(f"{name}-{number}")

        threads = [threading.Thread(target=talk, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    q = queue(workers=1, handlers={"train": work})

    job = over(q, q.submit("train", "x"))

    assert len(set(lines(q, job.id))) == 8000


def test_each_attempt_has_a_log_of_its_own(queue, connect):
    def work(task):
        task.log(f"attempt {task.attempt}")
        if task.attempt == 1:
            raise ValueError("again")

    q = queue(workers=1, handlers={"train": work})

    job = over(q, q.submit("train", "x", max_attempts=2, backoff=0))

    rows = q.connection.execute("SELECT attempt, line FROM ml_job_log WHERE line LIKE 'attempt%'").fetchall()
    assert job.status == "completed"
    assert rows == [(1, "attempt 1"), (2, "attempt 2")]


# Reading.


def test_rows_and_columns_read_the_users_tables(queue):
    def read(task):
        rows = task.rows("SELECT name, age FROM people WHERE age > ? ORDER BY age", (20,))
        columns = task.columns("SELECT age FROM people ORDER BY age")
        return {"rows": list(rows), "names": rows.names, "ages": columns["age"].tolist()}

    q = queue(workers=1, handlers={"read": read})
    q.connection.execute("CREATE TABLE people(name, age); INSERT INTO people VALUES ('Ada', 36), ('Kim', 12)")

    job = over(q, q.submit("read", "x"))

    assert job.metrics == {"rows": [["Ada", 36]], "names": ["name", "age"], "ages": [12, 36]}


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM people",
        "SELECT * FROM ml_job",
        "SELECT * FROM ML_JOBS",
        "SELECT ml_submit('noop', 'x', NULL)",
        "ATTACH 'other.db' AS other",
        "PRAGMA query_only = 0",
        "SELECT 1; DELETE FROM people",
        "SELECT * FROM no_such_table",
    ],
)
def test_a_query_that_is_not_allowed_fails_the_job_in_words(queue, sql):
    q = queue(workers=1, handlers={"read": lambda task: {"rows": list(task.rows(task.spec["sql"]))}})
    q.connection.execute("CREATE TABLE people(name); INSERT INTO people VALUES ('Ada')")

    job = over(q, q.submit("read", "x", {"sql": sql}))

    assert (job.status, bool(job.error_message)) == ("failed", True)
    assert q.connection.execute("SELECT count(*) FROM people").get == 1
    assert len(q.list()) == 1


def test_a_read_leaves_no_transaction_behind(queue, connect):
    gate = Gate()

    def read(task):
        rows = task.rows("SELECT x FROM numbers")
        gate(task)
        return {"count": len(rows), "again": sum(row[0] for row in rows)}

    q = queue(workers=1, handlers={"read": read})
    q.connection.execute("CREATE TABLE numbers(x); INSERT INTO numbers VALUES (1), (2)")
    job = q.submit("read", "x")
    gate.has_begun()
    plain = connect()
    plain.execute("INSERT INTO numbers VALUES (3)")

    busy, left, _ = plain.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
    gate.go.set()

    assert (busy, left) == (0, 0)
    assert over(q, job).metrics == {"count": 2, "again": 3}


def test_a_cancel_ends_a_query_that_would_run_for_ever(queue):
    endless = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT max(x) FROM r"
    began = threading.Event()

    def read(task):
        began.set()
        task.rows(endless)

    q = queue(workers=1, handlers={"read": read})
    job = q.submit("read", "x")
    assert began.wait(20)

    q.cancel(job)

    assert stopped(q, job, seconds=5).status == "cancelled"


def test_an_unknown_model_fails_the_job_in_words(queue):
    q = queue(workers=1, handlers={"use": lambda task: {"model": task.model(task.target).name}})

    job = over(q, q.submit("use", "churn"))

    assert job.status == "failed"
    assert "there is no model 'churn'" in job.error_message


def test_a_model_is_read_by_name_and_version(queue):
    def train(task):
        content = b"v%d" % task.spec["n"]
        return mldb.Result(model=mldb.Model("skops", content, "tree", "regression", "y", ({"name": "a"},), "", ()))

    q = queue(workers=1, handlers={"train": train, "use": lambda task: {"c": task.model(task.target).content.decode()}})
    for number in (1, 2):
        over(q, q.submit("train", "churn", {"n": number}))

    assert over(q, q.submit("use", "churn")).metrics == {"c": "v2"}
    assert over(q, q.submit("use", "churn@1")).metrics == {"c": "v1"}


def test_raise_if_cancelled_ends_the_body(queue):
    began = threading.Event()

    def work(task):
        began.set()
        while True:
            task.raise_if_cancelled()

    q = queue(workers=1, handlers={"train": work})
    job = q.submit("train", "x")
    assert began.wait(20)

    q.cancel(job)

    after = stopped(q, job)
    assert (after.status, after.error_message) == ("cancelled", None)


def test_a_body_that_is_not_cancelled_is_not_told_so(queue):
    gate = Gate()
    q = queue(workers=2, handlers={"hold": gate, "other": lambda task: {}})
    job = q.submit("hold", "x")
    gate.has_begun()
    other = q.submit("other", "x", delay=1000)

    q.cancel(other)
    q.cancel(over(q, q.submit("other", "y")).id)

    assert gate.task.is_cancelled() is False
    gate.task.raise_if_cancelled()
    gate.go.set()
    assert over(q, job).status == "completed"
    spin(gate.ended.is_set)

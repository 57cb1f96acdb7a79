"""Task.write: rows of a handler in a table of the user, fenced, in one transaction with a checkpoint."""

from __future__ import annotations

import threading

import pytest
from beside import Gate, over, stopped

import mldb
from mldb.connection import open_writer
from mldb.sandbox import OUR_TABLES
from mldb.store import workers as worker_rows


@pytest.fixture
def write(queue):
    """Write once from a job; give the job, over, and the queue."""

    def run(*arguments, before=None, **options):
        q = queue(workers=1, handlers={"write": lambda task: task.write(*arguments, **options)})
        if before:
            q.connection.execute(before).fetchall()
        return over(q, q.submit("write", "x")), q

    return run


def rows(q, sql):
    return q.connection.execute(sql).fetchall()


def test_a_write_makes_the_table_and_keeps_the_values_as_they_are(write):
    values = [
        {"a": None, "b": 1, "c": 2.5, "d": "é", "e": b"\0\xff"},
        {"a": 2**63 - 1, "b": -1, "c": 0, "d": "", "e": b""},
    ]

    job, q = write("out", values)

    assert job.status == "completed"
    assert rows(q, "SELECT * FROM out") == [tuple(row.values()) for row in values]


def test_a_write_with_a_key_makes_it_the_primary_key_and_replaces_its_row(queue):
    def work(task):
        task.write("out", [{"id": 1, "score": 0.1}, {"id": 2, "score": 0.2}], key="id")
        task.write("out", [{"id": 2, "score": 0.9}, {"id": 3, "score": 0.3}], key="id")

    q = queue(workers=1, handlers={"write": work})
    job = over(q, q.submit("write", "x"))

    assert job.status == "completed", job.error_message
    assert rows(q, "SELECT * FROM out ORDER BY id") == [(1, 0.1), (2, 0.9), (3, 0.3)]
    assert rows(q, "SELECT pk FROM pragma_table_info('out') WHERE name = 'id'") == [(1,)]


def test_a_write_without_a_key_appends(queue):
    q = queue(workers=1, handlers={"write": lambda task: [task.write("out", [{"n": 1}]) for _ in range(3)] and None})

    over(q, q.submit("write", "x"))

    assert rows(q, "SELECT count(*) FROM out") == [(3,)]


@pytest.mark.parametrize(
    "name",
    [
        "odd name",
        'quo"ted',
        "semi;colon",
        "drop table people",
        "select",
        "ünïcode",
        "'apostrophe'",
        "[b]",
        "a.b",
        "ml_mine",
        " ",
    ],
)
def test_odd_names_are_quoted(write, name):
    job, q = write(name, [{name: 1, "other": 2}], key=name)

    assert job.status == "completed", job.error_message
    quoted = '"' + name.replace('"', '""') + '"'
    assert rows(q, f"SELECT {quoted}, other FROM {quoted}") == [(1, 2)]


@pytest.mark.parametrize(
    "table",
    sorted(
        [
            *OUR_TABLES,
            "ML_JOB",
            "Ml_Job_List",
            "ml_model_content",
            "sqlite_schema",
            "sqlite_master",
            "sqlite_sequence",
            "SQLITE_STAT1",
        ]
    ),
)
def test_our_own_tables_are_refused(write, table):
    job, _ = write(table, [{"id": 1, "kind": "x"}])

    assert job.status == "failed"
    assert "not a table of yours" in job.error_message


def test_every_table_of_the_queue_is_on_the_list_of_ours(queue):
    names = {name for (name,) in rows(queue(), "SELECT lower(name) FROM sqlite_schema WHERE type IN ('table', 'view')")}

    assert {name for name in names if not name.startswith("sqlite_")} <= OUR_TABLES


BAD = {
    "different columns": (("out", [{"a": 1}, {"b": 1}]), {}, "same columns"),
    "a column too many": (("out", [{"a": 1}, {"a": 1, "b": 1}]), {}, "same columns"),
    "a key that is no column": (("out", [{"a": 1}]), {"key": "id"}, "no column"),
    "no name": (("", [{"a": 1}]), {}, "name of a table"),
    "a name that is no text": ((5, [{"a": 1}]), {}, "name of a table"),
    "a name with a NUL": (("a\0b", [{"a": 1}]), {}, "name of a table"),
    "a value that SQLite does not have": (("out", [{"a": object()}]), {}, "object"),
    "a list as a value": (("out", [{"a": [1]}]), {}, "list"),
    "an integer beyond 64 bits": (("out", [{"a": 2**64}]), {}, ""),
    "a text that is no UTF-8": (("out", [{"a": "\ud800"}]), {}, ""),
    "a checkpoint that is no JSON": (("out", [{"a": 1}]), {"checkpoint": {1, 2}}, "checkpoint"),
    "columns that SQLite takes for the same": (("out", [{"a": 1, "A": 2}]), {}, "A"),
    "a column without a name": (("out", [{"": 1}]), {}, ""),
    "rows without columns": (("out", [{}, {}]), {}, ""),
}


@pytest.mark.parametrize(
    "name", [name for name in BAD if name not in ("a column without a name", "rows without columns")]
)
def test_what_cannot_be_written_fails_in_words_and_writes_nothing(write, name):
    arguments, options, words = BAD[name]

    job, q = write(*arguments, **options)

    assert job.status == "failed"
    assert job.error_message
    assert words in job.error_message
    assert rows(q, "SELECT count(*) FROM sqlite_schema WHERE name = 'out'") == [(0,)]
    assert rows(q, "SELECT count(*) FROM ml_checkpoint") == [(0,)]


@pytest.mark.parametrize("name", ["a column without a name", "rows without columns"])
def test_degenerate_rows_end_the_job_and_hold_up_no_other(write, name):
    arguments, options, _ = BAD[name]

    job, q = write(*arguments, **options)

    assert job.is_terminal
    assert over(q, q.submit("write", "x")).is_terminal


def test_a_table_with_other_columns_is_refused_and_left_as_it_is(write):
    job, q = write("out", [{"a": 1, "b": 2}], before="CREATE TABLE out(x, y); INSERT INTO out VALUES (7, 8)")

    assert job.status == "failed"
    assert "out" in job.error_message
    assert rows(q, "SELECT * FROM out") == [(7, 8)]


def test_a_key_that_is_not_unique_in_the_table_is_refused_in_words(write):
    job, _ = write("out", [{"a": 1, "b": 2}], key="a", before="CREATE TABLE out(a, b)")

    assert job.status == "failed"
    assert "UNIQUE" in job.error_message


def test_a_row_that_breaks_a_rule_of_the_table_undoes_the_whole_write(write):
    job, q = write(
        "out",
        [{"a": 1}, {"a": -1}],
        checkpoint={"at": 2},
        before="CREATE TABLE out(a CONSTRAINT positive CHECK (a > 0))",
    )

    assert job.status == "failed"
    assert "positive" in job.error_message
    assert rows(q, "SELECT count(*) FROM out") == [(0,)]
    assert rows(q, "SELECT count(*) FROM ml_checkpoint") == [(0,)]


def test_a_write_of_no_rows_keeps_the_checkpoint_and_makes_no_table(queue):
    def work(task):
        task.write("out", [], checkpoint={"at": 5})
        return {"restored": task.restore()}

    q = queue(workers=1, handlers={"write": work})

    assert over(q, q.submit("write", "x")).metrics == {"restored": {"at": 5}}
    assert rows(q, "SELECT count(*) FROM sqlite_schema WHERE name = 'out'") == [(0,)]


def test_columns_in_another_order_go_where_they_belong(write):
    _, q = write("out", [{"a": 1, "b": 2}, {"b": 4, "a": 3}])

    assert rows(q, "SELECT a, b FROM out") == [(1, 2), (3, 4)]


def test_a_write_of_a_cancelled_job_raises_cancelled_and_writes_nothing(queue):
    gate, raised = Gate(), []

    def work(task):
        gate(task)
        try:
            task.write("out", [{"a": 1}], checkpoint={"at": 1})
        except mldb.Cancelled as error:
            raised.append(error)

    q = queue(workers=1, handlers={"write": work})
    job = q.submit("write", "x")
    gate.has_begun()
    q.cancel(job)

    gate.go.set()
    stopped(q, job)

    assert len(raised) == 1
    assert "nothing was written" in str(raised[0])
    assert rows(q, "SELECT count(*) FROM sqlite_schema WHERE name = 'out'") == [(0,)]
    assert rows(q, "SELECT count(*) FROM ml_checkpoint") == [(0,)]


def test_a_write_of_a_job_that_was_taken_away_raises_job_lost_and_writes_nothing(queue, path):
    gate, raised = Gate(), []

    def work(task):
        if task.attempt > 1:
            return {"restored": task.restore()}
        gate(task)
        try:
            task.write("out", [{"a": 1}], checkpoint={"at": 1})
        except mldb.JobLost as error:
            raised.append(error)
        return None

    q = queue(workers=1, handlers={"write": work})
    job = q.submit("write", "x")
    gate.has_begun()
    writer = open_writer(path)
    worker_rows.bury(writer, q.get(job).owner, 1)
    writer.close()

    gate.go.set()

    assert over(q, job).metrics == {"restored": None}
    assert len(raised) == 1
    assert rows(q, "SELECT count(*) FROM sqlite_schema WHERE name = 'out'") == [(0,)]


def test_a_write_after_the_job_timed_out_writes_nothing(queue):
    gate, raised = Gate(), []

    def work(task):
        gate(task)
        try:
            task.write("out", [{"a": 1}])
        except mldb.MldbError as error:
            raised.append(error)

    q = queue(workers=1, handlers={"write": work})
    job = q.submit("write", "x", timeout=0.01)
    assert over(q, job).status == "failed"

    gate.go.set()
    stopped(q, job)

    assert len(raised) == 1
    assert rows(q, "SELECT count(*) FROM sqlite_schema WHERE name = 'out'") == [(0,)]


def test_a_write_after_the_job_was_put_back_writes_nothing(queue):
    gate, raised = Gate(), []

    def work(task):
        gate(task)
        try:
            task.write("out", [{"a": 1}])
        except mldb.JobLost as error:
            raised.append(error)

    q = queue(workers=1, handlers={"write": work})
    q.submit("write", "x")
    gate.has_begun()

    q.shutdown(drain=False)
    gate.go.set()
    gate.thread.join(20)

    assert len(raised) == 1
    looker = queue()
    assert rows(looker, "SELECT count(*) FROM sqlite_schema WHERE name = 'out'") == [(0,)]


def test_the_next_attempt_goes_on_from_the_checkpoint(queue):
    def work(task):
        done = (task.restore() or {"done": 0})["done"]
        for number in range(done, 10):
            task.write("out", [{"n": number, "attempt": task.attempt}], checkpoint={"done": number + 1})
            if number == 4 and task.attempt == 1:
                raise ValueError("in the middle")
        return {"began_at": done}

    q = queue(workers=1, handlers={"write": work})

    job = over(q, q.submit("write", "x", max_attempts=2, backoff=0))

    assert (job.status, job.metrics) == ("completed", {"began_at": 5})
    assert rows(q, "SELECT n, attempt FROM out ORDER BY n") == [(n, 1 if n < 5 else 2) for n in range(10)]


def test_a_checkpoint_belongs_to_its_job(queue):
    def work(task):
        before = task.restore()
        task.write("out", [], checkpoint=task.id)
        return {"before": before}

    q = queue(workers=1, handlers={"write": work})

    assert [over(q, q.submit("write", "x")).metrics for _ in range(2)] == [{"before": None}] * 2


def test_many_threads_write_at_once_and_nothing_is_lost(queue):
    together = threading.Barrier(4, timeout=20)

    def work(task):
        together.wait()
        for number in range(50):
            task.write("out", [{"job": task.id, "n": number}])

    q = queue(workers=4, handlers={"write": work})
    jobs = [q.submit("write", "x") for _ in range(4)]

    assert [over(q, job).status for job in jobs] == ["completed"] * 4
    assert rows(q, "SELECT count(*), count(DISTINCT job * 1000 + n) FROM out") == [(200, 200)]


def test_a_trigger_of_the_users_table_enqueues_with_the_rows(queue):
    q = queue(
        workers=1, handlers={"write": lambda task: task.write("out", [{"a": 1}, {"a": 2}]), "follow": lambda task: {}}
    )
    q.connection.execute(
        "CREATE TABLE out(a); CREATE TRIGGER t AFTER INSERT ON out"
        " BEGIN INSERT INTO ml_job(kind, target_name) VALUES ('follow', NEW.a); END"
    ).fetchall()

    over(q, q.submit("write", "x"))

    assert sorted(over(q, job.id).target_name for job in q.list(kind="follow")) == ["1", "2"]

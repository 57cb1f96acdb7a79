"""How handlers end, and that whatever they do costs one job, never the pool."""

from __future__ import annotations

import math
import sys
import threading

import pytest
from beside import over

import mldb
from mldb.run import LARGEST_RESULT


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Peculiar(BaseException):
    pass


class Evil(dict):
    def __iter__(self):
        raise Peculiar("no keys for you")

    def keys(self):
        raise Peculiar("no keys for you")


def raising(error):
    def fail(task):
        raise error

    return fail


def model(**changed):
    given = {
        "format": "skops",
        "content": b"bytes",
        "algorithm": "tree",
        "task": "classification",
        "target": "label",
        "features": ({"name": "age", "type": "number"},),
        "query": "SELECT 1",
        "tables": (),
        "details": {},
    }
    return mldb.Result({"accuracy": 1.0}, model=mldb.Model(**given | changed))


def cyclic():
    value = {}
    value["me"] = value
    return value


def nested(depth):
    value = {}
    for _ in range(depth):
        value = {"a": value}
    return value


RAISED = {
    "an exception": (Exception("plain words"), "plain words"),
    "a ValueError": (ValueError("bad hyperparameters"), "bad hyperparameters"),
    "a KeyError": (KeyError("age"), "KeyError: 'age'"),
    "a ZeroDivisionError": (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
    "SystemExit": (SystemExit(3), "SystemExit: 3"),
    "SystemExit without a code": (SystemExit(), "SystemExit"),
    "KeyboardInterrupt": (KeyboardInterrupt(), "KeyboardInterrupt"),
    "GeneratorExit": (GeneratorExit(), "GeneratorExit"),
    "StopIteration": (StopIteration(), "StopIteration"),
    "a BaseException": (Peculiar("odd"), "Peculiar: odd"),
    "MemoryError": (MemoryError(), "MemoryError"),
    "RecursionError": (RecursionError("too deep"), "too deep"),
    "an exception group": (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "two (2 sub-exceptions)"),
    "an error of ours": (mldb.QueryRefused("not that"), "not that"),
    "words that are only blanks": (ValueError("  \n "), "ValueError"),
}


@pytest.mark.parametrize("name", RAISED)
def test_whatever_is_raised_ends_the_job_as_failed_with_words(queue, name):
    error, words = RAISED[name]
    q = queue(workers=1, handlers={"train": raising(error), "next": lambda task: {}})

    job = over(q, q.submit("train", "x"))

    assert (job.status, job.stopped_at_ms is None) == ("failed", False)
    assert words in job.error_message
    assert over(q, q.submit("next", "x")).status == "completed"


HARD = {
    "an exception whose words fail": raising(Speechless()),
    "Cancelled without words, though nobody cancelled": raising(mldb.Cancelled()),
    "Cancelled with words, though nobody cancelled": raising(mldb.Cancelled("I give up")),
    "words that are no UTF-8": raising(ValueError("caf\udce9")),
    "words that are no words": raising(ValueError(Speechless())),
    "a text": lambda task: "done",
    "a list": lambda task: [1],
    "a number": lambda task: 1,
    "False": lambda task: False,
    "a generator": lambda task: (n for n in ()),
    "a value that is no JSON": lambda task: {"a": object()},
    "NaN": lambda task: {"loss": math.nan},
    "infinity": lambda task: {"loss": math.inf},
    "a set": lambda task: {"a": {1}},
    "a key that is no text": lambda task: {(1, 2): 3},
    "a value that holds itself": lambda task: cyclic(),
    "too large a value": lambda task: {"a": "x" * (LARGEST_RESULT + 1)},
    "a dict that refuses to be read": lambda task: Evil(a=1),
    "metrics that are no mapping": lambda task: mldb.Result(5),
    "a model that is none": lambda task: mldb.Result(model="a model"),
    "a model whose details are no JSON": lambda task: model(details={"a": object()}),
    "a model whose details hold NaN": lambda task: model(details={"a": math.nan}),
    "a model whose features are no JSON": lambda task: model(features=({"name": object()},)),
    "a model whose content is a text": lambda task: model(content="text"),
    "a model without a target": lambda task: model(target=None),
    "a model whose query is no UTF-8": lambda task: model(query="\ud800"),
    "a model whose tables are no JSON": lambda task: model(tables=({1},)),
    "a report that is no number": lambda task: task.set_progress("half"),
    "a value that is no number": lambda task: task.log_metric("loss", "low"),
    "a metric without a name": lambda task: task.log_metric("", 1.0),
}


@pytest.mark.parametrize("name", HARD)
def test_what_cannot_be_kept_fails_its_job_in_words_and_no_other(queue, name):
    q = queue(workers=1, handlers={"train": HARD[name], "next": lambda task: {}})

    job = q.wait(q.submit("train", "m"), 5)
    after = q.wait(q.submit("next", "x"), 5)

    assert (job.status, after.status) == ("failed", "completed")
    assert job.error_message.strip()
    assert q.connection.execute("SELECT count(*) FROM ml_model_version").get == 0


ODD = {
    "a line that is no UTF-8": lambda task: task.log("caf\udce9"),
    "a line that is no text": lambda task: task.log(object()),
    "a line with a NUL": lambda task: task.log("a\0b"),
    "a message that is no UTF-8": lambda task: task.set_progress(5, "caf\udce9"),
    "a metric whose name is no UTF-8": lambda task: task.log_metric("caf\udce9", 1.0),
    "a metric that is NaN": lambda task: task.log_metric("loss", math.nan),
    "a metric that is infinite": lambda task: task.log_metric("loss", -math.inf),
    "a metric at a step beyond 64 bits": lambda task: task.log_metric("loss", 1.0, 2**70),
    "a message of a megabyte": lambda task: task.set_progress(5, "x" * 2**20),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_report_ends_its_job_one_way_or_the_other_and_no_other(queue, name):
    q = queue(workers=1, handlers={"train": ODD[name], "next": lambda task: {}})

    job = q.wait(q.submit("train", "m"), 5)
    after = q.wait(q.submit("next", "x"), 5)

    assert job.is_terminal
    assert job.status == "completed" or job.error_message.strip()
    assert after.status == "completed"


def test_a_result_nested_deeper_than_sqlite_reads_fails_its_job_and_no_other(queue):
    q = queue(workers=1, handlers={"train": lambda task: nested(1500), "next": lambda task: {}})
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)

    try:
        job = q.wait(q.submit("train", "m"), 5)
        after = q.wait(q.submit("next", "x"), 5)
    finally:
        sys.setrecursionlimit(limit)

    assert (job.status, after.status) == ("failed", "completed")


GIVEN = {
    "None": (None, None),
    "an empty dict": ({}, "{}"),
    "a dict": ({"a": 1}, '{"a": 1}'),
    "a Result without metrics": (mldb.Result(), None),
    "a Result with metrics": (mldb.Result({"a": [1, None, "é"]}), '{"a": [1, null, "\\u00e9"]}'),
    "a lone surrogate, which JSON can say": ({"a": "\ud800"}, '{"a": "\\ud800"}'),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_result_is_kept_as_json(queue, name):
    result, text = GIVEN[name]
    q = queue(workers=1, handlers={"train": lambda task: result})

    job = over(q, q.submit("train", "x"))

    assert (job.status, job.progress, job.metrics_json) == ("completed", 100, text)


def test_a_result_of_the_largest_size_is_kept(queue):
    size = LARGEST_RESULT - len('{"a": ""}')
    q = queue(workers=1, handlers={"train": lambda task: {"a": "x" * size}})

    assert len(over(q, q.submit("train", "x")).metrics["a"]) == size


def test_a_hundred_bad_endings_leave_the_pool_as_large_as_before(queue):
    errors = [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), Peculiar("odd"), KeyError("k"), Exception()]
    together = threading.Barrier(2, timeout=20)

    def fail(task):
        raise errors[task.spec["n"] % len(errors)]

    q = queue(workers=2, handlers={"fail": fail, "meet": lambda task: {"place": together.wait()}})

    jobs = [q.submit("fail", "x", {"n": n}) for n in range(100)]
    assert {over(q, job).status for job in jobs} == {"failed"}

    # Only two threads at once can pass the barrier.
    pair = [q.submit("meet", "x"), q.submit("meet", "x")]
    assert [over(q, job).status for job in pair] == ["completed"] * 2


def test_an_error_of_any_length_is_kept_in_part(queue):
    q = queue(workers=1, handlers={"train": raising(ValueError("x" * 10_000_000))})

    job = over(q, q.submit("train", "x"))

    assert job.status == "failed"
    assert 1000 <= len(job.error_message) <= 10_000


def test_the_traceback_of_a_failure_is_in_the_log(queue):
    def fail(task):
        task.log("before")
        raise KeyError("age")

    q = queue(workers=1, handlers={"train": fail})

    job = over(q, q.submit("train", "x"))

    rows = q.connection.execute("SELECT line FROM ml_job_log WHERE job_id = ?", (job.id,)).fetchall()
    lines = [line for (line,) in rows]
    assert lines[0] == "before"
    assert "Traceback" in lines[1]
    assert "in fail" in lines[1]


def test_a_model_is_kept_with_the_job_that_made_it(queue):
    q = queue(workers=1, handlers={"train": lambda task: model()})

    first, second = (over(q, q.submit("train", "churn")) for _ in range(2))

    rows = q.connection.execute("SELECT name, version, job_id FROM ml_model_version ORDER BY version").fetchall()
    assert rows == [("churn", 1, first.id), ("churn", 2, second.id)]
    assert first.metrics == {"accuracy": 1.0}
    assert q.connection.execute("SELECT active_version FROM ml_model WHERE name = 'churn'").get == 2


def test_a_handler_that_starts_threads_and_leaves_them_ends_all_the_same(queue):
    go, tasks = threading.Event(), []

    def leave(task):
        thread = threading.Thread(target=lambda: (go.wait(20), task.log("late"), task.set_progress(7)))
        tasks.append(thread)
        thread.start()

    q = queue(workers=1, handlers={"train": leave, "next": lambda task: {}})
    job = over(q, q.submit("train", "x"))

    go.set()
    tasks[0].join()
    over(q, q.submit("next", "x"))

    assert q.get(job.id) == job

from __future__ import annotations

import itertools
import threading

import apsw
import pytest
from sklearn.datasets import load_iris
from task_double import TaskDouble, stored

from mldb.errors import Cancelled, ModelError, UsageError
from mldb.handlers import backfill as backfill_module
from mldb.handlers.backfill import backfill
from mldb.handlers.noop import noop
from mldb.handlers.train import train
from mldb.learn.predictor import Predictor

FLOWERS = "SELECT sl, sw, pl, pw, species FROM iris"


@pytest.fixture(scope="module")
def database():
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE iris (id INTEGER PRIMARY KEY, name TEXT, sl, sw, pl, pw, species)")
    flowers = load_iris()
    for at, (values, code) in enumerate(zip(flowers.data.tolist(), flowers.target, strict=True)):
        row = (at + 1, f"flower {at:03}", *values, str(flowers.target_names[code]))
        connection.execute("INSERT INTO iris VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    return connection


@pytest.fixture(scope="module")
def model(database):
    spec = {"query": FLOWERS, "target": "species", "algorithm": "logistic_regression"}
    return stored(train(TaskDouble(spec, database)).model)


@pytest.fixture
def into(database):
    yield "answers"
    database.execute("DROP TABLE IF EXISTS answers")


def spec_of(**others):
    return {"model": "m", "query": "SELECT * FROM iris", "into": "answers", "key": "id", "batch": 40, **others}


def task_of(database, kept, **others):
    return TaskDouble(spec_of(**others), database, {"m": {1: kept}})


def answers(database):
    return database.execute("SELECT id, prediction, times FROM answers ORDER BY id").fetchall()


# noop


def test_noop_without_a_spec_returns_at_once_and_reports_nothing():
    task = TaskDouble({})

    assert noop(task) == {}
    assert task.progress == []


def test_noop_sleeps_with_progress():
    task = TaskDouble({"sleep": 0.02})

    noop(task)

    assert task.progress


def test_a_cancelled_noop_wakes_up():
    task = TaskDouble({"sleep": 3600})
    task.cancel_at = "left"
    ended = threading.Event()

    def run():
        with pytest.raises(Cancelled):
            noop(task)
        ended.set()

    threading.Thread(target=run, daemon=True).start()

    assert ended.wait(10)


@pytest.mark.parametrize("value", ["1", -1, None, True, float("inf"), float("nan")])
def test_noop_refuses_what_is_no_number_of_seconds(value):
    with pytest.raises(UsageError, match='"sleep"'):
        noop(TaskDouble({"sleep": value}))


# train


def test_train_hands_over_a_model_that_predicts_and_says_what_it_was_made_of(database):
    task = TaskDouble({"query": FLOWERS, "target": "species", "algorithm": "decision_tree"}, database)

    result = train(task)

    assert result.metrics["accuracy"] > 0.9
    assert (result.model.format, result.model.algorithm, result.model.task) == (
        "skops",
        "decision_tree",
        "classification",
    )
    assert (result.model.target, result.model.query, result.model.tables) == ("species", FLOWERS, ("t",))
    row = {"sl": 5.1, "sw": 3.5, "pl": 1.4, "pw": 0.2}
    assert Predictor.load(stored(result.model)).predict(row) == "setosa"


def test_train_reports_progress_log_and_metrics(database):
    task = TaskDouble({"query": FLOWERS, "target": "species", "seed": 1}, database)

    result = train(task)

    percents = [percent for percent, _ in task.progress]
    assert all(after >= before - 1e-6 for before, after in itertools.pairwise(percents))
    assert all(0 <= percent <= 100 for percent in percents)
    assert any("auto: random_forest" in line for line in task.lines)
    assert task.values["accuracy"] == result.metrics["accuracy"]


@pytest.mark.parametrize("message", ["reading rows", "encoding", "random_forest", "evaluating"])
def test_a_cancel_stops_training_at_the_next_step(database, message):
    task = TaskDouble({"query": FLOWERS, "target": "species"}, database)
    task.cancel_at = message

    with pytest.raises(Cancelled):
        train(task)


def test_a_wrong_spec_of_train_is_told_before_a_row_is_read(database):
    task = TaskDouble({"query": FLOWERS, "target": "species", "algorythm": "ridge"}, database)

    with pytest.raises(UsageError, match="did you mean 'algorithm'"):
        train(task)

    assert task.progress == []


# backfill


def test_backfill_writes_one_prediction_per_row(database, model, into):
    task = task_of(database, model)

    metrics = backfill(task)

    expected = Predictor.load(model)
    rows = database.execute("SELECT sl, sw, pl, pw FROM iris ORDER BY id").fetchall()
    wanted = [expected.predict(dict(zip(("sl", "sw", "pl", "pw"), row, strict=True))) for row in rows]
    assert [answer for _, answer, _ in answers(database)] == wanted
    assert metrics == {"rows": 150, "batches": 4, "model": "m", "version": 1}
    assert task.progress[-1] == (100, "150 of 150 rows")


@pytest.mark.parametrize("broken", [1, 2, 4])
def test_a_restarted_backfill_goes_on_where_it_stopped_and_does_nothing_twice(database, model, into, broken):
    task = task_of(database, model)
    task.fail_before_write = broken
    with pytest.raises(RuntimeError):
        backfill(task)

    metrics = backfill(task)

    assert [(key, times) for key, _, times in answers(database)] == [(key, 1) for key in range(1, 151)]
    assert metrics["rows"] == 150


def test_a_finished_backfill_that_starts_again_writes_nothing(database, model, into):
    task = task_of(database, model)
    backfill(task)
    writes = task.writes

    metrics = backfill(task)

    assert task.writes == writes
    assert metrics["rows"] == 150


def test_rows_that_come_and_go_between_two_runs_move_no_other_row(database, model, into):
    query = "SELECT id, sl, sw, pl, pw FROM iris WHERE id NOT IN (SELECT id FROM gone)"
    database.execute("CREATE TABLE gone (id)")
    task = task_of(database, model, query=query)
    task.fail_before_write = 3
    with pytest.raises(RuntimeError):
        backfill(task)
    database.execute("INSERT INTO gone VALUES (1), (2), (80), (149)")

    backfill(task)

    found = {key: times for key, _, times in answers(database)}
    database.execute("DROP TABLE gone")
    assert found == dict.fromkeys([key for key in range(1, 151) if key != 149], 1)


def test_a_restarted_backfill_keeps_the_version_it_began_with(database, model, into):
    task = task_of(database, model)
    task.fail_before_write = 3
    with pytest.raises(RuntimeError):
        backfill(task)
    newer = train(TaskDouble({"query": FLOWERS, "target": "species", "algorithm": "naive_bayes"}, database)).model
    task.models["m"][2] = stored(newer, version=2)

    metrics = backfill(task)

    assert metrics["version"] == 1


def test_text_keys_order_a_backfill_whatever_the_query_orders_by(database, model, into):
    query = "SELECT name AS id, sl, sw, pl, pw FROM iris ORDER BY pl DESC, id; -- ' the end"
    task = task_of(database, model, query=query)
    task.fail_before_write = 2
    with pytest.raises(RuntimeError):
        backfill(task)

    backfill(task)

    found = answers(database)
    assert len(found) == 150
    assert {times for _, _, times in found} == {1}


def test_keys_that_differ_only_in_case_are_different_rows(database, model, into):
    query = "SELECT column1 COLLATE NOCASE AS id, 1 AS sl, 1 AS sw, 1 AS pl, 1 AS pw FROM (VALUES ('a'), ('A'), ('b'))"
    task = task_of(database, model, query=query, batch=1)

    assert backfill(task)["rows"] == 3


def test_a_cancel_stops_a_backfill_between_batches(database, model, into):
    task = task_of(database, model)
    task.cancel_at = "80 of 150"

    with pytest.raises(Cancelled):
        backfill(task)

    assert len(answers(database)) == 80


def test_a_query_without_rows_writes_nothing(database, model):
    task = task_of(database, model, query="SELECT * FROM iris WHERE id < 0")

    assert backfill(task)["rows"] == 0
    assert task.writes == 0


@pytest.mark.parametrize(
    ("others", "error", "message"),
    [
        ({"query": "SELECT NULL AS id, * FROM iris"}, UsageError, "'id'"),
        ({"query": "SELECT 1 AS id, sl, sw, pl, pw FROM iris"}, UsageError, "has the value 1 twice"),
        ({"query": "SELECT NULL AS id, sl, sw, pl, pw FROM iris"}, UsageError, "NULL"),
        ({"query": "SELECT x'00' AS id, sl, sw, pl, pw FROM iris"}, UsageError, "blob"),
        ({"query": "SELECT id, sl, sw, pl FROM iris"}, ModelError, "lacks the feature 'pw'"),
        ({"query": "SELECT id, 'a' AS sl, sw, pl, pw FROM iris"}, ModelError, "'sl' must be a number"),
        ({"model": "unknown"}, ModelError, "unknown"),
        ({"batch": 0}, UsageError, '"batch"'),
        ({"column": "ID"}, UsageError, "same column"),
        ({"into": ""}, UsageError, '"into"'),
        ({"kee": "id"}, UsageError, "did you mean 'key'"),
    ],
)
def test_a_backfill_that_cannot_be_right_is_an_error_and_writes_nothing(database, model, others, error, message):
    task = task_of(database, model, **others)

    with pytest.raises(error, match=message):
        backfill(task)

    assert task.writes == 0


@pytest.mark.parametrize(
    ("query", "bare"),
    [
        ("SELECT 1", "SELECT 1"),
        ("SELECT 1 ; ", "SELECT 1"),
        ("SELECT 1; -- it's done", "SELECT 1"),
        ("SELECT 1 /* why; */;", "SELECT 1"),
        ("SELECT '-- no comment; '", "SELECT '-- no comment; '"),
        ("SELECT 'it''s' -- ;\n, 2", "SELECT 'it''s' -- ;\n, 2"),
        ('SELECT "a;--b" /* open', 'SELECT "a;--b"'),
        ("SELECT [;] , `;`", "SELECT [;] , `;`"),
    ],
)
def test_only_what_stands_behind_a_query_is_taken_off(query, bare):
    assert backfill_module._bare(query) == bare

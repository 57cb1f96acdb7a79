from __future__ import annotations

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from task_double import objects, rows_of, stored, table_of

from mldb.errors import Cancelled, UsageError
from mldb.learn import fitting
from mldb.learn.algorithms import ALGORITHMS
from mldb.learn.options import read_training
from mldb.learn.predictor import Predictor
from mldb.learn.training import train

NAN = float("nan")


def learn(table, **spec):
    return train(table, read_training({"query": "q", "target": "y", **spec}), lambda done, message: None)


def predictor(trained):
    return Predictor.load(stored(trained))


def mixed(rows=120):
    """A table with every trouble: NULLs, categories, dates, words, a key, a constant."""
    rng = np.random.default_rng(0)
    size = rng.normal(size=rows)
    colour = [("red", "green", "blue", None)[at % 4] for at in range(rows)]
    y = ["yes" if size[at] + (colour[at] == "red") > 0.3 else "no" for at in range(rows)]
    size[::11] = NAN
    return {
        "id": np.arange(rows),
        "size": size,
        "colour": objects(colour),
        "bought": objects(f"2024-{1 + at % 12:02}-{1 + at % 28:02}" for at in range(rows)),
        "remark": objects(f"a remark about {'good' if y[at] == 'yes' else 'bad'} number{at}" for at in range(rows)),
        "one": np.ones(rows),
        "y": objects(y),
    }


# What is published, or was measured with scikit-learn alone.


@pytest.mark.parametrize(
    ("dataset", "algorithm", "accuracy"),
    [
        (load_iris, "logistic_regression", 0.953),
        (load_iris, "svm", 0.947),
        (load_iris, "decision_tree", 0.940),
        (load_wine, "logistic_regression", 0.983),
        (load_wine, "naive_bayes", 0.972),
        (load_breast_cancer, "logistic_regression", 0.977),
        (load_breast_cancer, "k_neighbors", 0.965),
        (load_breast_cancer, "gradient_boosting", 0.968),
    ],
)
def test_accuracy_is_near_the_published_one(dataset, algorithm, accuracy):
    trained = learn(table_of(dataset()), algorithm=algorithm)

    assert trained.metrics["accuracy"] == pytest.approx(accuracy, abs=0.04)
    assert trained.metrics["evaluated_on"] == "test"


def test_least_squares_on_diabetes_gives_the_published_r2():
    trained = learn(table_of(load_diabetes()), algorithm="linear_regression", test_size=0)

    assert trained.metrics["r2"] == pytest.approx(0.517748, abs=1e-6)
    assert trained.metrics["evaluated_on"] == "train"


def test_least_squares_on_bmi_gives_the_published_error():
    dataset = load_diabetes()
    bmi, y = dataset.data[:, 2], dataset.target

    trained = learn({"bmi": bmi[:-20], "y": y[:-20]}, algorithm="linear_regression", test_size=0)
    answers = predictor(trained).predict_many({"bmi": bmi[-20:].tolist()})

    assert np.mean((np.array(answers) - y[-20:]) ** 2) == pytest.approx(2548.07, abs=0.01)


# Every algorithm.


@pytest.mark.parametrize(("algorithm", "task"), [(it.name, task) for it in ALGORITHMS.values() for task in it.tasks])
def test_every_algorithm_takes_mixed_columns_and_one_row_answers_as_many(algorithm, task):
    table = mixed()
    if task == "regression":
        table["y"] = np.nan_to_num(table["size"]) * 3 + np.arange(120) % 4

    loaded = predictor(learn(table, algorithm=algorithm, task=task))
    rows = [*rows_of(table, 40), {**rows_of(table, 1)[0], "colour": "never seen", "size": None, "bought": None}]
    many = loaded.predict_many(rows)
    one = [loaded.predict(row) for row in rows]

    if task == "classification":
        assert one == many
        assert set(many) == {"yes", "no"}
    else:
        assert one == pytest.approx(many, rel=1e-9)
        assert {type(answer) for answer in one} == {float}


@pytest.mark.parametrize("algorithm", ["decision_tree", "random_forest", "gradient_boosting", "logistic_regression"])
def test_three_classes_answer_alike_by_row_and_by_batch(algorithm):
    table = table_of(load_wine())
    table["f3"][::5] = NAN
    table["kind"] = objects("abc"[at % 3] for at in range(178))

    loaded = predictor(learn(table, algorithm=algorithm))
    rows = rows_of(table)

    assert [loaded.predict(row) for row in rows] == loaded.predict_many(rows)


def test_the_same_seed_and_data_give_the_same_model_and_another_seed_another():
    table = table_of(load_diabetes())

    def answers(seed):
        trained = learn(table, algorithm="random_forest", seed=seed, params={"n_estimators": 10})
        return predictor(trained).predict_many(rows_of(table))

    assert answers(3) == answers(3)
    assert answers(3) != answers(4)


@pytest.mark.parametrize("kind", [RandomForestClassifier, RandomForestRegressor])
@pytest.mark.parametrize("weights", [None, "balanced"])
def test_a_forest_grown_in_steps_is_the_forest_of_one_fit(kind, weights):
    x, y = load_iris(return_X_y=True)
    params = {"n_estimators": 25, "random_state": 5}
    if kind is RandomForestClassifier:
        params["class_weight"] = weights
    y = y[:130]
    said = []

    stepped = fitting.fit(ALGORITHMS["random_forest"], kind(**params), x[:130], y, lambda *step: said.append(step))
    once = kind(**params).fit(x[:130], y)

    predict = "predict_proba" if kind is RandomForestClassifier else "predict"
    assert (getattr(stepped, predict)(x) == getattr(once, predict)(x)).all()
    assert len(said) > 4
    assert stepped.get_params() == once.get_params()


@pytest.mark.parametrize("kind", [HistGradientBoostingClassifier, HistGradientBoostingRegressor])
def test_boosting_watched_by_rounds_is_the_boosting_of_one_fit(kind):
    x, y = load_iris(return_X_y=True)
    params = {"max_iter": 20, "random_state": 5, "early_stopping": False}
    said = []

    watched = fitting.fit(ALGORITHMS["gradient_boosting"], kind(**params), x, y, lambda *step: said.append(step))
    once = kind(**params).fit(x, y)

    predict = "predict_proba" if kind is HistGradientBoostingClassifier else "predict"
    assert (getattr(watched, predict)(x) == getattr(once, predict)(x)).all()
    assert watched.get_params() == once.get_params()
    assert (0.5, "10 of 20 rounds") in said


@pytest.mark.parametrize("algorithm", ["random_forest", "gradient_boosting", "auto"])
def test_a_cancel_ends_the_fit_between_two_steps(algorithm):
    said = []

    def watch(done, message):
        said.append(message)
        if done > 0.3:
            raise Cancelled("stop")

    options = read_training({"query": "q", "target": "y", "algorithm": algorithm})
    with pytest.raises(Cancelled):
        train(table_of(load_iris()), options, watch)

    assert "evaluating" not in said
    assert "keeping the model" not in said


def test_progress_never_goes_back_and_ends_near_the_whole():
    said = []
    options = read_training({"query": "q", "target": "y"})

    train(table_of(load_iris()), options, lambda done, message: said.append((done, message)))

    shares = [done for done, _ in said]
    assert all(after >= before - 1e-9 for before, after in itertools.pairwise(shares))
    assert shares[-1] == 0.95
    assert len({message for _, message in said}) > 9


def test_auto_keeps_the_best_candidate_by_the_named_metric_and_shows_all():
    trained = learn(table_of(load_diabetes()), metric="mae")

    compared = trained.metrics["auto"]
    assert compared["metric"] == "mae"
    assert set(compared["candidates"]) == {"ridge", "random_forest", "gradient_boosting"}
    assert trained.algorithm == min(compared["candidates"], key=compared["candidates"].get)


# Data as it is.


def test_what_was_left_out_and_why_is_visible():
    trained = learn(mixed(), algorithm="logistic_regression")

    assert set(trained.metrics["excluded"]) == {"id", "one"}
    assert [feature["name"] for feature in trained.features] == ["size", "colour", "bought", "remark"]
    assert [feature["type"] for feature in trained.features] == ["number", "category", "date", "text"]
    assert any("'one' is left out" in line for line in trained.log)


def test_rows_without_a_target_are_dropped_and_counted():
    table = table_of(load_iris())
    table["y"][:7] = None

    trained = learn(table, algorithm="naive_bayes")

    assert trained.metrics["dropped_rows"] == 7
    assert trained.metrics["rows"] == 143


@pytest.mark.parametrize(
    "labels",
    [
        ("yes", "no", "Maybe", "Nö "),
        (3, 7, -1),
        (2**60, 2**60 + 1),
        (0.5, 1.5),
        (1, "1", "one"),
    ],
)
def test_class_labels_come_back_exactly_as_they_were(labels):
    y = objects(labels[at % len(labels)] for at in range(60))
    if all(type(label) is int for label in labels):
        y = np.array(y.tolist(), dtype=np.int64)
    x = np.array([at % len(labels) for at in range(60)]) * 10.5

    loaded = predictor(learn({"x": x, "y": y}, algorithm="decision_tree", task="classification"))
    answers = [loaded.predict({"x": at * 10.5}) for at in range(len(labels))]

    assert answers == list(labels)
    assert [type(answer) for answer in answers] == [type(label) for label in labels]


def test_integer_classes_with_nulls_stay_integers():
    y = np.array([3.0, 7.0, NAN] * 20)

    loaded = predictor(learn({"x": np.nan_to_num(y), "y": y}, algorithm="decision_tree"))

    assert type(loaded.predict({"x": 3})) is int


@pytest.mark.parametrize(
    ("y", "task"),
    [
        (objects(["a", "b"] * 10), "classification"),
        (np.array([0, 1] * 10), "classification"),
        (np.array([1, 2, 3] * 10), "classification"),
        (np.arange(30), "regression"),
        (np.linspace(0, 1, 30), "regression"),
        (np.array([0.5, 1.5] * 10), "regression"),
    ],
)
def test_the_task_follows_from_the_target(y, task):
    assert learn({"x": np.arange(len(y)) % 5, "y": y}, algorithm="decision_tree").task == task


@pytest.mark.parametrize("rows", [2, 3, 5, 9, 11])
@pytest.mark.parametrize("algorithm", ["auto", "k_neighbors", "gradient_boosting"])
def test_a_tiny_table_trains_and_says_on_which_rows_it_was_evaluated(rows, algorithm):
    table = {"x": np.arange(rows), "c": objects("ab"[at % 2] for at in range(rows))}

    for y in (objects("pq"[at % 2] for at in range(rows)), np.arange(rows) * 1.5):
        trained = learn({**table, "y": y}, algorithm=algorithm)

        assert trained.metrics["evaluated_on"] == ("train" if rows < 10 else "test")
        json.dumps(trained.metrics, allow_nan=False)


def test_a_class_of_one_row_is_trained_on():
    y = objects(["a"] * 20 + ["b"] * 20 + ["rare"])
    x = np.array([0] * 20 + [1] * 20 + [9])

    loaded = predictor(learn({"x": x, "y": y}, algorithm="decision_tree"))

    assert loaded.predict({"x": 9}) == "rare"


def test_metrics_and_details_are_plain_json_without_nan():
    trained = learn(mixed())

    for part in (trained.metrics, trained.details, list(trained.features)):
        assert json.loads(json.dumps(part, allow_nan=False)) == part
    wanted = {"accuracy", "f1", "precision", "recall", "log_loss", "roc_auc", "rows", "features", "train_seconds"}
    assert wanted <= set(trained.metrics)
    assert {"seed", "params", "params_given", "classes", "statistics", "libraries"} <= set(trained.details)


@pytest.mark.parametrize(
    ("table", "spec", "message"),
    [
        ({"x": np.arange(4), "y": np.array([1.5, NAN, NAN, NAN])}, {}, "at least 2 rows"),
        ({"x": np.arange(0), "y": np.arange(0)}, {}, "no rows"),
        ({"x": np.arange(4), "y": objects(["a"] * 4)}, {}, "'a' in every row"),
        ({"x": np.full(4, 1), "y": np.arange(4)}, {}, r"no feature.*'x' has the same value"),
        ({"y": np.arange(4)}, {}, "no feature"),
        ({"x": np.arange(4), "y": objects([b"a", b"b", None, b"c"])}, {}, "'y' holds blobs"),
        ({"x": np.arange(4), "y": objects("abcd")}, {}, "too many for classes"),
        ({"x": np.arange(4), "y": objects("abab")}, {"task": "regression"}, "CAST"),
        ({"x": np.arange(4), "y": np.arange(4) + 2**60}, {}, r"beyond 2\^53"),
        ({"x": np.arange(4), "z": np.arange(4)}, {}, "unknown column of the query: 'y'"),
        ({"x": np.arange(4), "y": np.arange(4)}, {"exclude": ["w"]}, "unknown column of the query: 'w'"),
        ({"x": np.arange(4), "y": np.arange(4)}, {"algorithm": "ridgee"}, "did you mean 'ridge'"),
        ({"x": np.arange(4), "y": np.arange(4)}, {"algorithm": "naive_bayes"}, "not regression; use one of"),
        (
            {"x": np.arange(4), "y": np.arange(4)},
            {"algorithm": "ridge", "params": {"alfa": 1}},
            "did you mean 'alpha'",
        ),
        ({"x": np.arange(4), "y": np.arange(4)}, {"algorithm": "ridge", "params": {"alpha": -1}}, "'alpha'"),
        ({"x": np.arange(4), "y": np.arange(4)}, {"params": {"alpha": 1}}, "needs a named"),
        ({"x": np.arange(4), "y": np.arange(4)}, {"metric": "accuracy"}, "unknown metric of a regression"),
        (
            {"x": np.arange(4), "y": objects("abab")},
            {"algorithm": "random_forest", "params": {"class_weight": {"a": 2}}},
            "class_weight",
        ),
    ],
)
def test_what_cannot_be_learned_is_an_error_that_says_what_to_do(table, spec, message):
    with pytest.raises(UsageError, match=message):
        learn(table, **spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, '"query"'),
        ({"query": "SELECT 1"}, '"target"'),
        ({"query": "SELECT 1", "target": "y", "algoritm": "ridge"}, "did you mean 'algorithm'"),
        ({"query": "SELECT 1", "target": "y", "test_size": 1}, '"test_size"'),
        ({"query": "SELECT 1", "target": "y", "test_size": "a"}, '"test_size"'),
        ({"query": "SELECT 1", "target": "y", "seed": -1}, '"seed"'),
        ({"query": "SELECT 1", "target": "y", "task": "classify"}, "did you mean 'classification'"),
        ({"query": "SELECT 1", "target": "y", "params": [1]}, '"params"'),
        ({"query": "SELECT 1", "target": "y", "exclude": "a"}, '"exclude"'),
        ({"query": 7, "target": "y"}, '"query"'),
    ],
)
def test_a_wrong_spec_is_an_error_that_names_the_key(spec, message):
    with pytest.raises(UsageError, match=message):
        read_training(spec)


def test_excluded_columns_are_not_looked_at():
    table = {**table_of(load_iris()), "photo": objects([b"\0"] * 150)}

    trained = learn(table, algorithm="naive_bayes", exclude=["photo", "f0"])

    assert [feature["name"] for feature in trained.features] == ["f1", "f2", "f3"]


def test_the_handlers_import_nothing_heavy_until_a_job_runs():
    script = (
        "import sys, mldb.handlers.noop, mldb.handlers.train, mldb.handlers.backfill\n"
        "print([name for name in ('numpy', 'sklearn', 'skops', 'scipy') if name in sys.modules])"
    )

    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"

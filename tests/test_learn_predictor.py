from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import skops.io
from sklearn.datasets import load_iris, load_wine
from sklearn.ensemble import IsolationForest
from task_double import objects, stored, table_of

from mldb.errors import ModelError
from mldb.learn import artifact
from mldb.learn.options import read_training
from mldb.learn.predictor import Predictor
from mldb.learn.training import train
from mldb.outcome import model_digest


def kept(table=None, **spec):
    options = read_training({"query": "q", "target": "y", **spec})
    return stored(train(table or table_of(load_iris()), options, lambda done, message: None))


def resigned(model, content):
    return replace(model, content=content, digest=model_digest(model.name, model.version, content))


def changed(model, change):
    """Give a model with its parts changed and the digest computed anew, as a forger would."""
    whole = skops.io.loads(model.content, trusted=list(artifact.TRUSTED))
    change(whole["estimator"])
    return resigned(model, skops.io.dumps(whole))


IRIS = {"f0": 5.1, "f1": 3.5, "f2": 1.4, "f3": 0.2}


def test_a_row_is_answered_by_the_features_it_names_and_other_names_are_ignored():
    loaded = Predictor.load(kept(algorithm="logistic_regression"))

    assert loaded.predict(IRIS) == "setosa"
    assert loaded.predict({**IRIS, "comment": [1, 2]}) == "setosa"
    assert loaded.predict({**IRIS, "f0": None}) == "setosa"


def test_many_rows_are_answered_as_columns_or_as_rows():
    loaded = Predictor.load(kept(algorithm="decision_tree"))
    columns = {name: (value, value) for name, value in IRIS.items()}

    assert loaded.predict_many(columns) == loaded.predict_many([IRIS, IRIS]) == ["setosa", "setosa"]
    assert loaded.predict_many([]) == []
    assert loaded.predict_many(dict.fromkeys(IRIS, ())) == []


def test_a_missing_feature_is_an_error_that_names_it():
    loaded = Predictor.load(kept(algorithm="naive_bayes"))
    row = {name: value for name, value in IRIS.items() if name != "f2"}

    with pytest.raises(ModelError, match="'f2'"):
        loaded.predict(row)
    with pytest.raises(ModelError, match="'f2'"):
        loaded.predict_many([IRIS, row])
    with pytest.raises(ModelError, match="'f2'"):
        loaded.predict_many({name: [value] for name, value in row.items()})


@pytest.mark.parametrize("value", ["5.1", [5.1], {"a": 1}, b"5"])
def test_a_value_of_the_wrong_type_is_an_error_that_names_the_feature(value):
    loaded = Predictor.load(kept(algorithm="naive_bayes"))

    with pytest.raises(ModelError, match="'f0'"):
        loaded.predict({**IRIS, "f0": value})


def test_a_row_that_is_no_object_is_an_error():
    loaded = Predictor.load(kept(algorithm="naive_bayes"))

    with pytest.raises(ModelError, match="JSON object"):
        loaded.predict([5.1, 3.5, 1.4, 0.2])


def test_a_number_too_large_for_a_tree_is_an_error_by_row_and_by_batch():
    loaded = Predictor.load(kept(algorithm="decision_tree"))

    with pytest.raises(ModelError, match="too large"):
        loaded.predict({**IRIS, "f0": 1e300})
    with pytest.raises(ModelError, match="too large"):
        loaded.predict_many([{**IRIS, "f0": 1e300}])


# Damage and forgery.


def test_every_flipped_byte_is_found_by_the_digest():
    model = kept(algorithm="naive_bayes")

    for at in range(0, len(model.content), 97):
        content = bytearray(model.content)
        content[at] ^= 1
        with pytest.raises(ModelError, match="digest"):
            Predictor.load(replace(model, content=bytes(content)))


def test_a_model_under_another_name_or_version_is_refused():
    model = kept(algorithm="naive_bayes")

    for other in (replace(model, name="other"), replace(model, version=2)):
        with pytest.raises(ModelError, match="digest"):
            Predictor.load(other)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\3\4" + bytes(100)])
def test_bytes_that_are_no_model_are_an_error_even_with_a_right_digest(content):
    with pytest.raises(ModelError, match="cannot be loaded"):
        Predictor.load(resigned(kept(algorithm="naive_bayes"), content))


def test_a_cut_or_changed_archive_with_a_right_digest_is_an_error_or_harmless():
    model = kept(algorithm="naive_bayes")

    for at in range(0, len(model.content), 41):
        content = bytearray(model.content)
        content[at] ^= 0x55
        for forged in (bytes(content), model.content[:at]):
            try:
                Predictor.load(resigned(model, forged)).predict(IRIS)
            except ModelError:
                continue


def test_a_type_that_is_not_on_the_list_is_refused_before_it_is_made():
    model = kept(algorithm="naive_bayes")
    content = rewritten(
        model.content,
        lambda schema: schema.replace("sklearn.naive_bayes", "subprocess").replace("GaussianNB", "Popen"),
    )

    with pytest.raises(ModelError, match=r"subprocess\.Popen"):
        Predictor.load(resigned(model, content))


def rewritten(content, rewrite):
    """Give an archive with its schema changed as text."""
    archive, copy = zipfile.ZipFile(io.BytesIO(content)), io.BytesIO()
    with zipfile.ZipFile(copy, "w") as target:
        for name in archive.namelist():
            read = archive.read(name)
            target.writestr(name, rewrite(read.decode()) if name == "schema.json" else read)
    return copy.getvalue()


def test_an_estimator_that_is_none_of_ours_is_refused():
    model = kept(algorithm="random_forest", params={"n_estimators": 2})
    whole = skops.io.loads(model.content, trusted=list(artifact.TRUSTED))
    whole["estimator"] = IsolationForest(n_estimators=2).fit(np.zeros((5, 4)))
    forged = resigned(model, skops.io.dumps(whole))

    with pytest.raises(ModelError, match="IsolationForest"):
        Predictor.load(forged)


def state_of(tree):
    return tree.__getstate__()


def poison(field, value, node=0):
    def change(estimator):
        for fitted in getattr(estimator, "estimators_", [estimator]):
            state = state_of(fitted.tree_)
            state["nodes"] = state["nodes"].copy()
            state["nodes"][field][node] = value
            fitted.tree_.__setstate__(state)

    return change


def poison_boosting(field, value):
    def change(estimator):
        nodes = estimator._predictors[0][0].nodes.copy()
        nodes[field][0] = value
        estimator._predictors[0][0].nodes = nodes

    return change


def poison_category_set(estimator):
    trees = [tree for trees in estimator._predictors for tree in trees if tree.nodes["is_categorical"].any()]
    nodes = trees[0].nodes.copy()
    nodes["bitset_idx"][np.flatnonzero(nodes["is_categorical"])[0]] = 2**30
    trees[0].nodes = nodes


def set_attribute(name, value):
    return lambda estimator: setattr(estimator, name, value)


TAMPERED = {
    "a tree's left child far away": ("decision_tree", poison("left_child", 2**40)),
    "a tree's right child far away": ("decision_tree", poison("right_child", 2**40)),
    "a tree's child before it": ("decision_tree", poison("left_child", 0)),
    "a tree's child negative": ("random_forest", poison("right_child", -7)),
    "a tree's column far away": ("random_forest", poison("feature", 2**30)),
    "a tree's column negative": ("decision_tree", poison("feature", -3)),
    "a boosting child far away": ("gradient_boosting", poison_boosting("left", 2**31)),
    "a boosting child that is itself": ("gradient_boosting", poison_boosting("right", 0)),
    "a boosting column far away": ("gradient_boosting", poison_boosting("feature_idx", 2**40)),
    "a boosting category set far away": ("gradient_boosting", poison_category_set),
    "a boosting number as category": ("gradient_boosting", poison_boosting("is_categorical", 1)),
    "too many support vectors counted": ("svm", set_attribute("_n_support", np.array([2**30, 1, 1], np.int32))),
    "support vectors too narrow": ("svm", set_attribute("support_vectors_", np.zeros((3, 1)))),
    "a kernel that indexes rows": ("svm", set_attribute("kernel", "precomputed")),
    "a neighbour's class far away": ("k_neighbors", set_attribute("_y", np.full(112, 2**40))),
}


@pytest.fixture(scope="module")
def wine_models():
    table = table_of(load_wine())
    # A category that half tells the class, so that boosting splits on it.
    table["f0"] = objects(table["y"][at] if at % 2 else "abc"[at % 3] for at in range(178))
    params = {"random_forest": {"n_estimators": 3}, "gradient_boosting": {"max_iter": 3}}
    names = {algorithm for algorithm, _ in TAMPERED.values()}
    return {name: kept(dict(table), algorithm=name, params=params.get(name, {}), test_size=0.37) for name in names}


CHILD = """
import json, sys
from pathlib import Path
from mldb.errors import ModelError
from mldb.learn.predictor import Predictor
from mldb.outcome import StoredModel, model_digest
for file in sorted(Path(sys.argv[1]).glob("*.skops")):
    content = file.read_bytes()
    model = StoredModel("m", 1, model_digest("m", 1, content), "skops", content, "", "", "y", (), "", {})
    try:
        loaded = Predictor.load(model)
        loaded.predict_many([dict.fromkeys(loaded.features, None)] * 5)
        print(json.dumps([file.stem, "answered"]), flush=True)
    except ModelError as error:
        print(json.dumps([file.stem, str(error)]), flush=True)
"""


def test_a_tampered_model_is_an_error_and_never_a_crash(tmp_path, wine_models):
    for at, (algorithm, change) in enumerate(TAMPERED.values()):
        (tmp_path / f"{at:02}.skops").write_bytes(changed(wine_models[algorithm], change).content)
    fewer = rewritten(
        wine_models["decision_tree"].content,
        # With an id of its own, or skops takes an equal number that it has seen before.
        lambda schema: re.sub(r'("node_count": \{[^}]*"content": ")\d+([^}]*"__id__": )\d+', r"\g<1>-5\g<2>1", schema),
    )
    (tmp_path / "90.skops").write_bytes(fewer)
    (tmp_path / "99.skops").write_bytes(wine_models["decision_tree"].content)
    root = str(Path(artifact.__file__).parents[2])

    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True, check=False, cwd=root
    )

    said = dict(json.loads(line) for line in child.stdout.splitlines())
    assert child.returncode == 0, (said, child.stderr)
    assert said.pop("99") == "answered"
    assert len(said) == len(TAMPERED) + 1
    for name, message in zip([*TAMPERED, "a tree of fewer nodes than none"], said.values(), strict=True):
        assert "cannot be trusted" in message or "cannot be loaded" in message, (name, message)

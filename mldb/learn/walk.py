"""One row through a fitted estimator without scikit-learn's checks of arrays.

`compile_row` gives a function from the numbers of one row to a class code or a float. For linear
models, trees, forests and boosting it computes what `predict` computes, in plain Python, in
microseconds; for the others it calls `predict`.
"""

# ruff: noqa: SLF001 - scikit-learn has no public name for the nodes of boosting

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Any

import numpy as np

LEAF = -1
MOST_NODES = 200_000  # a larger forest would cost more memory as lists than its speed is worth
RowFunction = Callable[[list[float]], float]
# (feature, threshold, left, right, missing goes left, categories that go left, value)
Node = tuple[int, float, int, int, bool, frozenset[int] | None, Any]


def compile_row(estimator: Any) -> RowFunction:
    """Give the function that predicts one row of a fitted estimator."""
    makers: dict[str, Callable[[Any], RowFunction | None]] = {
        "LogisticRegression": _linear_classes,
        "LinearRegression": _linear,
        "Ridge": _linear,
        "DecisionTreeClassifier": lambda tree: _forest_classes(tree, [tree]),
        "DecisionTreeRegressor": lambda tree: _forest([tree]),
        "RandomForestClassifier": lambda forest: _forest_classes(forest, forest.estimators_),
        "RandomForestRegressor": lambda forest: _forest(forest.estimators_),
        "HistGradientBoostingClassifier": _boosting,
        "HistGradientBoostingRegressor": _boosting,
    }
    maker = makers.get(type(estimator).__name__)
    return (maker(estimator) if maker else None) or _general(estimator)


def _general(estimator: Any) -> RowFunction:
    return lambda row: estimator.predict(np.array([row]))[0].item()


def _linear(model: Any) -> RowFunction:
    weights, intercept = np.asarray(model.coef_, dtype=np.float64).ravel(), float(model.intercept_)
    return lambda row: float(weights.dot(row)) + intercept


def _linear_classes(model: Any) -> RowFunction:
    codes = model.classes_.tolist()
    if len(codes) == 2:
        weights, intercept = model.coef_[0], float(model.intercept_[0])
        return lambda row: codes[float(weights.dot(row)) + intercept > 0]
    table, offsets = model.coef_, model.intercept_
    return lambda row: codes[(table.dot(row) + offsets).argmax()]


def _tree_nodes(model: Any, *, classes: bool) -> list[Node]:
    tree = model.tree_
    values = tree.value[:, 0, :]
    if classes:
        kept: list[Any] = values.tolist()
    else:
        kept = values[:, 0].tolist()
    left, right = tree.children_left.tolist(), tree.children_right.tolist()
    toward = tree.missing_go_to_left.astype(bool).tolist()
    parts = zip(tree.feature.tolist(), tree.threshold.tolist(), left, right, toward, kept, strict=True)
    return [(feature, at, lo, hi, miss, None, value) for feature, at, lo, hi, miss, value in parts]


def _leaf(nodes: list[Node], row: list[float]) -> Any:
    """Walk one row to its leaf, whose left child is LEAF."""
    node = nodes[0]
    while True:
        feature, threshold, left, right, missing_left, members, value = node
        if left < 0:
            return value
        x = row[feature]
        if isnan(x):
            node = nodes[left if missing_left else right]
        elif members is None:
            node = nodes[left if x <= threshold else right]
        else:
            node = nodes[left if x in members else right]


def _narrow(row: list[float]) -> list[float]:
    # scikit-learn's trees hold thresholds in 64 bits and compare rows of 32.
    narrow: list[float] = np.array(row, dtype=np.float32).tolist()
    return narrow


def _forest(trees: list[Any]) -> RowFunction | None:
    if sum(tree.tree_.node_count for tree in trees) > MOST_NODES:
        return None
    walked = [_tree_nodes(tree, classes=False) for tree in trees]

    def one(row: list[float]) -> float:
        narrow = _narrow(row)
        total = 0.0
        for nodes in walked:
            total += _leaf(nodes, narrow)
        return total / len(walked)

    return one


def _forest_classes(model: Any, trees: list[Any]) -> RowFunction | None:
    if sum(tree.tree_.node_count for tree in trees) > MOST_NODES:
        return None
    walked = [_tree_nodes(tree, classes=True) for tree in trees]
    codes = model.classes_.tolist()

    def one(row: list[float]) -> float:
        narrow = _narrow(row)
        total = [0.0] * len(codes)
        for nodes in walked:
            shares = _leaf(nodes, narrow)
            for at, share in enumerate(shares):
                total[at] += share
        code: float = codes[total.index(max(total))]
        return code

    return one


def _boosting(model: Any) -> RowFunction | None:
    identity = getattr(model, "loss", "log_loss") in (
        "log_loss",
        "squared_error",
        "absolute_error",
        "quantile",
    )
    if not identity or sum(len(tree.nodes) for trees in model._predictors for tree in trees) > MOST_NODES:
        return None
    rounds = [[_predictor_nodes(tree) for tree in trees] for trees in model._predictors]
    baseline: list[float] = np.asarray(model._baseline_prediction).ravel().tolist()
    codes: list[int] | None = model.classes_.tolist() if hasattr(model, "classes_") else None

    def one(row: list[float]) -> float:
        total = list(baseline)
        for trees in rounds:
            for at, nodes in enumerate(trees):
                total[at] += _leaf(nodes, row)
        if codes is None:
            return total[0]
        if len(total) == 1:
            return codes[total[0] > 0]
        return codes[total.index(max(total))]

    return one


def _predictor_nodes(tree: Any) -> list[Node]:
    nodes, sets = tree.nodes, [_members(bits) for bits in tree.raw_left_cat_bitsets]
    inner = nodes["is_leaf"] == 0
    parts = zip(
        nodes["feature_idx"].tolist(),
        nodes["num_threshold"].tolist(),
        np.where(inner, nodes["left"].astype(np.int64), LEAF).tolist(),
        nodes["right"].tolist(),
        nodes["missing_go_to_left"].astype(bool).tolist(),
        np.where(inner & (nodes["is_categorical"] != 0), nodes["bitset_idx"].astype(np.int64), -1).tolist(),
        nodes["value"].tolist(),
        strict=True,
    )
    return [
        (feature, at, left, right, missing, None if group < 0 else sets[group], value)
        for feature, at, left, right, missing, group, value in parts
    ]


def _members(bits: Any) -> frozenset[int]:
    return frozenset(32 * at + bit for at, word in enumerate(bits.tolist()) for bit in range(32) if word >> bit & 1)

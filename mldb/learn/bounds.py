"""What a loaded estimator must satisfy before it may predict.

scikit-learn's compiled code follows the indices in trees, support vectors and neighbours without
looking. A file whose digest was computed anew could hold wrong ones and end the process, so each is
compared with the size of what it points into.
"""

# ruff: noqa: SLF001 - what is checked is what scikit-learn keeps for itself

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree._tree import Tree

from mldb.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAF = -1
_KERNELS = ("linear", "poly", "rbf", "sigmoid")


def check(estimator: Any, width: int, classes: int) -> None:
    """Raise ModelError unless the estimator fits `width` columns and `classes` classes (0: a regression)."""
    _require(getattr(estimator, "n_features_in_", None) == width, "its number of columns is wrong")
    if classes:
        known = np.asarray(estimator.classes_)
        _require(known.dtype.kind == "i" and known.ndim == 1 and 0 < len(known) <= classes, "its classes are wrong")
        _require(bool(((known >= 0) & (known < classes)).all()), "its classes are wrong")
    checker = _CHECKS.get(type(estimator).__name__)
    if checker is not None:
        checker(estimator, width, classes)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ModelError(message)


def _tree_model(estimator: Any, width: int, _: int) -> None:
    _tree(estimator.tree_, width, len(estimator.classes_) if hasattr(estimator, "classes_") else 1)


def _forest(estimator: Any, width: int, classes: int) -> None:
    _require(isinstance(estimator.estimators_, list) and len(estimator.estimators_) > 0, "it holds no trees")
    for tree in estimator.estimators_:
        _require(type(tree) is type(estimator.estimator), "it holds a stranger among its trees")
        _require(tree.n_features_in_ == width, "a tree's number of columns is wrong")
        _tree(tree.tree_, width, len(estimator.classes_) if classes else 1)


def _tree(tree: Any, width: int, values: int) -> None:
    _require(type(tree) is Tree, "it holds a stranger in place of a tree")
    # The count comes first: the arrays below are views of that length on the tree's memory.
    _require(1 <= tree.node_count <= tree.capacity, "a tree's node count is out of bounds")
    _require((tree.n_features, tree.n_outputs, tree.max_n_classes) == (width, 1, values), "a tree's shape is wrong")
    left, right = tree.children_left, tree.children_right
    inner = left != LEAF
    _require(bool((right[~inner] == LEAF).all()), "a tree's leaf has a child")
    _children(left, right, inner)
    _within(tree.feature[inner], width, "a tree splits on a column that is not there")


def _children(left: NDArray[Any], right: NDArray[Any], inner: NDArray[np.bool_]) -> None:
    own = np.arange(len(left))[inner]
    for child in (left[inner].astype(np.int64), right[inner].astype(np.int64)):
        _require(
            bool(((child > own) & (child < len(left))).all()),
            "a tree's child is out of bounds",
        )


def _within(values: NDArray[Any], limit: int, message: str) -> None:
    _require(not len(values) or bool((values.min() >= 0) and (values.max() < limit)), message)


def _boosting(estimator: Any, width: int, classes: int) -> None:
    mapper = estimator._bin_mapper
    marks = mapper.is_categorical_
    _require(estimator._preprocessor is None, "it recodes its columns")
    _require(
        isinstance(marks, np.ndarray) and marks.shape == (width,) and marks.dtype.kind in "bu",
        "its categories are wrong",
    )
    categorical = marks.astype(bool)
    _require(len(mapper.bin_thresholds_) == width, "its thresholds are wrong")
    for at in np.flatnonzero(categorical).tolist():
        _within(np.asarray(mapper.bin_thresholds_[at]), 256, "a category's code is out of bounds")
    per_round = classes if classes > 2 else 1
    _require(estimator.n_trees_per_iteration_ == per_round, "its number of trees per round is wrong")
    _require(np.asarray(estimator._baseline_prediction).size == per_round, "its baseline is wrong")
    for trees in estimator._predictors:
        _require(len(trees) == per_round, "a round's number of trees is wrong")
        for tree in trees:
            _predictor(tree, width, categorical)


def _predictor(tree: Any, width: int, categorical: NDArray[np.bool_]) -> None:
    _require(type(tree) is TreePredictor, "it holds a stranger in place of a tree")
    nodes, sets = tree.nodes, tree.raw_left_cat_bitsets
    _require(
        isinstance(nodes, np.ndarray) and nodes.dtype == PREDICTOR_RECORD_DTYPE and nodes.ndim == 1,
        "a tree's nodes are wrong",
    )
    _require(len(nodes) > 0, "a tree has no nodes")
    _require(
        isinstance(sets, np.ndarray) and sets.dtype == np.uint32 and sets.ndim == 2 and sets.shape[1] == 8,
        "a tree's category sets are wrong",
    )
    inner = nodes["is_leaf"] == 0
    _children(nodes["left"], nodes["right"], inner)
    _within(nodes["feature_idx"][inner], width, "a tree splits on a column that is not there")
    by_category = nodes[inner & (nodes["is_categorical"] != 0)]
    _require(bool(categorical[by_category["feature_idx"]].all()), "a tree takes a number for a category")
    _within(by_category["bitset_idx"], len(sets), "a tree's category set is out of bounds")


def _support(estimator: Any, width: int, classes: int) -> None:
    groups = len(estimator.classes_) if classes else 2
    pairs = groups * (groups - 1) // 2
    vectors, coefficients, counts = estimator.support_vectors_, estimator._dual_coef_, estimator._n_support
    _require(estimator.kernel in _KERNELS and not estimator._sparse, "its kernel is wrong")
    _require(getattr(estimator, "probability", False) is not True, "its probabilities are wrong")
    _require(vectors.ndim == 2 and vectors.shape[1] == width, "its support vectors are wrong")
    _require(coefficients.shape == (groups - 1, len(vectors)), "its coefficients are wrong")
    _require(estimator.support_.shape == (len(vectors),), "its support is wrong")
    _require(np.asarray(estimator._intercept_).shape == (pairs,), "its intercepts are wrong")
    _require(counts.shape == (groups,) and bool((counts >= 0).all()), "its support counts are wrong")
    if classes:
        _require(int(counts.sum()) == len(vectors), "its support counts are wrong")


def _neighbours(estimator: Any, width: int, classes: int) -> None:
    rows, y = estimator._fit_X, estimator._y
    _require(estimator._fit_method == "brute" and estimator._tree is None, "its search is wrong")
    _require(isinstance(rows, np.ndarray) and rows.shape == (len(y), width), "its rows are wrong")
    _require(
        isinstance(y, np.ndarray) and y.ndim == 1 and 0 < estimator.n_neighbors <= len(y),
        "its rows are wrong",
    )
    if classes:
        _within(y, len(estimator.classes_), "a neighbour's class is out of bounds")


_CHECKS: Mapping[str, Callable[[Any, int, int], None]] = {
    "DecisionTreeClassifier": _tree_model,
    "DecisionTreeRegressor": _tree_model,
    "RandomForestClassifier": _forest,
    "RandomForestRegressor": _forest,
    "HistGradientBoostingClassifier": _boosting,
    "HistGradientBoostingRegressor": _boosting,
    "SVC": _support,
    "SVR": _support,
    "KNeighborsClassifier": _neighbours,
    "KNeighborsRegressor": _neighbours,
}

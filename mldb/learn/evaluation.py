"""The held-out part, and what a fitted estimator is worth on it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.model_selection import train_test_split

from mldb.errors import UsageError
from mldb.learn.options import CLASSIFICATION, unknown

if TYPE_CHECKING:
    from mldb.learn.target import Target

FEWEST_TO_SPLIT = 10
Rows = NDArray[np.intp]
# Whether more is better.
METRICS = {
    CLASSIFICATION: dict.fromkeys(("accuracy", "f1", "precision", "recall", "roc_auc"), True) | {"log_loss": False},
    "regression": {"r2": True, "mae": False, "rmse": False},
}


def check_metric(name: str | None, task: str) -> str:
    """Give the metric to compare by, accuracy or r2 by default; UsageError when the task has no such one."""
    if name is None:
        return "accuracy" if task == CLASSIFICATION else "r2"
    if name not in METRICS[task]:
        raise UsageError(unknown(f"metric of a {task}:", name, METRICS[task]))
    return name


def split(y: NDArray[Any], task: str, test_size: float, seed: int) -> tuple[Rows, Rows | None]:
    """Give the row numbers to train on and to hold out; None when there are too few to hold out.

    A classification is stratified where every class has enough rows; a class of one row is trained on.
    """
    rows = np.arange(len(y))
    held = math.ceil(test_size * len(y))
    if len(y) < FEWEST_TO_SPLIT or not held or len(y) - held < 2:
        return rows, None
    if task != CLASSIFICATION:
        return _split(rows, held, seed, None)
    counts = np.bincount(y)
    single = np.isin(y, np.flatnonzero(counts == 1))
    common, classes = rows[~single], int((counts > 1).sum())
    held = math.ceil(test_size * len(common))
    if classes and classes <= held <= len(common) - classes:
        train, test = _split(common, held, seed, y[common])
        return np.concatenate([train, rows[single]]), test
    train, test = _split(rows, math.ceil(test_size * len(y)), seed, None)
    return (train, test) if len(np.unique(y[train])) > 1 else (rows, None)


def _split(rows: Rows, held: int, seed: int, stratify: NDArray[Any] | None) -> tuple[Rows, Rows]:
    train, test = train_test_split(rows, test_size=held, random_state=seed, stratify=stratify)
    return train, test


def evaluate(estimator: Any, x: NDArray[np.float64], y: NDArray[Any], target: Target) -> dict[str, float]:
    """Give the metrics of a fitted estimator on x, shape (rows, width), and y, shape (rows,).

    Precision, recall and f1 are unweighted means over the classes ("macro"). A metric without a finite
    value here is left out.
    """
    predicted = estimator.predict(x)
    if target.task == CLASSIFICATION:
        found = _labels(y, predicted) | _probabilities(estimator, x, y, len(target.classes))
    else:
        found = {
            "mae": metrics.mean_absolute_error(y, predicted),
            "rmse": metrics.root_mean_squared_error(y, predicted),
        }
        if len(y) > 1:
            found["r2"] = metrics.r2_score(y, predicted)
    ordered = {name: float(found[name]) for name in METRICS[target.task] if name in found}
    return {name: value for name, value in ordered.items() if math.isfinite(value)}


def _labels(y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(y, predicted, average="macro", zero_division=0.0)
    return {
        "accuracy": metrics.accuracy_score(y, predicted),
        "f1": f1,
        "precision": precision,
        "recall": recall,
    }


def _probabilities(estimator: Any, x: NDArray[np.float64], y: NDArray[Any], classes: int) -> dict[str, float]:
    known = estimator.classes_
    every_class = len(np.unique(y)) == len(known) == classes
    if not hasattr(estimator, "predict_proba"):
        if classes == 2 and every_class:
            return {"roc_auc": metrics.roc_auc_score(y, estimator.decision_function(x))}
        return {}
    shares = estimator.predict_proba(x)
    found = {}
    if len(known) == classes:
        found["log_loss"] = metrics.log_loss(y, shares, labels=known)
    if every_class:
        by_score = shares[:, 1] if classes == 2 else shares
        found["roc_auc"] = metrics.roc_auc_score(y, by_score, multi_class="ovr")
    return found

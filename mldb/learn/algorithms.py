"""The algorithms by the field's names: what each predicts, what it is made of, how it takes its input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from mldb.errors import UsageError
from mldb.learn.encoding import CODES, DENSE
from mldb.learn.options import CLASSIFICATION, REGRESSION, unknown

AUTO = "auto"
# Ours to set, or not to be kept in a model: callables, threads, noise.
_RESERVED = frozenset(
    (
        "categorical_features",
        "copy_X",
        "interaction_cst",
        "monotonic_cst",
        "n_jobs",
        "probability",
        "random_state",
        "scoring",
        "verbose",
        "warm_start",
    )
)
MOST_LEAVES = 5000


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One row of the table.

    `estimators` maps a task to its scikit-learn class, `layout` is the encoding it takes, `grows`
    names the parameter that can be fitted in steps, `fixed` what a spec may not change, and `by_rows`
    gives the defaults that depend on the number of training rows.
    """

    name: str
    estimators: Mapping[str, Any]
    layout: str
    defaults: Mapping[str, object] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    grows: str | None = None
    by_rows: Callable[[int], Mapping[str, object]] = field(default=lambda _: {})

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks it does."""
        return tuple(self.estimators)

    def build(
        self,
        task: str,
        params: Mapping[str, object],
        seed: int,
        *,
        rows: int,
        categories: tuple[int, ...],
    ) -> Any:
        """Make the unfitted estimator for `rows` training rows and the columns' category counts.

        Raises UsageError for a parameter it does not know.
        """
        kind = self.estimators[task]
        known = set(kind().get_params())
        allowed = known - _RESERVED - set(self.fixed)
        for name in params:
            if name not in allowed:
                raise UsageError(unknown(f"parameter of {self.name}:", name, allowed))
        if isinstance(params.get("class_weight"), Mapping):
            raise UsageError('"class_weight" may be "balanced" or null; weights per class are not supported')
        given = {**self.defaults, **self.by_rows(rows), **params, **self.fixed}
        if "random_state" in known:
            given["random_state"] = seed
        if "categorical_features" in known and any(categories):
            given["categorical_features"] = [at for at, count in enumerate(categories) if count]
        return kind(**given)


def _table(*algorithms: Algorithm) -> dict[str, Algorithm]:
    return {algorithm.name: algorithm for algorithm in algorithms}


ALGORITHMS: Mapping[str, Algorithm] = _table(
    Algorithm("logistic_regression", {CLASSIFICATION: LogisticRegression}, DENSE, {"max_iter": 1000}),
    Algorithm("linear_regression", {REGRESSION: LinearRegression}, DENSE),
    Algorithm("ridge", {REGRESSION: Ridge}, DENSE),
    Algorithm(
        "decision_tree",
        {CLASSIFICATION: DecisionTreeClassifier, REGRESSION: DecisionTreeRegressor},
        CODES,
        by_rows=lambda rows: {"min_samples_leaf": max(1, rows // MOST_LEAVES)},
    ),
    Algorithm(
        "random_forest",
        {CLASSIFICATION: RandomForestClassifier, REGRESSION: RandomForestRegressor},
        CODES,
        grows="n_estimators",
        # Trees of pure leaves grow with the rows, to gigabytes; up to 5000 rows this changes nothing.
        by_rows=lambda rows: {"min_samples_leaf": max(1, rows // MOST_LEAVES)},
    ),
    Algorithm(
        "gradient_boosting",
        {CLASSIFICATION: HistGradientBoostingClassifier, REGRESSION: HistGradientBoostingRegressor},
        CODES,
        {"early_stopping": False},
        grows="max_iter",
    ),
    Algorithm(
        "k_neighbors",
        {CLASSIFICATION: KNeighborsClassifier, REGRESSION: KNeighborsRegressor},
        DENSE,
        # A search tree read back from a file cannot be checked for bounds; plain distances can.
        fixed={"algorithm": "brute"},
        by_rows=lambda rows: {"n_neighbors": min(5, rows)},
    ),
    Algorithm("svm", {CLASSIFICATION: SVC, REGRESSION: SVR}, DENSE),
    Algorithm("naive_bayes", {CLASSIFICATION: GaussianNB}, DENSE),
)

CANDIDATES: Mapping[str, tuple[str, ...]] = {
    CLASSIFICATION: ("logistic_regression", "random_forest", "gradient_boosting"),
    REGRESSION: ("ridge", "random_forest", "gradient_boosting"),
}


def find(name: str, task: str) -> Algorithm:
    """Give the algorithm of a name; raise UsageError when it is unknown or does not do the task."""
    algorithm = ALGORITHMS.get(name)
    if algorithm is None:
        raise UsageError(unknown("algorithm", name, (*ALGORITHMS, AUTO)))
    if task not in algorithm.tasks:
        fitting = ", ".join(sorted(it.name for it in ALGORITHMS.values() if task in it.tasks))
        raise UsageError(f"{name} does {' and '.join(algorithm.tasks)}, not {task}; use one of {fitting}")
    return algorithm

"""One fit, with progress while it runs and a stop between its steps.

A fit in steps gives bit for bit the model of one fit: a forest grows by `warm_start`, and boosting
is watched through its scoring callback, since warm starts would bin all rows anew each time
(300,000 rows, 100 rounds: 1.5 s in one fit, 6 s in ten, 1.1 s watched).
"""

# ruff: noqa: SLF001 - scikit-learn has no public name for what a fit leaves behind

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from mldb.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mldb.learn.algorithms import Algorithm

# Called with the share done (0 to 1) and a message; it raises to stop the fit.
Watch = Callable[[float, str], None]
STEP_SECONDS = 0.5
SMALL_CELLS = 200_000


def threads(cells: int) -> AbstractContextManager[object]:
    """Keep OpenMP to this thread, within the context, for a matrix of few cells.

    Its threads would mostly wait for each other there, and for those of the other workers.
    """
    return threadpool_limits(1, user_api="openmp") if cells < SMALL_CELLS else nullcontext()


def fit(algorithm: Algorithm, estimator: Any, x: NDArray[np.float64], y: NDArray[Any], watch: Watch) -> Any:
    """Fit an estimator on x, shape (rows, width), and y, shape (rows,); gives the fitted one.

    Raises UsageError when scikit-learn refuses a parameter, and whatever `watch` raises.
    """
    watch(0.0, f"fitting {algorithm.name}")
    try:
        _fit(algorithm, estimator, x, y, watch)
    except (ValueError, TypeError) as error:
        raise UsageError(f'{algorithm.name} could not be fitted: {error}; change "params"') from error
    if hasattr(estimator, "_preprocessor"):
        _drop_recoding(estimator)
    watch(1.0, f"fitted {algorithm.name}")
    return estimator


def _fit(algorithm: Algorithm, estimator: Any, x: NDArray[np.float64], y: NDArray[Any], watch: Watch) -> None:
    if algorithm.grows == "n_estimators":
        _grow(estimator, x, y, watch)
    elif _may_watch(estimator):
        _boost(estimator, x, y, watch)
    else:
        estimator.fit(x, y)


def _grow(forest: Any, x: NDArray[np.float64], y: NDArray[Any], watch: Watch) -> None:
    total, weights = forest.n_estimators, getattr(forest, "class_weight", None)
    if not isinstance(total, int) or total < 2 or weights == "balanced_subsample":
        forest.fit(x, y)
        return
    done, step = 0, 1
    forest.set_params(warm_start=True)
    if weights == "balanced":  # scikit-learn warns of the preset in steps, since y could differ
        classes = np.unique(y)
        each = compute_class_weight("balanced", classes=classes, y=y).tolist()
        forest.set_params(class_weight=dict(zip(classes.tolist(), each, strict=True)))
    while done < total:
        begin = time.perf_counter()
        done = min(total, done + step)
        forest.set_params(n_estimators=done).fit(x, y)
        spent = time.perf_counter() - begin
        step = max(1, min(2 * step, int(step * STEP_SECONDS / max(spent, 1e-6))))
        watch(done / total, f"{done} of {total} trees")
    forest.set_params(warm_start=False)
    if weights is not None:
        forest.set_params(class_weight=weights)
    forest._sample_weight = None  # one number per training row, of no use in prediction


@dataclass(frozen=True, slots=True)
class _Rounds:
    """A scorer that scores nothing: scikit-learn calls it after each round of boosting."""

    total: int
    watch: Watch

    def __call__(self, estimator: Any, *_: object) -> float:
        done = min(self.total, len(estimator._predictors))
        self.watch(done / self.total, f"{done} of {self.total} rounds")
        return 0.0


def _may_watch(estimator: Any) -> bool:
    # A model that stops early by its own score has no scoring callback to lend.
    return getattr(estimator, "early_stopping", None) is False and isinstance(estimator.max_iter, int)


def _boost(boosting: Any, x: NDArray[np.float64], y: NDArray[Any], watch: Watch) -> None:
    own = {name: getattr(boosting, name) for name in ("scoring", "validation_fraction", "n_iter_no_change")}
    boosting.set_params(
        early_stopping=True,
        scoring=_Rounds(boosting.max_iter, watch),
        validation_fraction=None,
        n_iter_no_change=boosting.max_iter + 1,
    )
    boosting.fit(x, y)
    boosting.set_params(early_stopping=False, **own)
    # What the callback left behind is no part of a model fitted without it.
    boosting.do_early_stopping_ = False
    boosting.train_score_ = np.empty(0)
    boosting._scorer = None


def _drop_recoding(boosting: Any) -> None:
    """Remove the step in which boosting numbers the categories anew, where it changes nothing.

    Our codes are already 0, 1, 2, … and come first; the step would cost a millisecond per prediction
    and hold a function in the kept model.
    """
    step = boosting._preprocessor
    if step is None:
        return
    encoder = step.named_transformers_["encoder"]
    leading = boosting.is_categorical_.argmin() if not boosting.is_categorical_.all() else boosting.n_features_in_
    same = all(np.array_equal(known, np.arange(len(known))) for known in encoder.categories_)
    if same and leading == len(encoder.categories_):
        boosting._preprocessor = None

"""`auto`: a few algorithms are compared on the training rows, and the best by one metric is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold

from mldb.errors import UsageError
from mldb.learn import evaluation, fitting
from mldb.learn.algorithms import CANDIDATES, find
from mldb.learn.encoding import CODES, Encoding, dense, densify
from mldb.learn.options import CLASSIFICATION

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mldb.learn.fitting import Watch
    from mldb.learn.target import Target

Part = tuple[evaluation.Rows, evaluation.Rows]  # the rows to fit on and to score on
FOLDS = 3
FEW_ROWS = 5_000  # up to here by cross-validation, beyond by one validation part
MOST_ROWS = 40_000


@dataclass(frozen=True, slots=True)
class Choice:
    """The best algorithm, what it was compared by, and every candidate's mean score."""

    algorithm: str
    metric: str
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Candidates:
    """What the candidates are compared on: the training rows in the "codes" layout, and their target."""

    codes: Encoding
    matrix: NDArray[np.float64]
    y: NDArray[Any]
    target: Target
    seed: int


def choose(rows: Candidates, metric: str, watch: Watch) -> Choice:
    """Compare the candidates of the target's task by one metric.

    The rows are resampled for each candidate alike; medians and scales are learned anew from each part.
    Ties go to the candidate named first, the simpler one. Raises UsageError when none has the metric here.
    """
    parts = list(_parts(rows.y, rows.target.task, rows.seed))
    names = CANDIDATES[rows.target.task]
    share = 1 / (len(names) * len(parts))
    scores = {}
    for at, name in enumerate(names):
        found = []
        for fold, part in enumerate(parts):
            message = f"comparing {name}, part {fold + 1} of {len(parts)}"
            step = _within(watch, (at * len(parts) + fold) * share, share, message)
            found.append(_score(name, rows, part, step).get(metric))
        known = [score for score in found if score is not None]
        if len(known) == len(found):
            scores[name] = float(np.mean(known))
    if not scores:
        raise UsageError(f"no candidate has the metric '{metric}' on these rows; name an \"algorithm\"")
    sign = 1 if evaluation.METRICS[rows.target.task][metric] else -1
    return Choice(max(scores, key=lambda name: sign * scores[name]), metric, scores)


def _within(watch: Watch, begin: float, share: float, message: str) -> Watch:
    return lambda done, _: watch(begin + share * done, message)


def _score(name: str, rows: Candidates, part: Part, watch: Watch) -> dict[str, float]:
    algorithm, (train, test) = find(name, rows.target.task), part
    before, after = rows.matrix[train], rows.matrix[test]
    if algorithm.layout != CODES:
        slots = densify(rows.codes, before).slots
        before, after = dense(before, slots), dense(after, slots)
    estimator = algorithm.build(rows.target.task, {}, rows.seed, rows=len(train), categories=rows.codes.code_columns)
    fitting.fit(algorithm, estimator, before, rows.y[train], watch)
    return evaluation.evaluate(estimator, after, rows.y[test], rows.target)


def _parts(y: NDArray[Any], task: str, seed: int) -> Iterator[Part]:
    rows = np.arange(len(y))
    stratified = task == CLASSIFICATION and np.bincount(y)[np.unique(y)].min() >= FOLDS
    if len(y) > FEW_ROWS or (task == CLASSIFICATION and not stratified):
        sample = np.random.default_rng(seed).permutation(rows)[:MOST_ROWS] if len(y) > MOST_ROWS else rows
        train, test = evaluation.split(y[sample], task, 0.25, seed)
        yield sample[train], sample[train if test is None else test]
        return
    if len(y) < 2 * FOLDS:
        yield rows, rows
        return
    folds = (StratifiedKFold if stratified else KFold)(FOLDS, shuffle=True, random_state=seed)
    yield from folds.split(rows, y)

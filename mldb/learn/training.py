"""From the columns of a query to a model that can be kept."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mldb.errors import UsageError
from mldb.learn import artifact, encoding, evaluation, fitting, kinds, selection, statistics, target
from mldb.learn.algorithms import AUTO, Algorithm, find
from mldb.learn.encoding import CODES, DENSE, Encoding
from mldb.learn.kinds import Column, Excluded, Values
from mldb.learn.options import TrainingOptions, unknown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mldb.learn.fitting import Watch
    from mldb.learn.selection import Choice
    from mldb.learn.target import Target

Table = Mapping[str, Values]


@dataclass(frozen=True, slots=True)
class Trained:
    """A model's bytes, what it is, and how well it did.

    `features`, `details` and `metrics` are JSON-able; `log` says in lines what was decided on the way.
    """

    format: str
    content: bytes
    algorithm: str
    task: str
    features: tuple[Mapping[str, object], ...]
    details: Mapping[str, object]
    metrics: Mapping[str, object]
    log: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Sample:
    """The usable rows in their two parts; `test` is None when all are trained on."""

    target: Target
    columns: tuple[Column, ...]
    excluded: tuple[Excluded, ...]
    train: Table
    train_y: NDArray[Any]
    test: Table | None
    test_y: NDArray[Any]
    dropped: int


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A fitted estimator with its encoding and what it was given."""

    algorithm: Algorithm
    encoding: Encoding
    estimator: Any
    params: Mapping[str, object]
    choice: Choice | None
    metrics: Mapping[str, object]


def train(table: Table, options: TrainingOptions, watch: Watch) -> Trained:
    """Learn `options.target` from the other columns of a table of equally long columns.

    `watch` gets the share done (0 to 1) and a message, and may raise to stop. The kept model is the one
    that was evaluated, fitted on the training part. Raises UsageError, naming the column and the cure,
    when there is nothing to learn from.
    """
    begin = time.perf_counter()
    sample = _sample(table, options)
    metric = evaluation.check_metric(options.metric, sample.target.task)
    with fitting.threads(len(sample.train_y) * len(sample.columns)):
        fitted = _fit(sample, options, metric, watch)
    watch(0.95, "keeping the model")
    parts = artifact.Parts(fitted.encoding, sample.target, fitted.algorithm.name, fitted.estimator)
    content = artifact.dump(parts)
    counts: dict[str, object] = {
        "rows": len(sample.train_y) + len(sample.test_y),
        "train_rows": len(sample.train_y),
        "test_rows": len(sample.test_y),
        "dropped_rows": sample.dropped,
        "features": len(sample.columns),
    }
    metrics = {**fitted.metrics, **counts, **_choice(fitted.choice)}
    if sample.excluded:
        metrics["excluded"] = {column.name: column.reason for column in sample.excluded}
    metrics["train_seconds"] = round(time.perf_counter() - begin, 3)
    return Trained(
        format=artifact.FORMAT,
        content=content,
        algorithm=fitted.algorithm.name,
        task=sample.target.task,
        features=_features(sample, fitted.encoding),
        details={**_details(sample, fitted, options), **counts},
        metrics=metrics,
        log=tuple(_log(sample, fitted)),
    )


def _sample(table: Table, options: TrainingOptions) -> _Sample:
    for name in (options.target, *options.exclude):
        if name not in table:
            raise UsageError(unknown("column of the query:", name, table))
    labelled = target.read(options.target, table[options.target], options.task)
    task = labelled.target.task
    if options.algorithm != AUTO:
        find(options.algorithm, task)  # a wrong name is told before the work
    elif options.params:
        raise UsageError('"params" needs a named "algorithm"; auto chooses its own')
    names = [name for name in table if name not in (options.target, *options.exclude)]
    kept = {name: _take(table[name], np.flatnonzero(labelled.kept)) for name in names}
    found = [kinds.infer(name, values) for name, values in kept.items()]
    columns = tuple(column for column in found if isinstance(column, Column))
    excluded = tuple(column for column in found if isinstance(column, Excluded))
    if not columns:
        why = "; ".join(f"'{column.name}' {column.reason}" for column in excluded)
        raise UsageError(f"the query has no feature beside the target; add columns{why and f' ({why})'}")
    train, test = evaluation.split(labelled.y, task, options.test_size, options.seed)
    used = {column.name: kept[column.name] for column in columns}
    return _Sample(
        target=labelled.target,
        columns=columns,
        excluded=excluded,
        train={name: _take(values, train) for name, values in used.items()},
        train_y=labelled.y[train],
        test=None if test is None else {name: _take(values, test) for name, values in used.items()},
        test_y=labelled.y[:0] if test is None else labelled.y[test],
        dropped=int((~labelled.kept).sum()),
    )


def _take(values: Values, rows: NDArray[np.intp]) -> Values:
    if isinstance(values, np.ndarray):
        return values[rows]
    return [values[at] for at in rows.tolist()]


def _fit(sample: _Sample, options: TrainingOptions, metric: str, watch: Watch) -> _Fitted:
    goal, y, seed = sample.target, sample.train_y, options.seed
    watch(0.02, "encoding the columns")
    codes = encoding.fit(sample.columns, sample.train, CODES, seed)
    matrix = codes.matrix(sample.train)
    choice = None
    if options.algorithm == AUTO:
        step = _share(watch, 0.05, 0.6)
        candidates = selection.Candidates(codes, matrix, y, goal, seed)
        choice = selection.choose(candidates, metric, step)
    algorithm = find(choice.algorithm if choice else options.algorithm, goal.task)
    coded = codes if algorithm.layout == CODES else encoding.densify(codes, matrix)
    x = encoding.dense(matrix, coded.slots) if coded.slots else matrix
    estimator = algorithm.build(goal.task, options.params, seed, rows=len(x), categories=codes.code_columns)
    params = {name: value for name, value in estimator.get_params().items() if _is_plain(value)}
    begin = time.perf_counter()
    fitting.fit(algorithm, estimator, x, y, _share(watch, 0.6 if choice else 0.05, 0.9))
    seconds = round(time.perf_counter() - begin, 3)
    watch(0.9, "evaluating")
    held, held_y = (x, y) if sample.test is None else (coded.matrix(sample.test), sample.test_y)
    metrics: dict[str, object] = {
        **evaluation.evaluate(estimator, held, held_y, goal),
        "evaluated_on": "train" if sample.test is None else "test",
        "algorithm": algorithm.name,
        "task": goal.task,
        "fit_seconds": seconds,
    }
    return _Fitted(algorithm, coded, estimator, params, choice, metrics)


def _share(watch: Watch, begin: float, end: float) -> Watch:
    return lambda done, message: watch(begin + (end - begin) * done, message)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str | list | dict)


def _log(sample: _Sample, fitted: _Fitted) -> Iterator[str]:
    yield f"{sample.target.task} of '{sample.target.name}' by {fitted.algorithm.name}"
    if sample.dropped:
        yield f"{sample.dropped} rows are left out: '{sample.target.name}' is NULL in them"
    for excluded in sample.excluded:
        yield f"column '{excluded.name}' is left out: it {excluded.reason}"
    for column in sample.columns:
        if column.note:
            yield f"column '{column.name}': {column.note}"
    limit = fitted.params.get("max_iter")
    if fitted.algorithm.layout == DENSE and isinstance(limit, int):
        reached = np.max(getattr(fitted.estimator, "n_iter_", 0))
        if reached >= limit > 0:
            yield f'not converged in {limit} iterations; give a larger "max_iter" in "params"'
    if fitted.choice:
        for name, score in fitted.choice.scores.items():
            yield f"auto: {name} has {fitted.choice.metric} {score:.4f}"


def _choice(choice: Choice | None) -> dict[str, object]:
    return {"auto": {"metric": choice.metric, "candidates": dict(choice.scores)}} if choice else {}


def _features(sample: _Sample, coded: Encoding) -> tuple[Mapping[str, object], ...]:
    described = {feature.name: feature.describe() for feature in coded.features}
    return tuple(described[column.name] for column in sample.columns)


def _details(sample: _Sample, fitted: _Fitted, options: TrainingOptions) -> dict[str, object]:
    return {
        "seed": options.seed,
        "test_size": options.test_size,
        "algorithm_given": options.algorithm,
        "params_given": dict(options.params),
        "params": dict(fitted.params),
        "classes": list(sample.target.classes),
        "notes": {column.name: column.note for column in sample.columns if column.note},
        "excluded": {column.name: column.reason for column in sample.excluded},
        "statistics": {
            column.name: statistics.summary(column.type, sample.train[column.name]) for column in sample.columns
        },
        "libraries": artifact.libraries(),
        **_choice(fitted.choice),
    }

"""What a training spec may say, read and checked before anything heavy is imported."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mldb.errors import UsageError

CLASSIFICATION = "classification"
REGRESSION = "regression"


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """The options of one training run.

    `test_size` is the held-out share of the rows (0 trains and evaluates on all of them),
    `task` is "classification", "regression" or None (decided from the target), `metric` is what
    `auto` compares by (None: accuracy or r2).
    """

    query: str
    target: str
    algorithm: str = "auto"
    params: Mapping[str, object] = field(default_factory=dict)
    test_size: float = 0.25
    seed: int = 0
    task: str | None = None
    metric: str | None = None
    exclude: tuple[str, ...] = ()


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """Word the error for a name that is not known, with the nearest one that is.

    >>> unknown("algorithm", "random_forrest", ["ridge", "random_forest"])
    "unknown algorithm 'random_forrest'; did you mean 'random_forest'? Known: random_forest, ridge"
    """
    names = sorted(known)
    near = difflib.get_close_matches(str(name).lower(), names, n=1)
    hint = f"did you mean '{near[0]}'? Known" if near else "known"
    return f"unknown {what} {name!r}; {hint}: {', '.join(names)}"


def check_keys(kind: str, spec: Mapping[str, object], allowed: Iterable[str]) -> None:
    """Refuse a spec with a key that its kind does not know."""
    known = tuple(allowed)
    for key in spec:
        if key not in known:
            raise UsageError(unknown(f"key in the spec of '{kind}':", key, known))


def text(kind: str, spec: Mapping[str, object], key: str, default: str | None = None) -> str:
    """Give a spec's text under `key`; raise UsageError when it is absent, empty or no text."""
    value = spec.get(key, default)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"the spec of '{kind}' needs \"{key}\": a text that is not empty")
    return value


def read_training(spec: Mapping[str, object]) -> TrainingOptions:
    """Read the spec of a `train` job; raise UsageError that names the first wrong key."""
    check_keys("train", spec, TrainingOptions.__slots__)
    task = spec.get("task")
    if task not in (None, CLASSIFICATION, REGRESSION):
        raise UsageError(unknown("task", task, (CLASSIFICATION, REGRESSION)))
    metric = spec.get("metric")
    if metric is not None and not isinstance(metric, str):
        raise UsageError('"metric" must be the name of a metric, such as "accuracy" or "r2"')
    return TrainingOptions(
        query=text("train", spec, "query"),
        target=text("train", spec, "target"),
        algorithm=text("train", spec, "algorithm", "auto"),
        params=_params(spec.get("params")),
        test_size=_test_size(spec.get("test_size", 0.25)),
        seed=_seed(spec.get("seed", 0)),
        task=task if isinstance(task, str) else None,
        metric=metric,
        exclude=_names(spec.get("exclude")),
    )


def _params(value: object) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError('"params" must be a JSON object, such as {"max_depth": 5}')
    return value


def _test_size(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise UsageError(f'"test_size" is a share from 0 up to, not including, 1; got {value!r}')
    return float(value) if math.isfinite(value) else 0.25


def _seed(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**32:
        raise UsageError(f'"seed" is a whole number from 0 to 4294967295; got {value!r}')
    return value


def _names(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise UsageError('"exclude" must be a list of column names, such as ["id", "notes"]')
    return tuple(value)

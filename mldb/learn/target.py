"""The column to predict: class codes for a classification, floats for a regression, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mldb.errors import UsageError
from mldb.learn.kinds import EXACT, Values, plain
from mldb.learn.options import CLASSIFICATION, REGRESSION

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_CLASSES = 1000
FEW_INTEGERS = 20


@dataclass(frozen=True, slots=True)
class Target:
    """What is predicted; `classes[code]` is the label of a class, exactly as SQLite gave it."""

    name: str
    task: str
    classes: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Labelled:
    """A target with its values: `kept` marks the rows where it is not NULL, `y` has one value for each."""

    target: Target
    kept: NDArray[np.bool_]
    y: NDArray[np.generic]


def read(name: str, values: Values, task: str | None) -> Labelled:
    """Decide the task (unless given) and encode the target.

    Text, and whole numbers with few distinct values, are classes; other numbers are a regression.
    Raises UsageError when nothing can be learned from the column.
    """
    if not len(values):
        raise UsageError("the query gives no rows; training needs at least 2")
    listed = _whole_labels(values)
    kept = np.array([value is not None for value in listed], dtype=bool)
    known = [value for value in listed if value is not None]
    types = set(map(type, known))
    if bytes in types:
        raise UsageError(f"the target '{name}' holds blobs; a target must be numbers or text")
    if len(known) < 2:
        raise UsageError(
            f"the target '{name}' has {len(known)} value{'s' * (len(known) != 1)} that "
            f"{'is' if len(known) == 1 else 'are'} not NULL; training needs at least 2 rows"
        )
    distinct = set(known)
    if len(distinct) == 1:
        raise UsageError(
            f"the target '{name}' is {known[0]!r} in every row, so there is nothing to tell apart; "
            "widen the query so that it gives rows with other values"
        )
    task = task or _task(known, distinct)
    if task == REGRESSION:
        return Labelled(Target(name, task), kept, _floats(name, known))
    return _classes(name, known, distinct, kept)


def _whole_labels(values: Values) -> list[object]:
    listed = plain(values)
    is_float = isinstance(values, np.ndarray) and values.dtype.kind == "f"
    # Packed integers with NULLs arrive as floats; as labels they are integers again.
    if is_float and None in listed and all(value is None or value.is_integer() for value in listed):  # type: ignore[attr-defined]
        return [None if value is None else int(value) for value in listed]  # type: ignore[call-overload]
    return listed


def _task(known: list[object], distinct: set[object]) -> str:
    numbers = [value for value in distinct if isinstance(value, int | float)]
    if len(numbers) < len(distinct):
        return CLASSIFICATION
    whole = all(float(value).is_integer() for value in numbers)
    few = len(distinct) <= max(2, min(FEW_INTEGERS, len(known) // 3))
    return CLASSIFICATION if whole and few else REGRESSION


def _floats(name: str, known: list[object]) -> NDArray[np.float64]:
    if any(isinstance(value, str) for value in known):
        raise UsageError(
            f"the target '{name}' holds text, which a regression cannot predict; "
            f'use "task": "classification", or CAST({name} AS REAL) in the query'
        )
    if any(isinstance(value, int) and abs(value) > EXACT for value in known):
        raise UsageError(
            f"the target '{name}' holds whole numbers beyond 2^53, which a regression cannot keep "
            f"exactly; scale it in the query, e.g. {name} / 1000.0"
        )
    numbers = np.array(known, dtype=np.float64)
    if np.isinf(numbers).any():
        raise UsageError(f"the target '{name}' holds an infinite number; filter it in the query")
    return numbers


def _classes(name: str, known: list[object], distinct: set[object], kept: NDArray[np.bool_]) -> Labelled:
    if len(distinct) > MOST_CLASSES or (len(distinct) == len(known) > 2):
        raise UsageError(
            f"the target '{name}' has {len(distinct)} distinct values in {len(known)} rows, too many "
            'for classes; choose another target, or use "task": "regression" for numbers'
        )
    if any(value in (float("inf"), -float("inf")) for value in distinct):
        raise UsageError(f"the target '{name}' holds an infinite number; filter it in the query")
    ordered = tuple(sorted(distinct, key=lambda value: (isinstance(value, str), value)))
    code = {value: at for at, value in enumerate(ordered)}
    y = np.array([code[value] for value in known], dtype=np.int64)
    return Labelled(Target(name, CLASSIFICATION, ordered), kept, y)

"""What kind of feature each column of a query is, inferred from its values.

SQLite is dynamically typed, so a column is judged by what it holds: numbers, text with few
distinct values (a category), ISO dates, text with words, or nothing a model can learn from.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mldb.errors import UsageError
from mldb.learn.dates import is_date

Values = NDArray[np.generic] | Sequence[object]

NUMBER, CATEGORY, DATE, TEXT = "number", "category", "date", "text"
LARGEST = 3.4e38  # scikit-learn's trees compare in 32 bits
EXACT = 2**53  # beyond it a float64 skips integers
FEW_CATEGORIES = 50
FEW_ROWS = 20
_KEY_NAME = re.compile(r"(?i:^(row)?id$|_id$)|[a-z]I[dD]$")
_WORD = re.compile(r"\b\w\w+\b")


@dataclass(frozen=True, slots=True)
class Column:
    """A column that becomes a feature.

    `note` is what its user should know about it, `holds` which of "number" and "text" a category has.
    """

    name: str
    type: str
    note: str = ""
    holds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Excluded:
    """A column that a model learns nothing from, and why."""

    name: str
    reason: str


def plain(values: Values) -> list[object]:
    """Give a column as Python values, NULL as None (a NaN is a NULL to SQLite)."""
    if isinstance(values, np.ndarray):
        listed: list[Any] = values.tolist()
        if values.dtype.kind == "f":
            return [None if math.isnan(value) else value for value in listed]
        return listed
    return list(values)


def infer(name: str, values: Values) -> Column | Excluded:
    """Decide what a column is; raise UsageError for blobs and infinite numbers."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "if":
        return _numeric(name, values)
    listed = plain(values)
    types = set(map(type, listed)) - {type(None)}
    if not types:
        return Excluded(name, "holds only NULL")
    if bytes in types:
        raise UsageError(
            f"column '{name}' holds blobs, which a model cannot learn from; "
            f'leave it out of the query or name it in "exclude"'
        )
    if str not in types:
        return _numeric(name, np.array(listed, dtype=np.float64))
    counts = Counter(value for value in listed if value is not None)
    return _textual(name, counts, nulls=listed.count(None), mixed=types != {str})


def _numeric(name: str, values: NDArray[np.generic]) -> Column | Excluded:
    numbers = values.astype(np.float64)
    known = numbers[~np.isnan(numbers)]
    if not len(known):
        return Excluded(name, "holds only NULL")
    low, high = known.min(), known.max()
    if max(-low, high) > LARGEST:
        raise UsageError(
            f"column '{name}' holds a number beyond 3.4e38 or infinite; make it NULL in the query, e.g. "
            f'nullif({name}, 9e999), or name the column in "exclude"'
        )
    if low == high and len(known) == len(numbers):
        return Excluded(name, "has the same value in every row")
    distinct = len(np.unique(known))
    if distinct == 2 and (low, high) == (0, 1):
        return Column(name, CATEGORY, holds=(NUMBER,))
    whole = bool((known == np.floor(known)).all())
    if whole and distinct == len(numbers) > FEW_ROWS and _KEY_NAME.search(name):
        return Excluded(name, "looks like a key: a different whole number in every row")
    note = "whole numbers beyond 2^53 are rounded" if max(-low, high) > EXACT else ""
    return Column(name, NUMBER, note)


def _textual(name: str, counts: Counter[object], nulls: int, mixed: bool) -> Column | Excluded:
    rows, distinct = counts.total(), len(counts)
    note = "holds both text and numbers" if mixed else ""
    holds = (NUMBER, TEXT) if mixed else (TEXT,)
    if distinct == 1 and not nulls:
        return Excluded(name, "has the same value in every row")
    if not mixed and all(is_date(value) for value in counts):
        return Column(name, DATE)
    if distinct <= 2 or distinct <= min(FEW_CATEGORIES, rows / 2) or distinct <= rows / 20:
        return Column(name, CATEGORY, note, holds)
    sample = [str(value) for value in list(counts)[:5000]]
    if sum(len(_WORD.findall(value)) for value in sample) >= 1.5 * len(sample):
        return Column(name, TEXT, note)
    if distinct <= rows / 2 or rows <= FEW_ROWS:
        return Column(name, CATEGORY, note, holds)
    reason = "looks like an identifier: nearly every row has a value of its own"
    if all(_is_number(value) for value in sample):
        reason += f"; if it is a number stored as text, write CAST({name} AS REAL) in the query"
    return Excluded(name, reason)


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True

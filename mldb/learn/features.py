"""One column each: its values become numbers, by what was seen in training.

A feature turns many values into an array of shape (rows, width), or one value into `width` floats.
A number is itself and a category is a code; NULL in a number and a category never seen are NaN.
All a feature remembers is plain data, and one array for a text column.
"""

# ruff: noqa: D102 - the methods are those of Feature, which says what they do

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mldb.errors import ModelError
from mldb.learn import dates, words
from mldb.learn.kinds import CATEGORY, DATE, LARGEST, NUMBER, TEXT, Column, Values, plain

if TYPE_CHECKING:
    from mldb.learn.words import Words

Matrix = NDArray[np.float64]
NAN = float("nan")
MOST_CATEGORIES = 250  # histogram boosting takes 255 per column, and NULL needs a code


class Feature(Protocol):
    """What the encoding needs of a column."""

    @property
    def name(self) -> str:
        """The column's name."""

    @property
    def width(self) -> int:
        """How many numbers a value becomes."""

    @property
    def categories(self) -> int:
        """How many codes there are; 0 for numbers."""

    def many(self, values: Values) -> Matrix:
        """Give the numbers of many values, shape (values, width); ModelError names the feature."""

    def one(self, value: object) -> tuple[float, ...]:
        """Give the `width` numbers of one value; ModelError names the feature."""

    def describe(self) -> dict[str, object]:
        """Give what its user may know, JSON-able: name, type, categories."""


@dataclass(frozen=True, slots=True)
class Number:
    """A column of numbers; NULL is NaN."""

    name: str
    width: int = 1
    categories: int = 0

    def many(self, values: Values) -> Matrix:
        if isinstance(values, np.ndarray) and values.dtype.kind in "if":
            numbers = values.astype(np.float64)
        else:
            numbers = self._floats(list(values))
        if (np.abs(numbers) > LARGEST).any():
            raise self._too_large()
        return numbers.reshape(-1, 1)

    def one(self, value: object) -> tuple[float, ...]:
        number = self._float(value)
        if abs(number) > LARGEST:
            raise self._too_large()
        return (number,)

    def _floats(self, values: list[Any]) -> Matrix:
        if set(map(type, values)) <= {int, float, bool, type(None)}:
            with contextlib.suppress(OverflowError):  # told below, value by value
                return np.array(values, dtype=np.float64)
        return np.array([self._float(value) for value in values], dtype=np.float64)

    def _too_large(self) -> ModelError:
        return ModelError(f"feature '{self.name}' is too large (beyond 3.4e38); scale it or give NULL")

    def _float(self, value: object) -> float:
        if value is None:
            return NAN
        if isinstance(value, int | float):
            try:
                return float(value)
            except OverflowError:
                return float("inf")
        raise ModelError(f"feature '{self.name}' must be a number or NULL, not {kind_of(value)}")

    def describe(self) -> dict[str, object]:
        return {"name": self.name, "type": NUMBER}


@dataclass(frozen=True, slots=True)
class Category:
    """A column of few distinct values, of the types in `holds`; NULL, if `null`, has the last code."""

    name: str
    values: tuple[object, ...]
    null: bool
    holds: tuple[str, ...]
    other: int = 0
    width: int = 1
    _codes: dict[object, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = (*self.values, None) if self.null else self.values
        object.__setattr__(self, "_codes", {value: float(at) for at, value in enumerate(known)})

    @property
    def categories(self) -> int:
        return len(self._codes)

    def many(self, values: Values) -> Matrix:
        listed = plain(values)
        for kind in set(map(type, listed)):
            if not self._fits(kind):
                self.one(next(value for value in listed if type(value) is kind))
        get = self._codes.get
        return np.array([get(value, NAN) for value in listed], dtype=np.float64).reshape(-1, 1)

    def one(self, value: object) -> tuple[float, ...]:
        if not self._fits(type(value)):
            wanted = " or a ".join(self.holds)
            raise ModelError(f"feature '{self.name}' must be a {wanted} or NULL, not {kind_of(value)}")
        return (self._codes.get(value, NAN),)

    def _fits(self, kind: type) -> bool:
        if kind is str:
            return TEXT in self.holds
        return kind is type(None) or (kind in (int, float, bool) and NUMBER in self.holds)

    def describe(self) -> dict[str, object]:
        return {
            "name": self.name,
            "type": CATEGORY,
            "values": list(self.values),
            "null": self.null,
            "holds": list(self.holds),
            "other": self.other,
        }


@dataclass(frozen=True, slots=True)
class Date:
    """A column of ISO dates, as the numbers named in `dates.PARTS`."""

    name: str
    width: int = len(dates.PARTS)
    categories: int = 0

    def many(self, values: Values) -> Matrix:
        known: dict[object, tuple[float, ...]] = {}
        listed = plain(values)
        for value in listed:
            if value not in known:
                known[value] = self.one(value)
        return np.array([known[value] for value in listed], dtype=np.float64).reshape(-1, self.width)

    def one(self, value: object) -> tuple[float, ...]:
        if value is None:
            return (NAN,) * self.width
        if not isinstance(value, str) or not dates.is_date(value):
            given = f"'{value[:40]}'" if isinstance(value, str) else kind_of(value)
            raise ModelError(f"feature '{self.name}' must be an ISO date or NULL, not {given}")
        return dates.parts(value)

    def describe(self) -> dict[str, object]:
        return {"name": self.name, "type": DATE, "parts": list(dates.PARTS)}


@dataclass(frozen=True, slots=True)
class Text:
    """A column of free text, as the numbers of its words; NULL is the empty text."""

    name: str
    words: Words
    categories: int = 0

    @property
    def width(self) -> int:
        return self.words.width

    def many(self, values: Values) -> Matrix:
        return self.words.transform([self._text(value) for value in plain(values)])

    def one(self, value: object) -> tuple[float, ...]:
        return tuple(self.words.transform([self._text(value)])[0].tolist())

    def _text(self, value: object) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        if isinstance(value, int | float):
            return str(value)
        raise ModelError(f"feature '{self.name}' must be text or NULL, not {kind_of(value)}")

    def describe(self) -> dict[str, object]:
        return {"name": self.name, "type": TEXT, "words": len(self.words.words), "width": self.width}


def kind_of(value: object) -> str:
    """Name a value's type as a user of SQL and JSON would."""
    names = {str: "text", bytes: "a blob", list: "a list", dict: "an object", bool: "a boolean"}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "a number"
    return names.get(type(value), type(value).__name__)


def fit(column: Column, values: Values, seed: int) -> Feature:
    """Make the feature of a column from its training values."""
    if column.type == NUMBER:
        return Number(column.name)
    if column.type == DATE:
        return Date(column.name)
    if column.type == CATEGORY:
        return _category(column, values)
    texts = ["" if value is None else str(value) for value in plain(values)]
    return Text(column.name, words.fit(texts, seed))


def _category(column: Column, values: Values) -> Category:
    counts = Counter(plain(values))
    null = counts.pop(None, 0) > 0
    by_count = sorted(counts, key=lambda value: (-counts[value], _order(value)))
    kept = tuple(sorted(by_count[:MOST_CATEGORIES], key=_order))
    return Category(column.name, kept, null, column.holds, other=len(by_count) - len(kept))


def _order(value: object) -> tuple[bool, object]:
    return isinstance(value, str), value


def to_plain(feature: Feature) -> dict[str, object]:
    """Give all of a feature but the array of a text column, JSON-able."""
    if isinstance(feature, Text):
        return {**feature.describe(), "state": feature.words.to_plain()}
    return feature.describe()


def restore(plain: Mapping[str, Any], array: Any) -> Feature:
    """Make a feature again from `to_plain()`, and the array of a text column."""
    name, kind = plain["name"], plain["type"]
    if kind == TEXT:
        return Text(name, words.restore(plain["state"], array))
    if kind == CATEGORY:
        values, holds = tuple(plain["values"]), tuple(plain["holds"])
        return Category(name, values, bool(plain["null"]), holds, int(plain["other"]))
    if kind == DATE:
        return Date(name)
    if kind == NUMBER:
        return Number(name)
    raise ModelError(f"it has a feature of the unknown type {kind!r}")

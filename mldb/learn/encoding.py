"""All features of a table as one matrix, and one row as a list, in the same order.

Two layouts. "codes" keeps NULL as NaN and a category as its code, for trees, which split on both.
"dense" is for the others: NULL becomes the median with a missing indicator, numbers are standardised,
a category becomes one column per value (all 0 when it was never seen in training).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mldb.errors import ModelError, UsageError
from mldb.learn import features
from mldb.learn.kinds import CATEGORY, Column, Values

if TYPE_CHECKING:
    from mldb.learn.features import Feature, Matrix

CODES, DENSE = "codes", "dense"
MOST_CELLS = 250_000_000  # 2 GB of float64


@dataclass(frozen=True, slots=True)
class Slot:
    """How one code column becomes dense: `codes` one-hot columns, or a standardised number."""

    codes: int = 0
    fill: float = 0.0
    mean: float = 0.0
    scale: float = 1.0
    indicator: bool = False

    @property
    def width(self) -> int:
        """How many dense columns it makes."""
        return self.codes or 1 + self.indicator


@dataclass(frozen=True, slots=True)
class Encoding:
    """The features of a model in order; `slots` is empty in the "codes" layout."""

    features: tuple[Feature, ...]
    slots: tuple[Slot, ...] = ()

    @property
    def width(self) -> int:
        """The number of columns of the matrix."""
        if self.slots:
            return sum(slot.width for slot in self.slots)
        return sum(feature.width for feature in self.features)

    @property
    def code_columns(self) -> tuple[int, ...]:
        """How many codes each column of the "codes" layout may hold (0: it is a number)."""
        return tuple(feature.categories for feature in self.features for _ in range(feature.width))

    def matrix(self, table: Mapping[str, Values]) -> Matrix:
        """Give the matrix of a table, shape (rows, width); ModelError names a missing feature."""
        codes = np.hstack([feature.many(self._column(table, feature.name)) for feature in self.features])
        return dense(codes, self.slots) if self.slots else codes

    def row(self, row: Mapping[str, object]) -> list[float]:
        """Give the `width` numbers of one row."""
        codes: list[float] = []
        for feature in self.features:
            codes += feature.one(self._column(row, feature.name))
        return dense_row(codes, self.slots) if self.slots else codes

    @staticmethod
    def _column(table: Mapping[str, Any], name: str) -> Any:
        try:
            return table[name]
        except KeyError:
            raise ModelError(f"the row lacks the feature '{name}'; give it, or null when unknown") from None

    def to_plain(self) -> dict[str, Any]:
        """Give everything but `arrays()` as JSON-able data."""
        slots = [[slot.codes, slot.fill, slot.mean, slot.scale, slot.indicator] for slot in self.slots]
        return {"features": [features.to_plain(feature) for feature in self.features], "slots": slots}

    def arrays(self) -> dict[str, Any]:
        """Give the array of each text column by its name."""
        return {it.name: it.words.directions for it in self.features if isinstance(it, features.Text)}


def fit(columns: Sequence[Column], table: Mapping[str, Values], layout: str, seed: int) -> Encoding:
    """Learn categories, words and (for "dense") medians and scales from the training rows."""
    # Categories first: histogram boosting moves them there anyway, and so needs no step of its own for it.
    ordered = sorted(columns, key=lambda column: column.type != CATEGORY)
    learned = tuple(features.fit(column, table[column.name], seed) for column in ordered)
    plain = Encoding(learned)
    return plain if layout == CODES else densify(plain, plain.matrix(table))


def densify(encoding: Encoding, codes: Matrix) -> Encoding:
    """Learn the dense layout from the codes of the training rows."""
    slots = tuple(_slot(codes[:, at], size) for at, size in enumerate(encoding.code_columns))
    wide = Encoding(encoding.features, slots)
    if wide.width * len(codes) > MOST_CELLS:
        raise UsageError(
            f"{len(codes)} rows of {wide.width} columns are too many for this algorithm; "
            "use gradient_boosting, or exclude columns with many categories"
        )
    return wide


def _slot(codes: Matrix, size: int) -> Slot:
    if size:
        return Slot(codes=size)
    known = codes[~np.isnan(codes)]
    fill = float(np.median(known)) if len(known) else 0.0
    filled = np.where(np.isnan(codes), fill, codes)
    mean, spread = float(filled.mean()), float(filled.std())
    return Slot(0, fill, mean, spread if spread > 0 else 1.0, len(known) < len(codes))


def dense(codes: Matrix, slots: Sequence[Slot]) -> Matrix:
    """Turn a matrix of codes into the dense layout."""
    out = np.zeros((len(codes), sum(slot.width for slot in slots)))
    rows, at = np.arange(len(codes)), 0
    for column, slot in zip(codes.T, slots, strict=True):
        missing = np.isnan(column)
        if slot.codes:
            seen = ~missing
            out[rows[seen], at + column[seen].astype(np.intp)] = 1.0
        else:
            out[:, at] = (np.where(missing, slot.fill, column) - slot.mean) / slot.scale
            if slot.indicator:
                out[:, at + 1] = missing
        at += slot.width
    return out


def dense_row(codes: Sequence[float], slots: Sequence[Slot]) -> list[float]:
    """Turn one row of codes into the dense layout."""
    out: list[float] = []
    for value, slot in zip(codes, slots, strict=True):
        missing = math.isnan(value)
        if slot.codes:
            hot = [0.0] * slot.codes
            if not missing:
                hot[int(value)] = 1.0
            out += hot
            continue
        out.append(((slot.fill if missing else value) - slot.mean) / slot.scale)
        if slot.indicator:
            out.append(float(missing))
    return out


def restore(plain: Mapping[str, Any], arrays: Mapping[str, Any]) -> Encoding:
    """Make an encoding again from `to_plain()` and `arrays()`."""
    made = tuple(features.restore(it, arrays.get(it["name"])) for it in plain["features"])
    slots = tuple(
        Slot(int(codes), float(fill), float(mean), float(scale), bool(indicator))
        for codes, fill, mean, scale, indicator in plain["slots"]
    )
    encoding = Encoding(made, slots)
    if slots and encoding.code_columns != tuple(slot.codes for slot in slots):
        raise ModelError("its columns and their layout do not fit each other")
    return encoding

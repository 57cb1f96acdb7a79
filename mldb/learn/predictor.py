"""A kept model that answers: one row by its fast path, many rows as one matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mldb.errors import ModelError
from mldb.learn import artifact, walk
from mldb.learn.options import CLASSIFICATION

if TYPE_CHECKING:
    from mldb.learn.encoding import Encoding
    from mldb.learn.kinds import Values
    from mldb.learn.target import Target
    from mldb.outcome import StoredModel

Answer = int | float | str | None


@dataclass(frozen=True, slots=True)
class Predictor:
    """A loaded model. It is unchanging and may be used by several threads."""

    features: tuple[str, ...]
    _encoding: Encoding
    _target: Target
    _estimator: Any
    _one: Callable[[list[float]], float]

    @classmethod
    def load(cls, stored: StoredModel) -> Predictor:
        """Load a kept model; ModelError when it is damaged or cannot be trusted."""
        parts = artifact.load(stored)
        names = tuple(feature.name for feature in parts.encoding.features)
        one = walk.compile_row(parts.estimator)
        return cls(names, parts.encoding, parts.target, parts.estimator, one)

    def predict(self, row: Mapping[str, object]) -> Answer:
        """Give the answer for one row: a class label as it was in the training rows, or a float.

        A value of None is NULL; names that are no feature are ignored. Raises ModelError that names
        the feature when one is missing or its value has the wrong type.
        """
        if not isinstance(row, Mapping):
            raise ModelError('a row to predict is a JSON object of features, such as {"age": 41}')
        found = self._one(self._encoding.row(row))
        if self._target.task == CLASSIFICATION:
            return self._label(int(found))
        return _finite(found)

    def predict_many(self, rows: Mapping[str, Values] | Sequence[Mapping[str, object]]) -> list[Answer]:
        """Give the answers for many rows, given as columns of one length, or as a sequence of rows.

        Raises ModelError as `predict` does.
        """
        table = rows if isinstance(rows, Mapping) else self._columns(rows)
        missing = [name for name in self.features if name not in table]
        if missing:
            raise ModelError(f"the rows lack the feature '{missing[0]}'; give it, or NULL when unknown")
        if not len(table[self.features[0]]):
            return []
        matrix = self._encoding.matrix(table)
        try:
            found = self._estimator.predict(matrix).tolist()
        except Exception as error:  # the estimator's own words, for content that passed the checks
            raise ModelError(f"the model cannot predict: {error}; train it again") from error
        if self._target.task == CLASSIFICATION:
            return [self._label(code) for code in found]
        return [_finite(value) for value in found]

    def _columns(self, rows: Sequence[Mapping[str, object]]) -> Mapping[str, Values]:
        try:
            return {name: [row[name] for row in rows] for name in self.features}
        except KeyError as error:
            raise ModelError(f"a row lacks the feature {error}; give it, or null when unknown") from None

    def _label(self, code: int) -> Answer:
        label: Any = self._target.classes[code]
        return label  # type: ignore[no-any-return]


def _finite(value: float) -> float:
    if not np.isfinite(value):
        raise ModelError("the answer is no finite number; the row is too far from the training rows")
    return float(value)

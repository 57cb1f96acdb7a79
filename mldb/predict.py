"""`ml_predict`: the answer of a model for one row, from a cache of loaded models."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import apsw

from mldb.errors import ModelError, UsageError
from mldb.store import models

if TYPE_CHECKING:
    from mldb.learn.predictor import Predictor

MOST_LOADED: Final = 16


class Predictions:
    """The models that one connection predicts with. A new version has another digest, so it is loaded anew."""

    def __init__(self) -> None:
        self._loaded: OrderedDict[tuple[str, str], Predictor] = OrderedDict()
        self._guard = threading.Lock()

    def predict(self, connection: apsw.Connection, model: object, row: object) -> Any:
        """Give the answer of "churn" or "churn@3" for the text of a JSON object. Raises UsageError or ModelError."""
        if not isinstance(model, str):
            raise UsageError("ml_predict: the model is a name such as 'churn' or 'churn@3'")
        if not isinstance(row, str):
            raise UsageError("ml_predict: the row is the text of a JSON object; make it with json_object(...)")
        try:
            values = json.loads(row)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"ml_predict: the row is not valid JSON ({error}); make it with json_object(...)"
            ) from error
        if not isinstance(values, dict):
            raise UsageError("ml_predict: the row must be a JSON object; make it with json_object(...)")
        return self._predictor(connection, model).predict(values)

    def _predictor(self, connection: apsw.Connection, reference: str) -> Predictor:
        name, version, digest = models.find(connection, reference)
        with self._guard:
            known = self._loaded.get((name, digest))
            if known is not None:
                self._loaded.move_to_end((name, digest))
                return known
        try:
            from mldb.learn.predictor import Predictor

            predictor = Predictor.load(models.load(connection, name, version))
        except ModuleNotFoundError as error:
            raise ModelError(
                f"predictions need {error.name}; install mldb with its extra 'ml': pip install '.[ml]'"
            ) from error
        with self._guard:
            self._loaded[name, digest] = predictor
            while len(self._loaded) > MOST_LOADED:
                self._loaded.popitem(last=False)
        return predictor

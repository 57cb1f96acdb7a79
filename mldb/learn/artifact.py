"""A model's parts as bytes and back, by skops: no pickle, and only the types listed here.

The digest is checked first. It finds damage and swapped rows; what is then loaded is checked for
bounds, because scikit-learn follows a tree's indices without looking and a wrong one ends the process.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import sklearn
import skops.io

from mldb.errors import ModelError
from mldb.learn import bounds, encoding
from mldb.learn.algorithms import ALGORITHMS
from mldb.learn.target import Target
from mldb.outcome import StoredModel, model_digest

if TYPE_CHECKING:
    from mldb.learn.encoding import Encoding

FORMAT = "skops"
LAYOUT = 1
MOST_BYTES = 4 * 2**30
# What the supported estimators need beyond skops' own list. It is fixed: never taken from the file.
TRUSTED = (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a kept model consists of. `estimator` is fitted on matrices of `encoding`."""

    encoding: Encoding
    target: Target
    algorithm: str
    estimator: Any


def dump(parts: Parts) -> bytes:
    """Give the bytes of a model. They differ from call to call; the model in them does not."""
    plain = {
        "layout": LAYOUT,
        "algorithm": parts.algorithm,
        "encoding": parts.encoding.to_plain(),
        "target": {
            "name": parts.target.name,
            "task": parts.target.task,
            "classes": list(parts.target.classes),
        },
    }
    whole = {
        "mldb": json.dumps(plain),
        "arrays": parts.encoding.arrays(),
        "estimator": parts.estimator,
    }
    return bytes(skops.io.dumps(whole, compression=zipfile.ZIP_DEFLATED, compresslevel=1))


def load(stored: StoredModel) -> Parts:
    """Give the parts of a kept model.

    Raises ModelError when the digest does not fit, when a type is not trusted, or when the content
    cannot be a model of ours.
    """
    name = f"{stored.name}@{stored.version}"
    if model_digest(stored.name, stored.version, stored.content) != stored.digest:
        raise ModelError(f"model {name} is damaged: its digest does not fit; train it again")
    if stored.format != FORMAT:
        raise ModelError(f"model {name} has the format '{stored.format}', not '{FORMAT}'; train it again")
    try:
        return _parts(stored.content)
    except ModelError as error:
        raise ModelError(f"model {name} cannot be trusted: {error}; train it again") from error
    except Exception as error:  # whatever a library says about bytes that are not its own
        reason = str(error).strip().partition("\n")[0][:200]
        raise ModelError(f"model {name} cannot be loaded: {reason}; train it again") from error


def _parts(content: bytes) -> Parts:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(member.file_size for member in archive.infolist()) > MOST_BYTES:
            raise ModelError("it unpacks to more than 4 GB")
    whole = skops.io.loads(content, trusted=list(TRUSTED))
    plain, estimator = json.loads(whole["mldb"]), whole["estimator"]
    if plain["layout"] != LAYOUT:
        raise ModelError(f"its layout is {plain['layout']!r}, and this mldb reads {LAYOUT}")
    coded = encoding.restore(plain["encoding"], whole["arrays"])
    about = plain["target"]
    target = Target(about["name"], about["task"], tuple(about["classes"]))
    expected = ALGORITHMS[plain["algorithm"]].estimators[target.task]
    if type(estimator) is not expected:
        raise ModelError(f"it holds a {type(estimator).__name__} where {expected.__name__} belongs")
    bounds.check(estimator, coded.width, len(target.classes))
    return Parts(coded, target, plain["algorithm"], estimator)


def libraries() -> dict[str, str]:
    """Give the versions of the libraries that a model's content depends on."""
    return {
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "skops": skops.__version__,
    }

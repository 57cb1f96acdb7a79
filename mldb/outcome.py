"""What a handler gives back, and what is kept of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Model:
    """A trained model, handed over to be kept in the database.

    `features` has one JSON object per input column, in order: its `name`, its `type`
    ("number", "category" or "text"), and what else the learner wants to remember.
    `details` is a JSON object: seed, parameters, row counts, library versions.
    """

    format: str
    content: bytes
    algorithm: str
    task: str
    target: str
    features: tuple[Mapping[str, object], ...]
    query: str
    tables: tuple[str, ...]
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A version of a model as the database keeps it."""

    name: str
    version: int
    digest: str
    format: str
    content: bytes
    algorithm: str
    task: str
    target: str
    features: tuple[Mapping[str, object], ...]
    query: str
    details: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Result:
    """What a handler returns: metrics (a JSON object) and perhaps a model.

    >>> Result({"accuracy": 0.97}).metrics
    {'accuracy': 0.97}
    """

    metrics: Mapping[str, object] | None = None
    model: Model | None = None


def model_digest(name: str, version: int, content: bytes) -> str:
    """Give the SHA-256 (hex) over a model's name, version and content.

    Each part is preceded by its length, so that no two different models share a text.
    """
    digest = hashlib.sha256()
    for part in (name.encode(), str(version).encode(), content):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()

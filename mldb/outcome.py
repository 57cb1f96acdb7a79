"""What a handler gives back, and what is kept of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mldb.errors import UsageError

DEEPEST: Final = 500
"""How deep JSON may be nested: SQLite reads at most 1,000 levels."""


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


@dataclass(frozen=True, slots=True)
class PackedModel:
    """A model as it is written: checked, its JSON parts as text."""

    format: str
    content: bytes
    algorithm: str
    task: str
    target: str
    features: str
    query: str
    tables: str
    details: str


def pack(model: object) -> PackedModel:
    """Check a model that a handler returned and give what is written of it; raise UsageError."""
    if not isinstance(model, Model):
        raise UsageError(f"the model that the handler returned is a {type(model).__name__}; return an mldb.Model")
    if not isinstance(model.content, bytes):
        raise UsageError("the content of the model that the handler returned must be bytes")
    for name in ("format", "algorithm", "task", "target", "query"):
        value = getattr(model, name)
        if not isinstance(value, str) or as_text(value) != value:
            raise UsageError(f"the {name} of the model that the handler returned must be a text that UTF-8 can hold")
    return PackedModel(
        format=model.format,
        content=model.content,
        algorithm=model.algorithm,
        task=model.task,
        target=model.target,
        features=as_json(list(model.features), "the features of the model"),
        query=model.query,
        tables=as_json(list(model.tables), "the tables of the model"),
        details=as_json(dict(model.details), "the details of the model"),
    )


def model_digest(name: str, version: int, content: bytes) -> str:
    """Give the SHA-256 (hex) over a model's name, version and content.

    Each part is preceded by its length, so that no two different models share a text.
    """
    digest = hashlib.sha256()
    for part in (name.encode(), str(version).encode(), content):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def as_text(value: object) -> str:
    r"""Give a value as text that UTF-8 can hold; what it cannot hold becomes a question mark.

    >>> as_text("caf\udce9"), as_text(7)
    ('caf?', '7')
    """
    return str(value).encode("utf-8", "replace").decode("utf-8")


def as_json(value: object, what: str) -> str:
    """Give a value as JSON text that SQLite reads; raise UsageError, naming *what* it is, when it has none.

    >>> as_json({"accuracy": 0.5}, "the metrics")
    '{"accuracy": 0.5}'
    """
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} must be made of JSON values, and {error}; convert it first") from error
    if text.count("[") + text.count("{") > DEEPEST and _depth(value) > DEEPEST:
        raise UsageError(f"{what} is nested deeper than {DEEPEST} levels; flatten it first")
    return text


def _depth(value: object) -> int:
    """Give how deep a JSON value is nested, counting at most just beyond what is allowed."""
    depth, level = 0, [value]
    while level and depth <= DEEPEST + 1:
        depth += 1
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, (list, tuple)):
                inner.extend(item)
        level = inner
    return depth

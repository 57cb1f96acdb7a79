"""Models and their versions, as the tables keep them."""

from __future__ import annotations

import json

import apsw

from mldb.errors import ModelError
from mldb.outcome import PackedModel, StoredModel, model_digest
from mldb.statements import statements

_MODELS = statements("models")


def add(connection: apsw.Connection, name: str, model: PackedModel, metrics: str | None, job: int, now: int) -> int:
    """Keep a model as the next version of its name and make it the active one; give its number.

    The caller holds a write transaction.
    """
    version = int(connection.execute(_MODELS["next_model_version"], {"name": name}).get)
    connection.execute(
        _MODELS["add_model_version"],
        {
            "name": name,
            "version": version,
            "job_id": job,
            "now": now,
            "format": model.format,
            "digest": model_digest(name, version, model.content),
            "algorithm": model.algorithm,
            "task": model.task,
            "target": model.target,
            "features": model.features,
            "query": model.query,
            "tables": model.tables,
            "details": model.details,
            "metrics": metrics,
        },
    )
    connection.execute(_MODELS["add_model_content"], {"name": name, "version": version, "content": model.content})
    connection.execute(_MODELS["activate_model"], {"name": name, "version": version})
    return version


def find(connection: apsw.Connection, reference: str) -> tuple[str, int, str]:
    """Give name, version and digest of "churn" (its active version) or "churn@3"; raise ModelError."""
    name, at, number = reference.rpartition("@")
    row = connection.execute(_MODELS["active_version"], {"name": reference}).fetchone()
    if row is None and at and number.isdecimal() and int(number) < 2**63:
        row = connection.execute(_MODELS["model_version"], {"name": name, "version": int(number)}).fetchone()
    else:
        name = reference
    if row is None:
        last = int(connection.execute(_MODELS["next_model_version"], {"name": name}).get) - 1
        if last > 0:
            raise ModelError(f"model {name!r} has no version {number}; its last one is {last}")
        raise ModelError(_missing(connection, reference, name))
    return name, row[0], row[1]


def load(connection: apsw.Connection, name: str, version: int) -> StoredModel:
    """Give a version with its content; raise ModelError when it is not there."""
    row = connection.execute(_MODELS["load_model"], {"name": name, "version": version}).fetchone()
    if row is None:
        raise ModelError(
            f"model {name!r} has no version {version} any more; SELECT * FROM ML_MODELS lists what there is"
        )
    name, version, digest, form, content, algorithm, task, target, features, query, details = row
    return StoredModel(
        name=name,
        version=version,
        digest=digest,
        format=form,
        content=content,
        algorithm=algorithm,
        task=task,
        target=target,
        features=tuple(json.loads(features)),
        query=query,
        details=json.loads(details),
    )


def _missing(connection: apsw.Connection, reference: str, name: str) -> str:
    training = connection.execute(_MODELS["unfinished_training"], {"name": name}).fetchone()
    if training is None:
        return f"there is no model {reference!r}; SELECT name FROM ML_MODELS lists those there are"
    job, status = training
    if status in ("queued", "running"):
        return f"model {reference!r} is not ready: job {job} is {status}; wait for it with ml_wait({job})"
    return f"there is no model {reference!r}: job {job}, which was to train it, is {status}; see ML_JOBS for why"

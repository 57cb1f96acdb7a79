"""Write a model's predictions for the rows of a query into a table, in batches that survive a crash."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from mldb.errors import ModelError, UsageError
from mldb.learn.options import check_keys, text

if TYPE_CHECKING:
    from mldb.task import Task

BATCH = 5000
_KEYS = ("model", "query", "into", "key", "batch", "column")
# A token of SQL, so that a trailing comment or semicolon is told from one inside a text.
_TOKEN = re.compile(
    r"""(?P<skip>\s+|;|--[^\n]*|/\*.*?(?:\*/|\Z))|'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|.""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Options:
    model: str
    query: str
    into: str
    key: str
    column: str
    batch: int


def backfill(task: Task) -> dict[str, Any]:
    """Predict for each row of `query` with `model` and write key and prediction to the table `into`.

    The spec: `model`, `query`, `into`, `key` (the column of the query that tells its rows apart), and
    optionally `column` (of the predictions, "prediction") and `batch` (rows per transaction, 5000).

    The rows go in the order of their keys, and each batch is written together with its last key and
    the model's version, so that a restart goes on behind it with the same model: no row twice, none
    left out, whatever was added or removed meanwhile. Raises UsageError for a key that is NULL, a blob
    or not unique, ModelError for a row that does not fit the model.
    """
    options = _read(task.spec)
    done = task.restore() or {"rows": 0, "batches": 0}
    stored = task.model(done.get("model", options.model))
    pinned = f"{stored.name}@{stored.version}"
    sql, params = _ordered(options, done)
    task.set_progress(0, "reading rows")
    with task.rows(sql, params) as rows:
        key_at = _place(rows.names, options.key, stored.features)
        task.set_progress(0, f"loading {pinned}")

        from mldb.learn.predictor import Predictor

        predictor = Predictor.load(stored)
        total = done["rows"] + len(rows)
        last: object = done.get("after")
        started = "after" in done
        for batch in _batches(iter(rows), options.batch):
            task.raise_if_cancelled()
            columns = dict(zip(rows.names, zip(*batch, strict=True), strict=True))
            for row in batch:
                _check_key(options.key, row[key_at], last, started)
                last, started = row[key_at], True
            answers = predictor.predict_many(columns)
            written = [
                {options.key: row[key_at], options.column: answer} for row, answer in zip(batch, answers, strict=True)
            ]
            done = {
                "rows": done["rows"] + len(batch),
                "batches": done["batches"] + 1,
                "after": last,
                "model": pinned,
            }
            task.write(options.into, written, options.key, done)
            task.set_progress(100 * done["rows"] / total, f"{done['rows']} of {total} rows")
    return {
        "rows": done["rows"],
        "batches": done["batches"],
        "model": stored.name,
        "version": stored.version,
    }


def _read(spec: Mapping[str, Any]) -> _Options:
    check_keys("backfill", spec, _KEYS)
    batch = spec.get("batch", BATCH)
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise UsageError(f'"batch" is a number of rows, 1 or more; got {batch!r}')
    names = {name: text("backfill", spec, name) for name in ("model", "query", "into", "key")}
    column = text("backfill", spec, "column", "prediction")
    if column.lower() == names["key"].lower():
        raise UsageError('"column" and "key" are the same column; name another "column"')
    return _Options(**names, column=column, batch=batch)


def _ordered(options: _Options, done: Mapping[str, Any]) -> tuple[str, tuple[object, ...]]:
    name = '"' + options.key.replace('"', '""') + '"'
    # BINARY, whatever the column says: keys that a collation holds for equal are different rows.
    key = f"{name} COLLATE BINARY"
    where = f" WHERE {key} > ?" if "after" in done else ""
    params = (done["after"],) if "after" in done else ()
    return f"SELECT * FROM (\n{_bare(options.query)}\n){where} ORDER BY {key}", params


def _bare(sql: str) -> str:
    """Give a query without the comments and semicolons behind it, so that it can stand in parentheses."""
    end = 0
    for token in _TOKEN.finditer(sql):
        if token.lastgroup != "skip":
            end = token.end()
    return sql[:end]


def _place(names: tuple[str, ...], key: str, features: tuple[Mapping[str, object], ...]) -> int:
    for feature in features:
        if feature["name"] not in names:
            raise ModelError(f"the query lacks the feature '{feature['name']}'; select a column of that name")
    found = [at for at, name in enumerate(names) if name.lower() == key.lower()]
    if len(found) != 1:
        raise UsageError(f"the query needs one column '{key}', the \"key\"; it has {', '.join(names)}")
    return found[0]


def _batches(rows: Iterator[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    while batch := list(islice(rows, size)):
        yield batch


def _check_key(name: str, key: object, last: object, started: bool) -> None:
    if key is None:
        raise UsageError(f"the key '{name}' is NULL in a row; filter such rows in the query")
    if isinstance(key, bytes):
        raise UsageError(f"the key '{name}' is a blob; select hex({name}) as the key")
    if started and key == last:
        raise UsageError(f"the key '{name}' has the value {key!r} twice; choose a key that tells rows apart")

"""A task for tests of handlers: real SQL in memory, no queue; it can be cancelled or lost at a chosen call."""

from __future__ import annotations

import json

import apsw
import numpy as np

from mldb.errors import Cancelled, ModelError
from mldb.outcome import StoredModel, model_digest
from mldb.rows import Rows, to_columns


class TaskDouble:
    """Has the methods of mldb.task.Task that handlers use, and notes what they report."""

    def __init__(self, spec, connection=None, models=None):
        self.id, self.kind, self.target, self.attempt = 1, "test", "m", 1
        self.spec = spec
        self.connection = connection or apsw.Connection(":memory:")
        self.models = models or {}
        self.progress, self.lines, self.values = [], [], {}
        self.checkpoint = None
        self.writes = 0
        self.cancel_at = None  # a message of progress at which somebody cancels
        self.fail_before_write = None  # the number of the write that does not happen any more

    def set_progress(self, percent, message=None):
        self.progress.append((percent, message))

    def is_cancelled(self):
        return self.cancel_at is not None and any(self.cancel_at in (said or "") for _, said in self.progress)

    def raise_if_cancelled(self):
        if self.is_cancelled():
            raise Cancelled("job 1 was cancelled")

    def log(self, text):
        self.lines.append(text)

    def log_metric(self, name, value, step=None):
        self.values[name] = value

    def rows(self, sql, params=()):
        names = []
        cursor = self.connection.cursor()
        # Before the first row, for a query that has none has no description afterwards.
        cursor.exec_trace = lambda it, *_: names.extend(it.get_description()) or True
        rows = cursor.execute(sql, params).fetchall()
        found = Rows(tuple(name for name, *_ in names))
        found.append(rows)
        return found

    def columns(self, sql, params=()):
        return to_columns(self.rows(sql, params))

    def tables(self, sql):
        return ("t",)

    def model(self, reference):
        name, _, version = reference.partition("@")
        known = self.models.get(name, {})
        if not known:
            raise ModelError(f"unknown model '{name}'")
        return known[int(version) if version else max(known)]

    def write(self, table, rows, key=None, checkpoint=None):
        self.writes += 1
        if self.writes == self.fail_before_write:
            raise RuntimeError("the process ends here")
        names = list(rows[0])
        self.connection.execute(f'CREATE TABLE IF NOT EXISTS "{table}" ({key} PRIMARY KEY, {names[1]}, times)')
        for row in rows:
            self.connection.execute(
                f'INSERT INTO "{table}" VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET times = times + 1',
                tuple(row.values()),
            )
        self.checkpoint = json.dumps(checkpoint)

    def restore(self):
        return json.loads(self.checkpoint) if self.checkpoint else None


def stored(model, name="m", version=1):
    """Give a trained or handed-over model as the database would keep it."""
    return StoredModel(
        name=name,
        version=version,
        digest=model_digest(name, version, model.content),
        format=model.format,
        content=model.content,
        algorithm=model.algorithm,
        task=model.task,
        target=getattr(model, "target", "y"),
        features=model.features,
        query="SELECT 1",
        details=model.details,
    )


def table_of(dataset, *, text_target=True):
    """Give a data set of scikit-learn as columns f0, f1, … and y, its classes as text."""
    table = {f"f{at}": dataset.data[:, at].copy() for at in range(dataset.data.shape[1])}
    if text_target and hasattr(dataset, "target_names"):
        names = [str(name) for name in dataset.target_names]
        table["y"] = objects(names[code] for code in dataset.target)
    else:
        table["y"] = dataset.target
    return table


def objects(values):
    """Give values as an array of objects, as packed columns of text come."""
    listed = list(values)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array


def rows_of(table, count=None):
    """Give the rows of columns as dicts of plain values, without y; NaN is None."""
    names = [name for name in table if name != "y"]
    lists = [table[name].tolist() for name in names]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)][:count]
    return [{name: None if value != value else value for name, value in row.items()} for row in rows]  # noqa: PLR0124

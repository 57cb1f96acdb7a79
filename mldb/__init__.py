"""A background machine-learning job queue inside SQLite: submit, watch and cancel in SQL.

>>> import mldb
>>> with mldb.open(":memory:", workers=1) as queue:
...     job = queue.connection.execute("SELECT ml_submit('noop', 'first', NULL)").get
...     print(queue.wait(job).status)
completed
"""

from mldb.app import attach, equip, open  # noqa: A004 - users write mldb.open(...)
from mldb.errors import (
    Busy,
    Cancelled,
    ForeignSchema,
    Forked,
    JobLost,
    MldbError,
    ModelError,
    NewerSchema,
    NotInitialised,
    QueryRefused,
    QueueClosed,
    ReadOnly,
    SchemaError,
    UsageError,
)
from mldb.job import Job
from mldb.loadable import load, loadable_path
from mldb.outcome import Model, Result
from mldb.queue import Queue
from mldb.registry import handler
from mldb.task import Task

__all__ = [
    "Busy",
    "Cancelled",
    "ForeignSchema",
    "Forked",
    "Job",
    "JobLost",
    "MldbError",
    "Model",
    "ModelError",
    "NewerSchema",
    "NotInitialised",
    "QueryRefused",
    "Queue",
    "QueueClosed",
    "ReadOnly",
    "Result",
    "SchemaError",
    "Task",
    "UsageError",
    "attach",
    "equip",
    "handler",
    "load",
    "loadable_path",
    "open",
]

__version__ = "0.1.0"

"""Everything that mldb raises.

MldbError
├── UsageError          an argument or an option that cannot be right
├── QueryRefused        a query that is not one allowed SELECT, or that SQLite cannot prepare
├── ModelError          an unknown model, a missing feature, damaged or untrusted content
├── SchemaError         the file's tables are not what this mldb can work with
│   ├── NotInitialised  there is no queue in the file yet
│   ├── NewerSchema     a newer mldb made it
│   └── ForeignSchema   something else stands under our names
├── ReadOnly            the connection or the file cannot be written
├── Busy                somebody else holds the file's write lock, or has moved on from our snapshot
├── QueueClosed         the queue was shut down
├── Forked              the queue belongs to the parent process
├── JobLost             the job is not this worker's any more
└── Cancelled           the job was cancelled; a handler lets it pass

A lower error (APSW's, most often) is kept as the cause. Each message ends with what to do.
"""

from __future__ import annotations


class MldbError(Exception):
    """The root of all errors of mldb."""


class UsageError(MldbError):
    """An argument or an option cannot be right."""


class QueryRefused(MldbError):
    """A query is not one allowed SELECT, or SQLite cannot prepare it."""


class ModelError(MldbError):
    """A model is unknown, damaged or untrusted, or a row does not fit it."""


class SchemaError(MldbError):
    """The tables of the file are not what this mldb can work with."""


class NotInitialised(SchemaError):
    """There is no queue in the file yet."""


class NewerSchema(SchemaError):
    """A newer mldb made the file."""


class ForeignSchema(SchemaError):
    """Something else stands under our names in the file."""


class ReadOnly(MldbError):
    """The connection or the file cannot be written."""


class Busy(MldbError):
    """Somebody else holds the write lock, or committed since this transaction began to read."""


class QueueClosed(MldbError):
    """The queue was shut down."""


class Forked(MldbError):
    """The queue belongs to the parent process."""


class JobLost(MldbError):
    """The job is not this worker's any more."""


class Cancelled(MldbError):
    """The job was cancelled while its handler ran."""

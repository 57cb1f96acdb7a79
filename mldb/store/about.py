"""What a connection works with: versions, how it commits, and the known faults of its SQLite."""

from __future__ import annotations

from importlib import metadata

import apsw

from mldb.connection import journal_mode, run
from mldb.statements import statements

_CONNECTION = statements("connection")


def report(connection: apsw.Connection) -> str:
    """Give a JSON object with the versions of mldb and SQLite, journal mode, synchronous and known faults."""
    arguments = {
        "mldb": metadata.version("mldb"),
        "front_end": "Python",
        "journal_mode": journal_mode(connection),
        "synchronous": run(connection, _CONNECTION["synchronous"])[0][0],
        "checkpoints_are_safe": run(connection, _CONNECTION["checkpoints_are_safe"])[0][0],
    }
    return str(run(connection, _CONNECTION["version_report"], arguments)[0][0])

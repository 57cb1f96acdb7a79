"""How a command opens its database file, and the kinds of arguments that commands share."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import apsw

from mldb import connection
from mldb.errors import UsageError

if TYPE_CHECKING:
    from mldb.queue import Queue

    # What add_subparsers gives has no public name.
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001


def init_queue(path: str) -> list[str]:
    """Make or migrate the queue in `path`; give what was done, in words (nothing when it is up to date)."""
    from mldb import migrate

    with contextlib.closing(connection.create(path, apsw.Connection)) as opened:
        return migrate.prepare(opened)


def open_queue(path: str) -> Queue:
    """Open the queue of an existing file without workers.

    Raises:
        UsageError: there is no such file, or it is not in WAL mode.
        SchemaError: there is no queue in it, or none that this mldb can work with.
    """
    from mldb import app, migrate

    if not Path(path).exists():
        raise UsageError(f"there is no file {path}; make one with: mldb init {path}")
    # Looking at a database must not turn it into a queue, as app.open would.
    with contextlib.closing(connection.open_reader(path)) as opened:
        migrate.check(opened)
    return app.open(path, workers=0)


@contextlib.contextmanager
def equipped(path: str) -> Iterator[apsw.Connection]:
    """Give a connection with ML_JOBS and the ml_ functions; a new file gets no queue by this."""
    from mldb import app

    with contextlib.closing(connection.create(path, apsw.Connection)) as opened:
        connection.configure(opened, "FULL")
        surface = app.equip(opened)
        yield opened
        surface.file.close()


def work_queue(path: str, workers: int | None) -> Queue:
    """Open the queue in `path` with a pool (None: the default number of workers); make it if needed."""
    from mldb import app

    return app.open(path, workers=workers)


def seconds(text: str) -> float:
    """Read a number of seconds, 0 or more, from the command line."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError(text)
    return value

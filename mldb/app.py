"""Opens a queue: the one place that knows every part."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, cast

import apsw

from mldb import connection as connections
from mldb import migrate
from mldb.errors import Forked, ReadOnly, UsageError
from mldb.jobs_table import JobsModule
from mldb.pool import Pool, at_exit
from mldb.presence import sweep
from mldb.queue import Queue
from mldb.registry import Function
from mldb.shared import SharedFile, require_unforked
from mldb.surface import Surface

_log = logging.getLogger("mldb")
_TERM_S = 2.0


class Connection(apsw.Connection):
    """The connection of a queue that `open` made: an apsw.Connection that knows which thread and process use it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.user_thread = threading.get_ident()
        self.user_process = os.getpid()

    def execute(self, *arguments: Any, **options: Any) -> apsw.Cursor:
        """As apsw.Connection.execute."""
        self._used()
        return super().execute(*arguments, **options)

    def executemany(self, *arguments: Any, **options: Any) -> apsw.Cursor:
        """As apsw.Connection.executemany."""
        self._used()
        return super().executemany(*arguments, **options)

    def cursor(self) -> apsw.Cursor:
        """As apsw.Connection.cursor."""
        self._used()
        return super().cursor()

    def _used(self) -> None:
        self.user_thread = threading.get_ident()
        if os.getpid() != self.user_process:
            raise Forked(
                "this connection was opened before fork() and belongs to the parent process; use the spawn method"
            )


def open(  # noqa: A001 - users write mldb.open(...)
    path: str | os.PathLike[str],
    workers: int | None = None,
    *,
    handlers: Mapping[str, Function] | None = None,
    synchronous: str = "FULL",
) -> Queue:
    """Open a database and its queue, making both when they are missing, and run jobs in *workers* threads.

    *workers*: None is one less than the processors, at least one; 0 runs none. *handlers* adds handlers by kind for
    this queue alone. *synchronous* is FULL (an acknowledged job survives power loss), NORMAL or OFF.
    ":memory:" is a private temporary file that is deleted when the queue is shut down.
    Running jobs is to trust the file: workers do what its jobs say. Raises MldbError.
    """
    _require_sound(workers, synchronous)
    require_unforked()
    folder = None
    place = os.fspath(path)
    if not place:
        raise UsageError("give the path of a database file, or ':memory:'")
    if place == ":memory:":
        folder = tempfile.mkdtemp(prefix="mldb-")
        place, synchronous = str(Path(folder) / "memory.db"), "OFF"
    connection = connections.create(place, Connection)
    connections.configure(connection, synchronous)

    def close() -> None:
        connection.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    try:
        queue = _make(connection, workers, handlers, synchronous, _user_thread_of(connection), close)
    except BaseException:
        close()
        raise
    if folder is not None:
        weakref.finalize(queue, shutil.rmtree, folder, ignore_errors=True)
    return queue


def attach(
    connection: apsw.Connection,
    workers: int | None = None,
    *,
    handlers: Mapping[str, Function] | None = None,
    synchronous: str = "FULL",
) -> Queue:
    """Give an APSW connection of yours the queue of its database, and run jobs in *workers* threads.

    As `open`; shutdown leaves the connection open. Raises UsageError for a database that is in memory or temporary,
    and inside a transaction when the queue has to be made first.
    """
    if not isinstance(connection, apsw.Connection):
        raise UsageError(
            f"attach needs an apsw.Connection, not {type(connection).__module__}.{type(connection).__qualname__}; "
            "two SQLite libraries on one file in one process lose commits"
        )
    _require_sound(workers, synchronous)
    user = threading.get_ident()
    return _make(connection, workers, handlers, synchronous, lambda: user, lambda: None)


def _user_thread_of(connection: Connection) -> Callable[[], int]:
    weak = weakref.ref(connection)

    def user_thread() -> int:
        found = weak()
        return 0 if found is None else found.user_thread

    return user_thread


def equip(connection: apsw.Connection, *, synchronous: str = "FULL") -> Surface:
    """Give a connection the SQL functions and ML_JOBS, and nothing else: no schema is made, no job is run."""
    surface = Surface(connection, synchronous=synchronous)
    surface.install()
    # APSW looks methods up by name; its protocol also lists those that an eponymous table has no use for.
    module = cast("apsw.VTModule", JobsModule(surface))
    connection.create_module("ML_JOBS", module, use_bestindex_object=True, use_no_change=True, eponymous_only=True)
    return surface


def _make(
    connection: apsw.Connection,
    workers: int | None,
    handlers: Mapping[str, Function] | None,
    synchronous: str,
    user_thread: Callable[[], int],
    close: Callable[[], None],
) -> Queue:
    surface = equip(connection, synchronous=synchronous)
    for done in migrate.prepare(connection):
        _log.info("%s: %s", connection.db_filename("main"), done)
    file = surface.file
    barred = connections.is_barred(connection)
    if barred and workers != 0:
        raise ReadOnly("this connection is read-only, so it cannot run jobs; open it for writing, or with workers=0")
    if workers == 0 and not barred:
        sweep(file)  # a pool does it itself
    pool = _start_pool(file, workers, handlers)
    if pool is not None:
        _let_go_at_exit(connection, file, user_thread)
    return Queue(connection, file, pool, user_thread=user_thread, close=close, barred=barred)


def _start_pool(file: SharedFile, workers: int | None, handlers: Mapping[str, Function] | None) -> Pool | None:
    threads = max(1, (os.cpu_count() or 2) - 1) if workers is None else workers
    if threads == 0:
        return None
    pool = Pool(file, threads, handlers)
    pool.start()
    _put_back_on_sigterm(pool)
    return pool


def _require_sound(workers: int | None, synchronous: str) -> None:
    if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or not 0 <= workers <= 1000):
        raise UsageError(f"workers is a number of threads from 0 to 1000, not {workers!r}")
    if synchronous not in ("FULL", "NORMAL", "OFF"):
        raise UsageError(f"synchronous is 'FULL', 'NORMAL' or 'OFF', not {synchronous!r}")


def _let_go_at_exit(connection: apsw.Connection, file: SharedFile, user_thread: Callable[[], int]) -> None:
    """Roll back what the main thread left open when it ended: nobody commits it any more, and its lock is needed."""
    weak = weakref.ref(connection, lambda _: at_exit.remove(let_go))

    def let_go() -> None:
        main = threading.main_thread().ident
        if main is not None:
            file.clear_up_after(main)
        left = weak()
        if left is not None and user_thread() == main:
            with contextlib.suppress(apsw.ConnectionClosedError, apsw.ThreadingViolationError):
                if left.in_transaction:
                    apsw.Connection.execute(left, "ROLLBACK")

    at_exit.append(let_go)


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _put_back_on_sigterm(pool: Pool) -> None:
    """Put running jobs back when the process is asked to end, unless the program has a handler of its own."""
    _pools.add(pool)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with contextlib.suppress(ValueError):  # an embedded interpreter has no signals
            signal.signal(signal.SIGTERM, _on_sigterm)


def _on_sigterm(number: int, _frame: FrameType | None) -> None:
    # The main thread may hold a lock that the pool needs: the stop goes on beside it, and is not waited for long.
    threads = [
        threading.Thread(target=pool.stop, kwargs={"drain": False, "timeout": None}, daemon=True) for pool in _pools
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_TERM_S)
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)

"""The processes that run jobs: their rows, and what is done for those that died."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import apsw

from mldb.statements import statements

_WORKERS = statements("workers")


@dataclass(frozen=True, slots=True)
class Heard:
    """What tells whether a worker still lives. `heartbeat_boot_ms` is on the clock that counts from the boot."""

    id: str
    pid: int
    pid_started: int
    pid_namespace: str
    boot_id: str
    heartbeat_boot_ms: int


def register(
    connection: apsw.Connection, worker: Heard, *, host: str, threads: int, kinds: Iterable[str], now: int
) -> None:
    """Add a worker and the kinds that it runs, or bring both up to date."""
    connection.execute(
        _WORKERS["register_worker"],
        {
            "id": worker.id,
            "pid": worker.pid,
            "pid_started": worker.pid_started,
            "pid_namespace": worker.pid_namespace,
            "boot_id": worker.boot_id,
            "boot_ms": worker.heartbeat_boot_ms,
            "host": host,
            "threads": threads,
            "now": now,
        },
    )
    connection.executemany(_WORKERS["register_kind"], [{"kind": kind, "id": worker.id} for kind in kinds])


def beat(connection: apsw.Connection, worker: str, now: int, boot_ms: int) -> bool:
    """Renew a heartbeat; False when somebody took the worker for dead and removed it."""
    return connection.execute(_WORKERS["beat"], {"id": worker, "now": now, "boot_ms": boot_ms}).get is not None


def listed(connection: apsw.Connection) -> list[Heard]:
    """Give all workers of the file."""
    return [Heard(*row) for row in connection.execute(_WORKERS["list_workers"])]


def unknown_owners(connection: apsw.Connection) -> list[str]:
    """Give owners of jobs that no worker row stands for."""
    return [row[0] for row in connection.execute(_WORKERS["owners_without_worker"])]


def bury(connection: apsw.Connection, worker: str, now: int) -> int:
    """Put the jobs of a dead worker back and forget it; give how many were queued again."""
    connection.execute(_WORKERS["stop_jobs_of"], {"owner": worker, "now": now}).fetchall()
    requeued = len(connection.execute(_WORKERS["requeue_jobs_of"], {"owner": worker}).fetchall())
    forget(connection, worker)
    return requeued


def forget(connection: apsw.Connection, worker: str) -> None:
    """Remove a worker."""
    connection.execute(_WORKERS["forget_worker"], {"id": worker}).fetchall()
    connection.execute(_WORKERS["forget_kinds"], {"id": worker}).fetchall()

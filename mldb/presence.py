"""A worker process shows that it lives, and buries those that do not: their jobs are queued again."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

import apsw

from mldb.connection import plain_errors, transaction
from mldb.identity import boot_ms, host, is_dead, now_ms
from mldb.shared import SharedFile
from mldb.store import workers

_log = logging.getLogger("mldb")


class Presence:
    """One worker's row in ml_worker, kept by the dispatcher's thread on its connection."""

    def __init__(self, file: SharedFile, connection: apsw.Connection, worker: workers.Heard, threads: int) -> None:
        self._file = file
        self._connection = connection
        self._worker = worker
        self._threads = threads

    def announce(self, kinds: Iterable[str]) -> None:
        """Add the row."""
        with plain_errors(self._file.path), transaction(self._connection):
            self._register(kinds)

    def beat(self, kinds: Iterable[str]) -> None:
        """Renew the heartbeat and the kinds; the caller holds a write transaction."""
        if not workers.beat(self._connection, self._worker.id, now_ms(), boot_ms()):
            _log.warning("%s: another process took this worker for dead; its jobs were queued again", self._file.path)
        self._register(kinds)

    def leave(self) -> None:
        """Remove the row; the caller holds a write transaction."""
        workers.forget(self._connection, self._worker.id)

    def _register(self, kinds: Iterable[str]) -> None:
        worker = replace(self._worker, heartbeat_boot_ms=boot_ms())
        workers.register(self._connection, worker, host=host(), threads=self._threads, kinds=kinds, now=now_ms())


def sweep(file: SharedFile, *, but: str | None = None) -> None:
    """Put back the jobs of workers that died, all but those of one worker. Reads only, unless there is one."""
    boot = boot_ms()
    with file.reading() as connection:
        dead = [other.id for other in workers.listed(connection) if other.id != but and is_dead(other, boot=boot)]
        dead += [owner for owner in workers.unknown_owners(connection) if owner != but]
    for owner in dead:
        with file.transaction() as connection:
            requeued = workers.bury(connection, owner, now_ms())
        if requeued:
            _log.warning("%s: queued %d jobs of a dead worker again", file.path, requeued)

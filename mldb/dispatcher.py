"""The one thread of a process that writes what its jobs come to.

It turns in cycles. In one short transaction it records how bodies ended, writes progress and logs, renews the
heartbeat, and claims jobs for the threads that are free; then it waits until something happens. So commits are
grouped, handler threads never wait for the disk, and a report of progress costs nothing.

What it promises:

- a body begins only after its claim was committed, and at most once per claim;
- nothing is forgotten when a write fails: it stays in the batch until it is on disk;
- a job that was cancelled, timed out or put back keeps that state, whatever its body does later.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import apsw

from mldb import registry
from mldb.batch import Batch
from mldb.connection import open_writer, transaction
from mldb.errors import MldbError
from mldb.identity import now_ms
from mldb.presence import Presence, sweep
from mldb.run import Ending, Run
from mldb.shared import SharedFile, plain_errors
from mldb.store import work, workers
from mldb.task import Access, Task
from mldb.watch import Watch

BEAT_S = 10.0
SWEEP_S = 2.0
FLUSH_S = 0.1
HAND_BACK_S = 0.1
LEAVE_S = 5.0
MOST_AHEAD = 1000
_AHEAD_S = 0.01
_TINY_S = 0.02

# What has to do with the file and passes, or concerns all jobs alike.
_PASSING = (apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.FullError, apsw.NoMemError, MldbError, OSError)

_log = logging.getLogger("mldb")


@dataclass(frozen=True, slots=True)
class Stop:
    """How to stop: first run the jobs up to these ids per kind (None: none), then put back what runs at a time."""

    drain_to: Mapping[str, int] | None
    until: float | None


class Dispatcher:
    """Claims jobs, hands them to threads, and writes what came of them. `run` is the body of its thread."""

    def __init__(
        self,
        file: SharedFile,
        worker: workers.Heard,
        threads: int,
        handlers: Callable[[], dict[str, registry.Handler]],
        access: Access,
        hand_out: Callable[[Run], None],
    ) -> None:
        self.file = file
        self.worker = worker
        self.threads = threads
        self.stop: Stop | None = None
        self._idle_since = time.monotonic()
        self._all_handlers = handlers
        self._access = access
        self._hand_out = hand_out
        self._connection = open_writer(file.path, vfs=file.vfs, synchronous=file.synchronous)
        self._presence = Presence(file, self._connection, worker, threads)
        self._watch = Watch(self._connection)
        self.wake = self._watch.wake
        self._batch = Batch(worker.id)
        self._endings: deque[Ending] = deque()
        self._reports: deque[Task] = deque()
        self._held: dict[int, Run] = {}
        self._timed: set[Run] = set()
        self._tempo: dict[str, float] = {}
        self._handlers: dict[str, registry.Handler] = {}
        self._generation = -1
        self._next_beat = self._next_sweep = self._next_flush = self._next_hand_back = 0.0
        self._troubles = 0
        self._stalled = False
        self._in_doubt = False

    # For other threads.

    def idle_seconds(self) -> float:
        """Give for how long no job has been in hand."""
        return 0.0 if self._held else time.monotonic() - self._idle_since

    def report(self, task: Task) -> None:
        """Note that a task has something to write."""
        self._reports.append(task)
        self.wake()

    def ended(self, ending: Ending) -> None:
        """Note that a body ended."""
        self._endings.append(ending)
        self.wake()

    def cancelled(self, job: int) -> None:
        """Note that this process cancelled a job: its body sees it at once, and does not begin any more."""
        run = self._held.get(job)
        if run is not None:
            run.task.stop()
            run.bar()
        self.wake()

    # For the thread that starts the pool.

    def start(self) -> None:
        """Register this worker and put back the jobs of dead ones. Raises what keeps it from that."""
        self._learn_handlers()
        self._presence.announce(self._handlers)
        sweep(self.file, but=self.worker.id)

    # The thread.

    def run(self) -> None:
        """Turn until stopped; then put back what still runs, and close."""
        try:
            while not self._is_done():
                try:
                    busy = self._cycle(time.monotonic())
                    self._troubles = 0
                except Exception as error:  # noqa: BLE001 - this thread must outlive whatever one job brings
                    busy = False
                    self._complain(error)
                    if not isinstance(error, _PASSING):
                        self._give_up_unwritable()
                if not busy and not self._is_done():
                    self._watch.wait(self._patience(time.monotonic()))
            self._leave()
        finally:
            self._watch.close()
            self._connection.close()

    def _cycle(self, now: float) -> bool:
        """Do what there is to do; give True when there may be more at once."""
        self._take_endings()
        self._notice_cancels()
        self._notice_timeouts(now)
        if now >= self._next_hand_back:
            self._hand_back(now)
        if self._reports and (now >= self._next_flush or self._batch.endings):
            self._take_reports(now)
        if now >= self._next_sweep:
            sweep(self.file, but=self.worker.id)
            self._next_sweep = now + SWEEP_S
        if self._generation != registry.generation():
            self._learn_handlers()
            self._next_beat = 0.0
        beat = now >= self._next_beat
        due = self.stop is None and self._is_due()
        free, ahead = self._room()
        claim = free + ahead > 0 and work.waiting(self._connection, self._handlers, self._last())
        if not (self._batch or beat or due or claim or self._in_doubt):
            return False
        claimed: list[work.Claim] = []
        with self.file.lock, plain_errors(self.file.path), transaction(self._connection):
            self._batch.write(self._connection)
            if self._in_doubt:
                self._release_unknown()
            if beat:
                self._presence.beat(self._handlers)
            if due:
                work.promote(self._connection, now_ms())
            if claim or due:
                claimed = self._claim()
        if beat:
            self._next_beat = now + BEAT_S
        self._in_doubt = False
        self._forget_written()
        self._begin(claimed, now)
        return bool(claimed or self._endings)

    def _take_endings(self) -> None:
        if self._endings:
            self._stalled = False
        while self._endings:
            ending = self._endings.popleft()
            self._batch.endings.append(ending)
            self._timed.discard(ending.run)
            kind, seconds = ending.run.claim.kind, ending.seconds
            self._tempo[kind] = 0.8 * self._tempo.get(kind, seconds) + 0.2 * seconds

    def _notice_cancels(self) -> None:
        if not self._held:
            return
        for job, attempt in work.cancelled(self._connection, self.worker.id):
            run = self._held.get(job)
            if run is not None and run.claim.attempt == attempt and run.over is None:
                run.over = "cancelled"
                run.task.stop()
                if run.bar():
                    self._batch.stopped.append(run)

    def _notice_timeouts(self, now: float) -> None:
        for run in tuple(self._timed):
            assert run.claim.timeout_s is not None
            if run.over is not None:
                self._timed.discard(run)
            elif run.began is not None and now - run.began >= run.claim.timeout_s:
                self._timed.discard(run)
                run.over = "timed out"
                run.task.stop()
                self._batch.timeouts.append(run)

    def _hand_back(self, now: float) -> None:
        """Put jobs back that were claimed ahead and find no free thread: other workers may have one."""
        self._next_hand_back = now + HAND_BACK_S
        if len(self._held) > self.threads:
            for run in self._held.values():
                if run.began is None and now - run.claimed > HAND_BACK_S and run.over is None and run.bar():
                    run.over = "released"
                    self._batch.returned.append(run)
                    self._stalled = True

    def _take_reports(self, now: float) -> None:
        self._next_flush = now + FLUSH_S
        while self._reports:
            self._batch.report(self._reports.popleft())

    def _is_due(self) -> bool:
        time_due = work.next_due_time(self._connection)
        return time_due is not None and time_due <= now_ms()

    def _room(self) -> tuple[int, int]:
        """Give how many jobs to claim for free threads, and how many ahead of them when jobs are tiny."""
        if self.stop is not None and self.stop.drain_to is None:
            return 0, 0
        in_hand = len(self._held) - len(self._batch.endings) - len(self._batch.returned)
        fastest = min(self._tempo.values(), default=_TINY_S)
        ahead = min(MOST_AHEAD, int(self.threads * _AHEAD_S / max(fastest, 1e-6))) if fastest < _TINY_S else 0
        if self._stalled:
            ahead = 0  # the last ones found no thread; wait until a body ends
        return max(0, self.threads - in_hand), max(0, min(ahead, self.threads + ahead - in_hand))

    def _last(self) -> Mapping[str, int] | None:
        return None if self.stop is None else (self.stop.drain_to or {})

    def _claim(self) -> list[work.Claim]:
        free, ahead = self._room()
        if free + ahead == 0:
            return []
        tiny = {kind for kind, seconds in self._tempo.items() if seconds < _TINY_S}
        return work.claim(
            self._connection,
            self._handlers,
            self.worker.id,
            free=free,
            ahead=ahead,
            tiny=tiny,
            last=self._last(),
            now=now_ms(),
        )

    def _forget_written(self) -> None:
        for ending in self._batch.endings:
            self._held.pop(ending.run.claim.id, None)
        for run in self._batch.stopped + self._batch.returned:
            self._held.pop(run.claim.id, None)
        self._batch.clear()
        self._idle_since = time.monotonic()

    def _begin(self, claimed: list[work.Claim], now: float) -> None:
        for claim in claimed:
            task = Task(claim.id, claim.kind, claim.target, claim.spec_json, claim.attempt, self._access, self.report)
            run = Run(claim, self._handlers[claim.kind], task, now)
            self._held[claim.id] = run
            if claim.timeout_s is not None:
                self._timed.add(run)
        for claim in claimed:
            self._hand_out(self._held[claim.id])

    def _patience(self, now: float) -> float:
        """Give for how many seconds there is nothing to do unless something happens."""
        if self._troubles:
            return min(0.05 * 2.0**self._troubles, 5.0)
        times = [self._next_beat, self._next_sweep]
        if self._reports:
            times.append(self._next_flush)
        if len(self._held) > self.threads:
            times.append(self._next_hand_back)
        if self.stop is not None and self.stop.until is not None:
            times.append(self.stop.until)
        times += [run.began + run.claim.timeout_s for run in self._timed if run.began and run.claim.timeout_s]
        if self._timed:
            times.append(now + 0.1)
        if self.stop is None:
            due = work.next_due_time(self._connection)
            if due is not None:
                times.append(now + max(0.0, (due - now_ms()) / 1000))
        return max(0.0, min(times) - now)

    # Starting, stopping, staying alive.

    def _learn_handlers(self) -> None:
        self._generation = registry.generation()
        self._handlers = self._all_handlers()

    def _is_done(self) -> bool:
        stop = self.stop
        if stop is None:
            return False
        if stop.until is not None and time.monotonic() >= stop.until:
            return True
        if self._endings or self._batch or any(run.over is None for run in self._held.values()):
            return False
        return stop.drain_to is None or not work.waiting(self._connection, self._handlers, stop.drain_to)

    def _leave(self) -> None:
        """Put back what still runs and say goodbye; tried for a few seconds when the file is locked."""
        deadline = time.monotonic() + LEAVE_S
        self._take_endings()
        ended = {ending.run for ending in self._batch.endings}
        for run in self._held.values():
            if run not in ended and run.over is None:
                run.over = "released"
                run.bar()
                run.task.stop()
                self._batch.returned.append(run)
        while self._reports:
            self._batch.report(self._reports.popleft())
        bodies_go_on = any(run.over in ("cancelled", "timed out") for run in self._held.values() if run not in ended)
        while True:
            try:
                with self.file.lock, plain_errors(self.file.path), transaction(self._connection):
                    self._batch.write(self._connection)
                    if not bodies_go_on:
                        self._presence.leave()
            except (apsw.Error, MldbError) as error:
                if time.monotonic() > deadline:
                    _log.error(
                        "%s: could not put running jobs back (%s); they are queued again by the next worker",
                        self.file.path,
                        error,
                    )
                    return
                self._watch.wait(0.1)
            else:
                self._forget_written()
                return

    def _release_unknown(self) -> None:
        """Put back what the file says is ours and we do not have: a claim whose commit seemed to fail and did not."""
        for job, attempt in work.held(self._connection, self.worker.id):
            if job not in self._held:
                held = {"id": job, "owner": self.worker.id, "attempt": attempt}
                work.write(self._connection, "release_job", held)

    def _give_up_unwritable(self) -> None:
        try:
            with self.file.lock, plain_errors(self.file.path), transaction(self._connection):
                self._batch.give_up_unwritable(self._connection)
        except (apsw.Error, MldbError) as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        self._in_doubt = True
        self._troubles = min(self._troubles + 1, 10)
        if self._troubles in (1, 10):
            _log.error(
                "%s: the queue cannot write (%s: %s); it tries again",
                self.file.path,
                type(error).__name__,
                error,
            )

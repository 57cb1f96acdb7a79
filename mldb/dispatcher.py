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

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import apsw

from mldb import registry
from mldb.batch import Batch
from mldb.connection import open_writer, plain_errors, transaction
from mldb.errors import Busy, MldbError
from mldb.fairlock import Patiently
from mldb.hand import HAND_BACK_S, Hand
from mldb.identity import now_ms
from mldb.presence import Presence, sweep
from mldb.run import Ending, Run
from mldb.shared import SharedFile
from mldb.store import work, workers
from mldb.task import Access, Task
from mldb.watch import Watch

BEAT_S = 10.0
SWEEP_S = 2.0
FLUSH_S = 0.1
LEAVE_S = 5.0
# Short, so that the thread stays able to stop; what could not be written is tried again.
_LOCK_WAIT_MS = 1000
_SILENT_S = 10.0
_TURN_S = 1.0

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
        self._hand = Hand(threads)
        self._endings: deque[Ending] = deque()
        self._reports: deque[Task] = deque()
        self._handlers: dict[str, registry.Handler] = {}
        self._generation = -1
        self._next_beat = self._next_sweep = self._next_flush = self._next_hand_back = 0.0
        self._in_doubt = False
        self._abandoned: set[tuple[int, int]] = set()
        self._trouble_since: float | None = None
        self._told = False
        self.left = threading.Event()
        self._gate = threading.Lock()
        self._closed = False

    # For other threads.

    def idle_seconds(self) -> float:
        """Give for how long no job has been in hand."""
        return 0.0 if self._hand else time.monotonic() - self._idle_since

    def report(self, task: Task) -> None:
        """Note that a task has something to write."""
        self._reports.append(task)
        self.wake()

    def ended(self, ending: Ending) -> None:
        """Note that a body ended."""
        with self._gate:
            if not self._closed:
                self._endings.append(ending)
                self.wake()
                return
        self._note_late(ending)

    def cancelled(self, job: int) -> None:
        """Note that this process cancelled a job: its body sees it at once, and does not begin any more."""
        for run in self._hand.of(job):
            run.task.stop()
            run.bar()
        self.wake()

    # For the thread that starts the pool.

    def start(self) -> None:
        """Register this worker and put back the jobs of dead ones. Raises what keeps it from that."""
        self._learn_handlers()
        self._presence.announce(self._handlers)
        sweep(self.file, but=self.worker.id)

    def close(self) -> None:
        """Give descriptors and connection back; what ends from now on is noted by the thread that ends it."""
        with self._gate:
            self._closed = True
        self._watch.close()
        self._connection.close()
        while self._endings:
            self._note_late(self._endings.popleft())

    # The thread.

    def run(self) -> None:
        """Turn until stopped; then put back what still runs, and close."""
        self._connection.set_busy_timeout(_LOCK_WAIT_MS)
        try:
            while True:
                try:
                    if self._is_done():
                        break
                    busy = self._cycle(time.monotonic()) or self._may_be_done()
                    self._trouble_since = None
                    if not busy:
                        self._watch.wait(self._patience(time.monotonic()))
                except Exception as error:  # noqa: BLE001 - this thread must outlive whatever one job brings
                    self._complain(error)
                    if not isinstance(error, _PASSING):
                        self._give_up_unwritable()
                    self._watch.rest(self._pause(time.monotonic()))
            self._leave()
        finally:
            self.close()
            self.left.set()

    def _cycle(self, now: float) -> bool:
        """Do what there is to do; give True when there may be more at once."""
        self._take_endings()
        self._notice_cancels()
        for run in self._hand.late(now):
            self._end(run, "timed out")
            self._batch.timeouts.append(run)
        if now >= self._next_hand_back:
            self._next_hand_back = now + HAND_BACK_S
            for run in self._hand.stalled(now):
                run.over = "released"
                self._batch.returned.append(run)
        if self._reports and (now >= self._next_flush or self._batch.endings):
            self._take_reports(now)
        if now >= self._next_sweep:
            sweep(self.file, but=self.worker.id)
            self._notice_losses()
            self._next_sweep = now + SWEEP_S
        if self._generation != registry.generation():
            self._learn_handlers()
            self._next_beat = 0.0
        beat = now >= self._next_beat
        due = self.stop is None and self._is_due()
        claim = sum(self._room()) > 0 and work.waiting(self._connection, self._handlers, self._last())
        if not (self._batch or beat or due or claim or self._in_doubt):
            return False
        claimed: list[work.Claim] = []
        with self._writing():
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

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with (
            Patiently(self.file.lock, _TURN_S),
            plain_errors(self.file.path),
            transaction(self._connection),
        ):
            yield

    def _take_endings(self) -> None:
        while self._endings:
            ending = self._endings.popleft()
            self._batch.endings.append(ending)
            self._hand.note(ending)

    def _notice_cancels(self) -> None:
        if not self._hand:
            return
        for job, attempt in work.cancelled(self._connection, self.worker.id):
            run = self._hand.get(job, attempt)
            if run is not None and run.over is None and self._end(run, "cancelled"):
                self._batch.stopped.append(run)

    def _notice_losses(self) -> None:
        """Tell bodies whose jobs are not ours any more: somebody took this worker for dead."""
        if not self._hand:
            return
        ours = set(work.held(self._connection, self.worker.id))
        ending = {ending.run for ending in self._batch.endings}
        for run in self._hand:
            lost = run.over is None and run not in ending and (run.claim.id, run.claim.attempt) not in ours
            if lost and self._end(run, "lost"):
                self._hand.drop(run)

    def _end(self, run: Run, why: str) -> bool:
        """Make what a body gives from now on worth nothing; True when it has not begun and never will."""
        run.over = why
        run.task.stop()
        return run.bar()

    def _take_reports(self, now: float) -> None:
        self._next_flush = now + FLUSH_S
        while self._reports:
            self._batch.report(self._reports.popleft())

    def _is_due(self) -> bool:
        time_due = work.next_due_time(self._connection)
        return time_due is not None and time_due <= now_ms()

    def _room(self) -> tuple[int, int]:
        if self.stop is not None and self.stop.drain_to is None:
            return 0, 0
        return self._hand.room(len(self._batch.endings) + len(self._batch.returned))

    def _last(self) -> Mapping[str, int] | None:
        return None if self.stop is None else (self.stop.drain_to or {})

    def _claim(self) -> list[work.Claim]:
        free, ahead = self._room()
        return work.claim(
            self._connection,
            self._handlers,
            self.worker.id,
            free=free,
            ahead=ahead,
            tiny=self._hand.tiny(),
            last=self._last(),
            now=now_ms(),
        )

    def _forget_written(self) -> None:
        for ending in self._batch.endings:
            self._hand.drop(ending.run)
        for run in self._batch.stopped + self._batch.returned:
            self._hand.drop(run)
        self._batch.clear()
        self._idle_since = time.monotonic()

    def _begin(self, claimed: list[work.Claim], now: float) -> None:
        runs = []
        for claim in claimed:
            task = Task(claim.id, claim.kind, claim.target, claim.spec_json, claim.attempt, self._access, self.report)
            run = Run(claim, self._handlers[claim.kind], task, now)
            self._hand.add(run)
            runs.append(run)
        for run in runs:
            self._hand_out(run)

    def _patience(self, now: float) -> float:
        """Give for how many seconds there is nothing to do unless something happens."""
        times = [self._next_beat, self._next_sweep]
        if self._reports:
            times.append(self._next_flush)
        if len(self._hand) > self._hand.threads:
            times.append(self._next_hand_back)
        deadline = self._hand.next_deadline(now)
        if deadline is not None:
            times.append(deadline)
        if self.stop is not None and self.stop.until is not None:
            times.append(self.stop.until)
        if self.stop is None:
            due = work.next_due_time(self._connection)
            if due is not None:
                times.append(now + max(0.0, (due - now_ms()) / 1000))
        return max(0.0, min(times) - now)

    def _pause(self, now: float) -> float:
        """Give for how many seconds to leave the file alone after an error: longer, the longer it lasts."""
        pause = min(max(0.05, (now - (self._trouble_since or now)) / 2), 5.0)
        if self.stop is not None and self.stop.until is not None:
            return min(pause, max(self.stop.until - now, 0.05))
        return pause

    # Starting, stopping, staying alive.

    def _learn_handlers(self) -> None:
        self._generation = registry.generation()
        self._handlers = self._all_handlers()

    def _may_be_done(self) -> bool:
        """Tell whether only the file can say that there is more to do."""
        stop = self.stop
        if stop is None:
            return False
        if stop.until is not None and time.monotonic() >= stop.until:
            return True
        return not (self._endings or self._batch or any(run.over is None for run in self._hand))

    def _is_done(self) -> bool:
        stop = self.stop
        if stop is None or not self._may_be_done():
            return False
        if stop.drain_to is None or (stop.until is not None and time.monotonic() >= stop.until):
            return True
        return not work.waiting(self._connection, self._handlers, stop.drain_to)

    def _leave(self) -> None:
        """Put back what still runs and say goodbye.

        While somebody keeps the file locked it goes on trying, behind those who wait for the stop, until the main
        thread has ended as well.
        """
        deadline = time.monotonic() + LEAVE_S
        with contextlib.suppress(apsw.Error):  # it only tells bodies to stop; the writes below are fenced
            self._notice_cancels()
        self._take_endings()
        ended = {ending.run for ending in self._batch.endings}
        for run in self._hand:
            if run not in ended and run.over is None:
                self._end(run, "released")
                self._batch.returned.append(run)
        while self._reports:
            self._batch.report(self._reports.popleft())
        while True:
            try:
                with self._writing():
                    self._batch.write(self._connection)
                    # The row stays while a cancelled body runs: without it the job would be taken for stopped.
                    if not work.any_body(self._connection, self.worker.id):
                        self._presence.leave()
            except (apsw.Error, MldbError) as error:
                if not isinstance(error, _PASSING):
                    self._give_up_unwritable()
                if time.monotonic() < deadline:
                    self._watch.rest(0.1)
                    continue
                if not self.left.is_set():
                    _log.error("%s: cannot put running jobs back yet (%s)", self.file.path, error)
                    self.left.set()
                if not threading.main_thread().is_alive():
                    _log.error("%s: running jobs are queued again by the next worker", self.file.path)
                    return
                self._watch.rest(1.0)
            else:
                self._forget_written()
                return

    def _note_late(self, ending: Ending) -> None:
        """Note that a body has ended whose job was over before the stop; runs in the body's own thread."""
        run = ending.run
        self._hand.drop(run)
        try:
            with self.file.transaction() as connection:
                stopped = work.write(connection, "stop_job", run.held(self.worker.id) | {"now": now_ms()})
                if stopped and not work.any_body(connection, self.worker.id):
                    workers.forget(connection, self.worker.id)
        except (apsw.Error, MldbError) as error:
            _log.warning("%s: could not note that job %d has stopped (%s)", self.file.path, run.claim.id, error)

    def _release_unknown(self) -> None:
        """Put back what the file says is ours and we do not have: a claim whose commit seemed to fail and did not."""
        for job, attempt in work.held(self._connection, self.worker.id):
            if self._hand.get(job, attempt) is None and (job, attempt) not in self._abandoned:
                held = {"id": job, "owner": self.worker.id, "attempt": attempt}
                work.write(self._connection, "release_job", held)

    def _give_up_unwritable(self) -> None:
        try:
            with self._writing():
                self._batch.give_up_unwritable(self._connection)
        except (apsw.Error, MldbError) as error:
            self._complain(error)
            return
        for run in self._batch.abandoned:
            _log.error("%s: the end of job %d cannot be written; it is left as it is", self.file.path, run.claim.id)
            self._abandoned.add((run.claim.id, run.claim.attempt))
            self._hand.drop(run)
        self._batch.abandoned.clear()

    def _complain(self, error: Exception) -> None:
        now = time.monotonic()
        if self._trouble_since is None:
            self._trouble_since, self._told = now, False
        self._in_doubt = True
        # Others may hold the lock for a while; that is worth a word only when it lasts.
        if not self._told and (not isinstance(error, Busy) or now - self._trouble_since > _SILENT_S):
            self._told = True
            name = type(error).__name__
            _log.error("%s: the queue cannot write (%s: %s); it tries again", self.file.path, name, error)

"""The threads of a process that run jobs.

What it promises: a job is in the hands of at most one thread, here or in another process; a result is written only
while the job is still ours; `stop` comes back when nothing of ours is written any more. What it does not promise: that
jobs end in the order in which they began.

The dispatcher's thread is no daemon and ends when the main thread has ended, so that leaving the program puts running
jobs back. Handler threads are daemons: a body that never returns must not hold the exit.
"""

from __future__ import annotations

import signal
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from queue import SimpleQueue

from mldb import registry
from mldb.access import PoolAccess
from mldb.dispatcher import Dispatcher, Stop
from mldb.identity import new_worker
from mldb.run import Run
from mldb.shared import SharedFile
from mldb.store import work


class Pool:
    """Runs the jobs of one file in this many threads, from `start` to `stop`."""

    def __init__(self, file: SharedFile, threads: int, own: Mapping[str, registry.Function] | None = None) -> None:
        worker = new_worker()
        self.threads = threads
        self._file = file
        self._line: SimpleQueue[Run | None] = SimpleQueue()
        self._own = own
        self._dispatcher = Dispatcher(
            file, worker, threads, self._handlers, PoolAccess(file, worker.id), self._line.put
        )
        self._stopping = threading.Lock()
        self._workers = [
            threading.Thread(target=self._work, name=f"mldb-{number}", daemon=True) for number in range(threads)
        ]
        self._thread = threading.Thread(target=self._dispatch, name="mldb-dispatcher", daemon=False)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of job that this pool runs, sorted."""
        return tuple(sorted(self._handlers()))

    def _handlers(self) -> dict[str, registry.Handler]:
        return registry.handlers(self._own)

    def start(self) -> None:
        """Register, put back the jobs of dead workers, and begin. Raises what keeps it from that."""
        try:
            self._dispatcher.start()
        except BaseException:
            self._dispatcher.close()
            raise
        self._file.listeners.append(self)
        _stop_at_exit(self)
        self._thread.start()
        for worker in self._workers:
            worker.start()

    def wake(self) -> None:
        """Look for work now: something was committed."""
        self._dispatcher.wake()

    def cancelled(self, job: int) -> None:
        """Tell the body of a job that was cancelled by this process."""
        self._dispatcher.cancelled(job)

    def idle_seconds(self) -> float:
        """Give for how long no job has been in hand."""
        return self._dispatcher.idle_seconds()

    def stop(self, *, drain: bool, timeout: float | None) -> bool:
        """Stop: finish what is queued (*drain*) within *timeout* seconds, then put back what still runs.

        Gives True when all threads came to rest, False when called from a handler, which would wait for itself: the
        stop goes on behind it then.
        """
        with self._stopping:
            before = self._dispatcher.stop
            until = None if timeout is None else time.monotonic() + timeout
            if not drain:
                self._dispatcher.stop = Stop(None, time.monotonic() if until is None else until)
            elif before is None:
                with self._file.reading() as connection:
                    self._dispatcher.stop = Stop(work.last_queued(connection, self._handlers()), until)
            elif until is not None and (before.until is None or until < before.until):
                # A second call may be in more of a hurry than the first.
                self._dispatcher.stop = Stop(before.drain_to, until)
        self._dispatcher.wake()
        if threading.current_thread() in self._workers:
            return False
        if self._thread.ident is not None:
            self._dispatcher.left.wait()
        return True

    def _work(self) -> None:
        _leave_signals_to_main()
        while True:
            run = self._line.get()
            if run is None:
                return
            if run.begins():
                # A child process that the body starts would inherit what is blocked here.
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
                try:
                    ending = run.body()
                finally:
                    _leave_signals_to_main()
                self._dispatcher.ended(ending)

    def _dispatch(self) -> None:
        _leave_signals_to_main()
        try:
            self._dispatcher.run()
        finally:
            if self in self._file.listeners:
                self._file.listeners.remove(self)
            for _ in self._workers:
                self._line.put(None)


_SIGNALS = (signal.SIGTERM, signal.SIGINT)

at_exit: list[Callable[[], None]] = []
"""What to do first when the main thread has ended: let go of locks that nobody will use any more."""

_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_exit_guard = threading.Lock()
_exit_thread: threading.Thread | None = None


def _stop_at_exit(pool: Pool) -> None:
    """See to it that a pool stops when the main thread has ended."""
    global _exit_thread  # noqa: PLW0603 - one per process, as the main thread is
    with _exit_guard:
        _pools.add(pool)
        if _exit_thread is None or not _exit_thread.is_alive():
            _exit_thread = threading.Thread(target=_wait_for_main, name="mldb-exit", daemon=False)
            _exit_thread.start()


def _leave_signals_to_main() -> None:
    """Block what asks the process to end: taken here, it would not wake the main thread, which has to act on it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _wait_for_main() -> None:
    _leave_signals_to_main()
    threading.main_thread().join()
    for let_go in tuple(at_exit):
        let_go()
    for pool in tuple(_pools):
        pool.stop(drain=False, timeout=None)

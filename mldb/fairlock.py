"""A lock that serves its waiters in the order in which they came."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class FairLock:
    """A mutual exclusion lock, first come first served; not re-entrant.

    `threading.Lock` may let one thread in again and again while another waits; with 16 threads that submit, the
    unlucky one waits for seconds.
    """

    __slots__ = ("_guard", "_held", "_waiting")

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._guard:
            if not self._held:
                self._held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            turn.acquire()
        except BaseException:
            # Ctrl-C while waiting: leave the line, or pass on a turn that came in the meantime.
            with self._guard:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                    raise
            self._release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _release(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False

"""A lock that serves its waiters in the order in which they came, and that Ctrl-C cannot leave locked for good.

Ctrl-C raises between any two steps of Python code, also right after a lock was taken and before anything could
remember to release it. So a holder is known by a token and its thread: a thread that asks again while it seems to
hold the lock has left it behind, and gets it; a release with an old token does nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class FairLock:
    """A mutual exclusion lock, first come first served; not re-entrant.

    `threading.Lock` may let one thread in again and again while another waits; with 16 threads that submit, the
    unlucky one waits for seconds.
    """

    __slots__ = ("_guard", "_thread", "_turn", "_waiting")

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._turn: threading.Lock | None = None
        self._thread = 0
        self._waiting: deque[tuple[threading.Lock, int]] = deque()

    def acquire(self, timeout: float = -1) -> threading.Lock | None:
        """Wait for the lock, at most *timeout* seconds (-1: no limit); give the token to release it with, or None."""
        turn = threading.Lock()
        try:
            turn.acquire()
            me = threading.get_ident()
            with self._guard:
                if self._turn is None or self._thread == me:
                    self._turn, self._thread = turn, me
                    return turn
                self._waiting.append((turn, me))
            if turn.acquire(timeout=timeout):
                return turn
        except BaseException:
            self._withdraw(turn)
            self.release(turn)
            raise
        self._withdraw(turn)
        # It may have come at the last moment.
        return turn if self._turn is turn else None

    def release(self, turn: threading.Lock | None) -> None:
        """Let the next one in, if the token is still the holder's."""
        with self._guard:
            if turn is None or self._turn is not turn:
                return
            if not self._waiting:
                self._turn, self._thread = None, 0
                return
            self._turn, self._thread = self._waiting[0]
            try:
                self._turn.release()
            finally:
                del self._waiting[0]

    def owns(self, turn: threading.Lock | None) -> bool:
        """Tell whether a token is the holder's."""
        return turn is not None and self._turn is turn

    def left_behind_by(self, thread: int) -> bool:
        """Tell whether a thread, which is not inside now, seems to hold the lock."""
        return self._turn is not None and self._thread == thread

    def abandon(self, thread: int) -> None:
        """Let the next one in, if the lock seems to be held by a thread that is not inside."""
        if self.left_behind_by(thread):
            self.release(self._turn)

    def _withdraw(self, turn: threading.Lock) -> None:
        with self._guard:
            for place, (other, _) in enumerate(self._waiting):
                if other is turn:
                    del self._waiting[place]
                    return

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread == threading.get_ident():
            self.release(self._turn)


class Patiently:
    """As a context manager: hold a lock, or after *seconds* of waiting go on without it.

    For one whose correctness does not hang on the lock, only its turn: whatever keeps others out must not keep the
    dispatcher from writing what its jobs came to.
    """

    __slots__ = ("_lock", "_seconds", "_turn")

    def __init__(self, lock: FairLock, seconds: float) -> None:
        self._lock = lock
        self._seconds = seconds
        self._turn: threading.Lock | None = None

    def __enter__(self) -> None:
        self._turn = self._lock.acquire(self._seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release(self._turn)

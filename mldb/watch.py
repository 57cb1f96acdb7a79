"""Notices that somebody committed to a database file, quickly and for next to nothing.

On Linux the kernel reports writes to the WAL (inotify, which opens no descriptor on the database: closing one would
drop SQLite's locks). A write is reported before its commit can be seen, so the commit is then awaited through
`PRAGMA data_version`, which moves when another connection has committed. Elsewhere data_version is polled.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import apsw

_IN_MODIFY = 0x2
_POLL_MS = 25
_FIRST_LOOK_S = 0.0001
_LONGEST_LOOK_S = 0.025
_SETTLED_S = 1.0
_LONGEST_WAIT_S = 1.0
_POLLED_S = 0.1
_SELECT_LIMIT = 1024


class Watch:
    """Waits for commits to the file behind a connection that never holds a statement open.

    `wake` may be called from any thread; all else belongs to the thread that waits.
    """

    __slots__ = (
        "_awake",
        "_connection",
        "_guard",
        "_inotify",
        "_noticed",
        "_open",
        "_poll",
        "_read",
        "_seen",
        "_write",
    )

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._inotify = _watch_writes(connection.filename_wal)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)
        if self._inotify is not None:
            self._poll.register(self._inotify, select.POLLIN)
        self._awake = False
        self._open = True
        self._guard = threading.Lock()
        # A commit may be on its way whose write came before the watch.
        self._noticed: float | None = time.monotonic()
        self._seen = self.version()

    def version(self) -> int:
        """Give the number that moves when another connection commits."""
        return int(self._connection.execute("PRAGMA data_version").get)

    def wake(self) -> None:
        """Make the waiting thread return at once."""
        if not self._awake:
            self._awake = True
            # A late wake must not write to a descriptor that was closed and is somebody else's now.
            with self._guard:
                if self._open:
                    os.write(self._write, b"\0")

    def wait(self, timeout: float, *, poll: Callable[[], bool] | None = None) -> bool:
        """Wait until a commit, a wake, or *timeout* seconds; give True for the first two.

        *poll* is asked every now and then, and ends the wait with False when it says True.
        """
        deadline = time.monotonic() + timeout
        look = _FIRST_LOOK_S
        while True:
            if self._awake:
                self._awake = False
                self._drain(self._read)
                return True
            version = self.version()
            if version != self._seen:
                self._seen = version
                return True
            left = deadline - time.monotonic()
            if left <= 0 or (poll is not None and poll()):
                return False
            step = min(left, _POLLED_S if poll is not None else _LONGEST_WAIT_S)
            if self._noticed is not None:
                # Somebody writes; its commit shows in a moment.
                if time.monotonic() - self._noticed > _SETTLED_S:
                    self._noticed = None
                else:
                    step, look = min(step, look), min(look * 2, _LONGEST_LOOK_S)
            elif self._inotify is None:
                step = min(step, _POLL_MS / 1000)
            # poll() counts in milliseconds; shorter waits go through select().
            if step < 0.002:
                events = [(self._read, 0)] if self._poll_wake(step) else []
            else:
                events = self._poll.poll(step * 1000)
            ready_fds = {fd for fd, _ in events}
            if self._read in ready_fds:
                self._awake = False
                self._drain(self._read)
                return True
            if self._inotify in ready_fds:
                self._drain(self._inotify)
                look, self._noticed = _FIRST_LOOK_S, time.monotonic()

    def rest(self, seconds: float) -> None:
        """Wait for a wake or *seconds*, without a look at the file."""
        if not self._awake:
            self._poll_wake(seconds)
        self._awake = False
        self._drain(self._read)

    def _poll_wake(self, seconds: float) -> bool:
        # poll() counts in whole milliseconds; select() is finer, but takes only low descriptors.
        if self._read < _SELECT_LIMIT:
            return bool(select.select([self._read], [], [], seconds)[0])
        waker = select.poll()
        waker.register(self._read, select.POLLIN)
        return bool(waker.poll(seconds * 1000))

    def close(self) -> None:
        """Give the descriptors back; `wake` does nothing from now on."""
        with self._guard:
            if not self._open:
                return
            self._open = False
        for descriptor in (self._read, self._write, self._inotify):
            if descriptor is not None:
                os.close(descriptor)

    @staticmethod
    def _drain(descriptor: int | None) -> None:
        if descriptor is None:
            return
        try:
            while os.read(descriptor, 65536):
                continue
        except BlockingIOError:
            return


def _watch_writes(path: str) -> int | None:
    """Give an inotify descriptor that reports writes to a file, or None where there is none."""
    if not sys.platform.startswith("linux") or not path or not Path(path).exists():
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(descriptor)
        return None
    return int(descriptor)

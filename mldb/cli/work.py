"""`mldb work`: runs the jobs of a file until told to stop."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Self

from mldb.cli.opening import seconds, work_queue
from mldb.errors import UsageError

if TYPE_CHECKING:
    from mldb.cli.opening import Commands
    from mldb.queue import Queue

GRACE = 1.0
"""Seconds that a job which is nearly done gets to end; then it goes back to the queue."""


def add_commands(commands: Commands) -> None:
    """Add `work`."""
    work = commands.add_parser(
        "work",
        help="run the jobs of a database file",
        description="Runs the jobs of FILE. The first SIGTERM or Ctrl-C stops cleanly: running jobs go "
        "back to the queue and the exit status is 0. A second one stops at once; the next worker "
        "then finds what was left and queues it again.",
    )
    work.add_argument("file", metavar="FILE")
    work.add_argument("--workers", metavar="N", type=int, help="jobs at a time (default: processors - 1)")
    work.add_argument(
        "--handlers",
        metavar="MODULE",
        nargs="+",
        action="extend",
        default=[],
        help="Python modules with handlers of your own; the current directory is searched first",
    )
    work.add_argument("--idle-exit", metavar="SECONDS", type=seconds, help="leave when nothing was to do for that long")
    work.set_defaults(run=run_work)


def run_work(arguments: argparse.Namespace) -> int:
    """Work until a signal comes, or until nothing was to do for `--idle-exit` seconds."""
    if arguments.workers is not None and arguments.workers < 1:
        raise UsageError("--workers must be 1 or more; to look without working use: mldb shell FILE")
    _import_handlers(arguments.handlers)
    _log_to_stderr()
    with Stop() as stop:
        queue = work_queue(arguments.file, arguments.workers)
        try:
            kinds = ", ".join(queue.kinds)
            print(f"working on {arguments.file}: workers {queue.workers}, kinds {kinds}", flush=True)
            if _is_idle(queue, stop, arguments.idle_exit):
                print("nothing to do: stopping", flush=True)
                _drain(queue, stop)
            if stop.name:
                print(f"{stop.name}: stopping, running jobs go back to the queue", flush=True)
        finally:
            queue.shutdown(drain=False, timeout=GRACE)
    print("stopped", flush=True)
    return 0


class Stop:
    """Turns the first SIGTERM or SIGINT into something the main thread can wait for.

    A context manager for the main thread. The second signal ends the process as if nobody had listened,
    even while the main thread is deep in C code.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def __enter__(self) -> Self:
        # The interpreter writes to the pipe from the C signal handler: no lock is taken, no wake-up lost.
        self._old_fd = signal.set_wakeup_fd(self._write)
        self._old = {number: signal.signal(number, self._first) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        os.close(self._read)
        os.close(self._write)

    @property
    def name(self) -> str | None:
        """The name of the signal that came, or None."""
        return signal.Signals(self._received).name if self._received is not None else None

    def wait(self, timeout: float | None) -> bool:
        """Wait up to `timeout` seconds (None: for ever); True once a signal has come."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._received is None:
            left = None if end is None else max(0.0, end - time.monotonic())
            ready, _, _ = select.select([self._read], [], [], left)
            if not ready:
                break
            # Another signal (SIGWINCH, SIGCHLD) is in the pipe by its number; 0 is from `wake`.
            if 0 in os.read(self._read, 64):
                break
        return self._received is not None

    def wake(self) -> None:
        """End a `wait` that goes on now, or the next one; for other threads."""
        os.write(self._write, bytes(1))

    def _first(self, number: int, _frame: FrameType | None) -> None:
        self._received = number
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)


def _is_idle(queue: Queue, stop: Stop, idle_exit: float | None) -> bool:
    """Wait for a signal (False), or until nothing was to do for that many seconds (True)."""
    timeout = idle_exit
    while not stop.wait(timeout):
        assert idle_exit is not None
        idle = queue.idle_seconds()
        if idle >= idle_exit:
            return True
        timeout = max(idle_exit - idle, 0.05)
    return False


def _drain(queue: Queue, stop: Stop) -> None:
    """Run what came in the last moment: an exit must not leave what was queued before. A signal ends it."""

    def drain() -> None:
        queue.shutdown(drain=True)
        stop.wake()

    # Beside the main thread, which listens for signals.
    thread = threading.Thread(target=drain, name="mldb-drain", daemon=True)
    thread.start()
    while thread.is_alive() and not stop.wait(1.0):
        pass


def _log_to_stderr() -> None:
    """Say what the pool has to say (a dead worker's jobs queued again, a disk that is full)."""
    logger = logging.getLogger("mldb")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _import_handlers(modules: list[str]) -> None:
    """Import modules; their `@mldb.handler` functions are known from then on."""
    # An installed command does not search the current directory as `python -m` does.
    here = str(Path.cwd())
    if not {"", here} & set(sys.path):
        sys.path.insert(0, here)
    for module in modules:
        if module.endswith(".py") or os.sep in module or "," in module:
            raise UsageError(f"--handlers takes names of modules, such as shop.jobs, with spaces between; not {module}")
        try:
            importlib.import_module(module)
        except SyntaxError as error:
            raise UsageError(f"cannot import {module}: {error.msg}, {error.filename} line {error.lineno}") from error
        except ImportError as error:
            raise UsageError(f"cannot import {module}: {error}; is it in this directory, or installed?") from error

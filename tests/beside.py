"""What tests of threads and processes share: programs that run beside a test, and waiting for what a file shows."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue

from mldb.connection import open_reader
from mldb.watch import Watch

PATIENCE_S = 30.0


class Program:
    """A Python program that runs beside the test and talks to it by lines; killed when its block ends."""

    def __init__(self, source, *arguments):
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by __exit__
        self._lines = SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(source), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line(self, seconds=PATIENCE_S):
        """Give the next line that the program prints."""
        try:
            line = self._lines.get(timeout=seconds)
        except Empty:
            raise AssertionError(f"nothing printed for {seconds} s; stderr: {self.errors()}") from None
        assert line is not None, f"the program ended with {self._process.wait()}: {self.errors()}"
        return line

    def say(self, line="go"):
        """Send the program a line."""
        self._process.stdin.write(line + "\n")

    def send(self, number):
        """Send the program a signal."""
        self._process.send_signal(number)

    def ends(self, seconds=PATIENCE_S):
        """Give the exit code of the program, which must end within a time."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds} s; stderr: {self.errors()}") from None

    def kill(self):
        """End the program as a crash does."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def errors(self):
        """Give what the program wrote to stderr."""
        self._errors.seek(0)
        return self._errors.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # its children too
        self._process.wait()
        self._reader.join()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()


def until(path, seen, seconds=PATIENCE_S):
    """Look whenever somebody has committed to the file, until there is something to see; give it."""
    reader = open_reader(path)
    watch = Watch(reader)
    deadline = time.monotonic() + seconds
    try:
        while True:
            found = seen()
            if found:
                return found
            left = deadline - time.monotonic()
            assert left > 0, f"not seen within {seconds} s"
            watch.wait(min(left, 0.5))
    finally:
        watch.close()
        reader.close()


def spin(seen, seconds=5.0):
    """Look again and again at something in memory until it is true."""
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline, f"not seen within {seconds} s"
        os.sched_yield()


def descriptors():
    """Give where the open descriptors of this process lead, as far as they can be read."""
    return [os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()]


def over(queue, job, seconds=PATIENCE_S):
    """Give a job once it is over; it must be so within a time."""
    found = queue.wait(job, seconds)
    assert found.is_terminal, f"job {job} is {found.status} after {seconds} s"
    return found


def stopped(queue, job, seconds=PATIENCE_S):
    """Give a job once its body has ended too."""
    until(queue.path, lambda: queue.get(job).stopped_at_ms is not None, seconds)
    return queue.get(job)


class Gate:
    """A handler that says that it began, and goes on when it is let go. One per test."""

    def __init__(self, result=None):
        self.began = threading.Event()
        self.go = threading.Event()
        self.ended = threading.Event()
        self.result = result
        self.task = None
        self.thread = None
        self.runs = 0

    def __call__(self, task):
        self.task, self.thread = task, threading.current_thread()
        self.runs += 1
        self.began.set()
        try:
            assert self.go.wait(PATIENCE_S), "nobody let the handler go"
            return self.result
        finally:
            self.ended.set()

    def has_begun(self):
        """Wait until the handler runs."""
        assert self.began.wait(PATIENCE_S), "the handler did not begin"

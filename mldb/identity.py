"""Which process this is, and whether another one still lives.

A process is known by its pid, the time at which it began (pids are used again), the boot and the namespace in which
the pid means something. Sources: proc(5), fields 22 of /proc/<pid>/stat and /proc/sys/kernel/random/boot_id.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from functools import cache
from pathlib import Path

from mldb.store.workers import Heard

LEASE_MS = 60_000


def now_ms() -> int:
    """Give the wall-clock time in milliseconds since 1970: for people, never to judge a lease."""
    return time.time_ns() // 1_000_000


def boot_ms() -> int:
    """Give milliseconds since the boot, suspended time included; this clock never jumps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


def new_worker() -> Heard:
    """Give the identity of a worker that starts now in this process; its id is never used again."""
    pid = os.getpid()
    return Heard(uuid.uuid4().hex, pid, started(pid) or 0, namespace(), boot_id(), boot_ms())


def host() -> str:
    """Give the name of this machine."""
    return socket.gethostname()


def is_dead(other: Heard, *, boot: int) -> bool:
    """Tell whether the process behind a worker row is surely gone; *boot* is boot_ms() now.

    Another boot: gone. Same boot and same pid namespace: the process table says it. Another namespace (a container):
    its pids mean nothing here, so only a heartbeat older than the lease counts.
    """
    if other.boot_id != boot_id():
        return True
    if other.pid_namespace == namespace():
        return started(other.pid) != other.pid_started
    return boot - other.heartbeat_boot_ms > LEASE_MS


def started(pid: int) -> int | None:
    """Give the start of a process in clock ticks since the boot; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return _started_without_proc(pid)
    # The name in parentheses may hold spaces and parentheses itself. A zombie runs nothing any more.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _started_without_proc(pid: int) -> int | None:
    if Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return 0
    return 0


@cache
def boot_id() -> str:
    """Give the id of this boot; an empty text where the system tells none."""
    return _read("/proc/sys/kernel/random/boot_id")


@cache
def namespace() -> str:
    """Give the pid namespace of this process; an empty text where the system tells none."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except OSError:
        return ""

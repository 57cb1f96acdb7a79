"""The lock that all short writes of a process pass."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest
from beside import spin

from mldb.fairlock import FairLock

PATIENCE_S = 10


class Line:
    """Threads that wait for a lock one behind the other."""

    def __init__(self, lock):
        self.lock = lock
        self.served = []
        self.threads = []

    def add(self, name):
        def wait():
            with self.lock:
                self.served.append(name)

        before = len(self.lock._waiting)
        self.threads.append(threading.Thread(target=wait, daemon=True))
        self.threads[-1].start()
        spin(lambda: len(self.lock._waiting) > before)

    def join(self):
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_waiters_are_served_in_the_order_in_which_they_came():
    lock = FairLock()
    line = Line(lock)

    with lock:
        for name in range(20):
            line.add(name)
    line.join()

    assert line.served == list(range(20))


def test_one_that_comes_back_stands_behind_those_that_wait():
    lock = FairLock()
    line = Line(lock)

    with lock:
        line.add("waited")
    with lock:
        line.served.append("came back")
    line.join()

    assert line.served == ["waited", "came back"]


def test_at_most_one_holds_it():
    lock, inside, most = FairLock(), [0], [0]

    def work():
        for _ in range(500):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                os.sched_yield()
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert (most, inside) == ([1], [0])


def test_an_error_inside_frees_it():
    lock = FairLock()

    with pytest.raises(KeyError), lock:
        raise KeyError("inside")

    with lock:
        pass


def test_no_thread_waits_long_behind_others_that_come_again_and_again():
    lock, until, longest = FairLock(), time.monotonic() + 0.5, []

    def work():
        worst = 0.0
        while time.monotonic() < until:
            asked = time.monotonic()
            with lock:
                worst = max(worst, time.monotonic() - asked)
        longest.append(worst)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert len(longest) == 16
    assert max(longest) < 0.5


def test_ctrl_c_while_waiting_leaves_the_line():
    lock = FairLock()
    line = Line(lock)
    held, go = threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            go.wait(PATIENCE_S)

    def press():
        spin(lambda: len(lock._waiting) == 1)
        line.add("behind")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    holder, presser = threading.Thread(target=hold), threading.Thread(target=press)
    holder.start()
    assert held.wait(PATIENCE_S)
    presser.start()

    with pytest.raises(KeyboardInterrupt), lock:
        pytest.fail("this thread was interrupted before its turn")
    presser.join()
    go.set()
    holder.join()
    line.join()

    assert line.served == ["behind"]
    with lock:
        pass


@pytest.mark.fault
def test_ctrl_c_at_any_moment_never_locks_others_out():
    lock, stop, count, caught = FairLock(), threading.Event(), [0], 0

    def work():
        while not stop.is_set():
            with lock:
                count[0] += 1

    def press(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, press)
    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    for thread in threads:
        thread.start()
    end = time.monotonic() + 5
    try:
        while time.monotonic() < end:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002)
                for _ in range(50):
                    with lock:
                        count[0] += 1
            except KeyboardInterrupt:
                caught += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.setswitchinterval(switch)
    now = count[0]
    spin(lambda: count[0] > now + 10)
    stop.set()

    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert caught > 100

"""Several processes at work on one file."""

from __future__ import annotations

import logging
import threading

import pytest
from beside import Gate, Program, over, spin, until

import mldb.connection
import mldb.dispatcher

WORK = """
import os, sys, mldb
path, threads = sys.argv[1], int(sys.argv[2])
def train(task):
    task.write("runs", [{"job": task.id, "attempt": task.attempt, "pid": os.getpid()}])
    return {"pid": os.getpid()}
handlers = {"train": train, "quick": lambda task: {"pid": os.getpid()}}
queue = mldb.open(path, workers=threads, handlers=handlers, synchronous="OFF")
print("ready", flush=True)
sys.stdin.readline()
queue.shutdown()
"""

HOLD_LOCK = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(20000)
print("ready", flush=True)
for line in sys.stdin:
    connection.execute("BEGIN IMMEDIATE")
    print("held", flush=True)
    sys.stdin.readline()
    connection.execute("COMMIT")
    print("free", flush=True)
"""

ONE_KIND = """
import sys, mldb
q = mldb.open(sys.argv[1], workers=1, handlers={sys.argv[2]: lambda task: {'by': sys.argv[2]}})
print('ready', flush=True)
sys.stdin.readline()
"""

OPEN_AT_ONCE = """
import sys, mldb
sys.stdin.readline()
q = mldb.open(sys.argv[1], workers=1)
print(q.wait(q.submit('noop', 'x'), 30).status, flush=True)
q.shutdown()
"""

ONE_KEY = """
import sys, mldb
q = mldb.open(sys.argv[1], workers=0)
print('ready', flush=True)
sys.stdin.readline()
print(*[q.submit('k', 'x', unique='one') for _ in range(50)], flush=True)
"""


def submit_many(q, kind, count):
    q.connection.execute("BEGIN IMMEDIATE")
    jobs = [q.submit(kind, str(number), connection=q.connection) for number in range(count)]
    q.connection.execute("COMMIT")
    return jobs


def drain(queue, path, *, kind, processes, threads, count):
    q = queue(synchronous="OFF")
    programs = [Program(WORK, path, threads) for _ in range(processes)]
    try:
        assert [program.line() for program in programs] == ["ready"] * processes
        jobs = submit_many(q, kind, count)
        for program in programs:
            program.say()
        assert [program.ends(300) for program in programs] == [0] * processes
        assert [program.errors() for program in programs] == [""] * processes
    finally:
        for program in programs:
            program.__exit__()
    found = q.list()
    assert [job.id for job in found] == jobs
    assert {(job.status, job.attempt) for job in found} == {("completed", 1)}
    return q, jobs


def test_two_processes_drain_2000_jobs_and_none_runs_twice(queue, path):
    q, jobs = drain(queue, path, kind="train", processes=2, threads=2, count=2000)

    rows = q.connection.execute("SELECT job, pid FROM runs ORDER BY job").fetchall()
    assert [job for job, _ in rows] == jobs
    assert len({pid for _, pid in rows}) == 2


def test_two_processes_share_a_backlog_of_tiny_jobs(queue, path):
    q, _ = drain(queue, path, kind="quick", processes=2, threads=1, count=20_000)

    shares = [len([job for job in q.list() if job.owner == owner]) for owner in {job.owner for job in q.list()}]
    assert len(shares) == 2


@pytest.mark.fault
def test_four_processes_of_four_threads_drain_20000_jobs_and_none_runs_twice(queue, path):
    q, jobs = drain(queue, path, kind="train", processes=4, threads=4, count=20_000)

    assert [job for (job,) in q.connection.execute("SELECT job FROM runs ORDER BY job")] == jobs


def test_each_process_runs_only_the_kinds_that_it_knows(queue, path):
    q = queue()
    with Program(ONE_KIND, path, "a") as one, Program(ONE_KIND, path, "b") as two:
        assert [one.line(), two.line()] == ["ready", "ready"]

        jobs = [q.submit("ab"[number % 2], "x") for number in range(40)]

        assert [over(q, job).metrics["by"] for job in jobs] == ["a", "b"] * 20


def test_twenty_processes_open_a_new_file_at_once(queue, path):
    programs = [Program(OPEN_AT_ONCE, path) for _ in range(20)]
    try:
        for program in programs:
            program.say()
        lines = [program.line(60) for program in programs]
        codes = [program.ends(30) for program in programs]
        errors = [program.errors() for program in programs]
    finally:
        for program in programs:
            program.__exit__()

    assert errors == [""] * 20
    assert (lines, codes) == (["completed"] * 20, [0] * 20)
    assert len(queue().list()) == 20


def test_a_worker_waits_while_another_process_holds_the_lock(queue, path):
    gate = Gate({"done": True})
    q = queue(workers=1, handlers={"hold": gate})
    job = q.submit("hold", "x")
    gate.has_begun()
    with Program(HOLD_LOCK, path) as holder:
        assert holder.line() == "ready"
        holder.say()
        assert holder.line() == "held"

        gate.go.set()
        spin(lambda: q._file.lock._turn is not None)
        status = q.get(job).status
        holder.say()
        assert holder.line() == "free"

        after = over(q, job)
    assert status == "running"
    assert (after.status, after.metrics, gate.runs) == ("completed", {"done": True}, 1)


class Complaints(logging.Handler):
    """Says when the queue has logged an error."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.came = threading.Event()

    def emit(self, record):
        self.came.set()


@pytest.fixture
def complaints():
    handler = Complaints()
    logging.getLogger("mldb").addHandler(handler)
    yield handler
    logging.getLogger("mldb").removeHandler(handler)


@pytest.mark.parametrize("ending", ["a result", "an error", "a retry", "a cancel"])
def test_an_ending_that_meets_a_lock_for_longer_than_the_busy_timeout_is_not_lost(
    queue, path, monkeypatch, complaints, ending
):
    monkeypatch.setattr(mldb.connection, "BUSY_TIMEOUT_MS", 20)
    monkeypatch.setattr(mldb.dispatcher, "_SILENT_S", -1.0)
    gate = Gate({"done": True})

    def work(task):
        result = gate(task)
        if ending in ("an error", "a retry"):
            raise ValueError("broke")
        return result

    q = queue(workers=1, handlers={"hold": work, "next": lambda task: {}})
    job = q.submit("hold", "x", max_attempts=2 if ending == "a retry" else 1, backoff=1000)
    gate.has_begun()
    if ending == "a cancel":
        q.cancel(job)
    with Program(HOLD_LOCK, path) as holder:
        assert holder.line() == "ready"
        holder.say()
        assert holder.line() == "held"

        gate.go.set()
        assert complaints.came.wait(20)
        holder.say()
        assert holder.line() == "free"

        until(path, lambda: q.get(job).status != "running" and (q.get(job).stopped_at_ms or ending == "a retry"))

    after = q.get(job)
    expected = {"a result": "completed", "an error": "failed", "a retry": "queued", "a cancel": "cancelled"}
    assert (after.status, gate.runs, after.attempt) == (expected[ending], 1, 1)
    assert (after.metrics_json is not None) == (ending == "a result")
    assert over(q, q.submit("next", "x")).status == "completed"


def test_a_submit_that_meets_a_lock_for_longer_than_the_busy_timeout_says_what_to_do(queue, path, monkeypatch):
    monkeypatch.setattr(mldb.connection, "BUSY_TIMEOUT_MS", 20)
    q = queue()
    with Program(HOLD_LOCK, path) as holder:
        assert holder.line() == "ready"
        holder.say()
        assert holder.line() == "held"

        with pytest.raises(mldb.Busy, match="let it COMMIT"):
            q.submit("noop", "x")
        with pytest.raises(mldb.Busy, match="let it COMMIT"):
            q.submit("noop", "x", priority=1)
        holder.say()
        assert holder.line() == "free"

    assert q.list() == []
    assert q.submit("noop", "x", priority=1) > 0


def test_one_unique_key_in_many_processes_gives_one_job(queue, path):
    queue()
    programs = [Program(ONE_KEY, path) for _ in range(4)]
    try:
        assert [program.line() for program in programs] == ["ready"] * 4
        for program in programs:
            program.say()
        ids = {number for program in programs for number in program.line().split()}
    finally:
        for program in programs:
            program.__exit__()

    assert ids == {"1"}

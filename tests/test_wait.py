"""ml_wait and Queue.wait."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import apsw
import pytest

import mldb
from mldb.job import TERMINAL
from mldb.watch import Watch

FINISH = """
import sys

import apsw

connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(5000)
print("ready", flush=True)
sys.stdin.readline()
connection.execute(
    "UPDATE ml_job SET status = 'completed', progress = 100, finished_at_ms = 9, stopped_at_ms = 9"
    " WHERE status = 'running'"
)
sys.stdin.readline()
"""


@pytest.fixture
def finisher(path):
    """Start another process that completes the running job when it is told to, and lives on."""
    started = []

    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", FINISH, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"

        def finish():
            process.stdin.write("now\n")
            process.stdin.flush()

        return finish

    yield start
    for process in started:
        process.communicate("end\n")


@pytest.mark.parametrize("status", sorted(TERMINAL))
@pytest.mark.parametrize("body", [False, True])
def test_a_job_that_is_over_is_told_at_once(connection, queue, job_in, status, body):
    job = job_in(connection, status, body=body and status != "completed")

    assert connection.execute("SELECT ml_wait(?)", (job,)).get == status
    assert connection.execute("SELECT ml_wait(?, 3600)", (job,)).get == status
    assert queue().wait(job).status == status


@pytest.mark.parametrize("status", ["queued", "running"])
@pytest.mark.parametrize("seconds", [0, 0.0, 0.05])
def test_at_the_deadline_the_status_is_told_as_it_is(queue, job_in, status, seconds):
    q = queue()
    job = job_in(q.connection, status)

    assert q.connection.execute("SELECT ml_wait(?, ?)", (job, seconds)).get == status
    assert q.wait(job, seconds).status == status


def test_the_deadline_is_kept(connection, job_in):
    job = job_in(connection, "queued")
    began = time.monotonic()

    connection.execute("SELECT ml_wait(?, 0.3)", (job,)).fetchall()

    assert 0.3 <= time.monotonic() - began < 3


@pytest.mark.parametrize("job", [0, -1, 99])
@pytest.mark.parametrize("seconds", ["", ", 0", ", 5"])
def test_an_unknown_job_is_an_error(connection, job, seconds):
    with pytest.raises(mldb.UsageError, match=f"there is no job {job}; SELECT id FROM ML_JOBS lists"):
        connection.execute(f"SELECT ml_wait({job}{seconds})")


@pytest.mark.parametrize("seconds", [-1, -0.5, "1", "", b"1", 1e300, float("inf")])
def test_a_time_that_cannot_be_right_is_refused(connection, queue, job_in, seconds):
    job = job_in(connection, "queued")

    with pytest.raises(mldb.UsageError, match="ml_wait: seconds must be a number from 0, not"):
        connection.execute("SELECT ml_wait(?, ?)", (job, seconds))
    with pytest.raises(mldb.UsageError, match="wait: seconds must be a number from 0, not"):
        queue().wait(job, seconds)


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT s"])
@pytest.mark.parametrize("status", ["queued", "completed"])
def test_inside_a_transaction_it_is_refused(connection, job_in, begin, status):
    job = job_in(connection, status)
    connection.execute(begin)

    with pytest.raises(mldb.UsageError, match=r"ml_wait cannot be used inside a transaction.*; COMMIT first"):
        connection.execute("SELECT ml_wait(?)", (job,))

    assert connection.in_transaction


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t SELECT ml_wait(1, 1)",
        "UPDATE t SET status = ml_wait(1, 1)",
        "DELETE FROM t WHERE ml_wait(1, 1) = 'completed'",
        "INSERT INTO t VALUES ('x') RETURNING ml_wait(1, 1)",
        "CREATE TABLE made AS SELECT ml_wait(1, 1)",
        "UPDATE ML_JOBS SET status = 'cancelled' WHERE ml_wait(id, 1) = 'queued'",
    ],
)
def test_under_a_statement_that_writes_it_is_refused(connection, job_in, statement):
    job_in(connection, "queued")
    connection.execute("CREATE TABLE t (status TEXT)")
    connection.execute("INSERT INTO t VALUES ('before')")

    with pytest.raises(mldb.UsageError, match="ml_wait cannot be used inside a transaction"):
        connection.execute(statement).fetchall()

    assert connection.execute("SELECT status FROM t").fetchall() == [("before",)]


def test_several_jobs_can_be_waited_for_in_one_select(connection, job_in):
    for _ in range(3):
        job_in(connection, "completed")

    assert connection.execute("SELECT id, ml_wait(id) FROM ML_JOBS").fetchall() == [
        (1, "completed"),
        (2, "completed"),
        (3, "completed"),
    ]


@pytest.fixture
def waiting(monkeypatch):
    """An event that is set once somebody really waits for commits."""
    begun, original = threading.Event(), Watch.wait

    def wait(watch, *arguments, **options):
        begun.set()
        return original(watch, *arguments, **options)

    monkeypatch.setattr(Watch, "wait", wait)
    return begun


def test_interrupt_from_another_thread_ends_it(connection, job_in, waiting):
    job = job_in(connection, "queued")

    def interrupt():
        waiting.wait()
        connection.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    began = time.monotonic()

    with pytest.raises(apsw.InterruptError):
        connection.execute("SELECT ml_wait(?, 20)", (job,)).fetchall()

    thread.join()
    assert time.monotonic() - began < 5
    assert connection.execute("SELECT ml_wait(?, 0)", (job,)).get == "queued"


def test_it_wakes_when_another_process_finishes_the_job(connection, job_in, finisher):
    job = job_in(connection, "running")
    finish = finisher()
    connection.create_scalar_function("finish", finish)

    began = time.monotonic()
    rows = connection.execute("SELECT finish() UNION ALL SELECT ml_wait(?, 60)", (job,)).fetchall()

    assert rows == [(None,), ("completed",)]
    assert time.monotonic() - began < 5


def test_python_wakes_when_another_process_finishes_the_job(queue, job_in, finisher):
    q = queue()
    job = job_in(q.connection, "running")
    finish = finisher()
    threading.Thread(target=finish).start()

    began = time.monotonic()
    found = q.wait(job, 60)

    assert (found.status, found.progress) == ("completed", 100)
    assert time.monotonic() - began < 5


def test_it_wakes_when_a_thread_of_this_process_cancels_the_job(queue):
    q = queue()
    job = q.submit("noop", "x")
    thread = threading.Thread(target=q.cancel, args=(job,))
    thread.start()

    assert q.wait(job, 60).status == "cancelled"
    thread.join()


def test_many_threads_may_wait_at_once(queue):
    q = queue()
    jobs = [q.submit("noop", str(number)) for number in range(8)]
    found, ready = [], threading.Barrier(9)

    def wait(job):
        ready.wait()
        found.append(q.wait(job, 60).id)

    threads = [threading.Thread(target=wait, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    ready.wait()
    for job in jobs:
        q.cancel(job)
    for thread in threads:
        thread.join()

    assert sorted(found) == jobs


def test_a_job_that_is_pruned_while_it_is_waited_for_is_an_error(queue, connect, path):
    q = queue()
    job = q.submit("noop", "x")
    other = connect()

    # As another process would: gone from one commit to the next, so that no status is ever seen.
    def remove():
        other.execute(
            "BEGIN; UPDATE ml_job SET status = 'cancelled', finished_at_ms = 1, stopped_at_ms = 1;"
            "DELETE FROM ml_job; COMMIT"
        ).fetchall()

    thread = threading.Thread(target=remove)
    thread.start()

    with pytest.raises(mldb.UsageError, match=f"there is no job {job}|job {job} was removed"):
        q.wait(job, 60)
    thread.join()


def test_waiting_leaves_no_descriptor_open(queue):
    q = queue()
    job = q.submit("noop", "x")
    q.wait(job, 0.01)
    before = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(5):
        q.wait(job, 0.01)

    assert len(list(Path("/proc/self/fd").iterdir())) == before

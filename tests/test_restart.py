"""What a start finds after a crash: whose jobs are put back, whose are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from beside import Gate, Program, over, spin, stopped, until

from mldb import identity

HOLD = """
import os, sys, threading, mldb
def hold(task):
    task.set_progress(40, "half way")
    task.log("began")
    os.write(1, b"began\\n")
    threading.Event().wait()
queue = mldb.open(sys.argv[1], workers=2, handlers={"hold": hold, "noop": lambda task: None})
sys.stdin.read()
"""


@pytest.fixture
def worker_row():
    """Add a row of a worker 'w', as this living process unless told otherwise."""

    def add(connection, **changed):
        row = {
            "id": "w",
            "pid": os.getpid(),
            "pid_started": identity.started(os.getpid()),
            "pid_namespace": identity.namespace(),
            "boot_id": identity.boot_id(),
            "host": "here",
            "threads": 1,
            "started_at_ms": 1,
            "heartbeat_at_ms": 1,
            "heartbeat_boot_ms": 1,
        } | changed
        connection.execute(
            f"INSERT INTO ml_worker ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values())
        )
        connection.execute("INSERT INTO ml_worker_kind (kind, worker_id) VALUES ('orphan', 'w')")

    return add


def killed(path, jobs):
    """Start a program that holds this many jobs and kill it."""
    with Program(HOLD, path) as program:
        for _ in range(jobs):
            assert program.line().startswith("began")
        program.kill()


def test_running_jobs_of_a_killed_process_are_queued_again_by_the_next_start(queue, path):
    first = queue()
    running = [first.submit("hold", "x") for _ in range(2)]
    waiting = first.submit("hold", "x")
    killed(path, 2)
    before = [first.get(job).status for job in running]

    q = queue(workers=1, handlers={"other": lambda task: {}})

    assert before == ["running", "running"]
    for job in [q.get(one) for one in running]:
        assert (job.status, job.progress, job.started_at_ms, job.owner) == ("queued", 0, None, None)
        assert (job.error_message, job.metrics_json, job.finished_at_ms) == (None, None, None)
    assert q.get(waiting).attempt == 0
    assert q.connection.execute("SELECT count(*) FROM ml_worker").get == 1


def test_jobs_of_a_killed_process_run_again_in_their_order_and_count_the_attempt(queue, path):
    first = queue()
    jobs = [first.submit("hold", "x") for _ in range(4)]
    killed(path, 2)
    ran = []

    q = queue(workers=1, handlers={"hold": lambda task: ran.append((task.id, task.attempt))})
    q.shutdown()

    assert ran == [(jobs[0], 2), (jobs[1], 2), (jobs[2], 1), (jobs[3], 1)]
    assert {job.status for job in q.list()} == {"completed"}


def test_a_crash_costs_a_job_no_retry(queue, path):
    first = queue()
    job = first.submit("hold", "x", max_attempts=2, backoff=0)
    killed(path, 1)

    def fail(task):
        raise ValueError(f"attempt {task.attempt}")

    after = over(queue(workers=1, handlers={"hold": fail}), job)

    assert (after.status, after.error_message, after.attempt) == ("failed", "attempt 3", 3)


def test_a_worker_that_is_open_takes_over_from_one_that_is_killed(queue, path):
    q = queue(workers=0)
    job = q.submit("hold", "x")
    with Program(HOLD, path) as program:
        program.line()
        heir = queue(workers=1, handlers={"hold": lambda task: {"attempt": task.attempt}})

        program.kill()

        assert over(heir, job, seconds=10).metrics == {"attempt": 2}


def test_the_body_of_a_cancelled_job_is_over_when_its_process_is_dead(queue, path):
    q = queue()
    job = q.submit("hold", "x")
    with Program(HOLD, path) as program:
        program.line()
        q.cancel(job)
        program.kill()
    before = q.get(job)

    queue(workers=1, handlers={"other": lambda task: {}})
    after = q.get(job)

    assert (before.status, before.stopped_at_ms) == ("cancelled", None)
    assert (after.status, after.finished_at_ms) == ("cancelled", before.finished_at_ms)
    assert after.stopped_at_ms >= before.finished_at_ms


def test_a_killed_process_that_nobody_has_waited_for_counts_as_dead(queue, path):
    q = queue()
    job = q.submit("hold", "x")
    with Program(HOLD, path) as program:
        program.line()
        os.kill(program.pid, signal.SIGKILL)
        os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)

        after = queue(workers=1, handlers={"other": lambda task: {}}).get(job)

    assert after.status == "queued"


def test_a_job_of_a_living_process_is_left_alone_by_whoever_opens_the_file(queue, path):
    q = queue()
    job = q.submit("hold", "x")
    with Program(HOLD, path) as program:
        program.line()
        until(path, lambda: q.get(job).progress == 40)
        before = q.get(job)

        other = queue(workers=1, handlers={"hold": lambda task: {}, "noop": lambda task: {}})
        over(other, other.submit("noop", "x"))

        assert q.get(job) == before


def test_a_process_that_is_stopped_by_a_signal_still_lives(queue, path):
    q = queue()
    job = q.submit("hold", "x")
    with Program(HOLD, path) as program:
        program.line()
        # Until it is quiet: a process that is stopped while it writes keeps everybody else from writing.
        until(path, lambda: q.get(job).progress == 40)
        program.send(signal.SIGSTOP)

        status = queue(workers=1, handlers={"other": lambda task: {}}).get(job).status

        program.send(signal.SIGCONT)
    assert status == "running"


def test_jobs_of_two_queues_in_one_process_are_left_alone_by_each_other(queue):
    gate = Gate()
    one = queue(workers=1, handlers={"hold": gate})
    job = one.submit("hold", "x")
    gate.has_begun()

    queue(workers=1, handlers={"hold": lambda task: {}})

    assert one.get(job).status == "running"
    gate.go.set()
    assert over(one, job).attempt == 1


IDENTITIES = {
    "a living process": ({}, "running"),
    "a pid that is used again": ({"pid_started": 1}, "queued"),
    "a pid that is not used": ({"pid": 2**22 + 1}, "queued"),
    "another boot, with a pid that lives here": ({"boot_id": "another"}, "queued"),
    "a container heard of just now": ({"pid_namespace": "pid:[1]", "pid": 1, "fresh": True}, "running"),
    "a container with a pid that means nothing here": (
        {"pid_namespace": "pid:[1]", "pid": 2**22 + 1, "fresh": True},
        "running",
    ),
    "a container not heard of for longer than the lease": ({"pid_namespace": "pid:[1]"}, "queued"),
    "a container of another boot heard of just now": (
        {"pid_namespace": "pid:[1]", "boot_id": "another", "fresh": True},
        "queued",
    ),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_whether_an_owner_lives_is_judged_by(queue, job_in, worker_row, name):
    changed, expected = dict(IDENTITIES[name][0]), IDENTITIES[name][1]
    first = queue()
    job = job_in(first.connection, "running", kind="orphan")
    age = 1000 if changed.pop("fresh", False) else identity.LEASE_MS + 1000
    worker_row(first.connection, heartbeat_boot_ms=identity.boot_ms() - age, **changed)

    q = queue(workers=1, handlers={"other": lambda task: {}})

    assert q.get(job).status == expected
    known = q.connection.execute("SELECT count(*) FROM ml_worker WHERE id = 'w'").get
    assert known == (1 if expected == "running" else 0)


def test_a_job_whose_owner_has_no_row_is_queued_again(queue, job_in):
    first = queue()
    job = job_in(first.connection, "running", kind="orphan")

    assert queue(workers=1, handlers={"other": lambda task: {}}).get(job).status == "queued"


def test_a_body_whose_owner_has_no_row_is_over(queue, job_in):
    first = queue()
    jobs = [job_in(first.connection, status, kind="orphan", body=True) for status in ("cancelled", "failed")]

    q = queue(workers=1, handlers={"other": lambda task: {}})

    assert [q.get(job).stopped_at_ms is not None for job in jobs] == [True, True]
    assert [q.get(job).status for job in jobs] == ["cancelled", "failed"]


def test_many_orphans_are_all_queued_again_once(queue, job_in, path):
    first = queue()
    first.connection.execute("BEGIN IMMEDIATE")
    jobs = [job_in(first.connection, "running", kind="orphan", max_attempts=1) for _ in range(1000)]
    first.connection.execute("COMMIT")

    for _ in range(3):
        queue(workers=1, handlers={"other": lambda task: {}})

    rows = first.connection.execute("SELECT status, attempt, crashes, count(*) FROM ml_job GROUP BY 1, 2, 3").fetchall()
    assert rows == [("queued", 1, 1, len(jobs))]


def test_what_a_process_had_logged_before_it_died_is_still_there(queue, path):
    q = queue()
    job = q.submit("hold", "x")
    with Program(HOLD, path) as program:
        program.line()
        until(path, lambda: q.connection.execute("SELECT count(*) FROM ml_job_log").get == 1)
        program.kill()

    queue(workers=1, handlers={"other": lambda task: {}})

    assert q.connection.execute("SELECT job_id, attempt, line FROM ml_job_log").fetchall() == [(job, 1, "began")]


def test_a_file_that_cannot_be_read_is_an_error_never_an_empty_queue(queue, path):
    first = queue()
    for _ in range(200):
        first.submit("noop", "x" * 900)
    first.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    first.shutdown()
    with Path(path).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 40960)

    with pytest.raises(Exception, match=r".+") as raised:
        queue(workers=1)

    assert type(raised.value).__name__ != "AssertionError"


def test_a_worker_row_tells_who_runs_what(queue):
    q = queue(workers=3, handlers={"train": lambda task: {}})

    rows = q.connection.execute("SELECT pid, threads, kinds, running FROM ML_WORKERS").fetchall()

    pid, threads, kinds, running = rows[0]
    assert (len(rows), pid, threads, running) == (1, os.getpid(), 3, 0)
    assert {"train", "noop"} <= set(kinds.split(", "))


def test_the_start_time_of_a_process_is_known_whatever_its_name(tmp_path):
    odd = tmp_path / "odd ) (name"
    odd.symlink_to("/bin/cat")
    child = subprocess.Popen([str(odd)], stdin=subprocess.PIPE)
    try:
        assert identity.started(child.pid) >= identity.started(os.getpid())
    finally:
        child.communicate()
    assert identity.started(child.pid) is None


def test_a_zombie_body_of_this_process_keeps_its_row_until_it_ends(queue):
    gate = Gate()
    q = queue(workers=1, handlers={"hold": gate})
    job = q.submit("hold", "x")
    gate.has_begun()
    q.cancel(job)

    queue(workers=1, handlers={"other": lambda task: {}})

    assert q.get(job).stopped_at_ms is None
    assert q.prune(0) == 0
    gate.go.set()
    assert stopped(q, job).is_terminal
    spin(gate.ended.is_set)


def test_a_beat_renews_both_clocks_of_a_worker(queue):
    q = queue(workers=1)
    dispatcher = q._pool._dispatcher
    q.connection.execute("UPDATE ml_worker SET heartbeat_at_ms = 1, heartbeat_boot_ms = 1").fetchall()

    dispatcher._next_beat = 0.0
    dispatcher.wake()
    until(q.path, lambda: q.connection.execute("SELECT heartbeat_at_ms FROM ml_worker").get > 1)

    assert q.connection.execute("SELECT heartbeat_boot_ms FROM ml_worker").get > identity.boot_ms() - 60_000

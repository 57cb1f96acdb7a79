"""How a pool stops: what it still runs, what it puts back, and what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import threading
import time

import pytest
from beside import Gate, descriptors, over, spin, stopped, until

import mldb


def in_thread(function, *arguments, **options):
    thread = threading.Thread(target=function, args=arguments, kwargs=options)
    thread.start()
    return thread


@pytest.fixture
def worker_threads():
    """Give the threads of pools that came since the test began."""

    def now():
        return {one for one in threading.enumerate() if one.name.startswith("mldb-") and one.name != "mldb-exit"}

    before = now()
    return lambda: now() - before


# Draining.


def test_a_drain_runs_all_that_was_queued_at_the_call(queue):
    ran = []
    q = queue(workers=2, handlers={"a": lambda task: ran.append(task.id), "b": lambda task: ran.append(task.id)})
    jobs = [q.submit("ab"[number % 2], "x") for number in range(200)]

    q.shutdown()

    assert sorted(ran) == jobs
    assert {job.status for job in q.list()} == {"completed"}


def test_a_drain_leaves_scheduled_jobs_unknown_kinds_and_later_submits(queue):
    later, box = [], []

    def breed(task):
        later.append(box[0].submit("breed", "child"))

    box.append(queue(workers=1, handlers={"breed": breed, "hold": (gate := Gate())}))
    q = box[0]
    held = q.submit("hold", "x")
    gate.has_begun()
    known = q.submit("breed", "x")
    scheduled, unknown = q.submit("breed", "x", delay=1000), q.submit("nobody", "x")
    stopper = in_thread(q.shutdown)
    spin(lambda: q._pool._dispatcher.stop is not None)
    after = q.submit("breed", "after the call")

    gate.go.set()
    stopper.join(20)

    statuses = {job.id: job.status for job in q.list()}
    assert [statuses[job] for job in (held, known)] == ["completed"] * 2
    assert [statuses[job] for job in (scheduled, unknown, after, *later)] == ["queued"] * 4


def test_a_drain_does_not_wait_for_a_retry_that_is_due_later(queue):
    def fail(task):
        raise ValueError("again")

    q = queue(workers=1, handlers={"fail": fail})
    job = q.submit("fail", "x", max_attempts=3, backoff=1000)

    q.shutdown()

    assert (q.get(job).status, q.get(job).attempt) == ("queued", 1)


def test_a_drain_does_not_wait_for_the_body_of_a_cancelled_job(queue):
    gate = Gate()
    q = queue(workers=1, handlers={"hold": gate})
    job = q.submit("hold", "x")
    gate.has_begun()
    q.cancel(job)

    q.shutdown()

    assert (q.get(job).status, q.get(job).stopped_at_ms) == ("cancelled", None)
    gate.go.set()


def test_shutting_down_again_changes_nothing(queue):
    q = queue(workers=1, handlers={"a": lambda task: {}})
    job = q.submit("a", "x")

    q.shutdown()
    before = q.list()
    for options in ({}, {"drain": False}, {"timeout": 0}, {"timeout": 5}):
        q.shutdown(**options)

    assert q.list() == before
    assert q.get(job).status == "completed"


def test_a_queue_without_workers_shuts_down_and_leaves_its_jobs(queue):
    q = queue(workers=0)
    job = q.submit("noop", "x")

    q.shutdown()

    assert q.get(job).status == "queued"


def test_shutdown_in_a_handler_returns_at_once_and_the_drain_goes_on_behind_it(queue, worker_threads):
    box, returned = [], threading.Event()

    def stop(task):
        box[0].shutdown()
        returned.set()
        return {"stopped": True}

    box.append(queue(workers=1, handlers={"stop": stop, "a": lambda task: {}}))
    q = box[0]
    q.connection.execute("BEGIN IMMEDIATE")
    first, second = (q.submit(kind, "x", connection=q.connection) for kind in ("stop", "a"))
    q.connection.execute("COMMIT")

    assert returned.wait(20)
    assert over(q, first).metrics == {"stopped": True}
    assert over(q, second).status == "completed"
    spin(lambda: not worker_threads())
    assert q.get(q.submit("a", "later")).status == "queued"


def test_two_threads_may_shut_down_at_once(queue):
    q = queue(workers=2, handlers={"a": lambda task: {}})
    for _ in range(100):
        q.submit("a", "x")
    failed = []

    def stop():
        try:
            q.shutdown()
        except BaseException as error:
            failed.append(error)

    threads = [in_thread(stop) for _ in range(8)]
    for thread in threads:
        thread.join(30)

    assert failed == []
    assert {job.status for job in q.list()} == {"completed"}


# Stopping sooner.


@pytest.mark.parametrize("options", [{"drain": False}, {"timeout": 0.05}, {"drain": False, "timeout": 0.05}])
def test_what_still_runs_is_put_back_without_loss_of_an_attempt(queue, options):
    gate = Gate({"late": True})
    q = queue(workers=1, handlers={"hold": gate})
    running, waiting = q.submit("hold", "x"), q.submit("hold", "x")
    gate.has_begun()
    gate.task.set_progress(50, "half way")
    until(q.path, lambda: q.get(running).progress == 50)

    q.shutdown(**options)
    gate.go.set()
    gate.thread.join(20)

    job = q.get(running)
    assert (job.status, job.progress, job.attempt, job.started_at_ms, job.owner) == ("queued", 0, 0, None, None)
    assert (job.metrics_json, job.error_message) == (None, None)
    assert q.get(waiting).status == "queued"
    assert gate.task.is_cancelled()
    assert gate.runs == 1


def test_with_a_timeout_a_body_may_end_in_time(queue):
    gate = Gate({"done": True})
    q = queue(workers=1, handlers={"hold": gate})
    job, waiting = q.submit("hold", "x"), q.submit("hold", "x")
    gate.has_begun()
    stopper = in_thread(q.shutdown, drain=False, timeout=20)
    spin(lambda: q._pool._dispatcher.stop is not None)

    gate.go.set()
    stopper.join(15)

    assert not stopper.is_alive()
    assert (q.get(job).status, q.get(job).metrics) == ("completed", {"done": True})
    assert q.get(waiting).status == "queued"


@pytest.mark.parametrize("first", [{}, {"timeout": 1000}, {"drain": False, "timeout": 1000}])
@pytest.mark.parametrize("second", [{"timeout": 0}, {"drain": False}])
def test_a_second_call_may_be_in_more_of_a_hurry_than_the_first(queue, first, second):
    gate = Gate()
    q = queue(workers=1, handlers={"hold": gate})
    job = q.submit("hold", "x")
    gate.has_begun()
    stopper = in_thread(q.shutdown, **first)
    spin(lambda: q._pool._dispatcher.stop is not None)

    hurry = in_thread(q.shutdown, **second)
    hurry.join(3)
    in_time = not hurry.is_alive()
    gate.go.set()
    hurry.join(20)
    stopper.join(20)

    assert in_time
    assert q.get(job).status == "queued"


def test_a_second_call_with_more_patience_takes_no_time_away_from_itself_or_the_first(queue):
    gate = Gate({"done": True})
    q = queue(workers=1, handlers={"hold": gate})
    job = q.submit("hold", "x")
    gate.has_begun()
    first = in_thread(q.shutdown, timeout=20)
    spin(lambda: q._pool._dispatcher.stop is not None)
    second = in_thread(q.shutdown)

    gate.go.set()
    first.join(20)
    second.join(20)

    assert q.get(job).status == "completed"


def test_a_job_that_was_put_back_runs_in_the_next_start(queue):
    gate = Gate()
    q = queue(workers=1, handlers={"hold": gate})
    job = q.submit("hold", "x")
    gate.has_begun()
    q.shutdown(drain=False)
    gate.go.set()

    after = over(queue(workers=1, handlers={"hold": lambda task: {"attempt": task.attempt}}), job)

    assert (after.metrics, after.attempt) == ({"attempt": 1}, 1)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "soon", True])
def test_a_timeout_that_cannot_be_right_is_refused_and_stops_nothing(queue, seconds):
    q = queue(workers=1, handlers={"a": lambda task: {}})

    with pytest.raises(mldb.UsageError, match="seconds"):
        q.shutdown(timeout=seconds)

    assert over(q, q.submit("a", "x")).status == "completed"


# As a context manager.


def test_a_block_that_ends_drains(path):
    with mldb.open(path, workers=1, handlers={"a": lambda task: {}}) as q:
        jobs = [q.submit("a", "x") for _ in range(20)]

    assert {q.get(job).status for job in jobs} == {"completed"}


def test_a_block_that_raises_puts_running_jobs_back_and_hides_nothing(path):
    gate = Gate()

    with pytest.raises(KeyError, match="mine"), mldb.open(path, workers=1, handlers={"hold": gate}) as q:
        jobs = [q.submit("hold", "x") for _ in range(2)]
        gate.has_begun()
        raise KeyError("mine")

    assert [q.get(job).status for job in jobs] == ["queued", "queued"]
    gate.go.set()


# What is left behind.


def test_nothing_of_a_stopped_pool_is_left(path, worker_threads):
    def once():
        with mldb.open(path, workers=3, handlers={"a": lambda task: {}}) as q:
            q.submit("a", "x", priority=1)
            q.connection.execute("SELECT ml_wait(1)").fetchall()
            q.list()
        spin(lambda: not worker_threads())

    once()
    before = len(descriptors())
    for _ in range(10):
        once()

    assert len(descriptors()) <= before
    with mldb.open(path, workers=0) as q:
        assert q.connection.execute("SELECT count(*) FROM ml_worker").get == 0
        assert q.connection.execute("SELECT count(*) FROM ml_worker_kind").get == 0


@contextlib.contextmanager
def taken_descriptors(folder):
    """Take all free low descriptors with files full of one letter, and see that nobody writes to them."""
    place = folder / "taken"
    taken = []
    try:
        for number in range(100):
            taken.append(os.open(f"{place}-{number}", os.O_RDWR | os.O_CREAT))
            os.write(taken[-1], b"x" * 64)
            os.lseek(taken[-1], 0, os.SEEK_SET)
        yield
        assert {os.pread(one, 100, 0) for one in taken} == {b"x" * 64}
    finally:
        for one in taken:
            os.close(one)


def test_a_body_that_ends_after_the_shutdown_writes_to_no_descriptor_that_is_now_anothers(queue, tmp_path):
    gate = Gate()

    def work(task):
        gate(task)
        task.set_progress(50)
        task.log("late")

    q = queue(workers=1, handlers={"hold": work})
    q.submit("hold", "x")
    gate.has_begun()
    q.shutdown(drain=False)

    with taken_descriptors(tmp_path):
        gate.go.set()
        gate.thread.join(20)


def test_a_submit_after_a_shutdown_from_a_handler_writes_to_no_descriptor_that_is_now_anothers(
    queue, worker_threads, tmp_path
):
    box = []
    box.append(queue(workers=1, handlers={"stop": lambda task: box[0].shutdown()}))
    q = box[0]
    over(q, q.submit("stop", "x"))
    spin(lambda: not worker_threads())

    with taken_descriptors(tmp_path):
        for _ in range(3):
            q.cancel(q.submit("stop", "y"))


def test_the_end_of_a_cancelled_body_is_noted_also_after_the_shutdown(queue):
    gate = Gate()
    q = queue(workers=1, handlers={"hold": gate})
    job = q.submit("hold", "x")
    gate.has_begun()
    q.cancel(job)
    q.shutdown(drain=False)
    assert q.get(job).stopped_at_ms is None

    gate.go.set()

    assert stopped(q, job, seconds=5).status == "cancelled"


def test_a_shutdown_with_a_transaction_of_ones_own_open_does_not_wait_for_itself(queue):
    gate = Gate()
    q = queue(workers=1, handlers={"hold": gate})
    job = q.submit("hold", "x")
    gate.has_begun()
    q.connection.execute("BEGIN IMMEDIATE")
    began = time.monotonic()

    try:
        q.shutdown(drain=False)
    except mldb.UsageError:
        q.connection.execute("ROLLBACK")
        q.shutdown(drain=False)

    assert time.monotonic() - began < 10
    gate.go.set()
    assert queue().get(job).status == "queued"


def test_a_block_that_raises_inside_its_own_transaction_does_not_wait_for_itself(path, queue):
    gate = Gate()
    began = time.monotonic()

    with pytest.raises(KeyError, match="mine"), mldb.open(path, workers=1, handlers={"hold": gate}) as q:
        job = q.submit("hold", "x")
        gate.has_begun()
        q.connection.execute("BEGIN IMMEDIATE")
        raise KeyError("mine")

    assert time.monotonic() - began < 10
    gate.go.set()
    assert queue().get(job).status == "queued"


def test_a_job_that_was_put_back_keeps_its_log_beside_that_of_its_next_run(path):
    gate = Gate()

    def first(task):
        task.log("first run")
        task.log_metric("loss", 1.0)
        return gate(task)

    def second(task):
        task.log("second run")
        task.log_metric("loss", 2.0)

    q = mldb.open(path, workers=1, handlers={"a": first})
    job = q.submit("a", "x")
    gate.has_begun()
    q.shutdown(drain=False)
    gate.go.set()
    with mldb.open(path, workers=1, handlers={"a": second}) as q:
        over(q, job)
        lines = q.connection.execute("SELECT line FROM ML_JOB_LOG").fetchall()
        values = q.connection.execute("SELECT value FROM ML_JOB_METRICS").fetchall()

    assert lines == [("first run",), ("second run",)]
    assert values == [(1.0,), (2.0,)]

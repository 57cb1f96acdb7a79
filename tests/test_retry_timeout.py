"""Attempts, the pauses between them, time limits, and jobs for later."""

from __future__ import annotations

import time

import pytest
from beside import Gate, over, spin, stopped, until

from mldb.batch import LONGEST_BACKOFF_S
from mldb.identity import now_ms


def fail(task):
    raise ValueError(f"broke at {task.attempt}")


def make_due(q, job):
    """Let the time come for which a job waits."""
    q.connection.execute("UPDATE ml_job SET run_at_ms = 0 WHERE id = ? AND status = 'queued'", (job,)).fetchall()


def failed_times(q, job, count):
    """Give a job once it has failed this many times; the pauses are cut short."""
    for attempt in range(1, count + 1):
        until(q.path, lambda done=attempt: (found := q.get(job)).attempt == done and found.status != "running")
        if attempt < count:
            make_due(q, job)
    return q.get(job)


# Attempts.


def test_a_job_has_one_attempt_unless_told_otherwise(queue):
    q = queue(workers=1, handlers={"fail": fail})

    job = over(q, q.submit("fail", "x"))

    assert (job.status, job.attempt, job.max_attempts, job.error_message) == ("failed", 1, 1, "broke at 1")


def test_a_job_that_fails_waits_for_its_next_attempt_and_says_so(queue):
    q = queue(workers=1, handlers={"fail": fail})
    job = q.submit("fail", "x", max_attempts=3, backoff=1000)

    waiting = failed_times(q, job, 1)

    assert (waiting.status, waiting.progress, waiting.started_at_ms, waiting.owner) == ("queued", 0, None, None)
    assert waiting.error_message is None
    assert "attempt 1 failed: broke at 1" in waiting.message
    assert "waiting for a retry at 20" in waiting.message


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_the_pause_doubles_and_is_jittered(queue, failures):
    q = queue(workers=1, handlers={"fail": fail})
    jobs = [q.submit("fail", "x", max_attempts=9, backoff=100) for _ in range(8)]

    pauses = []
    for job in jobs:
        waiting = failed_times(q, job, failures)
        pauses.append((waiting.run_at_ms - now_ms()) / 1000)

    due = 100 * 2 ** (failures - 1)
    assert all(0.75 * due - 10 <= pause <= 1.25 * due for pause in pauses), pauses
    assert len({round(pause, 2) for pause in pauses}) > 1


def test_the_pause_is_capped(queue):
    q = queue(workers=1, handlers={"fail": fail})
    job = q.submit("fail", "x", max_attempts=9, backoff=1e9)

    waiting = failed_times(q, job, 3)

    assert (waiting.run_at_ms - now_ms()) / 1000 <= LONGEST_BACKOFF_S * 1.25


def test_without_a_pause_the_next_attempt_comes_at_once(queue):
    q = queue(workers=1, handlers={"fail": fail})

    job = over(q, q.submit("fail", "x", max_attempts=5, backoff=0))

    assert (job.status, job.attempt, job.error_message) == ("failed", 5, "broke at 5")


def test_a_later_attempt_that_succeeds_completes_the_job_without_an_error(queue):
    q = queue(workers=1, handlers={"train": lambda task: fail(task) if task.attempt < 3 else {"at": task.attempt}})

    job = over(q, q.submit("train", "x", max_attempts=5, backoff=0))

    assert (job.status, job.metrics, job.error_message, job.attempt) == ("completed", {"at": 3}, None, 3)


def test_a_job_that_waits_for_a_retry_can_be_cancelled(queue):
    q = queue(workers=1, handlers={"fail": fail, "next": lambda task: {}})
    job = q.submit("fail", "x", max_attempts=3, backoff=1000)
    failed_times(q, job, 1)

    assert q.cancel(job) is True
    over(q, q.submit("next", "x"))

    assert (q.get(job).status, q.get(job).attempt) == ("cancelled", 1)


def test_a_cancelled_job_that_raises_has_no_next_attempt(queue):
    gate = Gate()

    def work(task):
        gate(task)
        raise ValueError("late")

    q = queue(workers=1, handlers={"train": work})
    job = q.submit("train", "x", max_attempts=5, backoff=0)
    gate.has_begun()
    q.cancel(job)

    gate.go.set()
    after = stopped(q, job)

    assert (after.status, after.attempt, after.error_message) == ("cancelled", 1, None)


def test_an_attempt_that_was_put_back_by_a_shutdown_does_not_count(queue):
    gate = Gate()
    q = queue(workers=1, handlers={"train": gate})
    job = q.submit("train", "x", max_attempts=1)
    gate.has_begun()
    q.shutdown(drain=False)
    gate.go.set()

    after = over(queue(workers=1, handlers={"train": fail}), job)

    assert after.error_message == "broke at 1"


def test_ml_retry_makes_a_new_job_like_the_old_one(queue):
    q = queue(workers=1, handlers={"fail": fail})
    old = over(q, q.submit("fail", "x", {"a": 1}, priority=3, tag="t"))

    new = over(q, q.retry(old.id))

    assert (new.retry_of, new.spec_json, new.priority, new.tag, new.attempt) == (old.id, old.spec_json, 3, "t", 1)
    assert q.get(old.id) == old


# Time limits.


def test_a_job_out_of_time_fails_at_once_and_its_thread_is_free_when_the_body_ends(queue):
    gate = Gate({"late": True})
    q = queue(workers=1, handlers={"hold": gate, "next": lambda task: {}})
    job = q.submit("hold", "x", timeout=0.05)
    gate.has_begun()

    failed = over(q, job)
    waiting = q.submit("next", "x")
    told = gate.task.is_cancelled()
    gate.go.set()
    after = stopped(q, job)

    assert (failed.status, failed.stopped_at_ms) == ("failed", None)
    assert failed.error_message.startswith("timed out after 0.05 s")
    assert told
    assert (after.status, after.metrics_json, after.error_message) == ("failed", None, failed.error_message)
    assert after.stopped_at_ms >= after.finished_at_ms == failed.finished_at_ms
    assert over(q, waiting).status == "completed"


def test_no_other_job_begins_in_the_thread_of_a_body_that_has_not_ended(queue):
    gate = Gate()
    q = queue(workers=1, handlers={"hold": gate, "next": lambda task: {}})
    job = q.submit("hold", "x", timeout=0.05)
    waiting = q.submit("next", "x")

    over(q, job)

    assert q.get(waiting).status == "queued"
    gate.go.set()
    assert over(q, waiting).status == "completed"


def test_a_body_that_ends_in_time_completes(queue):
    q = queue(workers=1, handlers={"train": lambda task: {"ok": 1}})

    jobs = [over(q, q.submit("train", "x", timeout=30)) for _ in range(20)]

    assert {job.status for job in jobs} == {"completed"}


def test_the_time_limit_counts_from_the_begin_of_the_body_not_from_the_claim(queue):
    gate = Gate()
    q = queue(workers=1, handlers={"tiny": lambda task: gate(task) if task.target == "slow" else {"ok": 1}})
    over(q, q.submit("tiny", "warm up"))
    q.connection.execute("BEGIN IMMEDIATE")
    slow = q.submit("tiny", "slow", connection=q.connection)
    quick = [q.submit("tiny", "quick", connection=q.connection, timeout=0.05) for _ in range(5)]
    timed = q.submit("tiny", "x", connection=q.connection, delay=0.3)
    q.connection.execute("COMMIT")
    gate.has_begun()

    # What was claimed ahead is older than its time limit by now.
    until(q.path, lambda: q.connection.execute("SELECT due FROM ml_job WHERE id = ?", (timed,)).get == 1)
    gate.go.set()

    assert [over(q, job).status for job in [slow, *quick]] == ["completed"] * 6


def test_a_cancelled_job_does_not_fail_when_its_time_is_up(queue):
    gate = Gate()
    q = queue(workers=1, handlers={"hold": gate, "next": lambda task: {}})
    job = q.submit("hold", "x", timeout=0.3)
    gate.has_begun()
    q.cancel(job)

    began = gate.task
    spin(began.is_cancelled)
    deadline = time.monotonic() + 0.35
    spin(lambda: time.monotonic() > deadline)
    gate.go.set()

    assert stopped(q, job).status == "cancelled"


# Jobs for later.


def test_a_job_for_later_does_not_run_before_its_time(queue):
    q = queue(workers=1, handlers={"train": lambda task: {"at": time.time_ns() // 1_000_000}})
    at = now_ms() + 300
    exact, delayed = q.submit("train", "x", run_at=at), q.submit("train", "x", delay=0.3)
    waiting = q.get(exact)

    first, second = over(q, exact), over(q, delayed)

    assert (waiting.status, waiting.run_at_ms) == ("queued", at)
    assert "waiting until 20" in waiting.message
    assert first.metrics["at"] >= at
    assert second.metrics["at"] >= second.created_at_ms + 300
    assert first.started_at_ms - at < 1000


@pytest.mark.parametrize("options", [{"delay": 0}, {"run_at": 0}, {"run_at": "2001-02-03T04:05:06+07:00"}])
def test_a_time_that_is_past_means_now(queue, options):
    q = queue(workers=1, handlers={"train": lambda task: {}})

    assert over(q, q.submit("train", "x", **options)).status == "completed"


def test_a_job_whose_time_is_moved_forward_runs(queue):
    q = queue(workers=1, handlers={"train": lambda task: {}})
    job = q.submit("train", "x", delay=1e6)

    make_due(q, job)

    assert over(q, job, seconds=5).status == "completed"


def test_thousands_of_jobs_due_at_once_all_run_in_their_order(queue):
    order = []
    q = queue(workers=0)
    q.connection.execute("BEGIN IMMEDIATE")
    jobs = [q.submit("train", "x", connection=q.connection, run_at=1000) for _ in range(2500)]
    q.connection.execute("COMMIT")

    worker = queue(workers=1, handlers={"train": lambda task: order.append(task.id)})
    until(worker.path, lambda: len(order) == len(jobs))

    assert order == jobs


def test_a_far_job_does_not_keep_the_near_one_waiting(queue):
    q = queue(workers=1, handlers={"train": lambda task: {}})
    q.submit("train", "far", delay=1e9)

    near = over(q, q.submit("train", "near", delay=0.2))

    assert near.started_at_ms - near.run_at_ms < 1000


def test_a_scheduled_job_is_not_lost_over_a_restart(queue):
    first = queue(workers=1, handlers={"train": lambda task: {}})
    job = first.submit("train", "x", delay=0.2)
    first.shutdown()
    assert first.get(job).status == "queued"

    assert over(queue(workers=1, handlers={"train": lambda task: {}}), job).status == "completed"

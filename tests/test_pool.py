"""What the pool does with jobs between their submit and their end: order, claims, cancels, kinds."""

from __future__ import annotations

import threading

import apsw
import pytest
from beside import Gate, Program, over, spin, stopped, until

import mldb
from mldb.connection import open_writer
from mldb.store import workers as worker_rows


def submit_many(q, kind, specs):
    """Submit jobs in one transaction, so that a worker sees all of them or none."""
    q.connection.execute("BEGIN IMMEDIATE")
    jobs = [q.submit(kind, target, None, connection=q.connection, **options) for target, options in specs]
    q.connection.execute("COMMIT")
    return jobs


# Order.


def test_one_worker_runs_jobs_by_priority_then_id(queue):
    order = []
    q = queue(workers=1, handlers={"a": lambda task: order.append(task.id), "b": lambda task: order.append(task.id)})
    priorities = [0, 5, -3, 5, 0, 9, -3, 2**40, -(2**40), 5]
    jobs = []
    q.connection.execute("BEGIN IMMEDIATE")
    for number, priority in enumerate(priorities):
        kind = "ab"[number % 2]
        jobs.append(q.submit(kind, "x", None, connection=q.connection, priority=priority))
    q.connection.execute("COMMIT")

    for job in jobs:
        over(q, job)

    expected = sorted(jobs, key=lambda job: (-priorities[jobs.index(job)], job))
    assert order == expected


def test_the_order_is_the_same_after_a_restart(queue):
    first = queue()
    jobs = [first.submit("train", "x", priority=number % 3) for number in range(30)]
    first.shutdown()
    order = []

    q = queue(workers=1, handlers={"train": lambda task: order.append(task.id)})
    q.shutdown()

    assert order == sorted(jobs, key=lambda job: (-((job - 1) % 3), job))


def test_the_order_holds_through_jobs_that_were_claimed_ahead(queue):
    order = []
    q = queue(workers=1, handlers={"tiny": lambda task: order.append(task.id)})
    over(q, q.submit("tiny", "warm up, so that the kind is known to be quick"))

    jobs = submit_many(q, "tiny", [("x", {"priority": number % 4}) for number in range(2000)])
    q.shutdown()

    assert order[1:] == sorted(jobs, key=lambda job: (-((job - jobs[0]) % 4), job))


def test_jobs_handed_back_behind_a_slow_one_run_in_their_order(queue, path):
    order, gate = [], Gate()

    def tiny(task):
        order.append(task.id)
        if task.target == "slow":
            gate(task)

    q = queue(workers=1, handlers={"tiny": tiny})
    over(q, q.submit("tiny", "warm up"))
    jobs = submit_many(q, "tiny", [("slow", {})] + [("quick", {})] * 200)
    gate.has_begun()

    until(path, lambda: not [job for job in q.list("running") if job.id != jobs[0]])
    gate.go.set()
    q.shutdown()

    assert order[1:] == jobs
    assert {job.attempt for job in q.list()} == {1}


def test_jobs_handed_back_wait_quietly_until_a_thread_is_free(queue, path):
    gate = Gate()
    q = queue(workers=1, handlers={"tiny": lambda task: gate(task) if task.target == "slow" else None})
    over(q, q.submit("tiny", "warm up"))
    jobs = submit_many(q, "tiny", [("slow", {})] + [("quick", {})] * 50)
    gate.has_begun()
    until(path, lambda: len(q.list("queued")) == 50)

    with pytest.raises(AssertionError, match="not seen"):
        until(path, lambda: len(q.list("queued")) != 50, seconds=0.5)

    gate.go.set()
    assert over(q, jobs[-1]).status == "completed"


# Claims.


def test_a_claim_is_in_the_file_before_the_body_begins(queue, path):
    def look(task):
        connection = apsw.Connection(path)
        row = connection.execute(
            "SELECT status, started_at_ms > 0, owner IS NOT NULL, attempt FROM ml_job WHERE id = ?", (task.id,)
        ).fetchall()
        connection.close()
        return {"row": row[0]}

    q = queue(workers=1, handlers={"train": look})

    assert over(q, q.submit("train", "x")).metrics == {"row": ["running", 1, 1, 1]}


def test_no_more_jobs_run_at_once_than_there_are_threads(queue):
    guard, now, most = threading.Lock(), [0], [0]
    pair = threading.Barrier(2, timeout=20)

    def count(task):
        with guard:
            now[0] += 1
            most[0] = max(most[0], now[0])
        pair.wait()
        with guard:
            now[0] -= 1

    q = queue(workers=2, handlers={"train": count})
    jobs = [q.submit("train", "x") for _ in range(100)]

    assert {over(q, job).status for job in jobs} == {"completed"}
    assert most == [2]


def test_a_long_job_of_another_kind_is_not_claimed_before_a_thread_is_free(queue, path):
    gate, long = Gate(), Gate()
    q = queue(workers=1, handlers={"hold": gate, "long": long})
    first = q.submit("hold", "x")
    gate.has_begun()

    second = q.submit("long", "x")
    over(queue(workers=1, handlers={"tiny": lambda task: {}}), q.submit("tiny", "x"))

    assert (q.get(first).status, q.get(second).status) == ("running", "queued")
    long.go.set()
    gate.go.set()
    assert over(q, second).status == "completed"


def test_a_kind_that_nobody_here_knows_is_left_untouched_for_a_worker_that_does(queue):
    q = queue(workers=1, handlers={"known": lambda task: {}})
    job = q.submit("unknown", "x")
    before = q.get(job)

    over(q, q.submit("known", "x"))
    after = q.get(job)
    other = queue(workers=1, handlers={"unknown": lambda task: {"by": "another"}})

    assert (after.status, after.attempt, after.owner) == ("queued", 0, None)
    assert "no running worker handles kind unknown" in after.message
    assert before.created_at_ms == after.created_at_ms
    assert over(other, job).metrics == {"by": "another"}


def test_a_handler_registered_after_open_is_picked_up(queue):
    q = queue(workers=1)
    job = q.submit("test_pool.late", "x")

    @mldb.handler("test_pool.late")
    def late(task):
        return {"late": True}

    assert over(q, job).metrics == {"late": True}
    assert "test_pool.late" in q.kinds
    assert q.connection.execute("SELECT count(*) FROM ml_worker_kind WHERE kind = 'test_pool.late'").get == 1


def test_two_queues_of_one_process_share_a_file_and_run_no_job_twice(queue):
    runs = []
    one, two = (queue(workers=2, handlers={"train": lambda task: runs.append(task.id)}) for _ in range(2))

    jobs = [(one, two)[number % 2].submit("train", "x") for number in range(500)]
    for job in jobs:
        over(one, job)

    assert sorted(runs) == jobs


def test_idle_time_is_zero_while_a_job_runs_and_grows_afterwards(queue):
    gate = Gate()
    q = queue(workers=1, handlers={"hold": gate})
    spin(lambda: q.idle_seconds() > 0)
    job = q.submit("hold", "x")
    gate.has_begun()

    during = [q.idle_seconds() for _ in range(1000)]
    gate.go.set()
    over(q, job)

    assert during == [0.0] * 1000
    spin(lambda: q.idle_seconds() > 0)


# Cancelling.


def test_a_cancelled_running_job_says_when_its_body_has_really_ended(queue):
    gate = Gate({"accuracy": 1.0})
    q = queue(workers=1, handlers={"hold": gate})
    job = q.submit("hold", "x")
    gate.has_begun()
    gate.task.set_progress(40, "half way")
    until(q.path, lambda: q.get(job).progress == 40)

    assert q.cancel(job) is True
    before = q.get(job)
    assert q.cancel(job) is False
    gate.go.set()
    after = stopped(q, job)

    assert (before.status, before.stopped_at_ms, before.progress) == ("cancelled", None, 40)
    assert "has not stopped yet" in before.message
    assert (after.status, after.progress, after.metrics_json, after.error_message) == ("cancelled", 40, None, None)
    assert after.finished_at_ms == before.finished_at_ms <= after.stopped_at_ms


def test_a_result_after_a_cancel_is_dropped_with_its_model_and_rows(queue):
    gate, refused = Gate(), []
    model = mldb.Model("skops", b"x", "tree", "classification", "y", ({"name": "a"},), "SELECT 1", ())

    def train(task):
        gate(task)
        try:
            task.write("predictions", [{"a": 1}], checkpoint={"at": 1})
        except mldb.Cancelled as error:
            refused.append(str(error))
        return mldb.Result({"accuracy": 1.0}, model=model)

    q = queue(workers=1, handlers={"train": train})
    job = q.submit("train", "churn")
    gate.has_begun()

    q.cancel(job)
    gate.go.set()
    after = stopped(q, job)

    assert (after.status, after.metrics_json) == ("cancelled", None)
    assert len(refused) == 1
    count = "SELECT (SELECT count(*) FROM ml_model_version) + (SELECT count(*) FROM ml_model) +"
    count += " (SELECT count(*) FROM ml_checkpoint) + (SELECT count(*) FROM sqlite_schema WHERE name = 'predictions')"
    assert q.connection.execute(count).get == 0


def test_a_job_cancelled_between_its_claim_and_its_begin_never_begins(queue, path):
    gate, ran = Gate(), []

    def tiny(task):
        ran.append(task.id)
        if task.target == "slow":
            gate(task)

    q = queue(workers=1, handlers={"tiny": tiny})
    over(q, q.submit("tiny", "warm up"))
    slow, ahead, last = submit_many(q, "tiny", [("slow", {}), ("quick", {}), ("quick", {})])
    gate.has_begun()

    assert q.cancel(ahead) is True
    after = stopped(q, ahead)
    gate.go.set()
    over(q, last)

    assert after.status == "cancelled"
    assert ran[1:] == [slow, last]


def test_a_thread_is_held_until_the_cancelled_body_has_ended(queue):
    gate = Gate()
    q = queue(workers=1, handlers={"hold": gate, "next": lambda task: {}})
    first, second = q.submit("hold", "x"), q.submit("next", "x")
    gate.has_begun()

    q.cancel(first)
    spin(gate.task.is_cancelled)

    assert q.get(second).status == "queued"
    gate.go.set()
    assert over(q, second).status == "completed"


def test_a_cancel_in_a_transaction_of_ones_own_counts_with_the_commit(queue):
    gate = Gate()
    q = queue(workers=1, handlers={"hold": gate})
    job = q.submit("hold", "x")
    gate.has_begun()

    q.connection.execute("BEGIN IMMEDIATE")
    taken_back = q.connection.execute("SELECT ml_cancel(?)", (job,)).get
    q.connection.execute("ROLLBACK")
    seen = gate.task.is_cancelled()
    q.connection.execute("BEGIN IMMEDIATE")
    q.connection.execute("SELECT ml_cancel(?)", (job,)).fetchall()
    q.connection.execute("COMMIT")

    assert (taken_back, seen) == (1, False)
    spin(gate.task.is_cancelled)
    gate.go.set()
    assert stopped(q, job).status == "cancelled"


def test_a_plain_update_in_a_foreign_shell_cancels_a_running_body(queue, shell):
    gate = Gate()
    q = queue(workers=1, handlers={"hold": gate})
    job = q.submit("hold", "x")
    gate.has_begun()

    shell(f"UPDATE ml_job SET status = 'cancelled', finished_at_ms = 1 WHERE id = {job};")

    spin(gate.task.is_cancelled)
    gate.go.set()
    assert stopped(q, job).status == "cancelled"


# Jobs that are taken away, and rows that nobody can read.


def test_a_body_whose_job_was_taken_away_is_told_and_its_result_is_dropped(queue, path):
    gate = Gate({"by": "the first"})
    q = queue(workers=1, handlers={"hold": gate})
    job = q.submit("hold", "x")
    gate.has_begun()
    first, gate.began = gate.task, threading.Event()
    writer = open_writer(path)

    worker_rows.bury(writer, q.get(job).owner, 1)
    writer.close()

    spin(first.is_cancelled)
    gate.go.set()
    after = over(q, job)
    assert (after.status, after.attempt, gate.runs) == ("completed", 2, 2)


def test_a_job_that_came_back_to_the_same_worker_can_still_be_cancelled(queue, path):
    gates = {1: Gate(), 2: Gate()}
    q = queue(workers=2, handlers={"hold": lambda task: gates[task.attempt](task), "next": lambda task: {}})
    job = q.submit("hold", "x")
    gates[1].has_begun()
    writer = open_writer(path)
    worker_rows.bury(writer, q.get(job).owner, 1)
    writer.close()
    gates[2].has_begun()

    gates[1].go.set()
    assert gates[1].ended.wait(20)
    over(q, q.submit("next", "x"))
    assert q.cancel(job) is True

    spin(gates[2].task.is_cancelled)
    gates[2].go.set()
    assert stopped(q, job).status == "cancelled"


def test_a_job_whose_text_is_no_utf8_holds_up_no_other(queue):
    q = queue()
    poison = "INSERT INTO ml_job(kind, target_name, spec_json) VALUES ('train', CAST(x'636166e9' AS TEXT), '{}')"
    q.connection.execute(poison)
    q.connection.execute("INSERT INTO ml_job(kind, spec_json) VALUES ('train', CAST(x'7b2261223a22e9227d' AS TEXT))")
    good = q.submit("train", "x")

    worker = queue(workers=1, handlers={"train": lambda task: task.spec})

    assert worker.wait(good, 5).status == "completed"
    bad = "SELECT count(*) FROM ml_job WHERE status NOT IN ('completed', 'failed')"
    until(q.path, lambda: q.connection.execute(bad).get == 0, seconds=5)


def test_a_trigger_of_the_user_that_refuses_one_result_holds_up_no_other(queue):
    q = queue(workers=1, handlers={"train": lambda task: {}})
    q.connection.execute(
        "CREATE TRIGGER strict AFTER UPDATE ON ml_job WHEN NEW.status = 'completed' AND NEW.target_name = 'bad'"
        " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    )

    bad, good = q.submit("train", "bad"), q.submit("train", "good")

    assert q.wait(good, 5).status == "completed"
    after = q.wait(bad, 5)
    assert (after.status, "not this one" in (after.error_message or "")) == ("failed", True)


@pytest.mark.parametrize("refused", ["completed", "failed", "cancelled", "queued"])
def test_a_trigger_of_the_user_that_refuses_every_ending_of_one_job_holds_up_no_other(queue, refused):
    gate = Gate()

    def work(task):
        gate(task)
        raise ValueError("broke")

    q = queue(workers=2, handlers={"bad": work if refused != "completed" else gate, "good": lambda task: {}})
    refuse = "'completed', 'failed'" if refused == "completed" else f"'{refused}'"
    q.connection.execute(
        f"CREATE TRIGGER strict AFTER UPDATE ON ml_job WHEN NEW.status IN ({refuse}) AND NEW.kind = 'bad'"
        " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    ).fetchall()
    options = {"queued": {"max_attempts": 2, "backoff": 100}, "failed": {"timeout": 0.05}}.get(refused, {})
    bad = q.submit("bad", "x", **options)
    gate.has_begun()
    spin(lambda: refused != "failed" or gate.task.is_cancelled())

    gate.go.set()
    good = [q.submit("good", "x") for _ in range(3)]

    assert [q.wait(job, 5).status for job in good] == ["completed"] * 3
    assert q.get(bad).kind == "bad"


def test_a_trigger_of_the_user_enqueues_the_next_job(queue):
    q = queue(workers=1, handlers={"first": lambda task: {}, "second": lambda task: {"for": task.target}})
    q.connection.execute(
        "CREATE TRIGGER follow AFTER UPDATE ON ml_job WHEN NEW.status = 'completed' AND NEW.kind = 'first'"
        " BEGIN INSERT INTO ml_job(kind, target_name) VALUES ('second', NEW.target_name); END"
    )

    first = over(q, q.submit("first", "x"))

    assert over(q, first.id + 1).metrics == {"for": "x"}


def test_a_cancel_from_another_process_reaches_the_body(queue, path):
    gate = Gate()
    q = queue(workers=1, handlers={"hold": gate})
    job = q.submit("hold", "x")
    gate.has_begun()

    with Program(
        "import sys, mldb\nq = mldb.open(sys.argv[1], workers=0)\nprint(q.cancel(int(sys.argv[2])))", path, job
    ) as other:
        assert other.line() == "True"

    spin(gate.task.is_cancelled, seconds=1)
    gate.go.set()
    assert stopped(q, job).status == "cancelled"

"""The promises that the seed's own tests make (seed/queue.rs), kept here one by one."""

from __future__ import annotations

import threading
from pathlib import Path

import apsw
import pytest
from beside import Gate, over, stopped

import mldb
from mldb.connection import open_writer
from mldb.store import work


def test_a_submitted_job_runs_once_to_completion(queue):
    runs = []

    def work_on(task):
        runs.append(task.id)
        task.set_progress(50)
        task.set_progress(100)
        return {"ok": True}

    q = queue(workers=1, handlers={"train": work_on})

    job = over(q, q.submit("train", "spam", {}))

    assert (job.status, job.progress, job.metrics_json) == ("completed", 100, '{"ok": true}')
    assert job.created_at_ms <= job.started_at_ms <= job.finished_at_ms
    assert runs == [job.id]


def test_a_failed_job_keeps_the_error(queue):
    def fail(task):
        raise ValueError("bad hyperparameters")

    q = queue(workers=1, handlers={"train": fail})

    job = over(q, q.submit("train", "spam", {}))

    assert (job.status, job.error_message, job.metrics_json) == ("failed", "bad hyperparameters", None)


def test_a_job_cancelled_while_queued_never_runs(queue):
    gate, ran = Gate(), []
    q = queue(workers=1, handlers={"hold": gate, "train": lambda task: ran.append(task.target)})
    first = q.submit("hold", "a")
    gate.has_begun()
    second, third = q.submit("train", "b"), q.submit("train", "c")

    cancelled = q.cancel(second)
    gate.go.set()
    over(q, third)

    assert cancelled is True
    assert q.get(first).status == "completed"
    job = q.get(second)
    assert (job.status, job.started_at_ms, job.finished_at_ms is None) == ("cancelled", None, False)
    assert ran == ["c"]


def test_cancelling_a_finished_job_changes_nothing(queue):
    q = queue(workers=1, handlers={"train": lambda task: {}})
    before = over(q, q.submit("train", "x"))

    assert q.cancel(before.id) is False
    assert q.get(before.id) == before


def test_a_running_body_sees_that_it_was_cancelled(queue):
    began, observed = threading.Event(), threading.Event()

    def slow(task):
        began.set()
        while not task.is_cancelled():
            task.set_progress(10)
        observed.set()
        raise RuntimeError("cancelled")

    q = queue(workers=1, handlers={"train": slow})
    job = q.submit("train", "slow")
    assert began.wait(10)

    assert q.cancel(job) is True

    assert q.get(job).status == "cancelled"
    assert observed.wait(10)
    after = stopped(q, job)
    assert (after.status, after.error_message) == ("cancelled", None)


def test_a_result_is_on_disk_after_shutdown(queue, connect):
    q = queue(workers=1, handlers={"train": lambda task: {"f1": 0.9}})
    job = q.submit("train", "spam")

    q.shutdown()

    row = connect().execute("SELECT status, metrics_json FROM ml_job WHERE id = ?", (job,)).fetchall()
    assert row == [("completed", '{"f1": 0.9}')]


def test_a_late_write_cannot_replace_a_completed_job(queue, path):
    q = queue(workers=1, handlers={"train": lambda task: {"done": True}})
    before = over(q, q.submit("train", "late"))
    writer = open_writer(path)
    held = {"id": before.id, "owner": before.owner, "attempt": before.attempt, "now": 1}
    ending = (before.id, before.attempt, '{"done": false}')

    with pytest.raises(apsw.ConstraintError, match="a finished job never changes"):
        writer.execute(
            "UPDATE ml_job SET status = 'queued', owner = NULL, progress = 0, started_at_ms = NULL,"
            " finished_at_ms = NULL, stopped_at_ms = NULL, metrics_json = NULL WHERE id = ?",
            (before.id,),
        )
    kept = [
        work.write(writer, "note_progress", held | {"progress": 5, "message": None}),
        bool(work.complete(writer, before.owner, [ending], 1)),
        work.write(writer, "fail_job", held | {"error": "late", "stopped": 1, "message": None}),
        work.write(writer, "postpone_job", held | {"run_at_ms": 0, "message": None}),
        work.write(writer, "release_job", held),
    ]
    writer.close()

    assert kept == [False] * 5
    assert q.get(before.id) == before


def test_a_restart_runs_what_was_queued_or_running_and_leaves_the_rest(queue, job_in):
    first = queue()
    queued = job_in(first.connection, "queued", kind="train")
    running = job_in(first.connection, "running", kind="train")
    first.connection.execute("UPDATE ml_job SET progress = 40 WHERE id = ?", (running,))
    done = {
        status: first.get(job_in(first.connection, status, kind="train"))
        for status in ("completed", "failed", "cancelled")
    }
    first.shutdown()
    ran = []

    q = queue(workers=2, handlers={"train": lambda task: ran.append(task.id)})

    assert over(q, queued).status == "completed"
    assert over(q, running).status == "completed"
    assert {status: q.get(job.id) for status, job in done.items()} == done
    assert sorted(ran) == [queued, running]
    assert q.submit("train", "d") > max(job.id for job in done.values())


def test_several_workers_drain_a_backlog(queue):
    together = threading.Barrier(3, timeout=10)

    def meet(task):
        task.set_progress(50)
        if task.spec["n"] < 3:
            together.wait()

    q = queue(workers=3, handlers={"train": meet})

    jobs = [q.submit("train", f"m{n}", {"n": n}) for n in range(20)]

    assert {over(q, job).status for job in jobs} == {"completed"}


def test_a_submit_after_shutdown_stays_queued_for_the_next_start(queue):
    q = queue(workers=1, handlers={"train": lambda task: {}})
    q.shutdown()

    job = q.submit("train", "later")

    assert q.get(job).status == "queued"
    assert over(queue(workers=1, handlers={"train": lambda task: {}}), job).status == "completed"


def test_cancelling_an_unknown_job_gives_false(queue):
    q = queue(workers=1)

    assert [q.cancel(12345), q.cancel(0), q.cancel(-1), q.cancel(2**63 - 1)] == [False] * 4
    assert q.get(12345) is None


def test_a_handler_may_submit_jobs_itself(queue):
    def plant(task):
        return {"child": box[0].submit("leaf", task.target)}

    box = []
    box.append(queue(workers=1, handlers={"plant": plant, "leaf": lambda task: {"leaf": task.target}}))

    parent = over(box[0], box[0].submit("plant", "oak"))

    assert over(box[0], parent.metrics["child"]).metrics == {"leaf": "oak"}


def test_ids_grow_and_are_never_used_again_after_a_restart_and_a_prune(queue):
    q = queue(workers=1, handlers={"train": lambda task: {}})
    last = max(over(q, q.submit("train", "x")).id for _ in range(3))
    assert q.prune(0) == 3
    q.shutdown()

    fresh = queue().submit("train", "y")

    assert fresh == last + 1


def test_a_private_database_works_and_its_file_is_gone_after_shutdown(queue):
    q = mldb.open(":memory:", workers=1)
    place = Path(q.path)
    status = over(q, q.submit("noop", "x")).status
    assert place.exists()

    q.shutdown()

    assert status == "completed"
    assert not place.parent.exists()

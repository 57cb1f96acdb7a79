"""Many threads on one queue: races that must come out one way or the other, and never both."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time

import pytest
from beside import Gate, Program, over, spin, stopped, until

import mldb


def test_the_answer_of_a_cancel_is_the_final_truth_in_2000_races_with_the_end(queue):
    ran = set()

    def work(task):
        ran.add(task.id)
        return {"n": task.id}

    q = queue(workers=2, handlers={"train": work})
    generator = random.Random(1)
    answers = {}

    for number in range(2000):
        job = q.submit("train", "x")
        deadline = time.perf_counter() + generator.random() * 0.002
        while time.perf_counter() < deadline:
            pass
        if number % 20 == 0:
            q.wait(job)  # however slow the machine is, some cancels come too late
        answers[job] = q.cancel(job)
    q.shutdown()

    jobs = {job.id: job for job in q.list()}
    for job, cancelled in answers.items():
        if cancelled:
            assert (jobs[job].status, jobs[job].metrics_json) == ("cancelled", None)
            assert jobs[job].started_at_ms is not None or job not in ran
        else:
            assert (jobs[job].status, jobs[job].metrics) == ("completed", {"n": job})
    assert all(job.stopped_at_ms is not None for job in jobs.values())
    assert 0 < sum(answers.values()) < 2000


def test_of_many_cancels_of_one_job_one_is_told_that_it_did_it(queue):
    gate = Gate()
    q = queue(workers=1, handlers={"hold": gate})
    job = q.submit("hold", "x")
    gate.has_begun()
    together, answers = threading.Barrier(8), []

    def cancel():
        together.wait()
        answers.append(q.cancel(job))

    threads = [threading.Thread(target=cancel) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert sorted(answers) == [False] * 7 + [True]
    gate.go.set()
    assert stopped(q, job).status == "cancelled"


def drained_while_submitted(q, threads, each):
    """Submit from many threads at once; give the longest that one submit took, in seconds, and what went wrong."""
    longest, errors = [], []

    def submit():
        worst = 0.0
        try:
            for number in range(each):
                asked = time.monotonic()
                q.submit("noop", str(number))
                worst = max(worst, time.monotonic() - asked)
        except BaseException as error:
            errors.append(error)
        longest.append(worst)

    submitters = [threading.Thread(target=submit) for _ in range(threads)]
    for thread in submitters:
        thread.start()
    for thread in submitters:
        thread.join(300)
    q.shutdown()
    return max(longest), errors


def test_16_threads_submit_while_4_workers_drain(queue):
    q = queue(workers=4)

    longest, errors = drained_while_submitted(q, 16, 125)

    print(f"longest wait of a submit: {longest:.3f} s")
    assert errors == []
    assert q.connection is not None
    assert {job.status for job in queue().list()} == {"completed"}
    assert len(queue().list()) == 2000


@pytest.mark.fault
def test_16_threads_submit_20000_jobs_while_4_workers_drain_and_none_waits_a_second(queue):
    q = queue(workers=4)

    longest, errors = drained_while_submitted(q, 16, 1250)

    print(f"longest wait of a submit: {longest:.3f} s")
    assert errors == []
    counts = queue().connection.execute("SELECT status, count(*) FROM ml_job GROUP BY 1").fetchall()
    assert counts == [("completed", 20_000)]
    assert longest < 1


def submit_in_sql(q, count):
    q.connection.execute("CREATE TABLE t(name)").fetchall()
    q.connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        " INSERT INTO t SELECT 'n' || i FROM n",
        (count,),
    ).fetchall()

    jobs = [job for (job,) in q.connection.execute("SELECT ml_submit('noop', name, '{}') FROM t")]

    for job in jobs[-5:]:
        over(q, job, 120)
    until(q.path, lambda: q.connection.execute("SELECT count(*) FROM ml_job WHERE stopped_at_ms IS NULL").get == 0, 120)
    assert len(set(jobs)) == count
    counts = q.connection.execute("SELECT status, count(*), count(DISTINCT target_name) FROM ml_job GROUP BY 1")
    assert counts.fetchall() == [("completed", count, count)]


def test_a_select_submits_2000_jobs_while_four_workers_drain_them(queue):
    submit_in_sql(queue(workers=4), 2000)


@pytest.mark.fault
def test_a_select_submits_10000_jobs_while_four_workers_drain_them(queue):
    submit_in_sql(queue(workers=4), 10_000)


def test_a_select_cancels_every_job_while_workers_commit(queue):
    q = queue(workers=2)
    q.connection.execute("BEGIN IMMEDIATE")
    for _ in range(1000):
        q.submit("noop", "x", connection=q.connection)
    q.connection.execute("COMMIT")

    answers = dict(q.connection.execute("SELECT id, ml_cancel(id) FROM ML_JOBS").fetchall())
    q.shutdown()

    jobs = queue().list()
    assert len(answers) == len(jobs) == 1000
    assert {job.id: int(job.status == "cancelled") for job in jobs} == answers


def test_many_threads_use_every_method_at_once(queue):
    enough = threading.Event()
    handlers = {"a": lambda task: {}, "fail": lambda task: 1 / 0, "last": lambda task: enough.set()}
    q = queue(workers=2, handlers=handlers)
    errors, stop = [], threading.Event()

    def use(seed):
        generator = random.Random(seed)
        try:
            while not stop.is_set():
                job = q.submit(generator.choice(["a", "fail"]), "x", priority=generator.randrange(3))
                generator.choice([q.get, q.cancel, lambda one: q.wait(one, 0.01)])(job)
                if generator.random() < 0.1:
                    q.list("failed", "fail")
                if generator.random() < 0.05:
                    q.prune(0)
                done = q.wait(job, 20) if generator.random() < 0.2 else None
                if done is not None and done.stopped_at_ms is not None:
                    q.retry(job)
        except mldb.UsageError as error:
            # Another thread may prune a job between the two looks of one.
            if "no job" not in str(error) and "removed meanwhile" not in str(error) and not stop.is_set():
                errors.append(error)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    last = q.submit("a", "x", priority=-1)
    q.submit("last", "x", delay=1.5)
    assert enough.wait(30)
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    q.shutdown()

    assert errors == []
    assert {job.status for job in queue().list()} <= {"completed", "failed", "cancelled"}
    assert last > 0


def test_a_fast_submitter_in_one_process_does_not_starve_the_pool(queue):
    q = queue(workers=1, handlers={"a": lambda task: {}})
    stop = threading.Event()

    def submit():
        while not stop.is_set():
            q.submit("nobody", "x")

    thread = threading.Thread(target=submit)
    thread.start()
    began = time.monotonic()
    for _ in range(20):
        over(q, q.submit("a", "x"))
    took = time.monotonic() - began
    stop.set()
    thread.join()

    assert took < 5


def test_ctrl_c_while_a_submit_waits_for_the_lock_leaves_no_transaction_behind(queue, connect):
    q = queue(workers=0)
    plain = connect()
    plain.execute("BEGIN IMMEDIATE")
    main = threading.main_thread().ident

    def waits_in_sqlite():
        frame = sys._current_frames()[main]
        return frame.f_code.co_name == "run" and frame.f_globals["__name__"] == "mldb.connection"

    def press():
        spin(waits_in_sqlite)
        signal.pthread_kill(main, signal.SIGINT)
        plain.execute("COMMIT")

    presser = threading.Thread(target=press)
    with pytest.raises(KeyboardInterrupt):
        presser.start()
        q.submit("noop", "x", priority=1)
        presser.join()
    presser.join()

    plain.set_busy_timeout(100)
    plain.execute("BEGIN IMMEDIATE")
    plain.execute("COMMIT")
    assert q.submit("noop", "x", priority=1) > 0


CTRL_C = """
import sys, threading, mldb
with mldb.open(sys.argv[1], workers=2, handlers={"a": lambda task: task.write("out", [{"id": task.id}])}) as queue:
    print("ready", flush=True)
    while True:
        queue.cancel(queue.submit("a", "x", priority=1))
        queue.submit("a", "y")
"""


@pytest.mark.fault
def test_ctrl_c_at_any_moment_ends_a_program_that_submits(path):
    for number in range(60):
        with Program(CTRL_C, path) as program:
            assert program.line() == "ready"
            deadline = time.monotonic() + random.Random(number).random() * 0.05
            while time.monotonic() < deadline:
                pass
            program.send(signal.SIGINT)

            assert program.ends(10) in (1, -2), program.errors()
            assert "KeyboardInterrupt" in program.errors()
            assert "Exception in thread" not in program.errors()

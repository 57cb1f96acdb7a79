"""ml_cancel, ml_retry and ml_prune, in SQL and in Python."""

from __future__ import annotations

import threading

import pytest

import mldb
from mldb import surface
from mldb.job import STATUSES, TERMINAL

NOT_AN_ID = [None, "1", "x", 1.0, 1.5, b"1", ""]


def status(connection, job):
    return connection.execute("SELECT status FROM ML_JOBS WHERE id = ?", (job,)).get


@pytest.mark.parametrize("begin", ["BEGIN", "SELECT 1"])
@pytest.mark.parametrize("was", STATUSES)
def test_cancel_gives_1_for_a_job_that_is_not_over_and_0_for_one_that_is(connection, job_in, was, begin):
    job = job_in(connection, was)
    before = connection.execute("SELECT * FROM ml_job").fetchall()
    connection.execute(begin).fetchall()

    answers = [connection.execute("SELECT ml_cancel(?)", (job,)).get for _ in range(2)]

    if was in TERMINAL:
        assert answers == [0, 0]
        assert connection.execute("SELECT * FROM ml_job").fetchall() == before
    else:
        assert answers == [1, 0]
        assert status(connection, job) == "cancelled"


@pytest.mark.parametrize("job", [0, -1, 99, 2**63 - 1, -(2**63)])
def test_cancel_of_an_unknown_job_is_0(connection, queue, job):
    assert connection.execute("SELECT ml_cancel(?)", (job,)).get == 0
    assert queue().cancel(job) is False


def test_cancel_of_a_queued_job_is_over_at_once(connection, job_in):
    job = job_in(connection, "queued")

    connection.execute("SELECT ml_cancel(?)", (job,)).fetchall()

    row = connection.execute(
        "SELECT status, progress, started_at_ms, finished_at_ms = stopped_at_ms, owner FROM ML_JOBS"
    ).fetchone()
    assert row == ("cancelled", 0, None, 1, None)


def test_cancel_of_a_running_job_says_that_its_body_has_not_stopped(connection, job_in):
    job = job_in(connection, "running")
    connection.execute("UPDATE ml_job SET progress = 40")

    connection.execute("SELECT ml_cancel(?)", (job,)).fetchall()

    row = connection.execute(
        "SELECT status, progress, finished_at_ms > 0, stopped_at_ms, owner FROM ML_JOBS"
    ).fetchone()
    assert row == ("cancelled", 40, 1, None, "w")


@pytest.mark.parametrize("function", ["ml_cancel", "ml_retry", "ml_wait"])
@pytest.mark.parametrize("job", NOT_AN_ID)
def test_an_id_that_is_no_whole_number_is_refused(connection, function, job):
    with pytest.raises(mldb.UsageError, match=f"{function}: the id of a job is a whole number, not "):
        connection.execute(f"SELECT {function}(?)", (job,))


@pytest.mark.parametrize("method", ["get", "cancel", "retry", "wait"])
@pytest.mark.parametrize("job", [*NOT_AN_ID, True, [1], float("nan")])
def test_python_refuses_an_id_that_is_no_whole_number(queue, method, job):
    with pytest.raises(mldb.UsageError, match="the id of a job is a whole number"):
        getattr(queue(), method)(job)


@pytest.mark.parametrize("job", [2**63, -(2**63) - 1, 10**30])
def test_python_takes_an_id_beyond_those_of_sqlite_for_unknown(queue, job):
    q = queue()

    assert q.get(job) is None
    assert q.cancel(job) is False
    assert q.retry(job) is None
    with pytest.raises(mldb.UsageError):
        q.wait(job, timeout=0)


@pytest.mark.parametrize("was", sorted(TERMINAL))
def test_retry_of_a_job_that_is_over_is_a_new_job_like_it(connection, job_in, was):
    spec = '{"a": "' + "x" * 2000 + '"}'
    job = job_in(
        connection,
        was,
        kind="k",
        target_name="t",
        spec_json=spec,
        priority=3,
        max_attempts=4,
        backoff_s=2.5,
        timeout_s=7.5,
        tag="tag",
        unique_key="u",
    )

    new = connection.execute("SELECT ml_retry(?)", (job,)).get

    columns = "kind, target_name, priority, max_attempts, backoff_s, timeout_s, tag, unique_key"
    assert new == job + 1
    assert connection.execute(f"SELECT {columns} FROM ml_job WHERE id = ?", (new,)).fetchone() == (
        *("k", "t", 3, 4, 2.5, 7.5, "tag", "u"),
    )
    assert connection.execute(
        "SELECT status, progress, attempt, owner, started_at_ms, error_message, spec_json, retry_of"
        " FROM ML_JOBS WHERE id = ?",
        (new,),
    ).fetchone() == ("queued", 0, 0, None, None, None, spec, job)
    assert status(connection, job) == was


def test_a_retry_can_be_retried_again_and_keeps_its_spec(connection, job_in):
    spec = '{"a": "' + "x" * 2000 + '"}'
    job = job_in(connection, "failed", spec_json=spec)
    for _ in range(3):
        connection.execute("SELECT ml_cancel(?)", (job,)).fetchall()
        job = connection.execute("SELECT ml_retry(?)", (job,)).get

    assert connection.execute("SELECT spec_json, retry_of FROM ML_JOBS WHERE id = ?", (job,)).fetchone() == (
        spec,
        job - 1,
    )


@pytest.mark.parametrize(
    ("was", "body"), [("queued", False), ("running", False), ("cancelled", True), ("failed", True)]
)
def test_retry_of_a_live_job_is_refused(queue, job_in, was, body):
    q = queue()
    connection = q.connection
    job = job_in(connection, was, body=body)

    with pytest.raises(mldb.UsageError, match=f"job {job} is not over yet"):
        connection.execute("SELECT ml_retry(?)", (job,))
    with pytest.raises(mldb.UsageError, match=f"job {job} is not over yet"):
        q.retry(job)

    assert connection.execute("SELECT count(*) FROM ml_job").get == 1


@pytest.mark.parametrize("job", [0, -1, 99])
def test_retry_of_an_unknown_job_is_null(connection, queue, job):
    assert connection.execute("SELECT ml_retry(?)", (job,)).fetchall() == [(None,)]
    assert queue().retry(job) is None


def test_retry_of_a_job_whose_unique_key_is_taken_is_refused(connection, queue, job_in):
    job = job_in(connection, "failed", unique_key="k")
    job_in(connection, "queued", unique_key="k")

    for retry in (lambda: connection.execute("SELECT ml_retry(?)", (job,)), lambda: queue().retry(job)):
        with pytest.raises(
            mldb.UsageError, match=r"^a live job of this kind has this unique key; wait for it or cancel it"
        ):
            retry()

    assert connection.execute("SELECT count(*) FROM ml_job").get == 2


def test_retry_after_a_prune_of_the_old_one_still_has_its_large_spec(connection, job_in):
    spec = '{"a": "' + "x" * 2000 + '"}'
    job = job_in(connection, "failed", spec_json=spec)
    new = connection.execute("SELECT ml_retry(?)", (job,)).get

    connection.execute("SELECT ml_prune(0)").fetchall()

    assert connection.execute("SELECT id, spec_json FROM ML_JOBS").fetchall() == [(new, spec)]


@pytest.fixture
def q(queue):
    return queue()


@pytest.fixture
def one_of_each(q, job_in):
    """Jobs in every status, with and without a running body; give the ids of those that are over."""
    connection = q.connection
    over = [job_in(connection, each) for each in sorted(TERMINAL)]
    for live in ("queued", "running"):
        job_in(connection, live)
    for live in ("cancelled", "failed"):
        job_in(connection, live, body=True)
    return over


@pytest.mark.parametrize("begin", ["BEGIN", "SELECT 1"])
def test_prune_removes_what_is_over_and_never_what_lives(q, one_of_each, begin):
    connection = q.connection
    connection.execute(begin).fetchall()

    assert connection.execute("SELECT ml_prune(0)").get == len(one_of_each)
    assert connection.execute("SELECT count(*) FROM ml_job WHERE stopped_at_ms IS NOT NULL").get == 0
    assert connection.execute("SELECT count(*) FROM ml_job").get == 4


def test_prune_in_python_gives_the_same_count(q, one_of_each):
    assert q.prune(0) == len(one_of_each)


def test_prune_leaves_what_finished_less_than_so_many_seconds_ago(connection, queue, job_in):
    old = job_in(connection, "completed")  # in 1970
    queue().cancel(young := queue().submit("noop", "x"))

    assert connection.execute("SELECT ml_prune(3600)").get == 1
    assert connection.execute("SELECT id FROM ML_JOBS").fetchall() == [(young,)]
    assert old < young


@pytest.mark.parametrize(("before", "gone"), [(1999, 0), (2000, 1), (2001, 1)])
def test_prune_counts_to_the_millisecond(queue, connection, job_in, before, gone):
    job_in(connection, "completed")  # finished at 2000

    assert surface.prune(queue()._file, before) == gone


def test_prune_takes_logs_values_checkpoints_and_specs_along(connection, job_in):
    over = job_in(connection, "completed", spec_json='{"a": "' + "x" * 2000 + '"}')
    live = job_in(connection, "running", spec_json='{"a": "' + "x" * 2000 + '"}')
    for job in (over, live):
        connection.execute("INSERT INTO ml_log VALUES (?, 1, 1, 1, 'line')", (job,))
        connection.execute("INSERT INTO ml_metric VALUES (?, 1, 1, 1, 'loss', 1, 0.5)", (job,))
        connection.execute("INSERT INTO ml_checkpoint VALUES (?, 1, 1, '{}')", (job,))

    connection.execute("SELECT ml_prune(0)").fetchall()

    for table in ("ml_log", "ml_metric", "ml_checkpoint", "ml_spec"):
        assert connection.execute(f"SELECT job_id FROM {table}").fetchall() == [(live,)], table


def test_prune_of_many_jobs_lets_other_writers_in_between_its_batches(queue, connection):
    connection.execute("BEGIN")
    connection.execute(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)"
        " INSERT INTO ml_job (kind) SELECT 'noop' FROM n"
    )
    connection.execute("UPDATE ml_job SET status = 'cancelled', finished_at_ms = 1, stopped_at_ms = 1")
    connection.execute("COMMIT")
    q = queue()
    commits = []
    with q._file.writing() as writer:
        writer.set_commit_hook(lambda: bool(commits.append(1)))

    assert q.prune(0) == 4000
    assert len(commits) > 1
    assert q.list() == []


@pytest.mark.parametrize("seconds", [None, -1, -0.001, "1", "", b"1", 1e300, float("inf"), 1e11])
def test_prune_refuses_a_time_that_cannot_be_right(connection, queue, job_in, seconds):
    job_in(connection, "completed")

    for prune in (lambda: connection.execute("SELECT ml_prune(?)", (seconds,)), lambda: queue().prune(seconds)):
        with pytest.raises(mldb.UsageError, match="prune: seconds must be a number from 0, not"):
            prune()

    assert connection.execute("SELECT count(*) FROM ml_job").get == 1


@pytest.mark.parametrize("seconds", [float("nan"), True, [1]])
def test_python_prune_refuses_what_sql_cannot_say(queue, seconds):
    with pytest.raises(mldb.UsageError, match="prune: seconds must be a number from 0"):
        queue().prune(seconds)


def test_prune_of_an_empty_queue_is_0(connection):
    assert connection.execute("SELECT ml_prune(0)").get == 0


def test_a_cancel_and_many_submits_of_threads_lose_nothing(queue):
    q = queue()
    jobs = [q.submit("noop", str(number)) for number in range(200)]
    answers, start = [], threading.Barrier(4)

    def cancel():
        start.wait()
        answers.extend(q.cancel(job) for job in jobs)

    threads = [threading.Thread(target=cancel) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(answers) == 200
    assert {job.status for job in q.list()} == {"cancelled"}

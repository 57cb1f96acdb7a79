"""What is refused, and in which words: before the queue is made, for readers, and where there is no WAL."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest

import mldb

pytestmark = pytest.mark.usefixtures("impatient")
WRITES = [
    "SELECT ml_submit('noop', 'x', NULL)",
    "SELECT ml_submit('noop', 'x', NULL, '{\"priority\": 1}')",
    "SELECT ml_cancel(1)",
    "SELECT ml_retry(1)",
    "SELECT ml_prune(0)",
]
TABLE_WRITES = [
    "INSERT INTO ML_JOBS (kind) VALUES ('noop')",
    "UPDATE ML_JOBS SET status = 'cancelled'",
    "DELETE FROM ML_JOBS",
]
NEEDS_QUEUE = [*WRITES, *TABLE_WRITES, "SELECT ml_wait(1)", "SELECT ml_predict('m', '{}')", "SELECT * FROM ML_JOBS"]


def rows(path):
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute("SELECT id, status FROM ml_job").fetchall()
    finally:
        connection.close()


@pytest.fixture
def made(path):
    """A file with a queue that has one queued job, and that nobody has open; give its path."""
    with mldb.open(path, workers=0) as q:
        q.submit("noop", "x")
    del q
    gc.collect()
    return path


@pytest.fixture(params=["read-only", "query_only"])
def barred(request, made, connect):
    """A connection with the surface that may not write."""
    if request.param == "read-only":
        connection = connect(flags=apsw.SQLITE_OPEN_READONLY)
    else:
        connection = connect()
        connection.pragma("query_only", True)
    mldb.equip(connection)
    return connection


@pytest.mark.parametrize("sql", WRITES)
@pytest.mark.parametrize("begin", ["BEGIN", "SELECT 1"])
def test_a_function_that_writes_is_refused_where_the_user_may_not_write(barred, made, sql, begin):
    barred.execute(begin).fetchall()

    with pytest.raises(mldb.ReadOnly, match=r"this connection is read-only.*; open it for writing"):
        barred.execute(sql).fetchall()

    assert rows(made) == [(1, "queued")]


@pytest.mark.parametrize("sql", TABLE_WRITES)
def test_a_write_to_ml_jobs_is_refused_where_the_user_may_not_write(barred, made, sql):
    with pytest.raises((mldb.ReadOnly, apsw.ReadOnlyError)):
        barred.execute(sql)

    assert rows(made) == [(1, "queued")]


def test_a_function_that_writes_is_refused_under_an_insert_into_another_database(barred, made):
    barred.execute("ATTACH ':memory:' AS scratch")

    with pytest.raises((mldb.ReadOnly, apsw.ReadOnlyError)):
        barred.execute("CREATE TABLE scratch.t AS SELECT ml_submit('noop', 'x', NULL)").fetchall()

    assert rows(made) == [(1, "queued")]


def test_ml_jobs_can_be_read_where_the_user_may_not_write(barred):
    assert barred.execute("SELECT id, status FROM ML_JOBS").fetchall() == [(1, "queued")]
    assert barred.execute("SELECT count(*) FROM ML_JOBS WHERE status = 'queued'").get == 1
    assert barred.execute("SELECT id FROM ML_JOB_LIST").get == 1


def test_ml_init_gives_0_on_a_queue_that_is_up_to_date_even_where_the_user_may_not_write(barred):
    assert barred.execute("SELECT ml_init()").get == 0


def test_attach_lets_a_barred_connection_look(barred, made):
    q = mldb.attach(barred, workers=0)

    assert [job.id for job in q.list()] == [1]
    assert q.get(1).status == "queued"
    q.shutdown()


def test_attach_starts_no_worker_for_a_connection_that_may_not_write(barred, made):
    with pytest.raises(mldb.ReadOnly):
        mldb.attach(barred, workers=1).shutdown()

    assert rows(made) == [(1, "queued")]


def test_the_default_number_of_workers_is_no_way_round_either(barred, made):
    with pytest.raises(mldb.ReadOnly):
        mldb.attach(barred).shutdown()

    assert rows(made) == [(1, "queued")]


@pytest.mark.parametrize(
    "call",
    [
        lambda q: q.submit("noop", "y"),
        lambda q: q.submit("noop", "y", unique="k"),
        lambda q: q.cancel(1),
        lambda q: q.retry(1),
        lambda q: q.prune(0),
    ],
    ids=["submit", "submit with options", "cancel", "retry", "prune"],
)
def test_a_queue_on_a_barred_connection_writes_nothing(barred, made, call):
    q = mldb.attach(barred, workers=0)

    with pytest.raises(mldb.ReadOnly):
        call(q)

    q.shutdown()
    assert rows(made) == [(1, "queued")]


def test_attaching_a_barred_connection_puts_no_job_back(made, connect, job_in):
    job_in(connect(), "running")  # of an owner who is no more
    reader = connect(flags=apsw.SQLITE_OPEN_READONLY)

    mldb.attach(reader, workers=0).shutdown()

    assert rows(made) == [(1, "queued"), (2, "running")]


def test_query_only_is_looked_at_at_each_call(made, connect):
    connection = connect()
    mldb.equip(connection)
    connection.execute("SELECT ml_submit('noop', 'x', NULL)").fetchall()
    connection.pragma("query_only", True)

    with pytest.raises(mldb.ReadOnly):
        connection.execute("SELECT ml_submit('noop', 'x', NULL)")

    connection.pragma("query_only", False)
    assert connection.execute("SELECT ml_submit('noop', 'x', NULL)").get == 3


def test_a_file_without_a_queue_opened_read_only_is_told_to_be_initialised(connect, path):
    connect().execute("CREATE TABLE t (x)")
    reader = connect(flags=apsw.SQLITE_OPEN_READONLY)
    mldb.equip(reader)

    for call in (lambda: mldb.attach(reader, workers=0), lambda: reader.execute("SELECT ml_init()")):
        with pytest.raises(mldb.ReadOnly, match=f"has no queue yet; run: mldb init {path}"):
            call()


def test_a_database_that_the_system_lets_nobody_write_is_told_so(made, connect, monkeypatch):
    # A file of another owner; done with a flag of SQLite, since a test run by root may write to everything.
    immutable = connect(f"file:{made}?mode=ro", flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)
    mldb.equip(immutable)

    with pytest.raises(mldb.ReadOnly):
        immutable.execute("SELECT ml_submit('noop', 'x', NULL)")


# ---- before the queue is made -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", NEEDS_QUEUE)
def test_before_the_queue_is_made_each_call_says_what_to_run(connect, sql):
    connection = connect()
    mldb.equip(connection)

    with pytest.raises(
        mldb.NotInitialised, match=r"this database has no job queue yet; run SELECT ml_init\(\), or: mldb init FILE"
    ):
        connection.execute(sql).fetchall()

    assert connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
    assert connection.pragma("journal_mode") == "delete"


@pytest.mark.parametrize("sql", NEEDS_QUEUE[:-2])
def test_after_ml_init_the_same_connection_can_go_on(connect, sql):
    connection = connect()
    mldb.equip(connection)
    with pytest.raises(mldb.NotInitialised):
        connection.execute(sql).fetchall()

    assert connection.execute("SELECT ml_init()").get == 1
    assert connection.execute("SELECT * FROM ML_JOBS").fetchall() == []
    assert connection.execute("SELECT ml_submit('noop', 'x', NULL)").get == 1


def test_a_queue_that_another_connection_makes_is_seen(connect):
    connection = connect()
    mldb.equip(connection)
    with pytest.raises(mldb.NotInitialised):
        connection.execute("SELECT * FROM ML_JOBS")

    mldb.attach(connect(), workers=0).shutdown()

    assert connection.execute("SELECT * FROM ML_JOBS").fetchall() == []
    assert connection.execute("SELECT ml_submit('noop', 'x', NULL)").get == 1


def test_equip_makes_nothing(connect, path):
    mldb.equip(connect())

    assert not Path(path).exists() or Path(path).stat().st_size == 0


def test_equip_twice_does_no_harm(made, connect):
    connection = connect()
    mldb.equip(connection)
    mldb.equip(connection)

    assert connection.execute("SELECT ml_submit('noop', 'x', NULL)").get == 2
    assert connection.execute("SELECT count(*) FROM ML_JOBS").get == 2


# ---- databases that cannot have a queue ---------------------------------------------------------------------------


@pytest.mark.parametrize("place", [":memory:", "", "file::memory:?cache=shared"])
def test_a_database_without_a_file_is_refused_with_the_reason(connect, place):
    connection = connect(place, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI)

    with pytest.raises(mldb.UsageError, match=r"needs a database in a file, because workers open it a second time"):
        mldb.attach(connection, workers=0)

    for sql in ("SELECT ml_init()", "SELECT ml_submit('noop', 'x', NULL)", "SELECT * FROM ML_JOBS"):
        with pytest.raises(mldb.MldbError):
            connection.execute(sql)


def test_a_database_in_the_memdb_vfs_is_refused(connect):
    connection = connect("/shared", vfs="memdb")

    with pytest.raises(mldb.MldbError):
        mldb.attach(connection, workers=0)


def test_attach_says_what_it_needs_when_it_gets_something_else(path):
    for other in (path, None, 5, object()):
        with pytest.raises(mldb.UsageError, match=r"attach needs an apsw.Connection, not "):
            mldb.attach(other, workers=0)


def test_attach_refuses_a_connection_of_another_sqlite_by_name(tmp_path):
    # In a process of its own: opening a second SQLite on a file is what must not happen here.
    script = (
        "import sqlite3, mldb\n"
        "try: mldb.attach(sqlite3.connect(':memory:'), workers=0)\n"
        "except mldb.UsageError as error: print(error)\n"
    )

    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout

    assert "not sqlite3.Connection; two SQLite libraries on one file in one process lose commits" in said


@pytest.mark.parametrize("workers", [-1, 1001, 1.5, "2", True, float("nan")])
def test_a_number_of_workers_that_cannot_be_right_is_refused_and_nothing_is_made(path, workers):
    with pytest.raises(mldb.UsageError, match="workers is a number of threads from 0 to 1000"):
        mldb.open(path, workers=workers)

    assert not Path(path).exists()


@pytest.mark.parametrize("place", ["", b""])
def test_an_empty_path_is_refused(place):
    with pytest.raises(mldb.UsageError):
        mldb.open(place, workers=0)


@pytest.mark.parametrize("synchronous", ["full", "EXTRA", "", None, 2])
def test_an_unknown_way_to_be_durable_is_refused(path, synchronous):
    with pytest.raises(mldb.UsageError, match="synchronous is 'FULL', 'NORMAL' or 'OFF'"):
        mldb.open(path, workers=0, synchronous=synchronous)


def test_attach_refuses_an_unknown_way_to_be_durable(connect):
    with pytest.raises(mldb.UsageError, match="synchronous is"):
        mldb.attach(connect(), workers=0, synchronous="EXTRA").submit("noop", "x")


# ---- files that cannot be worked on at the moment: told at once, never after a busy wait ---------------------------


def at_once(call):
    began = time.monotonic()
    with pytest.raises(mldb.MldbError) as caught:
        call()
    assert time.monotonic() - began < 1.5
    return str(caught.value)


def test_an_exclusive_connection_cannot_be_attached(connect):
    connection = connect()
    connection.pragma("locking_mode", "exclusive")
    connection.execute("CREATE TABLE t (x)")

    assert "PRAGMA locking_mode = NORMAL" in at_once(lambda: mldb.attach(connection, workers=0))


@pytest.mark.parametrize("sql", ["SELECT ml_submit('noop', 'x', NULL)", "SELECT ml_cancel(1)"])
def test_an_exclusive_connection_is_told_to_let_others_in(made, connect, sql):
    connection = connect()
    connection.pragma("locking_mode", "exclusive")
    mldb.equip(connection)

    assert "PRAGMA locking_mode = NORMAL" in at_once(lambda: connection.execute(sql).fetchall())


@pytest.mark.parametrize("sql", ["SELECT ml_submit('noop', 'x', NULL) FROM t", "SELECT ml_cancel(id) FROM ML_JOBS"])
def test_a_connection_that_becomes_exclusive_is_told_to_let_others_in(path, sql):
    # Alone, so that SQLite really takes the lock; the queue's own connections would keep it from that.
    script = f"""
import apsw, mldb, time
import mldb.connection
mldb.connection.BUSY_TIMEOUT_MS = 2000
connection = apsw.Connection({path!r})
mldb.equip(connection)
connection.execute("SELECT ml_init()").fetchall()
connection.execute("CREATE TABLE t (x); INSERT INTO t VALUES (1); INSERT INTO ml_job (kind) VALUES ('noop')").fetchall()
connection.execute("SELECT count(*) FROM ML_JOBS").fetchall()
connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
connection.execute("INSERT INTO t VALUES (2)").fetchall()
began = time.monotonic()
try:
    connection.execute({sql!r}).fetchall()
except mldb.MldbError as error:
    print(time.monotonic() - began < 1.5, error)
"""

    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert said.stdout.startswith("True"), said.stderr
    assert "PRAGMA locking_mode = NORMAL" in said.stdout


def test_a_database_that_is_not_in_wal_any_more_is_told_to_be_put_back(connect, path):
    connection = connect()
    mldb.equip(connection)
    connection.execute("SELECT ml_init()").fetchall()
    connection.execute("CREATE TABLE t (x); INSERT INTO t VALUES (1), (2)").fetchall()
    connection.execute("SELECT count(*) FROM ML_JOBS").fetchall()
    assert connection.pragma("journal_mode", "delete") == "delete"

    said = at_once(lambda: connection.execute("SELECT ml_submit('noop', 'x', NULL) FROM t").fetchall())

    assert "the queue needs journal mode WAL" in said
    assert connection.execute("SELECT ml_init()").get == 1
    assert connection.execute("SELECT ml_submit('noop', 'x', NULL) FROM t").fetchall() == [(1,), (2,)]


def test_a_schema_that_is_dropped_later_is_told_as_missing(connect):
    connection = connect()
    mldb.equip(connection)
    connection.execute("SELECT ml_init()").fetchall()
    connection.execute("SELECT count(*) FROM ML_JOBS").fetchall()
    for kind, name in connection.execute(
        "SELECT type, name FROM sqlite_schema WHERE name LIKE 'ml%' AND type IN ('table', 'view') ORDER BY type DESC"
    ).fetchall():
        connection.execute(f"DROP {kind} {name}")

    with pytest.raises((mldb.MldbError, apsw.SQLError)):
        connection.execute("SELECT ml_submit('noop', 'x', NULL)")


# ---- a queue in memory --------------------------------------------------------------------------------------------


def test_a_queue_in_memory_works_and_leaves_nothing_behind():
    q = mldb.open(":memory:", workers=0)
    place = Path(q.path)

    assert q.submit("noop", "x") == 1
    assert q.connection.execute(
        "SELECT ml_submit('noop', name, NULL) FROM (SELECT 'a' AS name UNION ALL SELECT 'b')"
    ).fetchall() == [
        (2,),
        (3,),
    ]
    assert place.exists()
    q.shutdown()
    assert not place.parent.exists()


def test_two_queues_in_memory_are_two():
    with mldb.open(":memory:", workers=0) as one, mldb.open(":memory:", workers=0) as other:
        one.submit("noop", "x")

        assert other.list() == []


def test_a_path_object_is_as_good_as_a_text(tmp_path):
    with mldb.open(tmp_path / "näme with space's.db", workers=0) as q:
        assert q.submit("noop", "x") == 1
        assert Path(q.path).samefile(tmp_path / "näme with space's.db")

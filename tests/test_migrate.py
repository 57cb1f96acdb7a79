"""How a file becomes a queue: steps of the schema, WAL, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import apsw
import pytest

import mldb
from mldb import migrate
from mldb.statements import Step, steps

EXTRA = Step(
    2,
    "notes",
    "CREATE TABLE ml_note (job_id INTEGER PRIMARY KEY, note TEXT) STRICT;"
    "ALTER TABLE ml_worker ADD COLUMN note TEXT;"
    "INSERT INTO ml_schema VALUES (2, 'notes', 0);",
)
THIRD = Step(3, "index", "CREATE INDEX ml_note_text ON ml_note (note); INSERT INTO ml_schema VALUES (3, 'index', 0);")
# Sound in an empty file, and broken in one that has a job.
BROKEN = """CREATE TABLE ml_count (jobs INTEGER CHECK (jobs = 0)) STRICT;
INSERT INTO ml_schema VALUES (%d, 'broken', 0);
INSERT INTO ml_count SELECT count(*) FROM ml_job;"""


def dump(connection):
    return connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2").fetchall()


def versions(connection):
    return connection.execute("SELECT version, name FROM ml_schema ORDER BY 1").fetchall()


def test_a_new_file_gets_wal_and_the_tables_and_says_so(connect):
    connection = connect()

    done = migrate.prepare(connection)

    assert done == [
        "switched to WAL",
        "made the queue's tables",
        *(f"applied step {s.version}, {s.name}" for s in steps()[1:]),
    ]
    assert connection.pragma("journal_mode") == "wal"
    assert versions(connection) == [(step.version, step.name) for step in steps()]


def test_the_second_time_nothing_is_done(connect):
    migrate.prepare(connect())

    assert migrate.prepare(connect()) == []


def test_a_rollback_journal_database_keeps_its_rows_and_gets_wal(connect):
    connection = connect()
    connection.execute("CREATE TABLE orders (name TEXT); INSERT INTO orders VALUES ('x')")
    assert connection.pragma("journal_mode") == "delete"

    migrate.prepare(connection)

    assert connection.execute("SELECT name FROM orders").get == "x"
    assert connection.pragma("journal_mode") == "wal"


def test_a_queue_that_was_put_back_to_a_rollback_journal_gets_wal_again(connect):
    connection = connect()
    migrate.prepare(connection)
    connection.pragma("journal_mode", "delete")

    assert migrate.prepare(connection) == ["switched to WAL"]


def test_a_later_step_is_applied_to_an_older_file(connect):
    connection = connect()
    migrate.prepare(connection)

    done = migrate.prepare(connection, plan=(*steps(), EXTRA, THIRD))

    assert done == ["applied step 2, notes", "applied step 3, index"]
    assert versions(connection)[1:] == [(2, "notes"), (3, "index")]
    assert migrate.prepare(connection, plan=(*steps(), EXTRA, THIRD)) == []


def test_all_steps_are_applied_to_a_new_file(connect):
    connection = connect()

    migrate.prepare(connection, plan=(*steps(), EXTRA, THIRD))

    assert [version for version, _ in versions(connection)] == [1, 2, 3]


def test_a_step_that_fails_leaves_nothing_and_can_be_tried_again(connect):
    connection = connect()
    migrate.prepare(connection)
    connection.execute("INSERT INTO ml_job (kind) VALUES ('noop')")
    before = dump(connection)

    with pytest.raises((apsw.ConstraintError, mldb.MldbError)):
        migrate.prepare(connection, plan=(*steps(), Step(2, "broken", BROKEN % 2)))

    assert not connection.in_transaction
    assert (dump(connection), len(versions(connection))) == (before, 1)
    assert migrate.prepare(connection, plan=(*steps(), EXTRA)) == ["applied step 2, notes"]


def test_a_step_that_fails_keeps_those_before_it(connect):
    connection = connect()
    migrate.prepare(connection)
    connection.execute("INSERT INTO ml_job (kind) VALUES ('noop')")

    with pytest.raises((apsw.ConstraintError, mldb.MldbError)):
        migrate.prepare(connection, plan=(*steps(), EXTRA, Step(3, "broken", BROKEN % 3)))

    assert [version for version, _ in versions(connection)] == [1, 2]
    assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'ml_count'").get == 0


def test_a_step_that_does_not_record_itself_is_refused_whole(connect):
    connection = connect()
    migrate.prepare(connection)
    before = dump(connection)

    with pytest.raises(mldb.MldbError, match="step 2 of the schema does not record itself"):
        migrate.prepare(connection, plan=(*steps(), Step(2, "shy", "CREATE TABLE ml_note (x) ")))

    assert dump(connection) == before


def test_a_queue_of_a_newer_mldb_is_refused(connect, path):
    connection = connect()
    migrate.prepare(connection, plan=(*steps(), EXTRA))
    before = dump(connection)

    with pytest.raises(mldb.NewerSchema, match=r"a newer mldb made this queue .*; upgrade mldb"):
        mldb.open(path, workers=0)

    mldb.equip(connection)
    for sql in ("SELECT ml_init()", "SELECT ml_submit('noop', 'x', NULL)", "SELECT * FROM ML_JOBS"):
        with pytest.raises(mldb.NewerSchema):
            connection.execute(sql)
    assert dump(connection) == before


def test_a_queue_of_an_older_mldb_is_told_to_migrate(connect, monkeypatch):
    connection = connect()
    migrate.prepare(connection)
    mldb.equip(connection)
    plan = (*steps(), EXTRA)
    monkeypatch.setattr(migrate, "steps", lambda: plan)

    with pytest.raises(mldb.NotInitialised, match=r"run SELECT ml_init\(\)"):
        connection.execute("SELECT ml_submit('noop', 'x', NULL)")

    assert connection.execute("SELECT ml_init()").get == 1
    assert connection.execute("SELECT ml_submit('noop', 'x', NULL)").get == 1


@pytest.mark.parametrize(
    "theirs",
    [
        "CREATE TABLE ml_job (id INTEGER)",
        "CREATE TABLE ML_JOB (id INTEGER)",
        "CREATE VIEW ml_job_list AS SELECT 1 AS id",
        "CREATE TABLE mine (x); CREATE INDEX ml_job_claim ON mine (x)",
        "CREATE TABLE mine (x); CREATE TRIGGER ml_job_is_born AFTER INSERT ON mine BEGIN SELECT 1; END",
        "CREATE TABLE ML_JOBS (id INTEGER)",
        "CREATE VIEW ml_jobs AS SELECT 1 AS id",
        "CREATE TABLE ml_schema (version INTEGER PRIMARY KEY, name TEXT)",
        "CREATE VIEW ml_schema AS SELECT 1 AS version",
        "CREATE TABLE ml_model (name TEXT PRIMARY KEY, pickle BLOB)",
    ],
)
def test_a_file_with_something_else_under_our_names_is_refused_and_left_as_it_is(connect, path, theirs):
    connection = connect()
    for _ in connection.execute(theirs):
        pass
    before = dump(connection)

    with pytest.raises(mldb.ForeignSchema, match="in this database is not mldb's; rename it or use another file"):
        mldb.open(path, workers=0)

    assert dump(connection) == before
    assert connection.pragma("journal_mode") == "delete"


def test_names_that_only_look_like_ours_are_left_to_their_owner(connect, path):
    connect().execute("CREATE TABLE ml_notes (x); CREATE VIEW mlops AS SELECT 1; CREATE TABLE jobs (x)").fetchall()

    with mldb.open(path, workers=0) as queue:
        assert queue.submit("noop", "x") == 1


@pytest.mark.parametrize(
    "damage",
    [
        "DROP INDEX ml_job_claim",
        "DROP TRIGGER ml_job_changes",
        "DROP VIEW ml_job_list",
        "DROP TABLE ml_spec",
        "ALTER TABLE ml_job ADD COLUMN colour TEXT",
        "ALTER TABLE ml_job RENAME COLUMN tag TO label",
    ],
)
def test_a_queue_whose_tables_were_altered_is_refused_by_name(connect, path, damage):
    connection = connect()
    migrate.prepare(connection)
    connection.execute(damage)

    with pytest.raises(mldb.ForeignSchema, match=r"^ml_\w+ in this database is not as mldb made it"):
        mldb.open(path, workers=0)


@pytest.mark.parametrize("made", ["CREATE TABLE ML_JOBS (id INTEGER)", "CREATE VIEW ml_jobs AS SELECT 1 AS id"])
def test_a_table_that_hides_ml_jobs_is_refused(connect, path, made):
    connection = connect()
    migrate.prepare(connection)
    connection.execute(made)

    with pytest.raises(mldb.ForeignSchema, match="hides the virtual table ML_JOBS; rename it"):
        mldb.open(path, workers=0)


def test_what_users_add_to_our_tables_does_no_harm(connect, path):
    connection = connect()
    migrate.prepare(connection)
    for sql in (
        "CREATE INDEX by_target ON ml_job (target_name)",
        "CREATE TABLE audit (id INTEGER)",
        "CREATE TRIGGER audited AFTER INSERT ON ml_job BEGIN INSERT INTO audit VALUES (NEW.id); END",
    ):
        connection.execute(sql)

    with mldb.open(path, workers=0) as queue:
        queue.submit("noop", "x")

        assert queue.connection.execute("SELECT id FROM audit").get == 1


TEMPORARY = ["ml_job", "ml_spec", "ml_move", "ml_schema", "ml_model", "ml_model_version", "ml_worker", "ml_job_list"]


def test_temporary_tables_under_our_names_catch_nothing(connection, queue):
    for name in TEMPORARY:
        connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM main.{name}")
    spec = '{"a": "' + "x" * 2000 + '"}'

    connection.execute("BEGIN")
    jobs = [
        connection.execute("SELECT ml_submit('noop', 'in a transaction', ?)", (spec,)).get,
        connection.execute("SELECT ml_submit('noop', 'with options', ?, '{\"unique\": \"u\"}')", (spec,)).get,
    ]
    connection.execute("INSERT INTO ML_JOBS (kind, target_name, spec_json) VALUES ('noop', 'inserted', ?)", (spec,))
    connection.execute("SELECT ml_cancel(?)", (jobs[0],)).fetchall()
    jobs.append(connection.execute("SELECT ml_retry(?)", (jobs[0],)).get)
    connection.execute("COMMIT")

    assert connection.execute("SELECT id, target_name, status, spec_json FROM ML_JOBS").fetchall() == [
        (1, "in a transaction", "cancelled", spec),
        (2, "with options", "queued", spec),
        (3, "inserted", "queued", spec),
        (4, "in a transaction", "queued", spec),
    ]
    assert jobs == [1, 2, 4]
    for name in ("ml_job", "ml_spec", "ml_job_list"):
        assert connection.execute(f"SELECT count(*) FROM temp.{name}").get == 0, name


def test_temporary_tables_under_our_names_do_not_make_a_file_foreign(connect):
    connection = connect()
    connection.execute("CREATE TEMP TABLE ml_job (x); CREATE TEMP TABLE ml_schema (version)").fetchall()

    assert "made the queue's tables" in migrate.prepare(connection)
    assert migrate.prepare(connection) == []


def contents(path):
    """Hash the files of a database in another process: closing a descriptor here would drop SQLite's locks."""
    return subprocess.run(["sha256sum", path, path + "-wal"], capture_output=True, check=True).stdout


def test_opening_an_up_to_date_file_writes_nothing(queue, connect, path):
    queue().submit("noop", "x")
    before, version = contents(path), connect().pragma("data_version")

    again = queue()
    again.connection.execute("SELECT count(*) FROM ML_JOBS").fetchall()

    assert again.connection.execute("SELECT ml_init()").get == 0
    assert contents(path) == before
    assert connect().pragma("data_version") == version


def test_a_queue_can_be_opened_while_another_process_writes(queue, connect):
    first = queue()
    first.submit("noop", "x")
    writer = connect()
    writer.execute("BEGIN IMMEDIATE")

    second = queue()

    assert second.get(1).status == "queued"


@pytest.mark.parametrize("how", ["attach", "ml_init"])
@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT s"])
def test_a_queue_is_not_made_inside_a_transaction(connect, how, begin):
    connection = connect()
    mldb.equip(connection)
    connection.execute(begin)

    with pytest.raises(mldb.UsageError, match="inside a transaction; COMMIT or ROLLBACK first"):
        mldb.attach(connection, workers=0) if how == "attach" else connection.execute("SELECT ml_init()")

    assert connection.in_transaction
    assert dump(connection) == []


def test_ml_init_in_a_transaction_gives_0_where_nothing_is_to_do(connection):
    connection.execute("BEGIN")

    assert connection.execute("SELECT ml_init()").get == 0
    assert connection.in_transaction


def test_ml_init_says_whether_it_did_something(connect):
    connection = connect()
    mldb.equip(connection)

    assert [connection.execute("SELECT ml_init()").get for _ in range(2)] == [1, 0]
    assert connection.execute("SELECT ml_submit('noop', 'x', NULL)").get == 1


def test_a_locked_file_is_told_in_plain_words(impatient, connect, path):
    connect().execute("BEGIN EXCLUSIVE; CREATE TABLE t (x)").fetchall()
    connection = connect()
    connection.set_busy_timeout(0)

    with pytest.raises(mldb.Busy):
        mldb.attach(connection, workers=0)


def test_a_file_in_wal_that_another_writes_to_is_told_in_plain_words(impatient, connect):
    writer = connect()
    writer.pragma("journal_mode", "wal")
    writer.execute("BEGIN IMMEDIATE")
    connection = connect()
    connection.set_busy_timeout(0)

    with pytest.raises(mldb.Busy):
        mldb.attach(connection, workers=0)


def test_an_attached_file_is_not_where_the_queue_is_made(connect, tmp_path):
    connection = connect()
    connection.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))

    migrate.prepare(connection)

    assert connection.execute("SELECT count(*) FROM other.sqlite_schema").get == 0
    assert connection.pragma("journal_mode", schema="other") == "delete"


def test_a_file_that_is_no_database_is_refused(path):
    Path(path).write_text("no database at all, but long enough to have a header of a hundred bytes" * 3)

    with pytest.raises(mldb.MldbError, match="is not a SQLite database; give another file"):
        mldb.open(path, workers=0)


def test_a_place_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(mldb.MldbError, match="cannot open"):
        mldb.open(tmp_path / "missing" / "shop.db", workers=0)


OPEN = """
import sys
import mldb

sys.stdin.readline()
with mldb.open(sys.argv[1], workers=0) as queue:
    print(queue.submit("noop", "x"))
"""


def test_twenty_processes_may_open_a_new_file_at_once(path, connect):
    started = [
        subprocess.Popen([sys.executable, "-c", OPEN, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(20)
    ]

    for each in started:
        each.stdin.write("go\n")
        each.stdin.flush()
    given = sorted(int(each.communicate()[0]) for each in started)

    assert [each.returncode for each in started] == [0] * 20
    assert given == list(range(1, 21))
    assert versions(connect()) == [(step.version, step.name) for step in steps()]


INIT = """
import sys
import apsw
import mldb

connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(10000)
mldb.equip(connection)
sys.stdin.readline()
print(connection.execute("SELECT ml_init()").get)
"""


def test_of_many_that_init_a_new_file_in_sql_none_fails(path, connect):
    started = [
        subprocess.Popen([sys.executable, "-c", INIT, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(10)
    ]

    for each in started:
        each.stdin.write("go\n")
        each.stdin.flush()
    answers = [each.communicate()[0].strip() for each in started]

    assert set(answers) <= {"0", "1"}
    assert "1" in answers
    assert len(versions(connect())) == len(steps())


def test_the_steps_are_numbered_from_1_without_a_gap():
    assert [step.version for step in steps()] == list(range(1, len(steps()) + 1))
    assert steps()[0].sql == resources.files("mldb.sql").joinpath("schema.sql").read_text("utf-8")

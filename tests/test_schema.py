"""What the tables hold against plain SQL, in APSW's SQLite and in the stock shell."""

from __future__ import annotations

import itertools
import re
from importlib import resources

import apsw
import pytest

from mldb.job import STATUSES, TERMINAL, Job

SCHEMA = resources.files("mldb.sql").joinpath("schema.sql").read_text("utf-8")
# From the contract, not read from ml_move: the table is what is under test.
MOVES = {
    ("queued", "running"),
    ("queued", "cancelled"),
    ("running", "completed"),
    ("running", "failed"),
    ("running", "cancelled"),
    ("running", "queued"),
}
# What a careful writer sets along with a status, so that nothing but the move itself can be wrong.
BECOMES = {
    "queued": "status = 'queued', owner = NULL, started_at_ms = NULL, progress = 0, finished_at_ms = NULL,"
    " stopped_at_ms = NULL, error_message = NULL, metrics_json = NULL",
    "running": "status = 'running', owner = 'v', started_at_ms = 5, finished_at_ms = NULL, stopped_at_ms = NULL",
    "completed": "status = 'completed', progress = 100, finished_at_ms = 6, stopped_at_ms = 6, error_message = NULL",
    "failed": "status = 'failed', error_message = 'no', finished_at_ms = 6, stopped_at_ms = 6",
    "cancelled": "status = 'cancelled', finished_at_ms = 6, stopped_at_ms = 6",
}
ROW = "SELECT * FROM ml_job ORDER BY id"


def rows(connection, sql=ROW):
    return connection.execute(sql).fetchall()


def objects(connection):
    return rows(
        connection,
        "SELECT type, lower(name), tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY 1, 2",
    )


def test_the_stock_shell_makes_the_same_objects_as_open(shell, queue, connect, tmp_path):
    by_shell = str(tmp_path / "shell.db")

    shell(SCHEMA, by_shell)
    queue(str(tmp_path / "open.db"))

    assert objects(connect(by_shell)) == objects(connect(str(tmp_path / "open.db")))


def test_a_file_made_by_the_stock_shell_is_a_queue(shell, queue, path):
    shell(SCHEMA + "INSERT INTO ml_job (kind, target_name) VALUES ('noop', 'by shell');")

    job = queue().get(1)

    assert (job.kind, job.target_name, job.status, job.spec_json) == ("noop", "by shell", "queued", "{}")


def test_the_schema_run_twice_in_the_shell_changes_nothing(shell):
    shell(SCHEMA)
    before = shell(".dump")

    shell(SCHEMA, fails=True)

    assert shell(".dump") == before


@pytest.mark.parametrize(("was", "becomes"), list(itertools.product(STATUSES, repeat=2)))
def test_only_the_moves_of_the_contract_can_be_made(connection, job_in, was, becomes):
    job = job_in(connection, was)
    before = rows(connection)
    change = f"UPDATE ml_job SET {BECOMES[becomes]} WHERE id = {job}"

    if (was, becomes) in MOVES or (was == becomes and was not in TERMINAL):
        connection.execute(change)

        assert rows(connection, "SELECT status FROM ml_job") == [(becomes,)]
    else:
        with pytest.raises(apsw.ConstraintError, match=r"finished job never changes|cannot make this change"):
            connection.execute(change)

        assert rows(connection) == before


@pytest.mark.parametrize("way", ["OR REPLACE", "OR IGNORE", "OR FAIL", "OR ROLLBACK"])
@pytest.mark.parametrize(
    ("was", "becomes"), [m for m in itertools.product(STATUSES, repeat=2) if m not in MOVES and m[0] != m[1]]
)
def test_no_conflict_clause_gets_a_job_past_the_moves(connection, job_in, way, was, becomes):
    job = job_in(connection, was)
    before = rows(connection)

    with pytest.raises(apsw.ConstraintError):
        connection.execute(f"UPDATE {way} ml_job SET {BECOMES[becomes]} WHERE id = {job}")

    assert rows(connection) == before


def test_the_stock_shell_refuses_a_wrong_move_in_the_same_words(shell):
    shell(SCHEMA + "INSERT INTO ml_job (kind) VALUES ('noop');")

    said = shell(
        "UPDATE ml_job SET status = 'completed', progress = 100, finished_at_ms = 1, stopped_at_ms = 1;",
        fails=True,
    )

    assert "a job cannot make this change of status; SELECT * FROM ml_move lists those it can" in said
    assert shell("SELECT status FROM ml_job") == "queued\n"


@pytest.mark.parametrize("status", sorted(TERMINAL))
@pytest.mark.parametrize("body", [False, True])
def test_no_column_of_a_finished_job_can_be_changed(connection, job_in, status, body):
    job = job_in(connection, status, body=body and status != "completed", tag="t", max_attempts=3)
    before = rows(connection)
    names = [row[1] for row in connection.execute("PRAGMA table_info(ml_job)")]

    for name, value in zip(names, before[0], strict=True):
        others = ["'{\"x\": 1}'" if name.endswith("_json") else "77"]
        others += [] if value is None else ["NULL"]
        for other in others if name != "stopped_at_ms" else []:
            # An id that is NULL does not even get to the rules.
            with pytest.raises((apsw.ConstraintError, apsw.MismatchError)):
                connection.execute(f"UPDATE ml_job SET {name} = {other}, stopped_at_ms = 9 WHERE id = ?", (job,))
        assert rows(connection) == before, name


@pytest.mark.parametrize("status", ["cancelled", "failed"])
def test_the_end_of_a_body_is_noted_once(connection, job_in, status):
    job = job_in(connection, status, body=True)

    connection.execute("UPDATE ml_job SET stopped_at_ms = 3000 WHERE id = ?", (job,))

    for again in ("3001", "NULL"):
        with pytest.raises(apsw.ConstraintError, match="a finished job never changes"):
            connection.execute(f"UPDATE ml_job SET stopped_at_ms = {again} WHERE id = ?", (job,))
    assert rows(connection, "SELECT stopped_at_ms FROM ml_job") == [(3000,)]


@pytest.mark.parametrize("identifier", [-(2**63), -2, -1, 0, 1, 7, 2**63 - 1])
@pytest.mark.parametrize("verb", ["INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE", "REPLACE"])
@pytest.mark.parametrize("column", ["id", "rowid"])
def test_a_job_never_gets_an_id_of_somebody_elses_choosing(connection, identifier, verb, column):
    connection.execute("INSERT INTO ml_job (kind) VALUES ('first')")

    with pytest.raises(apsw.ConstraintError, match="leave id out"):
        connection.execute(f"{verb} INTO ml_job ({column}, kind) VALUES (?, 'mine')", (identifier,))

    assert rows(connection, "SELECT id, kind FROM ml_job") == [(1, "first")]


def test_an_id_that_is_null_is_as_one_left_out(connection):
    connection.execute("INSERT INTO ml_job (id, kind) VALUES (NULL, 'noop')")

    assert rows(connection, "SELECT id FROM ml_job") == [(1,)]


@pytest.mark.parametrize(
    "columns",
    [
        "status) VALUES ('noop', 'running'",
        "status) VALUES ('noop', 'completed'",
        "status) VALUES ('noop', 'waiting'",
        "attempt) VALUES ('noop', 1",
        "crashes) VALUES ('noop', 1",
        "owner) VALUES ('noop', 'me'",
        "started_at_ms) VALUES ('noop', 1",
        "finished_at_ms) VALUES ('noop', 1",
        "stopped_at_ms) VALUES ('noop', 1",
        "error_message) VALUES ('noop', 'x'",
        "metrics_json) VALUES ('noop', '{}'",
        "progress) VALUES ('noop', 1",
        "spec_json) VALUES ('noop', '[1]'",
        "spec_json) VALUES ('noop', 'null'",
        "spec_json) VALUES ('noop', ''",
        "spec_json) VALUES ('noop', '{a:1}'",
        "spec_json) VALUES ('noop', '{\"a\": NaN}'",
        "spec_json) VALUES ('noop', x'7b7d'",
        "spec_json) VALUES ('noop', '{\"a\":\"' || replace(hex(zeroblob(524288)), '0', 'x') || '\"}'",
        "target_name) VALUES ('noop', replace(hex(zeroblob(501)), '0', 'x')",
        "run_at_ms) VALUES ('noop', -1",
        "run_at_ms) VALUES ('noop', 'tomorrow'",
        "due) VALUES ('noop', 0",
        "max_attempts) VALUES ('noop', 0",
        "max_attempts) VALUES ('noop', 1001",
        "timeout_s) VALUES ('noop', 0",
        "timeout_s) VALUES ('noop', -1",
        "backoff_s) VALUES ('noop', -1",
        "unique_key) VALUES ('noop', ''",
        "priority) VALUES ('noop', 'high'",
        "priority) VALUES ('noop', 1.5",
        "tag) VALUES (NULL, 'no kind'",
        "tag) VALUES ('', 'empty kind'",
        "tag) VALUES (x'6e', 'a blob as kind'",
        "tag) VALUES (replace(hex(zeroblob(101)), '0', 'x'), 'a long kind'",
    ],
)
@pytest.mark.parametrize("verb", ["INSERT", "INSERT OR REPLACE"])
def test_a_job_that_cannot_be_right_is_not_born(connection, columns, verb):
    with pytest.raises(apsw.ConstraintError):
        connection.execute(f"{verb} INTO ml_job (kind, {columns})")

    assert rows(connection) == []


@pytest.mark.parametrize("column", ["kind", "target_name", "progress", "created_at_ms", "priority", "max_attempts"])
def test_a_job_without_a_needed_value_is_not_born(connection, column):
    columns = {"kind": "'noop'", column: "NULL"}

    with pytest.raises(apsw.ConstraintError, match=f"NOT NULL constraint failed: ml_job.{column}"):
        connection.execute(f"INSERT INTO ml_job ({', '.join(columns)}) VALUES ({', '.join(columns.values())})")

    assert rows(connection) == []


@pytest.mark.parametrize("column", ["kind", "target_name"])
def test_a_nul_character_does_not_smuggle_a_long_text_in(connection, column):
    columns = {"kind": "'noop'", "target_name": "''", column: "'a' || char(0) || hex(zeroblob(100000))"}

    with pytest.raises(apsw.ConstraintError):
        connection.execute(f"INSERT INTO ml_job ({', '.join(columns)}) VALUES ({', '.join(columns.values())})")

    assert rows(connection) == []


def test_a_spec_with_something_behind_a_nul_character_is_not_json(connection):
    with pytest.raises(apsw.ConstraintError):
        connection.execute("INSERT INTO ml_job (kind, spec_json) VALUES ('noop', '{}' || char(0) || 'junk')")

    assert rows(connection) == []


def test_the_stock_shell_refuses_a_spec_with_something_behind_a_nul_character(shell):
    shell(SCHEMA)

    shell("INSERT INTO ml_job (kind, spec_json) VALUES ('noop', '{}' || char(0) || 'junk');", fails=True)

    assert shell("SELECT count(*) FROM ml_job") == "0\n"


@pytest.mark.parametrize("status", ["queued", "running", "cancelled", "failed"])
def test_a_live_job_cannot_be_deleted(connection, job_in, status):
    job = job_in(connection, status, body=True)

    with pytest.raises(apsw.ConstraintError, match="a live job cannot be deleted"):
        connection.execute("DELETE FROM ml_job")

    assert rows(connection, "SELECT id FROM ml_job") == [(job,)]


def test_a_deleted_job_takes_what_belongs_to_it_along(connection, job_in):
    job = job_in(connection, "completed", spec_json='{"a": "' + "x" * 2000 + '"}')
    other = job_in(connection, "completed", spec_json='{"a": "' + "y" * 2000 + '"}')
    for each in (job, other):
        connection.execute("INSERT INTO ml_log VALUES (?, 1, 1, 1, 'line')", (each,))
        connection.execute("INSERT INTO ml_metric VALUES (?, 1, 1, 1, 'loss', 1, 0.5)", (each,))
        connection.execute("INSERT INTO ml_checkpoint VALUES (?, 1, 1, '{}')", (each,))

    connection.execute("DELETE FROM ml_job WHERE id = ?", (job,))

    for table in ("ml_log", "ml_metric", "ml_checkpoint", "ml_spec"):
        assert rows(connection, f"SELECT job_id FROM {table}") == [(other,)], table


def test_a_unique_key_is_held_by_one_live_job_of_a_kind(connection, job_in):
    job_in(connection, "queued", unique_key="k")
    job_in(connection, "queued", unique_key="k", kind="another")

    for verb in ("INSERT", "INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE"):
        with pytest.raises(apsw.ConstraintError, match="a live job of this kind has this unique key"):
            connection.execute(f"{verb} INTO ml_job (kind, unique_key) VALUES ('noop', 'k')")

    assert rows(connection, "SELECT id, kind FROM ml_job") == [(1, "noop"), (2, "another")]


@pytest.mark.parametrize(
    ("status", "body", "free"),
    [
        ("running", False, False),
        ("cancelled", True, False),
        ("failed", True, False),
        ("completed", False, True),
        ("cancelled", False, True),
        ("failed", False, True),
    ],
)
def test_a_unique_key_is_free_again_once_the_body_has_ended(connection, job_in, status, body, free):
    job_in(connection, status, body=body, unique_key="k")
    again = "INSERT INTO ml_job (kind, unique_key) VALUES ('noop', 'k')"

    if free:
        connection.execute(again)
    else:
        with pytest.raises(apsw.ConstraintError):
            connection.execute(again)

    assert rows(connection, "SELECT count(*) FROM ml_job") == [(1 + free,)]


def test_a_unique_key_cannot_be_moved_to_another_job(connection, job_in):
    job_in(connection, "queued", unique_key="k")
    other = job_in(connection, "queued", unique_key="l")

    for verb in ("UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE"):
        with pytest.raises(apsw.ConstraintError):
            connection.execute(f"{verb} ml_job SET unique_key = 'k' WHERE id = ?", (other,))

    assert rows(connection, "SELECT id, unique_key FROM ml_job") == [(1, "k"), (2, "l")]


@pytest.mark.parametrize(
    "column", ["id", "kind", "target_name", "created_at_ms", "retry_of", "unique_key", "spec_json"]
)
@pytest.mark.parametrize("large", [False, True])
def test_what_a_job_is_to_do_never_changes(connection, job_in, column, large):
    spec = '{"a": "' + "x" * (2000 if large else 1) + '"}'
    job = job_in(connection, "queued", spec_json=spec)
    before = rows(connection, "SELECT * FROM ml_job_list")
    value = "'{}'" if column == "spec_json" else "99"

    for verb in ("UPDATE", "UPDATE OR REPLACE"):
        with pytest.raises(apsw.ConstraintError):
            connection.execute(f"{verb} ml_job SET {column} = {value} WHERE id = ?", (job,))

    assert rows(connection, "SELECT * FROM ml_job_list") == before


def test_a_small_spec_cannot_be_emptied(connection, job_in):
    job = job_in(connection, "queued", spec_json='{"a": 1}')

    with pytest.raises(apsw.ConstraintError, match="what a job is to do never changes"):
        connection.execute("UPDATE ml_job SET spec_json = NULL WHERE id = ?", (job,))

    assert rows(connection, "SELECT spec_json FROM ml_job_list") == [('{"a": 1}',)]


def test_a_large_spec_cannot_be_changed_where_it_lies(connection, job_in):
    spec = '{"a": "' + "x" * 2000 + '"}'
    job_in(connection, "queued", spec_json=spec)

    for change in ("UPDATE ml_spec SET spec_json = '{}'", "DELETE FROM ml_spec"):
        with pytest.raises(apsw.ConstraintError):
            connection.execute(change)

    assert rows(connection, "SELECT spec_json FROM ml_job_list") == [(spec,)]


def test_ids_grow_and_are_not_given_twice_after_a_delete(connection, job_in):
    job_in(connection, "completed")
    last = job_in(connection, "completed")

    connection.execute("DELETE FROM ml_job")

    assert job_in(connection, "queued") == last + 1


def test_the_stock_shell_never_gives_an_id_twice(shell):
    shell(SCHEMA + "INSERT INTO ml_job (kind) VALUES ('a'), ('b');")
    shell("UPDATE ml_job SET status = 'cancelled', finished_at_ms = 1, stopped_at_ms = 1; DELETE FROM ml_job;")

    shell("INSERT INTO ml_job (kind) VALUES ('c');")

    assert shell("SELECT id FROM ml_job") == "3\n"


def test_a_trigger_of_the_user_enqueues_by_a_plain_insert(connection):
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")
    connection.execute(
        """CREATE TRIGGER enqueue AFTER INSERT ON orders BEGIN
             INSERT INTO ml_job (kind, target_name, spec_json)
             VALUES ('train', NEW.name, json_object('query', 'SELECT ' || NEW.id, 'note', hex(zeroblob(1000))));
           END"""
    )

    connection.execute("INSERT INTO orders (name) VALUES ('x'), ('y')")

    assert rows(connection, "SELECT id, kind, target_name, json_extract(spec_json, '$.query') FROM ML_JOBS") == [
        (1, "train", "x", "SELECT 1"),
        (2, "train", "y", "SELECT 2"),
    ]
    assert connection.last_insert_rowid() == 2
    assert connection.changes() == 2


def test_a_trigger_of_the_user_works_in_the_stock_shell(shell):
    shell(SCHEMA)

    printed = shell(
        """CREATE TABLE orders (name TEXT);
           CREATE TRIGGER enqueue AFTER INSERT ON orders BEGIN
             INSERT INTO ml_job (kind, target_name, run_at_ms) VALUES ('noop', NEW.name, 5);
           END;
           INSERT INTO orders VALUES ('x');
           SELECT id, target_name, status, due, run_at_ms FROM ml_job;"""
    )

    assert printed == "1|x|queued|0|5\n"


def test_a_refused_job_takes_the_users_row_with_it(connection):
    connection.execute("CREATE TABLE orders (name TEXT)")
    connection.execute(
        "CREATE TRIGGER enqueue AFTER INSERT ON orders BEGIN "
        "INSERT INTO ml_job (kind, target_name, spec_json) VALUES ('noop', NEW.name, 'not json'); END"
    )

    with pytest.raises(apsw.ConstraintError, match="spec_json_is_a_json_object"):
        connection.execute("INSERT INTO orders VALUES ('x')")

    assert rows(connection, "SELECT count(*) FROM orders") == [(0,)]


def test_a_plain_insert_for_later_is_not_due_and_keeps_its_large_spec(connection):
    spec = '{"a": "' + "x" * 2000 + '"}'

    connection.execute("INSERT INTO ml_job (kind, spec_json, run_at_ms) VALUES ('noop', ?, 5)", (spec,))

    assert rows(connection, "SELECT due, run_at_ms, spec_json FROM ml_job") == [(0, 5, None)]
    assert rows(connection, "SELECT spec_json FROM ml_job_list") == [(spec,)]


def test_the_statuses_of_python_are_those_of_the_schema():
    listed = re.search(r"CHECK \(status IN \(([^)]*)\)\)", SCHEMA)

    assert listed is not None
    assert re.findall(r"'(\w+)'", listed[1]) == list(STATUSES)


def test_the_terminal_statuses_of_python_are_those_that_no_move_leaves(connection):
    leaving = {was for (was,) in connection.execute("SELECT was FROM ml_move")}

    assert set(STATUSES) - leaving == TERMINAL


def test_the_moves_in_the_file_are_those_of_the_contract(connection):
    assert set(connection.execute("SELECT was, becomes FROM ml_move")) == MOVES


def test_a_job_in_python_has_the_columns_of_ml_job_list(connection):
    columns = [row[1] for row in connection.execute("PRAGMA table_info(ml_job_list)")]

    assert list(Job.__dataclass_fields__) == columns


def test_the_views_show_what_the_tables_hold(connection, job_in):
    job = job_in(connection, "running")
    connection.execute("INSERT INTO ml_log VALUES (?, 1, 1, 10, 'line')", (job,))
    connection.execute("INSERT INTO ml_metric VALUES (?, 1, 1, 11, 'loss', 3, 0.5)", (job,))
    connection.execute("INSERT INTO ml_worker VALUES ('w', 7, 1, 'p', 'b', 'h', 2, 1, 1, 1)")
    connection.execute("INSERT INTO ml_worker_kind VALUES ('noop', 'w')")

    assert rows(connection, "SELECT job_id, at_ms, attempt, line FROM ML_JOB_LOG") == [(job, 10, 1, "line")]
    assert rows(connection, "SELECT job_id, at_ms, attempt, name, step, value FROM ML_JOB_METRICS") == [
        (job, 11, 1, "loss", 3, 0.5)
    ]
    assert rows(connection, "SELECT id, pid, threads, kinds, running FROM ML_WORKERS") == [("w", 7, 2, "noop", 1)]


def test_a_queued_job_says_why_it_waits(connection, job_in):
    alone = job_in(connection, "queued")
    later = job_in(connection, "queued", run_at_ms=1_893_456_000_000)
    said = "SELECT message FROM ML_JOB_LIST WHERE id = ?"
    now = "(julianday('now') - 2440587.5) * 86400000"

    assert "no worker is running" in connection.execute(said, (alone,)).get

    connection.execute(f"INSERT INTO ml_worker SELECT 'w', 7, 1, 'p', 'b', 'h', 2, 1, CAST({now} AS INTEGER), 1")

    assert connection.execute(said, (alone,)).get == "no running worker handles kind noop"
    assert connection.execute(said, (later,)).get == "waiting until 2030-01-01 00:00:00 UTC"


def test_a_cancelled_job_says_that_its_handler_still_runs(connection, job_in):
    job = job_in(connection, "cancelled", body=True)

    said = connection.execute("SELECT message FROM ML_JOB_LIST WHERE id = ?", (job,)).get

    assert said == "its handler has not stopped yet"


def test_a_time_past_the_range_of_dates_is_refused_and_the_last_one_has_words(connection, job_in):
    with pytest.raises(apsw.ConstraintError, match="run_at_ms_is_in_the_years_1970_to_9999"):
        job_in(connection, "queued", run_at_ms=253402300800000)
    job = job_in(connection, "queued", run_at_ms=253402300799999)

    assert connection.execute("SELECT message FROM ML_JOB_LIST WHERE id = ?", (job,)).get is not None

"""Each statement that runs often uses its index, on both SQLites, analysed or not, whatever other indexes there are."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import resources

import apsw
import pytest

from mldb.statements import statements

SCHEMA = resources.files("mldb.sql").joinpath("schema.sql").read_text("utf-8")
ROWID = "USING INTEGER PRIMARY KEY"
# Statement: what its plan must name.
HOT = {
    ("jobs", "live_job_with_key"): ["ml_job_unique"],
    ("jobs", "cancel_job"): [ROWID],
    ("jobs", "retry_job"): [ROWID],
    ("jobs", "job_status"): [ROWID],
    ("jobs", "old_jobs"): [ROWID],
    ("jobs", "delete_jobs"): [ROWID],
    ("jobs", "get_job"): [ROWID],
    ("jobs", "list_jobs_up"): [ROWID],
    ("jobs", "scan_jobs_up"): [ROWID],
    ("jobs", "list_jobs_down"): [ROWID],
    ("jobs", "pick_jobs_up"): [f"ml_job_{each}" for each in ("queued", "running", "completed", "failed", "cancelled")],
    ("jobs", "pick_jobs_down"): [
        f"ml_job_{each}" for each in ("queued", "running", "completed", "failed", "cancelled")
    ],
    ("jobs", "list_picked_jobs"): [ROWID],
    ("jobs", "list_picked_jobs_down"): [ROWID],
    ("models", "next_model_version"): ["PRIMARY KEY"],
    ("models", "active_version"): ["PRIMARY KEY"],
    ("models", "model_version"): ["PRIMARY KEY"],
    ("models", "load_model"): ["PRIMARY KEY", "sqlite_autoindex_ml_model_content_1"],
    ("pool", "waiting_jobs"): ["ml_job_claim"],
    ("pool", "claim_jobs"): [ROWID],
    ("pool", "claim_unread"): [ROWID],
    ("pool", "large_spec"): [ROWID],
    ("pool", "complete_jobs"): [ROWID],
    ("pool", "fail_job"): [ROWID],
    ("pool", "postpone_job"): [ROWID],
    ("pool", "release_job"): [ROWID],
    ("pool", "stop_job"): [ROWID],
    ("pool", "note_progress"): [ROWID],
    ("pool", "still_held"): [ROWID],
    ("pool", "held_and_cancelled"): ["ml_job_held"],
    ("pool", "held_jobs"): ["ml_job_held"],
    ("pool", "body_of"): ["ml_job_held"],
    ("pool", "next_due_time"): ["ml_job_scheduled"],
    ("pool", "promote_due_jobs"): ["ml_job_scheduled", ROWID],
    ("pool", "last_queued_id"): ["ml_job_claim"],
    ("pool", "add_log_line"): [ROWID],
    ("pool", "add_metric"): [ROWID],
    ("pool", "get_checkpoint"): [ROWID],
    ("workers", "beat"): ["PRIMARY KEY"],
    ("workers", "requeue_jobs_of"): ["ml_job_held"],
    ("workers", "stop_jobs_of"): ["ml_job_held"],
    ("workers", "owners_without_worker"): ["ml_job_held"],
    ("workers", "forget_worker"): ["PRIMARY KEY"],
}
# Run at the start, per worker or upon an error; their tables are small, or the answer is one end of an index.
REST = {
    ("jobs", "submit_job"),
    ("jobs", "submit_job_with_options"),
    ("jobs", "as_text"),
    ("jobs", "last_job_id"),
    ("jobs", "job_columns"),
    ("models", "add_model_version"),
    ("models", "add_model_content"),
    ("models", "activate_model"),
    ("models", "unfinished_training"),
    ("pool", "keep_checkpoint"),
    ("submit", "submission_problem"),
    ("submit", "read_options"),
    ("workers", "register_worker"),
    ("workers", "register_kind"),
    ("workers", "list_workers"),
    ("workers", "forget_kinds"),
}
VALUES = {
    "id": "5",
    "kind": "'noop'",
    "target": "'x'",
    "target_name": "NULL",
    "name": "'m'",
    "version": "1",
    "unique_key": "'k'",
    "first": "1",
    "last": "9223372036854775807",
    "count": "10",
    "after": "0",
    "before": "5",
    "now": "5",
    "owner": "'w'",
    "attempt": "1",
    "status": "'queued'",
    "statuses": "'[\"queued\"]'",
    "ids": "'[1, 2]'",
    "since": "5",
    "run_at_ms": "5",
    "endings": "'[[1, 1, null]]'",
}
# Tables of one row per value of a JSON array or worker, and the values of an IN.
SMALL = re.compile(r"json_each|SCAN CONSTANT ROW|SCAN (?:\(?subquery|ended|ml_worker|known|worker)", re.IGNORECASE)
FILL = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
INSERT INTO ml_job (kind, target_name, priority, unique_key, run_at_ms)
SELECT iif(i % 3, 'noop', 'other'), 't' || i % 5, i % 2, iif(i % 9, NULL, i), iif(i % 7, NULL, i) FROM n;
UPDATE ml_job SET status = 'cancelled', finished_at_ms = 1, stopped_at_ms = 1 WHERE id > 60;
UPDATE ml_job SET status = 'running', owner = 'w' || id % 3, started_at_ms = 1 WHERE id < 20;
INSERT INTO ml_worker VALUES ('w', 7, 1, 'p', 'b', 'h', 2, 1, 1, 1);
"""
EXTRA = """
CREATE INDEX user_status ON ml_job (status);
CREATE INDEX user_kind ON ml_job (kind, status, id);
CREATE INDEX user_priority ON ml_job (priority DESC, id);
CREATE INDEX user_owner ON ml_job (owner, attempt, status, id);
CREATE INDEX user_stopped ON ml_job (stopped_at_ms, finished_at_ms);
CREATE INDEX user_run_at ON ml_job (run_at_ms, due, status);
"""
STATES = {"empty": "", "filled": FILL, "analysed": FILL + "ANALYZE;", "with other indexes": FILL + EXTRA + "ANALYZE;"}


@pytest.fixture(scope="module", params=list(STATES))
def file(request, tmp_path_factory):
    """A file in one of the states."""
    path = str(tmp_path_factory.mktemp("plans") / "shop.db")
    connection = apsw.Connection(path)
    for _ in connection.execute(SCHEMA + STATES[request.param]):
        pass
    connection.close()
    return path


def literal(sql):
    """Put values in the place of parameters: the shell binds none, and a plan may not depend on them."""
    return re.sub(r"(?<![:\w]):([a-z_]+)", lambda found: VALUES.get(found[1], "'x'"), sql)


def require_index(plan, needed):
    text = "\n".join(plan)
    for each in needed:
        assert each in text, text
    for step in plan:
        assert "TEMP B-TREE" not in step, text
        assert "AUTOMATIC" not in step, text
        # An ordered walk through a partial index, or to one end of an index, is no search of the table.
        walk = re.search(
            r"^SCAN .*USING (COVERING )?INDEX ml_job_(queued|running|completed|failed|cancelled|scheduled|held|claim)",
            step,
        )
        assert not step.startswith("SCAN") or SMALL.search(step) or walk, text


@pytest.mark.parametrize(("group", "name"), list(HOT))
def test_a_hot_statement_uses_its_index_on_apsw(file, connect, group, name):
    connection = connect(file, flags=apsw.SQLITE_OPEN_READONLY)
    sql = statements(group)[name]
    named = set(re.findall(r"(?<![:\w]):([a-z_]+)", sql))

    for explained in (literal(sql), sql):
        bindings = dict.fromkeys(named) if explained is sql and named else None
        plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + explained, bindings)]

        require_index(plan, HOT[group, name])


def test_the_hot_statements_use_their_indexes_in_the_stock_shell(file):
    program = shutil.which("sqlite3", path="/usr/bin:/bin")
    if program is None:
        pytest.skip("there is no sqlite3 program here")
    script = "".join(f".print == {g} {n}\nEXPLAIN QUERY PLAN {literal(statements(g)[n])};\n" for g, n in HOT)

    printed = subprocess.run(
        [program, "-batch", "-bail", file], input=script, capture_output=True, text=True, check=True
    )

    for part in printed.stdout.split("== ")[1:]:
        head, *lines = part.splitlines()
        plan = [line.lstrip("|`- ") for line in lines if line.strip() and line != "QUERY PLAN"]
        require_index(plan, HOT[tuple(head.split())])


@pytest.mark.parametrize(("group", "name"), [key for key, needed in HOT.items() if needed[0].startswith("ml_job_")])
def test_a_hot_statement_names_its_partial_index_so_that_no_other_is_chosen(group, name):
    for index in HOT[group, name]:
        if index.startswith("ml_job_"):
            assert f"INDEXED BY {index}" in statements(group)[name]


def test_every_statement_is_either_hot_or_known_not_to_be():
    every = {(group, name) for group in ("jobs", "models", "pool", "submit", "workers") for name in statements(group)}

    assert every == HOT.keys() | REST
    assert not HOT.keys() & REST


def test_the_highest_id_is_found_without_a_scan(file, connect):
    connection = connect(file, flags=apsw.SQLITE_OPEN_READONLY)

    program = [row[1] for row in connection.execute("EXPLAIN " + statements("jobs")["last_job_id"])]

    assert "Last" in program or "SeekLE" in program


def test_a_claim_reads_only_what_it_claims(connect, path):
    connection = connect()
    for _ in connection.execute(SCHEMA + FILL):
        pass
    sql = statements("pool")["waiting_jobs"]
    rows = connection.execute(sql, {"kind": "noop", "last": 2**63 - 1, "count": 5}).fetchall()

    steps = []
    for backlog in (0, 20_000):
        connection.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <= ?)"
            " INSERT INTO ml_job (kind, priority) SELECT 'noop', -1 FROM n",
            (backlog,),
        )
        count = [0]
        connection.set_progress_handler(lambda count=count: bool(count.__setitem__(0, count[0] + 1)), 1)
        assert connection.execute(sql, {"kind": "noop", "last": 2**63 - 1, "count": 5}).fetchall() == rows
        connection.set_progress_handler(None)
        steps.append(count[0])

    assert len(rows) == 5
    assert steps[1] <= steps[0] + 10


def test_jobs_for_later_do_not_stand_in_the_way_of_a_claim(connect):
    connection = connect()
    for _ in connection.execute(SCHEMA):
        pass
    connection.execute(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)"
        " INSERT INTO ml_job (kind, run_at_ms) SELECT 'noop', 9000000000000 FROM n"
    )
    count = [0]
    connection.set_progress_handler(lambda: bool(count.__setitem__(0, count[0] + 1)), 1)

    rows = connection.execute(
        statements("pool")["waiting_jobs"], {"kind": "noop", "last": 2**63 - 1, "count": 5}
    ).fetchall()

    connection.set_progress_handler(None)
    assert rows == []
    assert count[0] < 100

"""What tests share: a file of their own, and queues and connections that are closed when a test ends."""

from __future__ import annotations

import contextlib
import shutil
import subprocess

import apsw
import pytest

import mldb
from mldb import connection as connections
from mldb import migrate


@pytest.fixture
def path(tmp_path):
    """A place for a database; nothing is there yet."""
    return str(tmp_path / "shop.db")


@pytest.fixture
def queue(path):
    """Open a queue, on the test's file and without workers unless told otherwise; shut down at the end."""
    opened = []

    def open_queue(place=path, workers=0, **options):
        opened.append(mldb.open(place, workers=workers, **options))
        return opened[-1]

    yield open_queue
    for each in reversed(opened):
        with contextlib.suppress(apsw.ConnectionClosedError):
            if each.connection.in_transaction:
                each.connection.execute("ROLLBACK")
        each.shutdown(drain=False)


@pytest.fixture
def connection(queue):
    """A connection with the SQL surface to a new queue that no worker serves."""
    return queue().connection


@pytest.fixture
def connect(path):
    """Open a plain APSW connection, to the test's file unless told otherwise; closed at the end."""
    opened = []

    def open_connection(place=path, **options):
        opened.append(apsw.Connection(place, **options))
        opened[-1].set_busy_timeout(5000)
        return opened[-1]

    yield open_connection
    for each in opened:
        each.close()


@pytest.fixture
def impatient(monkeypatch):
    """Make connections of ours wait for locks for 2 seconds, not 30: what is told at once is told sooner than that."""
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_MS", 2000)
    monkeypatch.setattr(migrate, "_WAL_DEADLINE_S", 2)


@pytest.fixture
def shell(path):
    """Run a script in the stock `sqlite3`, on the test's file unless told otherwise; give what it printed."""
    program = shutil.which("sqlite3", path="/usr/bin:/bin:/usr/local/bin")
    if program is None:
        pytest.skip("there is no sqlite3 program here")

    def run(script, place=path, *, fails=False):
        done = subprocess.run(
            [program, "-batch", "-bail", place], input=script, capture_output=True, text=True, check=False
        )
        assert fails == (done.returncode != 0 or done.stderr != ""), done.stderr
        return done.stderr if fails else done.stdout

    return run


@pytest.fixture
def job_in():
    """Bring a new job into a status by plain SQL, as no worker is there to do it; give its id.

    The owner of a running one is 'w'. With body=True the body of a cancelled or failed one still runs.
    """

    def make(connection, status, *, body=False, **columns):
        columns = {"kind": "noop", "target_name": "", **columns}
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        connection.execute(f"INSERT INTO ml_job ({names}) VALUES ({marks})", tuple(columns.values()))
        job = connection.last_insert_rowid()
        moves = {
            "running": "status = 'running', owner = 'w', started_at_ms = 1000, attempt = 1",
            "completed": "status = 'completed', progress = 100, finished_at_ms = 2000, stopped_at_ms = 2000",
            "failed": "status = 'failed', error_message = 'it broke', finished_at_ms = 2000",
            "cancelled": "status = 'cancelled', finished_at_ms = 2000",
        }
        through = [] if status == "queued" else ["running"]
        if status not in ("queued", "running") and not (status == "cancelled" and not body):
            through.append(status)
        elif status == "cancelled":
            through = ["cancelled"]
        for each in through:
            connection.execute(f"UPDATE ml_job SET {moves[each]} WHERE id = ?", (job,))
        if status in ("failed", "cancelled") and not body:
            connection.execute("UPDATE ml_job SET stopped_at_ms = 2000 WHERE id = ?", (job,))
        return job

    return make

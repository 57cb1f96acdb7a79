"""Ways out of the process: none hangs, none loses a job, and a fork harms nobody."""

from __future__ import annotations

import signal

import pytest
from beside import Program, over

# A program with a body that never returns, another that counts, and jobs behind them; it leaves as it is told.
LEAVE = """
import os, signal, sys, threading, time, mldb
def hold(task):
    task.set_progress(40)
    os.write(1, b"began\\n")
    if task.target == "busy":
        while True:
            pass
    threading.Event().wait()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background programs ignore it
queue = mldb.open(sys.argv[1], workers=2, handlers={"hold": hold})
for target in ("idle", "busy", "behind", "behind"):
    queue.submit("hold", target)
os.write(1, b"ready\\n")
way = sys.stdin.readline().strip()
os.write(1, b"leaving\\n")
if way == "exception":
    raise ValueError("on the way out")
if way == "sys.exit":
    sys.exit(3)
if way == "os._exit":
    os._exit(4)
if way == "abort":
    os.abort()
if way == "SIGTERM":
    threading.Event().wait()
if way == "SIGTERM busy":
    while True:
        pass
if way == "SIGINT":
    threading.Event().wait()
if way == "thread":
    threading.Thread(target=lambda: time.monotonic()).start()
if way == "own transaction":
    queue.connection.execute("BEGIN IMMEDIATE")
    queue.connection.execute("CREATE TABLE half(done)")
if way == "dropped":
    del queue
if way == "own transaction, exception":
    queue.connection.execute("BEGIN IMMEDIATE")
    raise ValueError("on the way out")
if way == "cancelled body":
    queue.cancel(1)
if way == "shutdown in a thread":
    threading.Thread(target=queue.shutdown, daemon=True).start()
"""

WAYS = {
    "end of script": (None, 0),
    "exception": (None, 1),
    "sys.exit": (None, 3),
    "thread": (None, 0),
    "dropped": (None, 0),
    "shutdown in a thread": (None, 0),
    "own transaction": (None, 0),
    "own transaction, exception": (None, 1),
    "SIGTERM": (signal.SIGTERM, -15),
    "SIGTERM busy": (signal.SIGTERM, -15),
    "SIGINT": (signal.SIGINT, 1),
}


def runs(program):
    """Wait until both bodies run and all jobs are submitted."""
    assert sorted(program.line() for _ in range(3)) == ["began", "began", "ready"]


@pytest.mark.parametrize("way", WAYS)
def test_leaving_by_any_way_ends_in_seconds_and_puts_running_jobs_back(queue, path, way):
    number, code = WAYS[way]
    with Program(LEAVE, path) as program:
        runs(program)

        program.say(way)
        assert program.line() == "leaving"
        if number:
            program.send(number)

        ended = program.ends(10)
        errors = program.errors()
    # Had the program left its jobs running, the attempt would be counted now.
    jobs = queue().list()
    assert ended == (-2 if way == "SIGINT" and ended == -2 else code)
    assert [(job.status, job.progress, job.attempt, job.owner) for job in jobs] == [("queued", 0, 0, None)] * 4
    assert "Fatal Python error" not in errors


@pytest.mark.parametrize(("way", "code"), [("os._exit", 4), ("abort", -6)])
def test_what_a_process_left_that_died_on_the_spot_is_recovered(queue, path, way, code):
    with Program(LEAVE, path) as program:
        runs(program)
        program.say(way)
        assert program.ends(10) == code

    q = queue(workers=1, handlers={"hold": lambda task: {"attempt": task.attempt}})

    assert [over(q, number).metrics["attempt"] for number in (1, 2, 3, 4)] == [2, 2, 1, 1]


def test_leaving_with_the_body_of_a_cancelled_job_still_running_does_not_hang(queue, path):
    with Program(LEAVE, path) as program:
        runs(program)
        program.say("cancelled body")
        assert program.ends(10) == 0

    q = queue(workers=1, handlers={"other": lambda task: {}})

    jobs = q.list()
    assert [job.status for job in jobs] == ["cancelled", "queued", "queued", "queued"]
    assert jobs[0].stopped_at_ms is not None


def test_leaving_while_another_process_holds_the_write_lock_loses_nothing(queue, path):
    with Program(LEAVE, path) as program:
        runs(program)
        holder = queue()
        holder.connection.execute("BEGIN IMMEDIATE")

        program.say("end of script")
        assert program.line() == "leaving"
        still_there = program._process.poll() is None
        holder.connection.execute("ROLLBACK")

        assert still_there
        assert program.ends(10) == 0
    assert {job.status for job in holder.list()} == {"queued"}


TWO_FILES = """
import os, sys, threading, mldb
def hold(task):
    os.write(1, b"began\\n")
    threading.Event().wait()
queues = [mldb.open(path, workers=1, handlers={"hold": hold}) for path in sys.argv[1:]]
for queue in queues:
    queue.submit("hold", "x")
sys.stdin.readline()
"""


def test_leaving_with_two_queues_open_puts_the_jobs_of_both_back(queue, tmp_path):
    paths = [str(tmp_path / name) for name in ("one.db", "two.db")]
    with Program(TWO_FILES, *paths) as program:
        assert [program.line(), program.line()] == ["began", "began"]
        program.say()
        assert program.ends(10) == 0

    assert [queue(place).get(1).status for place in paths] == ["queued", "queued"]


OWN_HANDLER = """
import signal, sys, threading, mldb
signal.signal(signal.SIGTERM, lambda *_: (print("mine", flush=True), sys.exit(7)))
def hold(task):
    print("began", flush=True)
    threading.Event().wait()
queue = mldb.open(sys.argv[1], workers=1, handlers={"hold": hold})
queue.submit("hold", "x")
threading.Event().wait()
"""


def test_a_program_that_handles_sigterm_itself_keeps_its_handler(queue, path):
    with Program(OWN_HANDLER, path) as program:
        assert program.line() == "began"
        program.send(signal.SIGTERM)

        assert program.line() == "mine"
        assert program.ends(10) == 7
    assert queue().get(1).status == "queued"


FORK = """
import os, sys, threading, mldb
from mldb import Forked
go = threading.Event()
def hold(task):
    print("began", flush=True)
    go.wait(30)
    return {"by": "the parent"}
queue = mldb.open(sys.argv[1], workers=2, handlers={"hold": hold})
job = queue.submit("hold", "x")
sys.stdin.readline()
child = os.fork()
if child == 0:
    uses = {
        "submit": lambda: queue.submit("hold", "x"),
        "get": lambda: queue.get(job),
        "list": lambda: queue.list(),
        "cancel": lambda: queue.cancel(job),
        "wait": lambda: queue.wait(job, 0),
        "retry": lambda: queue.retry(job),
        "prune": lambda: queue.prune(0),
        "shutdown": lambda: queue.shutdown(),
        "connection": lambda: queue.connection.execute("SELECT 1"),
    }
    for name, use in uses.items():
        try:
            use()
        except Forked as error:
            print("forked", name, bool(str(error)), flush=True)
        except BaseException as error:
            print("other", name, repr(error), flush=True)
        else:
            print("allowed", name, flush=True)
    if sys.argv[2] == "os._exit":
        os._exit(0)
    sys.exit(0)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status), flush=True)
second = queue.submit("hold", "y")
go.set()
print(queue.wait(job, 20).status, queue.wait(second, 20).status, flush=True)
queue.shutdown()
print("done", flush=True)
"""


@pytest.mark.parametrize("way", ["sys.exit", "os._exit"])
def test_a_child_by_fork_may_not_use_the_queue_and_the_parent_is_unharmed(queue, path, way):
    with Program(FORK, path, way) as program:
        assert program.line() == "began"
        program.say()

        said = [program.line() for _ in range(9)]
        assert [line.split()[0] for line in said] == ["forked"] * 9, said
        lines = [program.line() for _ in range(4)]
        assert lines[0] == "child 0"
        assert lines[2:] == ["completed completed", "done"]
        assert program.ends(10) == 0
    q = queue()
    assert q.connection.execute("PRAGMA integrity_check").get == "ok"
    assert [job.attempt for job in q.list()] == [1, 1]


FORK_SIGTERM = """
import os, signal, sys, threading, mldb
go = threading.Event()
def hold(task):
    print("began", flush=True)
    go.wait(30)
queue = mldb.open(sys.argv[1], workers=1, handlers={"hold": hold})
job = queue.submit("hold", "x")
sys.stdin.readline()
child = os.fork()
if child == 0:
    print("child", flush=True)
    threading.Event().wait()
sys.stdin.readline()
os.kill(child, signal.SIGTERM)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status), flush=True)
print(queue.get(job).status, flush=True)
go.set()
print(queue.wait(job, 20).status, flush=True)
"""


def test_a_child_by_fork_that_is_told_to_end_ends_and_stops_nothing_of_its_parent(queue, path):
    with Program(FORK_SIGTERM, path) as program:
        assert program.line() == "began"
        program.say()
        assert program.line() == "child"
        program.say()

        assert [program.line(20) for _ in range(3)] == ["child -15", "running", "completed"]


FORK_OPEN = """
import os, sys, mldb
queue = mldb.open(sys.argv[1], workers=1)
child = os.fork()
if child == 0:
    for path in sys.argv[1:]:
        try:
            mldb.open(path, workers=0)
        except mldb.Forked as error:
            print(error, flush=True)
        else:
            print("opened", flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_child_by_fork_is_told_to_spawn_rather_than_open_a_file_again(path, tmp_path):
    # SQLite's mutexes and its table of file locks are copied as they are at the fork: opening may wait for ever.
    with Program(FORK_OPEN, path, tmp_path / "other.db") as program:
        said = [program.line(), program.line()]

    assert ["spawn" in line for line in said] == [True, True], said

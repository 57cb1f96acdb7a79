"""How a process notices that another one committed: at once, for nothing, and without touching the file's locks."""

from __future__ import annotations

import os
import threading
import time

import pytest
from beside import Program, descriptors, over, spin, until
from test_shutdown import taken_descriptors

from mldb.connection import open_reader
from mldb.watch import Watch

COMMITS = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(20000)
print("ready", flush=True)
for line in sys.stdin:
    for sql in line.strip().split(";"):
        connection.execute(sql).fetchall()
    print("done", flush=True)
"""

SUBMIT = """
import sys, mldb
q = mldb.open(sys.argv[1], workers=0)
print('ready', flush=True)
for _ in sys.stdin: print(q.submit('train', 'x'), flush=True)
"""

WAIT = """
import sys, mldb
q = mldb.open(sys.argv[1], workers=0)
print('ready', flush=True)
print(q.wait(int(sys.argv[2])).status, flush=True)
"""


class Counting(Watch):
    """A watch that counts how often it looks."""

    looks = 0

    def version(self):
        self.looks += 1
        return super().version()


@pytest.fixture
def watch(queue, path):
    """A watch on a quiet file that has settled."""
    queue().connection.execute("CREATE TABLE t(x)").fetchall()
    reader = open_reader(path)
    made = Counting(reader)
    made._noticed = None
    yield made
    made.close()
    reader.close()


@pytest.fixture
def other(path, watch):
    with Program(COMMITS, path) as program:
        assert program.line() == "ready"
        yield program


def test_a_commit_of_another_process_is_noticed(watch, other):
    other.say("INSERT INTO t VALUES (1)")

    assert watch.wait(20) is True
    assert other.line() == "done"
    assert watch.wait(0) is False


def test_every_commit_is_noticed_once_it_can_be_seen(watch, other, path):
    reader = open_reader(path)

    for number in range(1, 101):
        other.say("INSERT INTO t VALUES (1)")
        assert watch.wait(20) is True
        assert reader.execute("SELECT count(*) FROM t").get == number
        assert other.line() == "done"
    reader.close()


def test_a_commit_before_the_wait_is_not_missed(watch, other):
    other.say("INSERT INTO t VALUES (1)")
    assert other.line() == "done"
    began = time.monotonic()

    assert watch.wait(20) is True
    assert time.monotonic() - began < 1


def test_it_sleeps_rather_than_looks_while_nothing_happens(watch):
    before = watch.looks

    assert watch.wait(0.3) is False

    assert watch._inotify is not None
    assert watch.looks - before <= 3


def test_without_notification_by_the_system_it_looks_now_and_then(watch, other):
    watch._poll.unregister(watch._inotify)
    os.close(watch._inotify)
    watch._inotify = None

    other.say("INSERT INTO t VALUES (1)")

    assert watch.wait(20) is True


def test_a_rollback_is_no_commit(watch, other):
    other.say("BEGIN IMMEDIATE;INSERT INTO t VALUES (1);ROLLBACK")
    assert other.line() == "done"

    assert watch.wait(0.05) is False


def test_a_large_transaction_is_noticed_when_it_commits_not_when_it_spills(watch, other):
    fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)"
    fill += " INSERT INTO t SELECT zeroblob(4000) FROM n"
    other.say(f"PRAGMA cache_size = 10;BEGIN IMMEDIATE;{fill}")
    assert other.line() == "done"
    # Longer than it looks closely after a write.
    spilled = watch.wait(1.2)
    other.say("COMMIT")
    assert other.line() == "done"
    began = time.monotonic()

    assert spilled is False
    assert watch.wait(20) is True
    assert time.monotonic() - began < 1.5


def test_a_checkpoint_of_another_process_hides_no_commit(watch, other):
    other.say("INSERT INTO t VALUES (1);PRAGMA wal_checkpoint(TRUNCATE)")
    assert other.line() == "done"
    assert watch.wait(20) is True

    other.say("INSERT INTO t VALUES (2)")

    assert watch.wait(20) is True


def test_a_wake_from_another_thread_ends_the_wait(watch):
    threading.Thread(target=watch.wake).start()

    assert watch.wait(20) is True
    assert watch.wait(0) is False


def test_a_wake_before_the_wait_is_not_lost_and_many_count_as_one(watch):
    for _ in range(100_000):
        watch.wake()

    assert watch.wait(20) is True
    assert watch.wait(0) is False


def test_wakes_of_many_threads_are_never_lost(watch):
    seen, given = [0], [0]

    def give():
        for _ in range(2000):
            given[0] += 1
            watch.wake()

    threads = [threading.Thread(target=give) for _ in range(4)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 20
    while any(thread.is_alive() for thread in threads) or seen[0] != given[0]:
        assert time.monotonic() < deadline
        if watch.wait(1):
            seen[0] = given[0]

    assert seen == given


def test_asking_may_end_the_wait(watch):
    asked = []

    assert watch.wait(20, poll=lambda: asked.append(1) or len(asked) == 3) is False
    assert len(asked) == 3


def test_a_wake_after_the_close_writes_to_nobody(queue, path, tmp_path):
    queue()
    reader = open_reader(path)
    watch = Watch(reader)
    watch.close()

    with taken_descriptors(tmp_path):
        watch.wake()
    reader.close()


def test_it_opens_no_descriptor_on_the_database(watch, path):
    before = [place for place in descriptors() if place.startswith(path)]

    extra = Watch(watch._connection)
    after = [place for place in descriptors() if place.startswith(path)]
    extra.close()

    assert len(before) > 0
    assert sorted(after) == sorted(before)


# Through a queue.


def test_a_worker_begins_a_job_of_another_process_quickly(queue, path):
    queue(workers=1, handlers={"train": lambda task: {}})
    latencies = []

    with Program(
        SUBMIT,
        path,
    ) as other:
        assert other.line() == "ready"
        looker = queue()
        for _ in range(20):
            other.say()
            job = over(looker, int(other.line()))
            latencies.append(job.started_at_ms - job.created_at_ms)

    assert sorted(latencies)[10] < 200, latencies


def test_plain_sql_of_a_foreign_shell_wakes_a_worker(queue, shell):
    q = queue(workers=1, handlers={"train": lambda task: {}})

    job = int(shell("INSERT INTO ml_job(kind) VALUES ('train') RETURNING id;"))

    assert over(q, job, seconds=5).status == "completed"


def test_a_wait_in_another_process_ends_when_the_job_is_over(queue, path):
    gate = threading.Event()
    q = queue(workers=1, handlers={"hold": lambda task: gate.wait(20) and {}})
    job = q.submit("hold", "x")
    with Program(
        WAIT,
        path,
        job,
    ) as other:
        assert other.line() == "ready"

        gate.set()

        assert other.line(10) == "completed"


def test_waiting_costs_no_descriptor(queue):
    q = queue(workers=1, handlers={"a": lambda task: {}})
    over(q, q.submit("a", "x"))
    before = len(descriptors())

    for _ in range(50):
        over(q, q.submit("a", "x"))
        q.wait(q.submit("nobody", "x"), 0.001)

    spin(lambda: len(descriptors()) <= before + 2)
    until(q.path, lambda: True)


MANY_DESCRIPTORS = """
import os, resource, sys, mldb
low, high = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, high), high))
kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
with mldb.open(sys.argv[1], workers=1) as queue:
    print(queue.wait(queue.submit("noop", "x", {"sleep": 0.02}), 20).status, flush=True)
"""


def test_a_program_with_more_descriptors_than_select_takes_can_have_a_queue(path):
    with Program(MANY_DESCRIPTORS, path) as program:
        assert program.line(20) == "completed"

"""Forks under load: whatever the child does, the parent's file stays whole and its jobs run once."""

from __future__ import annotations

import pytest
from beside import Program

pytestmark = pytest.mark.fault

LOAD = """
import os, sys, threading, mldb
path, way, forks = sys.argv[1], sys.argv[2], int(sys.argv[3])
def train(task):
    task.write("runs", [{"job": task.id}])
queue = mldb.open(path, workers=2, handlers={"train": train})
stop, jobs = threading.Event(), []
def submit():
    while not stop.is_set():
        jobs.append(queue.submit("train", "x", priority=1))
threads = [threading.Thread(target=submit) for _ in range(2)]
for thread in threads:
    thread.start()
bad = 0
for _ in range(forks):
    child = os.fork()
    if child == 0:
        if way == "os._exit":
            os._exit(0)
        if way == "drops everything":
            del queue, threads
            import gc
            gc.collect()
        if way == "opens again":
            try:
                mldb.open(path, workers=0)
            except mldb.Forked:
                os._exit(0)
            os._exit(1)
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    bad += os.waitstatus_to_exitcode(status) != 0
stop.set()
for thread in threads:
    thread.join()
queue.shutdown()
print(bad, len(jobs), flush=True)
"""


@pytest.mark.parametrize("way", ["os._exit", "sys.exit", "drops everything", "opens again"])
def test_forking_under_load_harms_neither_the_file_nor_a_job(queue, path, way):
    with Program(LOAD, path, way, 60) as program:
        bad, count = program.line(60).split()
        errors = program.errors()

    q = queue()
    assert q.connection.execute("PRAGMA integrity_check").get == "ok"
    done = q.connection.execute("SELECT count(*) FROM ml_job WHERE kind = 'train' AND status = 'completed'").get
    runs = q.connection.execute("SELECT count(*), count(DISTINCT job) FROM runs").fetchall()[0]
    assert (done, runs) == (int(count), (int(count), int(count)))
    assert bad == "0", errors

"""Processes that are killed again and again at any moment: nothing is lost, nothing runs twice at once."""

from __future__ import annotations

import random
import time

import pytest
from beside import Program

pytestmark = pytest.mark.fault

WORK = """
import os, sys, threading, mldb
def train(task):
    at = (task.restore() or {"n": 0})["n"]
    for number in range(at, 3):
        task.write("steps", [{"job": task.id, "n": number, "attempt": task.attempt}], checkpoint={"n": number + 1})
        task.set_progress(number * 33, "step")
    return {"from": at}
queue = mldb.open(sys.argv[1], workers=3, handlers={"train": train})
print("ready", flush=True)
threading.Event().wait()
"""


def test_workers_that_are_killed_at_any_moment_lose_and_double_nothing(queue, path):
    generator = random.Random(7)
    q = queue()
    jobs = [q.submit("train", "x") for _ in range(600)]

    for _ in range(25):
        with Program(WORK, path) as one, Program(WORK, path) as two:
            assert [one.line(), two.line()] == ["ready", "ready"]
            deadline = time.monotonic() + generator.random() * 0.1
            while time.monotonic() < deadline:
                pass
            one.kill()
            two.kill()
    with Program(WORK, path) as last:
        assert last.line() == "ready"
        for job in jobs:
            assert q.wait(job, 60).status == "completed"

    steps = q.connection.execute("SELECT job, n FROM steps ORDER BY job, n").fetchall()
    assert steps == [(job, n) for job in jobs for n in range(3)]
    assert q.connection.execute("PRAGMA integrity_check").get == "ok"


def test_a_process_that_is_killed_while_it_submits_keeps_what_it_was_told(queue, path):
    source = (
        "import sys, mldb\nq = mldb.open(sys.argv[1], workers=1)\nwhile True: print(q.submit('noop', 'x'), flush=True)"
    )
    generator = random.Random(3)
    told = []

    for _ in range(15):
        with Program(source, path) as program:
            told.append(int(program.line()))
            deadline = time.monotonic() + generator.random() * 0.1
            while time.monotonic() < deadline:
                pass
            program.kill()
            program._reader.join()
            while (line := program._lines.get()) is not None:
                told.append(int(line))

    q = queue()
    assert len(told) == len(set(told))
    assert {job.id for job in q.list()} >= set(told)

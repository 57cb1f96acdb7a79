"""The command `mldb`, run as people run it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

import apsw
import pytest

from mldb.cli import main, table

HANDLERS = """
import threading

import mldb


@mldb.handler("patient")
def patient(task):
    print("begun", flush=True)
    while not task.is_cancelled():
        threading.Event().wait(0.005)


@mldb.handler("deaf")
def deaf(task):
    print("begun", flush=True)
    threading.Event().wait()
"""


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.db"
    assert main(["init", str(path)]) == 0
    return path


@pytest.fixture
def run(capsys):
    """Run one command line here; give its exit status, stdout and stderr."""

    def run(*words):
        capsys.readouterr()
        status = main([str(word) for word in words])
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def work(tmp_path):
    """Start `mldb work` as a process of its own; it is killed at the end if it still runs."""
    (tmp_path / "own_handlers.py").write_text(HANDLERS)
    started = []

    def work(*words):
        process = subprocess.Popen(
            [sys.executable, "-m", "mldb", "work", *map(str, words)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # So that a test which waits for its words in vain fails, and does not hang.
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        started.append((process, watchdog))
        return process

    yield work
    for process, watchdog in started:
        watchdog.cancel()
        process.kill()
        process.communicate()


def command(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "mldb", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **options,
    )


def rows(run, path, *words):
    status, out, _ = run("jobs", path, "--json", *words)
    assert status == 0
    return [json.loads(line) for line in out.splitlines()]


def line_with(process, text):
    """Read the lines of a process up to one that contains `text`."""
    for line in process.stdout:
        if text in line:
            return line
    raise AssertionError(f"it ended without saying {text!r}: {process.stderr.read()}")


def test_init_says_what_it_did(tmp_path, run):
    path = tmp_path / "new.db"

    first = run("init", path)
    second = run("init", path)

    assert first[0] == second[0] == 0
    assert "WAL" in first[1]
    assert "tables" in first[1]
    assert second[1] == f"{path}: is up to date\n"


def test_init_refuses_a_file_that_is_no_database(tmp_path, run):
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader, this is a letter. " * 50)

    status, out, err = run("init", path)

    assert (status, out) == (1, "")
    assert err.startswith("mldb: ")
    assert err.count("\n") == 1
    assert "not a SQLite database" in err


def test_a_job_goes_from_submit_to_completed(shop, run, work):
    status, out, _ = run("submit", shop, "noop", "first", "{}")
    assert (status, out) == (0, "1\n")

    worker = work(shop, "--workers", 1, "--idle-exit", 0)

    assert run("wait", shop, 1, "--timeout", 30)[:2] == (0, "completed\n")
    assert worker.wait(timeout=30) == 0
    assert [(job["id"], job["status"], job["progress"]) for job in rows(run, shop)] == [(1, "completed", 100)]


def test_work_says_file_workers_and_kinds_when_it_starts(shop, work):
    worker = work(shop, "--workers", 2, "--handlers", "own_handlers", "--idle-exit", 0)

    line = line_with(worker, "working")

    assert str(shop) in line
    assert "workers 2" in line
    for kind in ("backfill", "deaf", "noop", "patient", "train"):
        assert kind in line


def test_submit_options_reach_the_job(shop, run):
    run("submit", shop, "noop", "a", "--priority", 5, "--max-attempts", 3, "--tag", "nightly")
    run("submit", shop, "noop", "b", "--option", "priority=-2", "--option", "tag=by hand")
    run("submit", shop, "noop", "c", "--run-at", "4102444800000")
    run("submit", shop, "noop", "d", "--run-at", "2100-01-01T00:00:00+00:00")

    a, b, c, d = rows(run, shop)

    assert (a["priority"], a["max_attempts"], a["tag"]) == (5, 3, "nightly")
    assert (b["priority"], b["tag"]) == (-2, "by hand")
    assert c["run_at_ms"] == d["run_at_ms"] == 4102444800000


def test_submit_reads_a_spec_from_stdin(shop, run):
    done = command("submit", shop, "noop", "a", "-", input='{"from": "stdin"}')

    assert done.returncode == 0, done.stderr
    assert json.loads(rows(run, shop)[0]["spec_json"]) == {"from": "stdin"}


def test_submit_with_a_unique_key_gives_the_live_job_again(shop, run):
    first = run("submit", shop, "noop", "a", "--unique", "nightly")
    second = run("submit", shop, "noop", "a", "--unique", "nightly")

    assert first[1] == second[1] == "1\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a", "--option", "priorty=1"], "priority"),
        (["a", "--option", "priority"], "NAME=VALUE"),
        (["a", "[1]"], "object"),
        (["a", "{"], "JSON"),
    ],
)
def test_a_submit_that_cannot_be_right_says_so_and_adds_no_job(shop, run, words, said):
    status, out, err = run("submit", shop, "noop", *words)

    assert (status, out) == (1, "")
    assert said in err
    assert rows(run, shop) == []


def test_cancel_ends_a_queued_job_once(shop, run):
    run("submit", shop, "noop", "a")

    first = run("cancel", shop, 1)
    second = run("cancel", shop, 1)

    assert first == (0, "cancelled 1\n", "")
    assert second == (1, "", "mldb: job 1 is cancelled already\n")
    assert run("wait", shop, 1)[:2] == (1, "cancelled\n")


def test_cancel_of_an_unknown_id_is_an_error(shop, run):
    status, _, err = run("cancel", shop, 99)

    assert status == 1
    assert "no job 99" in err


def test_wait_gives_2_when_the_job_is_not_over_in_time(shop, run):
    run("submit", shop, "noop", "a")

    status, out, err = run("wait", shop, 1, "--timeout", 0)

    assert (status, out) == (2, "queued\n")
    assert "mldb work" in err


def test_wait_gives_1_and_the_reason_of_a_failure(shop, run, work):
    run("submit", shop, "train", "a", '{"query": "SELECT 1 AS x, 2 AS y", "target": "z"}')
    work(shop, "--workers", 1, "--idle-exit", 0)

    status, out, err = run("wait", shop, 1, "--timeout", 30)

    assert (status, out) == (1, "failed\n")
    assert "z" in err


def test_a_sigterm_puts_running_jobs_back_and_exits_0(shop, run, work):
    run("submit", shop, "patient", "a")
    worker = work(shop, "--workers", 1, "--handlers", "own_handlers")
    line_with(worker, "begun")

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=20) == 0
    (job,) = rows(run, shop)
    assert (job["status"], job["progress"], job["started_at_ms"], job["attempt"]) == ("queued", 0, None, 0)


def test_a_ctrl_c_while_idle_stops_at_once(shop, work):
    worker = work(shop, "--workers", 1)
    line_with(worker, "working")

    worker.send_signal(signal.SIGINT)

    out, err = worker.communicate(timeout=5)
    assert worker.returncode == 0
    assert "SIGINT" in out
    assert err == ""


def test_a_second_signal_stops_work_at_once_even_while_the_file_is_locked(shop, run, work):
    run("submit", shop, "deaf", "a")
    worker = work(shop, "--workers", 1, "--handlers", "own_handlers")
    line_with(worker, "begun")
    with contextlib.closing(apsw.Connection(str(shop))) as other:
        other.execute("BEGIN IMMEDIATE").fetchall()

        worker.send_signal(signal.SIGTERM)
        line_with(worker, "SIGTERM")
        worker.send_signal(signal.SIGTERM)

        assert worker.wait(timeout=5) == -signal.SIGTERM


def test_work_refuses_no_workers_and_modules_it_cannot_find(shop, run):
    none = run("work", shop, "--workers", 0)
    lost = run("work", shop, "--handlers", "no_such_module")

    assert none[0] == lost[0] == 1
    assert "mldb shell" in none[2]
    assert "no_such_module" in lost[2]


def test_the_shell_runs_sql_from_its_arguments(shop):
    done = command("shell", shop, "SELECT ml_submit('noop', 'a', NULL)", "SELECT id, status FROM ML_JOBS")

    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n1|queued\n", "")


def test_the_shell_runs_a_script_and_starts_no_workers(shop):
    script = """
        CREATE TABLE names(name);
        INSERT INTO names VALUES ('a'), ('b');
        SELECT ml_submit('noop', name, '{}') FROM names;
        SELECT target_name, status FROM ML_JOBS;
    """

    done = command("shell", shop, input=script)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["1", "2", "a|queued", "b|queued"]


def test_the_shell_gives_1_when_a_statement_of_a_script_failed(shop):
    done = command("shell", shop, input="SELECT nonsense;\nSELECT 'went on';\n")

    assert done.returncode == 1
    assert "nonsense" in done.stderr
    assert done.stdout == "went on\n"


@pytest.mark.parametrize("words", [["jobs"], ["submit", "noop", "a"], ["cancel", "1"], ["wait", "1"]])
def test_looking_at_a_missing_file_does_not_make_one(tmp_path, run, words):
    path = tmp_path / "lost.db"

    status, _, err = run(words[0], path, *words[1:])

    assert status == 1
    assert "mldb init" in err
    assert not path.exists()


def test_looking_at_a_plain_database_leaves_it_as_it_is(tmp_path, run):
    path = tmp_path / "plain.db"
    path.touch()

    status, _, err = run("jobs", path)

    assert status == 1
    assert "no job queue" in err
    assert path.read_bytes() == b""


def test_jobs_shows_a_line_with_progress_for_each_job(shop, run):
    run("submit", shop, "noop", "first")
    run("submit", shop, "train", "second", '{"query": "SELECT 1 AS x, 2 AS y", "target": "y"}')
    run("cancel", shop, 1)

    _, out, _ = run("jobs", shop)

    first, second = (line for line in out.splitlines() if "noop" in line or "train" in line)
    assert "first" in first
    assert "cancelled" in first
    assert "0 %" in first
    assert "queued" in second


def test_jobs_picks_by_status_and_kind_and_shows_the_newest(shop, run):
    for kind, target in (("noop", "a"), ("other", "b"), ("noop", "c"), ("noop", "d")):
        run("submit", shop, kind, target)
    run("cancel", shop, 1)

    def targets(*words):
        return [job["target_name"] for job in rows(run, shop, *words)]

    assert targets("--kind", "noop") == ["a", "c", "d"]
    assert targets("--status", "cancelled") == ["a"]
    assert targets("--kind", "noop", "--status", "queued") == ["c", "d"]
    assert targets("--limit", 2) == ["c", "d"]


def test_watch_ends_once_everything_is_over(shop, run, work):
    run("submit", shop, "noop", "a")
    work(shop, "--workers", 1, "--idle-exit", 0)

    status, out, _ = run("jobs", shop, "--watch")

    assert status == 0
    assert "completed" in out


def test_a_reader_that_leaves_early_is_no_error(shop, run):
    for number in range(3):
        run("submit", shop, "noop", number)
    read, write = os.pipe()
    os.close(read)

    done = subprocess.run(
        [sys.executable, "-m", "mldb", "jobs", shop, "--json"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(write)

    assert done.stderr == ""


@pytest.mark.parametrize("words", [[], ["jobs"], ["fly", "x.db"], ["jobs", "x.db", "--status", "done"]])
def test_a_command_line_that_cannot_be_right_exits_2(words, capsys):
    with pytest.raises(SystemExit) as left:
        main(words)

    assert left.value.code == 2
    assert "usage: mldb" in capsys.readouterr().err


def test_the_demo_keeps_its_hands_off_a_file_that_exists(tmp_path, run):
    path = tmp_path / "precious.db"
    path.touch()

    status, _, err = run("demo", path)

    assert status == 1
    assert "exists" in err
    assert path.read_bytes() == b""


def test_every_command_is_in_the_help(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])

    said = capsys.readouterr().out
    for name in ("init", "work", "shell", "submit", "cancel", "jobs", "wait", "demo"):
        assert f"\n    {name} " in said


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (None, ""),
        (40, "40 ms"),
        (3_200, "3.2 s"),
        (59_999, "60.0 s"),
        (125_000, "2 min 5 s"),
        (11_400_000, "3 h 10 min"),
    ],
)
def test_durations_are_told_in_two_units_at_most(milliseconds, words):
    assert table.duration(milliseconds) == words

"""The README does what it says, and names all there is; the examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import mldb
from mldb import cli, registry
from mldb.job import STATUSES

HOUSE = Path(__file__).parent.parent
README = (HOUSE / "README.md").read_text("utf-8")
LEAST_EXAMPLES = 13


def blocks(language):
    """Give the blocks of the README in a language, each with the text block that follows it."""
    pattern = rf"^```{language}\n(.*?)^```$(?:(?!^```).)*?^```text\n(.*?)^```$"
    return re.findall(pattern, README, re.MULTILINE | re.DOTALL)


def section(title):
    """Give the README from a title to the next."""
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def in_backticks(text):
    return {word for quoted in re.findall(r"`([^`]+)`", text) for word in re.split(r"[\s,]+", quoted)}


@pytest.fixture
def worker(path):
    """Start `mldb work` on the test's file, as a process of its own that works when the test begins."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mldb", "work", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline().startswith("working on")
        yield process
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_the_sql_session_prints_what_the_readme_prints(path, worker):
    [(session, printed)] = blocks("sql")

    shell = subprocess.run(
        [sys.executable, "-m", "mldb", "shell", path],
        input=session,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )

    assert shell.stderr == ""
    assert shell.stdout == printed
    assert shell.returncode == 0


def test_the_session_of_the_sqlite3_shell_prints_what_the_readme_prints(shell):
    [(session, printed)] = blocks("sqlite3")
    try:
        library = mldb.loadable_path()
    except mldb.MldbError as error:
        pytest.skip(str(error))

    assert shell(session.replace("build/ml_jobs", library)) == printed


def test_the_python_session_prints_what_the_readme_prints(tmp_path):
    [(session, printed)] = blocks("python")
    script = tmp_path / "session.py"
    script.write_text(session, "utf-8")
    empty = tmp_path / "empty"
    empty.mkdir()

    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=empty,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.stderr == ""
    assert done.stdout == printed
    assert done.returncode == 0


def test_the_make_targets_of_the_readme_exist():
    named = set(re.findall(r"(?:^    |`)make ([a-z]+)", README, re.MULTILINE))
    there = set(re.findall(r"^([a-z]+):", (HOUSE / "Makefile").read_text("utf-8"), re.MULTILINE))

    assert {"demo", "test"} <= named
    assert named <= there


def test_the_commands_of_the_readme_exist():
    named = set(re.findall(r"(?:^    |`)mldb ([a-z]+)", README, re.MULTILINE))
    there = set(re.findall(r"\{([a-z,]+)\}|^    ([a-z]+) ", cli.parser().format_help(), re.MULTILINE))

    assert {"work", "shell"} <= named
    assert named <= {word for pair in there for part in pair for word in part.split(",")}


def test_the_documents_that_the_readme_links_to_are_there():
    linked = re.findall(r"\]\(([^)#:]+)\)", README)

    assert linked
    assert [name for name in linked if not (HOUSE / name).exists()] == []


def test_the_readme_names_each_sql_function_and_no_other(connection):
    registered = {
        (name, arguments)
        for name, arguments in connection.execute("SELECT name, narg FROM pragma_function_list")
        if name.startswith("ml_")
    }
    rows = re.findall(r"^\| `(ml_\w+)\((.*?)\)`", section("Functions and tables"), re.MULTILINE)

    named = set()
    for name, arguments in rows:
        needed, _, optional = arguments.partition("[")
        most = len(re.findall(r"\w+", arguments))
        named |= {(name, most), (name, len(re.findall(r"\w+", needed)) if optional else most)}
    assert named == registered
    assert set(re.findall(r"\bml_\w+(?=\()", README)) == {name for name, _ in registered}


def test_the_readme_names_each_column_of_ml_jobs_in_order(connection):
    connection.execute("INSERT INTO ML_JOBS (kind) VALUES ('noop')")
    columns = [name for name, _ in connection.execute("SELECT * FROM ML_JOBS").get_description()]

    listed = re.search(r"`ML_JOBS` has the columns `(.*?)`", README, re.DOTALL)

    assert re.split(r",\s+", listed.group(1)) == columns


def test_the_readme_names_each_view(connection):
    views = {name.upper() for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'view'")}

    named = set(re.findall(r"`(ML_[A-Z_]+)`", section("Functions and tables")))

    assert views
    assert named == views | {"ML_JOBS"}


def test_the_readme_names_each_option_with_its_default(connection):
    with pytest.raises(mldb.UsageError, match="the options are") as refused:
        connection.execute("""SELECT ml_submit('noop', '', NULL, '{"#": 1}')""")
    options = str(refused.value).partition("the options are ")[2].split(", ")

    paragraph = re.search(r"^Options of `ml_submit`(.*?)\n\n", README, re.MULTILINE | re.DOTALL).group(1)

    assert sorted(re.findall(r"`(\w+)`", paragraph)) == sorted(options)
    connection.execute("SELECT ml_submit('noop', '', NULL, '{}')").fetchall()
    [defaults] = connection.execute("SELECT priority, max_attempts, CAST(backoff_s AS INTEGER) FROM ml_job")
    assert re.findall(r"`(priority|max_attempts|backoff)` \([^)]*?(\d+)\)", paragraph) == list(
        zip(("priority", "max_attempts", "backoff"), map(str, defaults), strict=True)
    )


def test_the_readme_names_each_status():
    listed = re.search(r"Status is (.*?)\.", README, re.DOTALL).group(1)

    assert re.findall(r"`(\w+)`", listed) == list(STATUSES)


def test_the_readme_names_each_kind_of_job():
    kinds = {point.name for point in metadata.entry_points(group=registry.GROUP) if point.value.startswith("mldb.")}

    assert set(re.findall(r"^\| `(\w+)` \|", section("Kinds of job"), re.MULTILINE)) == kinds


def test_the_methods_of_the_readme_exist():
    queue = in_backticks(re.search(r"The methods of the queue \((.*?)\)", README, re.DOTALL).group(1))
    task = in_backticks(re.search(r"it gets a `Task` \((.*?)\)", README, re.DOTALL).group(1))

    assert {"submit", "shutdown"} <= queue
    assert [name for name in queue if not callable(getattr(mldb.Queue, name, None))] == []
    assert {"set_progress", "rows"} <= task
    assert [name for name in task if not hasattr(mldb.Task, name)] == []
    for name in re.findall(r"\bmldb\.([A-Za-z]+)", section("In Python")):
        assert hasattr(mldb, name)


def modules():
    """Give the names of all modules of mldb but the one that is the command itself."""
    walked = (found.name for found in pkgutil.walk_packages(mldb.__path__, "mldb."))
    return ["mldb", *(name for name in walked if name != "mldb.__main__")]


def test_the_examples_in_the_docstrings_run(monkeypatch):
    # An example registers a handler; it is not to stay.
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    finder, runner = doctest.DocTestFinder(exclude_empty=True), doctest.DocTestRunner(verbose=False)
    examples = 0
    report = []

    for name in modules():
        for each in finder.find(importlib.import_module(name)):
            examples += len(each.examples)
            assert not any(example.options.get(doctest.SKIP) for example in each.examples), each.name
            runner.run(each, out=report.append)

    assert "".join(report) == ""
    assert examples >= LEAST_EXAMPLES


def test_the_examples_are_looked_for_in_every_module():
    scripts = {"__main__.py", "generate.py"}
    files = {path.relative_to(HOUSE) for path in (HOUSE / "mldb").rglob("*.py") if path.name not in scripts}

    walked = {Path(importlib.import_module(name).__file__).relative_to(HOUSE) for name in modules()}

    assert walked == files

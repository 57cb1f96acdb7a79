"""The same SQL gives the same rows and errors through every front end and host."""

from __future__ import annotations

import shutil
from pathlib import Path

import conformance_hosts
import pytest

SCRIPTS = sorted((Path(__file__).parent / "conformance").glob("*.sql"))
HOSTS = conformance_hosts.hosts()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
@pytest.mark.parametrize("name", list(HOSTS))
def test_a_script_gives_the_rows_and_errors_that_it_says(name, script, path):
    host = HOSTS[name]
    if isinstance(host, str):
        pytest.skip(host)
    statements = conformance_hosts.read(script)

    given = list(host.run(statements, path))

    wanted = [each.errors.get(host.front_end, each.rows) for each in statements]
    places = [f"line {each.line}: {each.sql}" for each in statements]
    assert list(zip(places, given, strict=True)) == list(zip(places, wanted, strict=True))


@pytest.mark.fault
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_valgrind_finds_nothing_in_the_shell(script, path):
    valgrind = shutil.which("valgrind")
    if valgrind is None or isinstance(HOSTS["shell"], str):
        pytest.skip("there is no valgrind or no sqlite3 program with the library here")
    shell = conformance_hosts.Shell("/usr/bin/sqlite3", wrapper=[valgrind, "-q", "--leak-check=full"])
    statements = conformance_hosts.read(script)

    given = list(shell.run(statements, path))

    assert [line for line in shell.stderr.splitlines() if line.startswith("==")] == []
    assert given == [each.errors.get("native", each.rows) for each in statements]


def test_there_are_scripts():
    assert len(SCRIPTS) >= 10

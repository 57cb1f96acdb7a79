"""The same SQL gives the same rows and errors through every front end and host."""

from __future__ import annotations

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


def test_there_are_scripts():
    assert len(SCRIPTS) >= 10

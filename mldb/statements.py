"""The SQL of the queue, read from the files of `sql/` by name.

A statement begins with a line `-- name: claim_jobs`, then comment lines that say what it gives, then its text.
Nothing here or elsewhere edits a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the schema: its number, its name and its SQL."""

    version: int
    name: str
    sql: str


def parse(text: str) -> dict[str, str]:
    r"""Give the statements of a file by name.

    >>> parse("-- name: one\n-- Gives 1.\nSELECT 1;\n")
    {'one': 'SELECT 1'}
    """
    parts = _NAME.split(text)
    found: dict[str, str] = {}
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        lines = body.strip().splitlines()
        statement = "\n".join(line for line in lines if not line.startswith("--")).strip().removesuffix(";")
        if not statement or name in found:
            raise ValueError(f"statement {name!r} is empty or stands twice")
        found[name] = statement
    return found


@cache
def statements(group: str) -> Mapping[str, str]:
    """Give the statements of `sql/<group>.sql` by name."""
    return parse(resources.files("mldb.sql").joinpath(f"{group}.sql").read_text("utf-8"))


@cache
def steps() -> tuple[Step, ...]:
    """Give the steps of the schema in order: schema.sql, then the files of migrations/."""
    folder = resources.files("mldb.sql")
    found = [Step(1, "queue", folder.joinpath("schema.sql").read_text("utf-8"))]
    migrations = folder.joinpath("migrations")
    if migrations.is_dir():
        for entry in sorted(migrations.iterdir(), key=lambda entry: entry.name):
            if entry.name.endswith(".sql"):
                number, _, name = entry.name.removesuffix(".sql").partition("_")
                found.append(Step(int(number), name, entry.read_text("utf-8")))
    return tuple(found)

"""The programs that a conformance script runs through, and the format of the scripts.

A script is SQL on a new file, in which lines behind a statement say what it must give:

    SELECT id, status FROM ML_JOBS;
    = 1|queued                   a row, in order; NULL is NULL
    ! the message                it fails so (`!python` and `!native`: where the wording may differ)
    -- reopen: readonly          the connection is closed and opened again, here for reading only

A statement without such lines gives no rows.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import apsw

import mldb


@dataclasses.dataclass
class Statement:
    """One statement, what it must give, and how the connection is opened anew before it."""

    sql: str
    line: int
    rows: list[str] = dataclasses.field(default_factory=list)
    errors: dict[str, str] = dataclasses.field(default_factory=dict)
    reopen: str | None = None


def read(path):
    """Give the statements of a script."""
    found, lines, reopen = [], [], None
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if line.startswith("= "):
            found[-1].rows.append(line[2:])
        elif match := re.match(r"!(python|native)? (.*)", line):
            for front_end in [match[1]] if match[1] else ["python", "native"]:
                found[-1].errors[front_end] = match[2]
        elif line.startswith("-- reopen: "):
            reopen = line.removeprefix("-- reopen: ")
        elif lines or (line and not line.startswith("--")):
            lines.append(line)
            if apsw.complete("\n".join(lines)):
                found.append(Statement("\n".join(lines), number + 1 - len(lines), reopen=reopen))
                lines, reopen = [], None
    assert not lines, f"{path.name} ends inside a statement"
    return found


def shown(row):
    """Give a row as the sqlite3 shell prints it."""
    return "|".join("NULL" if value is None else str(value) for value in row)


class Apsw:
    """APSW in this process, with the Python front end or with the library."""

    def __init__(self, *, library):
        self._library = library
        self.front_end = "native" if library else "python"

    def run(self, statements, path):
        connection = None
        for statement in statements:
            if connection is None or statement.reopen:
                if connection is not None:
                    connection.close()
                writes = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
                flags = apsw.SQLITE_OPEN_READONLY if statement.reopen == "readonly" else writes
                connection = apsw.Connection(path, flags=flags)
                connection.set_busy_timeout(5000)
                if self._library:
                    mldb.load(connection)
                else:
                    mldb.equip(connection)
            try:
                yield [shown(row) for row in connection.execute(statement.sql)]
            except Exception as error:
                yield str(error)
        connection.close()


class Sqlite3Module:
    """Python's own sqlite3 with the library, in a process of its own."""

    front_end = "native"
    _PROGRAM = """
import json, sqlite3, sys
path, library = sys.argv[1:]
connection = None
for sql, reopen in json.load(sys.stdin):
    if connection is None or reopen:
        if connection is not None:
            connection.close()
        connection = sqlite3.connect(f"file:{path}" + ("?mode=ro" if reopen == "readonly" else ""), uri=True,
                                     isolation_level=None)
        connection.enable_load_extension(True)
        connection.load_extension(library)
    try:
        found = [["NULL" if value is None else str(value) for value in row] for row in connection.execute(sql)]
        print(json.dumps(["|".join(row) for row in found]))
    except sqlite3.Error as error:
        print(json.dumps(str(error)))
"""

    def __init__(self, python):
        self._python = python

    def run(self, statements, path):
        work = json.dumps([(statement.sql, statement.reopen) for statement in statements])
        done = subprocess.run(
            [self._python, "-c", self._PROGRAM, path, mldb.loadable_path()],
            input=work, capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        yield from map(json.loads, done.stdout.splitlines())


class Shell:
    """A sqlite3 shell with the library."""

    front_end = "native"
    _ERROR = re.compile(r"^(?:\w+ error|Error):? near line (\d+): (.*?)(?: \(\d+\))?$", re.MULTILINE)

    def __init__(self, program, *, wrapper=()):
        self._command = [*wrapper, program, "-batch"]

    def run(self, statements, path):
        load = f".load {mldb.loadable_path()}"
        lines = [".mode list", ".nullvalue NULL", load]
        places = {}
        for number, statement in enumerate(statements):
            if statement.reopen:
                lines += [f".open {'--readonly ' if statement.reopen == 'readonly' else ''}{path}", load]
            lines.append(f".print \x01{number}")
            places[len(lines) + 1] = number
            lines += statement.sql.splitlines()
        done = subprocess.run(
            [*self._command, path],
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        self.stderr = done.stderr
        errors = {places[int(line)]: message for line, message in self._ERROR.findall(done.stderr)}
        printed = dict(part.split("\n", 1) for part in done.stdout.split("\x01")[1:])
        for number in range(len(statements)):
            yield errors.get(number, printed[str(number)].splitlines())


def hosts():
    """Give the hosts by name; a text in place of one says why it is not there."""
    try:
        mldb.loadable_path()
    except mldb.MldbError as error:
        missing = str(error)
    else:
        missing = None
    shell = "/usr/bin/sqlite3"
    newer = Path(apsw.__file__).parent / "sqlite_extra_binaries" / "sqlite3_shell"
    python = "/usr/bin/python3"
    can_load = "import sqlite3; sqlite3.Connection.enable_load_extension"
    return {
        "apsw": Apsw(library=False),
        "shell": missing or (Shell(shell) if Path(shell).exists() else "there is no /usr/bin/sqlite3"),
        "newer-shell": missing or (Shell(str(newer)) if newer.exists() else "this APSW carries no sqlite3_shell"),
        "sqlite3-module": missing
        or (
            Sqlite3Module(python)
            if shutil.which(python)
            and subprocess.run([python, "-c", can_load], capture_output=True, check=False).returncode == 0
            else "there is no /usr/bin/python3 whose sqlite3 loads extensions"
        ),
        "apsw-library": missing or Apsw(library=True),
    }

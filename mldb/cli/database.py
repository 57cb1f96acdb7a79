"""`mldb init` makes a queue in a file, `mldb shell` opens one in SQL."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from mldb.cli.opening import equipped, init_queue

if TYPE_CHECKING:
    from mldb.cli.opening import Commands


def add_commands(commands: Commands) -> None:
    """Add `init` and `shell`."""
    init = commands.add_parser(
        "init",
        help="make a queue in a database file, or bring it up to date",
        description="Makes the queue's tables in FILE (a new file, or a database of yours) and switches "
        "it to WAL. Does nothing to a file that is up to date.",
    )
    init.add_argument("file", metavar="FILE")
    init.set_defaults(run=run_init)

    shell = commands.add_parser(
        "shell",
        help="an SQL shell with ML_JOBS and the ml_ functions",
        description="Opens APSW's SQL shell on FILE with ML_JOBS and the ml_ functions. It runs no jobs. "
        "SELECT ml_init() makes a queue in a file that has none.",
        epilog="Without SQL it reads from the terminal, or a script: mldb shell shop.db < script.sql",
    )
    shell.add_argument("file", metavar="FILE")
    shell.add_argument("sql", metavar="SQL", nargs="*", help="statements or .commands to run, then leave")
    shell.set_defaults(run=run_shell)


def run_init(arguments: argparse.Namespace) -> int:
    """Make or migrate the queue of a file, and say what was done."""
    done = init_queue(arguments.file)
    print(f"{arguments.file}: {', '.join(done) or 'is up to date'}")
    return 0


def run_shell(arguments: argparse.Namespace) -> int:
    """Run SQL from the arguments, a script or a person; give 1 when a statement of a script failed."""
    from mldb.cli import prompt

    with equipped(arguments.file) as connection:
        return 0 if prompt.serve(connection, arguments.file, arguments.sql) else 1

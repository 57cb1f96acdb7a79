"""The command `mldb`: one subcommand per thing to do with a database file.

Exit status: 0 when it did what was asked, 1 for an error (one line on stderr), 2 for a command line
that cannot be right. `mldb wait` says more with it; see its help.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

import apsw

from mldb.cli import database, demo, jobs, submit, work
from mldb.errors import MldbError

INTERRUPTED = 130
"""What a shell expects of a program that Ctrl-C ended."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and give its exit status."""
    arguments = parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except (MldbError, apsw.Error, OSError) as error:
        if isinstance(error, BrokenPipeError):
            return _reader_left()
        print(f"mldb: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="mldb",
        description="Machine-learning jobs inside SQLite: submit, watch and cancel them in one file.",
        epilog="'mldb COMMAND --help' says more about one command.",
    )
    top.add_argument("--version", action="version", version=f"mldb {version('mldb')}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    database.add_commands(commands)
    work.add_commands(commands)
    submit.add_commands(commands)
    jobs.add_commands(commands)
    demo.add_commands(commands)
    return top


def _reader_left() -> int:
    """End quietly when the other end of a pipe (`mldb jobs x.db | head`) has gone."""
    # Python flushes stdout once more at exit; that must not fail a second time.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1

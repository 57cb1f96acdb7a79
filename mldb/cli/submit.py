"""`mldb submit`, `mldb cancel` and `mldb wait`: one job at a time."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from mldb.cli.opening import open_queue, seconds
from mldb.errors import UsageError

if TYPE_CHECKING:
    from mldb.cli.opening import Commands

TIMED_OUT = 2

# option, metavar, type, help; a name with "-" is the option of ml_submit with "_"
OPTIONS: tuple[tuple[str, str, Any, str], ...] = (
    ("priority", "N", int, "higher runs first (default 0)"),
    ("delay", "SECONDS", seconds, "run no sooner than this many seconds from now"),
    ("run-at", "TIME", str, "run no sooner than this: epoch milliseconds, or ISO 8601 with offset"),
    ("max-attempts", "N", int, "how often it may run until it succeeds (default 1)"),
    ("backoff", "SECONDS", seconds, "wait before the second attempt; doubles each time"),
    ("timeout", "SECONDS", seconds, "fail when it runs longer than this"),
    ("unique", "KEY", str, "give the id of the live job of this kind with this key, if there is one"),
    ("tag", "TEXT", str, "a word of yours, to find jobs by"),
)


def add_commands(commands: Commands) -> None:
    """Add `submit`, `cancel` and `wait`."""
    submit = commands.add_parser(
        "submit",
        help="put a job into the queue",
        description="Puts a job into the queue of FILE and print its id.",
        epilog="""Example: mldb submit my.db train churn '{"query": "SELECT * FROM u", "target": "left"}'""",
    )
    submit.add_argument("file", metavar="FILE")
    submit.add_argument("kind", metavar="KIND", help="what to do: train, backfill, noop, or a kind of yours")
    submit.add_argument("target", metavar="TARGET", help="what it is about: the name of a model, say")
    submit.add_argument("spec", metavar="SPEC", nargs="?", help="a JSON object; - reads it from stdin")
    for name, metavar, kind, text in OPTIONS:
        submit.add_argument(f"--{name}", metavar=metavar, type=kind, help=text)
    submit.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="any option of ml_submit; VALUE is JSON, or else text",
    )
    submit.set_defaults(run=run_submit)

    cancel = commands.add_parser("cancel", help="cancel a job that is not over")
    cancel.add_argument("file", metavar="FILE")
    cancel.add_argument("id", metavar="ID", type=int)
    cancel.set_defaults(run=run_cancel)

    wait = commands.add_parser(
        "wait",
        help="wait until a job is over",
        description="Waits until a job is over and print its status.",
        epilog="Exit status: 0 completed; 1 failed, cancelled, or an error; 2 not over in time.",
    )
    wait.add_argument("file", metavar="FILE")
    wait.add_argument("id", metavar="ID", type=int)
    wait.add_argument("--timeout", metavar="SECONDS", type=seconds, help="give up after this long")
    wait.set_defaults(run=run_wait)


def run_submit(arguments: argparse.Namespace) -> int:
    """Submit a job and print its id."""
    spec = sys.stdin.read() if arguments.spec == "-" else arguments.spec
    with open_queue(arguments.file) as queue:
        print(queue.submit(arguments.kind, arguments.target, spec, **submit_options(arguments)))
    return 0


def run_cancel(arguments: argparse.Namespace) -> int:
    """Cancel a job; give 1 when it was over already."""
    with open_queue(arguments.file) as queue:
        if queue.cancel(arguments.id):
            print(f"cancelled {arguments.id}")
            return 0
        job = queue.get(arguments.id)
    if job is None:
        raise UsageError(f"there is no job {arguments.id}; look for it with: mldb jobs {arguments.file}")
    print(f"mldb: job {job.id} is {job.status} already", file=sys.stderr)
    return 1


def run_wait(arguments: argparse.Namespace) -> int:
    """Wait for a job and print its status; what went wrong goes to stderr."""
    with open_queue(arguments.file) as queue:
        job = queue.wait(arguments.id, timeout=arguments.timeout)
    print(job.status)
    if not job.is_terminal:
        print(f"mldb: job {job.id} is not over: {job.message or 'give it more time'}", file=sys.stderr)
        return TIMED_OUT
    if job.error_message:
        print(f"mldb: {job.error_message}", file=sys.stderr)
    return 0 if job.status == "completed" else 1


def submit_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options for ml_submit from the command line; only those that were given.

    Raises:
        UsageError: an `--option` without "=".
    """
    options: dict[str, Any] = {}
    for text in arguments.option:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--option {text!r} has no value; write it as NAME=VALUE")
        options[name] = _json_or_text(value)
    for name, *_ in OPTIONS:
        attribute = name.replace("-", "_")
        value = getattr(arguments, attribute)
        if value is not None:
            options[attribute] = _json_or_text(value) if attribute == "run_at" else value
    return options


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text

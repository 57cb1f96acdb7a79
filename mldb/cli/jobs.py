"""`mldb jobs`: what is in the queue, as a table, a live table, or JSON."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from mldb.cli.opening import open_queue
from mldb.job import STATUSES, Job

if TYPE_CHECKING:
    import apsw

    from mldb.cli.opening import Commands

REFRESH = 0.25
"""Seconds between two looks of --watch."""

COLUMNS = ", ".join(field.name for field in fields(Job))


def add_commands(commands: Commands) -> None:
    """Add `jobs`."""
    jobs = commands.add_parser(
        "jobs",
        help="show the jobs of a database file",
        description="Shows the newest jobs of FILE, oldest of them first.",
    )
    jobs.add_argument("file", metavar="FILE")
    jobs.add_argument("--status", choices=STATUSES, help="only jobs of this status")
    jobs.add_argument("--kind", metavar="KIND", help="only jobs of this kind")
    jobs.add_argument("--limit", metavar="N", type=int, default=20, help="at most N jobs (default 20)")
    how = jobs.add_mutually_exclusive_group()
    how.add_argument("--watch", action="store_true", help="keep showing until Ctrl-C, or until all are over")
    how.add_argument("--json", action="store_true", help="print one JSON object per line, all columns")
    jobs.set_defaults(run=run_jobs)


def run_jobs(arguments: argparse.Namespace) -> int:
    """Show the jobs that the arguments pick."""
    with open_queue(arguments.file) as queue:
        picked = _Picked(queue.connection, arguments)
        if arguments.json:
            for job in picked.jobs():
                print(json.dumps({field.name: getattr(job, field.name) for field in fields(job)}))
        elif arguments.watch:
            _watch(picked)
        else:
            from mldb.cli import table

            jobs = picked.jobs()
            if jobs:
                table.console().print(table.jobs_table(jobs))
            else:
                print("no jobs")
    return 0


class _Picked:
    """The jobs that a command line asks for, read from ML_JOBS."""

    def __init__(self, connection: apsw.Connection, arguments: argparse.Namespace) -> None:
        self._connection = connection
        self._where = {"status": arguments.status, "kind": arguments.kind}
        self._limit = arguments.limit

    def jobs(self) -> list[Job]:
        """The newest jobs, oldest first."""
        conditions = [f"{name} = :{name}" for name, value in self._where.items() if value is not None]
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        rows = self._read(f"SELECT {COLUMNS} FROM ML_JOBS {where} ORDER BY id DESC LIMIT :limit")
        return [Job(*row) for row in reversed(rows)]

    def some_live(self) -> bool:
        """True while a job of the asked kind is queued or running."""
        kind = "" if self._where["kind"] is None else "AND kind = :kind"
        live = "SELECT 1 FROM ML_JOBS WHERE status IN ('queued', 'running')"
        return bool(self._read(f"{live} {kind} LIMIT 1"))

    def _read(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, {**self._where, "limit": self._limit}).fetchall()


def _watch(picked: _Picked) -> None:
    from rich.live import Live

    from mldb.cli import table

    with Live(console=table.console(), auto_refresh=False) as live:
        try:
            while True:
                # Asked first, so that the last table shows the end of the last job.
                going_on = picked.some_live()
                live.update(table.jobs_table(picked.jobs()), refresh=True)
                if not going_on:
                    return
                time.sleep(REFRESH)
        except KeyboardInterrupt:
            return

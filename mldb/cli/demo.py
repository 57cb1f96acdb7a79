"""`mldb demo`: the whole way on real rows, each step in SQL."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mldb.cli.opening import work_queue
from mldb.errors import MldbError, UsageError

if TYPE_CHECKING:
    import apsw
    from rich.console import Console

    from mldb.cli.opening import Commands
    from mldb.job import Job
    from mldb.queue import Queue

REFRESH: Final = 0.2
"""Seconds between two looks at the jobs."""

TRAIN: Final = """\
SELECT ml_submit('train', 'delay', json_object(
    'query',     'SELECT f.arr_delay, f.dep_delay, f.carrier, f.origin, f.dest, f.distance, f.hour,
                         w.temp, w.wind_gust, w.precip, w.visib
                  FROM flights AS f LEFT JOIN weather AS w USING (origin, time_hour)
                  WHERE f.month = 6 AND f.arr_delay IS NOT NULL',
    'target',    'arr_delay',
    'algorithm', 'gradient_boosting',
    'seed',      1
))"""

TRAIN_LATE: Final = """\
SELECT ml_submit('train', 'late', json_object(
    'query',     'SELECT CASE WHEN arr_delay > 15 THEN ''late'' ELSE ''in time'' END AS arrival,
                         dep_delay, carrier, origin, dest, distance, hour
                  FROM flights WHERE month = 6 AND arr_delay IS NOT NULL',
    'target',    'arrival',
    'algorithm', 'random_forest',
    'seed',      1
))"""

JOBS: Final = "SELECT id, kind, target_name, status, progress, duration_ms, message FROM ML_JOBS ORDER BY id"

METRICS: Final = """\
SELECT target_name AS model, metrics_json ->> 'algorithm' AS algorithm, metrics_json ->> 'rows' AS rows,
       round(metrics_json ->> 'r2', 3) AS r2, round(metrics_json ->> 'mae', 1) AS mean_error_minutes,
       round(metrics_json ->> 'accuracy', 3) AS accuracy, round(metrics_json ->> 'roc_auc', 3) AS roc_auc
FROM ML_JOBS ORDER BY id"""

PREDICT: Final = """\
SELECT flight, origin, dest, dep_delay AS left_late, arr_delay AS came_late,
       round(ml_predict('delay', features)) AS predicted, ml_predict('late', features) AS arrival
FROM (
    SELECT f.carrier || f.flight AS flight, f.origin, f.dest, f.dep_delay, f.arr_delay, json_object(
        'dep_delay', dep_delay, 'carrier', carrier, 'origin', origin, 'dest', dest, 'distance', distance,
        'hour', hour, 'temp', temp, 'wind_gust', wind_gust, 'precip', precip, 'visib', visib) AS features
    FROM flights AS f LEFT JOIN weather AS w USING (origin, time_hour)
    WHERE f.month = 7 AND f.day = 10 AND f.arr_delay IS NOT NULL
    ORDER BY f.flight * 7919 % 1009 LIMIT 8
)"""


def add_commands(commands: Commands) -> None:
    """Add `demo`."""
    demo = commands.add_parser(
        "demo",
        help="train on real rows in the background and predict, all in SQL",
        description="Loads the flights that left New York in 2013, trains two models by SQL while it shows "
        "how far they are, and predicts with them.",
    )
    demo.add_argument("file", metavar="FILE", nargs="?", help="a new file to keep (default: a temporary one)")
    demo.add_argument("--workers", metavar="N", type=int, default=2, help="jobs at a time (default 2)")
    demo.set_defaults(run=run_demo)


def run_demo(arguments: argparse.Namespace) -> int:
    """Show the way from rows to predictions.

    Raises:
        UsageError: the file exists, or the package with the rows is not installed.
        MldbError: a job did not complete.
    """
    from mldb.cli import flights

    if arguments.workers < 1:
        raise UsageError("--workers must be 1 or more: the demo trains")
    if arguments.file and Path(arguments.file).exists():
        raise UsageError(f"{arguments.file} exists already; give the demo a new file")
    rows = flights.folder()
    with tempfile.TemporaryDirectory(prefix="mldb-demo-") as folder:
        path = arguments.file or str(Path(folder) / "flights.db")
        with work_queue(path, arguments.workers) as queue:
            _show(queue, rows)
    if arguments.file:
        print(f"\nThe file is yours; go on with: mldb shell {arguments.file}")
    return 0


def _show(queue: Queue, rows: Path) -> None:
    from mldb.cli import flights, table

    console = table.console()
    connection = queue.connection

    _say(console, "1. A database with real rows: flights from New York in 2013, and the weather there.")
    start = time.monotonic()
    counts = flights.load(connection, rows)
    took = time.monotonic() - start
    console.print(", ".join(f"{name}: {count:,} rows" for name, count in counts.items()) + f" in {took:.1f} s")

    _say(console, "2. Training is submitted in SQL. It returns at once; workers in the background do it.")
    for sql in (TRAIN, TRAIN_LATE):
        _run(console, connection, sql, "job")

    _say(console, "3. They train in the background, and ML_JOBS says how far they are:")
    jobs = _follow(console, queue)
    _say(
        console,
        "4. Jobs are rows of ML_JOBS, and so is how good the models are on rows kept apart from training.",
    )
    _run(console, connection, JOBS)
    for job in jobs:
        if job.status != "completed":
            raise MldbError(f"job {job.id} {job.status}: {job.error_message or job.message}")
    _run(console, connection, METRICS)

    _say(console, "5. The models answer in SQL: flights of the 10th of July. They learned from June.")
    _run(console, connection, PREDICT)


def _say(console: Console, text: str) -> None:
    console.print(f"\n{text}", style="bold", markup=False)


def _run(console: Console, connection: apsw.Connection, sql: str, name: str | None = None) -> None:
    """Print a statement as it would be typed, and what it gives (its one column called `name`)."""
    from rich.syntax import Syntax

    from mldb.cli import table

    if console.is_terminal:
        console.print(Syntax(f"{sql};", "sql", background_color="default"))
    else:
        console.print(f"{sql};", markup=False)
    cursor = connection.execute(sql)
    names = (name,) if name else tuple(column for column, _ in cursor.get_description())
    console.print(table.rows_table(names, cursor.fetchall()))


def _follow(console: Console, queue: Queue) -> list[Job]:
    """Show the jobs until all are over: drawn anew on a terminal, a line per step elsewhere."""
    if not console.is_terminal:
        return _until_over(queue, Steps(console).show)
    from rich.live import Live

    from mldb.cli import table

    with Live(console=console, auto_refresh=False) as live:
        return _until_over(queue, lambda jobs: live.update(table.jobs_table(jobs), refresh=True))


def _until_over(queue: Queue, show: Callable[[list[Job]], None]) -> list[Job]:
    while True:
        jobs = sorted(queue.list(), key=lambda job: job.id)
        show(jobs)
        unfinished = [job for job in jobs if not job.is_terminal]
        if not unfinished:
            return jobs
        queue.wait(unfinished[0].id, timeout=REFRESH)


class Steps:
    """Prints a line per job whenever it has something new to say."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said: dict[int, tuple[object, ...]] = {}

    def show(self, jobs: list[Job]) -> None:
        """Print a line for each job whose status or fifth of the way changed."""
        for job in jobs:
            news = (job.status, job.progress // 20)
            if self._said.get(job.id) != news:
                self._said[job.id] = news
                line = f"job {job.id} {job.target_name}: {job.status} {job.progress} %  {job.message or ''}"
                self._console.print(line.rstrip(), markup=False)

"""Jobs and rows drawn for a terminal; imported only where something is drawn."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from mldb.job import Job

BAR: Final = 16
"""Width of a progress bar in characters."""

PIPE_WIDTH: Final = 140
"""Width of a line where no terminal says how wide it is."""

STYLES: Final = {
    "queued": "dim",
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
}


def console() -> Console:
    """Where tables go: stdout, with colours and its own width if it is a terminal."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def jobs_table(jobs: Iterable[Job]) -> Table:
    """A table with a line and a progress bar per job."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("id", "kind", "target", "status", "progress", "took", "message"):
        if title in ("id", "took"):
            table.add_column(title, justify="right", no_wrap=True)
        else:
            table.add_column(title, no_wrap=title in ("status", "progress"))
    for job in jobs:
        table.add_row(
            str(job.id),
            Text(job.kind),
            Text(job.target_name),
            Text(job.status, style=STYLES[job.status]),
            _bar(job),
            duration(job.duration_ms),
            Text(job.error_message, style="red") if job.error_message else Text(job.message or ""),
        )
    return table


def rows_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table of what a query gave; numbers stand to the right, NULL is said."""
    held = list(rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, name in enumerate(names):
        numeric = all(isinstance(row[position], int | float | None) for row in held)
        table.add_column(name, justify="right" if numeric else "left")
    for row in held:
        table.add_row(*(Text("NULL", style="dim") if value is None else _value(value) for value in row))
    return table


def duration(milliseconds: int | None) -> str:
    """A time span in words as short as they can be: 40 ms, 3.2 s, 2 min 5 s, 3 h 10 min."""
    if milliseconds is None:
        return ""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, rest = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _bar(job: Job) -> Table:
    cell = Table.grid(padding=(0, 1))
    cell.add_column(width=BAR)
    cell.add_column(width=5, justify="right")
    style = STYLES[job.status]
    bar = ProgressBar(total=100, completed=job.progress, width=BAR, complete_style=style, finished_style=style)
    cell.add_row(bar, f"{job.progress} %")
    return cell


def _value(value: object) -> Text:
    return Text(f"{value:.4g}" if isinstance(value, float) else str(value))

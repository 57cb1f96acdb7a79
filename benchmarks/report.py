"""What was measured, on what, and how it is told: medians with their spread, as Markdown and as JSON."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import apsw

import mldb


@dataclass(slots=True)
class Rate:
    """Jobs per second of one way to do a thing, round by round, beside plain SQLite in the same rounds."""

    what: str
    synchronous: str
    bound_what: str
    rounds: list[float] = field(default_factory=list)
    bound: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Ours by the bound, of each round."""
        return [ours / bound for ours, bound in zip(self.rounds, self.bound, strict=True)]


@dataclass(slots=True)
class Times:
    """How long single calls took, in a unit, all of them."""

    what: str
    synchronous: str
    unit: str
    all: list[float] = field(default_factory=list)


def where(folder: Path) -> dict[str, object]:
    """Give versions and machine: what a number depends on."""
    return {
        "mldb": mldb.__version__,
        "apsw": apsw.apsw_version(),
        "SQLite": apsw.sqlite_lib_version(),
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "filesystem": _filesystem(folder),
        "load at the start": round(os.getloadavg()[0], 2),
    }


def rates_table(rates: Iterable[Rate]) -> str:
    """Give jobs per second with the lowest and the highest round, and the ratio to plain SQLite."""
    head = ("jobs per second", "synchronous", "mldb", "rounds", "plain SQLite", "rounds", "ratio", "rounds")
    return table(
        head,
        [
            (
                rate.what,
                rate.synchronous,
                f"{statistics.median(rate.rounds):,.0f}",
                _span(rate.rounds, "{:,.0f}"),
                f"{statistics.median(rate.bound):,.0f}",
                _span(rate.bound, "{:,.0f}"),
                f"**{statistics.median(rate.ratios):.2f}**",
                _span(rate.ratios, "{:.2f}"),
            )
            for rate in rates
        ],
    )


def times_table(times: Iterable[Times]) -> str:
    """Give median, 99th percentile and longest of single calls."""
    head = ("time", "synchronous", "unit", "median", "99 %", "longest", "calls")
    return table(
        head,
        [
            (
                each.what,
                each.synchronous,
                each.unit,
                f"{statistics.median(each.all):,.2f}",
                f"{percentile(each.all, 0.99):,.2f}",
                f"{max(each.all):,.2f}",
                str(len(each.all)),
            )
            for each in times
        ],
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Give a Markdown table: the first column to the left, the others to the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def percentile(values: Sequence[float], part: float) -> float:
    """Give the smallest of the values that at least this part of them does not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def write_json(path: Path, **content: object) -> None:
    """Write all of it; dataclasses as objects."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, default=asdict) + "\n", "utf-8")


def _span(values: Sequence[float], form: str) -> str:
    return f"{form.format(min(values))} to {form.format(max(values))}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _filesystem(folder: Path) -> str:
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    except OSError:
        return "unknown"
    place = folder.resolve()
    over = [(len(words[1]), number, words[2]) for number, words in enumerate(mounts) if place.is_relative_to(words[1])]
    return max(over)[2] if over else "unknown"

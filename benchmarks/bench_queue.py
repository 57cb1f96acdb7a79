"""Measures the queue beside plain SQLite, in one run on one machine; README.md in this folder says what and how.

A quick look: python benchmarks/bench_queue.py --jobs 2000 --rounds 1 --large 0
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import draining
import growing
import handling
import submitting
from report import Rate, Times, rates_table, table, times_table, where, write_json

LEVELS = ("FULL", "NORMAL")
CALLS = 200_000
LATENCIES = 100
Workload = Callable[[Path, int, str], float]


@dataclass(frozen=True, slots=True)
class Workloads:
    """Ways to do the same thing, with what plain SQLite does for it; *part* of the jobs are enough for a round."""

    bound_what: str
    bound: Workload
    ways: Mapping[str, Workload]
    part: float = 1.0


WORKLOADS = (
    Workloads(
        "bare INSERT loop",
        submitting.bare_one_by_one,
        {
            "submit one by one: queue.submit": submitting.queue_submit,
            "submit one by one: SELECT ml_submit(…)": submitting.select_ml_submit,
        },
        part=0.1,
    ),
    Workloads(
        "bare INSERT … SELECT",
        submitting.bare_insert_select,
        {
            "submit many: INSERT INTO ML_JOBS … SELECT": submitting.insert_into_ml_jobs,
            "submit many: SELECT ml_submit(…) FROM t": submitting.ml_submit_in_transaction,
        },
    ),
    Workloads(
        "claim and complete by 500, one thread",
        draining.bare_claim_and_complete,
        {f"no-op jobs end to end, {draining.THREADS} threads": draining.drain},
    ),
)


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="mldb-bench-") as place:
        folder = Path(place)
        machine = where(folder)
        _tell("warm-up")
        _rounds(folder, max(100, arguments.jobs // 10), 1)
        rates = _rounds(folder, arguments.jobs, arguments.rounds)
        _tell("calls and latency")
        times = _calls(folder, arguments.rounds) + _latency(folder, arguments.rounds)
        _tell("submits while workers drain")
        crowds = _crowds(folder, arguments.jobs)
        _tell("growth")
        growth = growing.microseconds(folder, arguments.large, "NORMAL") if arguments.large else {}
    print(", ".join(f"{name} {value}" for name, value in machine.items()), end="\n\n")
    print(rates_table(rates), times_table(times), _crowds_table(crowds), sep="\n\n")
    if growth:
        print("", _growth_table(growth, arguments.large), sep="\n")
    settings = {"jobs": arguments.jobs, "rounds": arguments.rounds, "large": arguments.large}
    write_json(
        arguments.json, machine=machine, settings=settings, rates=rates, times=times, crowds=crowds, growth=growth
    )
    print(f"\nAll rounds: {arguments.json}")


def _rounds(folder: Path, jobs: int, rounds: int) -> list[Rate]:
    """Measure all workloads at both levels, round by round, every other round from the end."""
    found: dict[tuple[str, str], Rate] = {}
    plan = [(workloads, level) for workloads in WORKLOADS for level in LEVELS]
    for number in range(rounds):
        _tell(f"round {number + 1} of {rounds}, {jobs} jobs")
        for workloads, level in plan[:: -1 if number % 2 else 1]:
            count = max(100, int(jobs * workloads.part))
            ways = [(workloads.bound_what, workloads.bound), *workloads.ways.items()]
            speeds = {what: way(folder, count, level) for what, way in ways[:: -1 if number % 2 else 1]}
            for what in workloads.ways:
                rate = found.setdefault((what, level), Rate(what, level, workloads.bound_what))
                rate.rounds.append(speeds[what])
                rate.bound.append(speeds[workloads.bound_what])
    return [found[what, level] for workloads in WORKLOADS for what in workloads.ways for level in LEVELS]


def _calls(folder: Path, rounds: int) -> list[Times]:
    found: dict[str, Times] = {}
    for _ in range(rounds):
        for what, cost in handling.nanoseconds_per_call(folder, CALLS, "FULL").items():
            found.setdefault(what, Times(what, "FULL", f"ns, mean of {CALLS:,}")).all.append(cost)
    return list(found.values())


def _latency(folder: Path, rounds: int) -> list[Times]:
    found = {level: Times("submit to start, idle, same process", level, "ms") for level in LEVELS}
    for _ in range(rounds):
        for level in LEVELS:
            found[level].all += handling.submit_to_start(folder, LATENCIES, level)
    return list(found.values())


def _crowds(folder: Path, jobs: int) -> dict[str, draining.Crowd]:
    ways = {
        f"SELECT ml_submit(…) over {jobs // 2:,} rows": (draining.select_while_draining, jobs // 2),
        f"{draining.SUBMITTERS} threads, {jobs:,} jobs": (draining.threads_while_draining, jobs),
    }
    return {f"{what} at {level}": way(folder, count, level) for what, (way, count) in ways.items() for level in LEVELS}


def _crowds_table(crowds: Mapping[str, draining.Crowd]) -> str:
    what = f"submits while {draining.THREADS} workers drain"
    head = (what, "submitted in s", "all done in s", "median wait ms", "longest wait ms", "WAL MB")
    return table(
        head,
        [
            (
                what,
                f"{crowd.submitting:.2f}",
                f"{crowd.until_done:.2f}",
                f"{crowd.median_wait * 1000:.2f}",
                f"{crowd.longest_wait * 1000:.1f}",
                f"{crowd.wal_bytes / 1e6:.0f}",
            )
            for what, crowd in crowds.items()
        ],
    )


def _growth_table(growth: Mapping[str, tuple[list[float], list[float]]], large: int) -> str:
    head = ("median µs at NORMAL", f"{growing.SMALL:,} jobs", f"{large:,} jobs", "ratio")
    medians = {what: [statistics.median(times) for times in both] for what, both in growth.items()}
    return table(
        head,
        [(what, f"{small:,.0f}", f"{big:,.0f}", f"**{big / small:.2f}**") for what, (small, big) in medians.items()],
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures the queue beside plain SQLite.")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs of a workload (default 20000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds after the warm-up (default 5)")
    parser.add_argument("--large", type=int, default=1_000_000, help="jobs of the large file; 0 leaves growth out")
    parser.add_argument("--folder", type=Path, help="where the files go: its disk is measured (default: the system's)")
    parser.add_argument(
        "--json", type=Path, default=Path("build/bench_queue.json"), help="where all rounds are written"
    )
    arguments = parser.parse_args()
    if arguments.jobs < 100 or arguments.rounds < 1 or 0 < arguments.large < growing.SMALL:
        parser.error("--jobs is 100 or more, --rounds 1 or more, --large 0 or at least 1000")
    return arguments


def _tell(what: str) -> None:
    print(what, flush=True)


if __name__ == "__main__":
    main()

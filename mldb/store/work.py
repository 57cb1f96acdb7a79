"""What a worker process does to its jobs: claim, finish, put back, note how far they are."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import apsw

from mldb.connection import run
from mldb.job import LARGEST_ID
from mldb.statements import statements

_POOL = statements("pool")


@dataclass(frozen=True, slots=True)
class Claim:
    """A job in the hands of this process. `timeout_s` and `backoff_s` are seconds; a `spec_json` of None means {}."""

    id: int
    kind: str
    target: str
    spec_json: str | None
    attempt: int
    max_attempts: int
    crashes: int
    timeout_s: float | None
    backoff_s: float


def claim(
    connection: apsw.Connection,
    kinds: Iterable[str],
    owner: str,
    *,
    free: int,
    ahead: int,
    tiny: AbstractSet[str],
    last: Mapping[str, int] | None,
    now: int,
) -> list[Claim]:
    """Make due jobs of these kinds ours and running; give them best first, then oldest.

    At most *free* jobs of any kind, then at most *ahead* more for as long as their kinds are in *tiny*: a job that may
    be long is not taken before a thread is free for it. *last* gives, per kind, the highest id to take.
    """
    found: list[tuple[int, int, str]] = []
    for kind in kinds:
        limits = {
            "kind": kind,
            "count": free + ahead,
            "last": LARGEST_ID if last is None else last.get(kind, 0),
        }
        for job, priority in connection.execute(_POOL["waiting_jobs"], limits):
            found.append((-priority, job, kind))
    if not found:
        return []
    chosen: list[int] = []
    for _, job, kind in heapq.nsmallest(free + ahead, found):
        if len(chosen) >= free and kind not in tiny:
            break
        chosen.append(job)
    if not chosen:
        return []
    run(connection, "SAVEPOINT ml_claim")
    try:
        claimed = _take(connection, chosen, owner, now)
    except UnicodeDecodeError:
        run(connection, "ROLLBACK TO ml_claim")
        claimed = _take_readable(connection, chosen, owner, now)
    run(connection, "RELEASE ml_claim")
    return claimed


def _take(connection: apsw.Connection, chosen: Sequence[int], owner: str, now: int) -> list[Claim]:
    arguments = {"ids": json.dumps(chosen), "owner": owner, "now": now}
    # RETURNING gives rows in any order.
    taken = sorted(connection.execute(_POOL["claim_jobs"], arguments), key=lambda row: (-row[1], row[0]))
    return [_claim(connection, row) for row in taken]


def _take_readable(connection: apsw.Connection, chosen: Sequence[int], owner: str, now: int) -> list[Claim]:
    """Take jobs one by one; one whose text is not UTF-8, which SQLite does not check, fails at once."""
    claimed: list[Claim] = []
    for job in chosen:
        run(connection, "SAVEPOINT ml_claim_one")
        try:
            claimed += _take(connection, [job], owner, now)
        except UnicodeDecodeError as error:
            run(connection, "ROLLBACK TO ml_claim_one")
            row = connection.execute(_POOL["claim_unread"], {"id": job, "owner": owner, "now": now}).fetchall()[0]
            words = f"the text of the job is not UTF-8 ({error.reason}); submit it again as text"
            held = {"id": job, "owner": owner, "attempt": row[1]}
            write(connection, "fail_job", held | {"now": now, "stopped": 1, "error": words, "message": None})
        run(connection, "RELEASE ml_claim_one")
    return claimed


def _claim(connection: apsw.Connection, row: tuple[Any, ...]) -> Claim:
    job, _, kind, target, spec, attempt, max_attempts, crashes, timeout, backoff = row
    if spec is None:
        spec = connection.execute(_POOL["large_spec"], {"id": job}).get
    return Claim(job, kind, target, spec, attempt, max_attempts, crashes, timeout, backoff)


def waiting(connection: apsw.Connection, kinds: Iterable[str], last: Mapping[str, int] | None = None) -> bool:
    """Tell whether a due job of one of these kinds is queued, with at most the id that *last* gives for its kind."""
    return any(
        connection.execute(
            _POOL["waiting_jobs"],
            {"kind": kind, "count": 1, "last": LARGEST_ID if last is None else last.get(kind, 0)},
        ).get
        is not None
        for kind in kinds
    )


def complete(
    connection: apsw.Connection, owner: str, endings: Sequence[tuple[int, int, str | None]], now: int
) -> set[int]:
    """End jobs with their results, each id, attempt and metrics; give the ids of those that were still ours."""
    arguments = {"owner": owner, "now": now, "endings": json.dumps(endings)}
    return {row[0] for row in connection.execute(_POOL["complete_jobs"], arguments)}


def write_each(connection: apsw.Connection, name: str, many: Iterable[Mapping[str, object]]) -> set[int]:
    """Run a fenced statement of pool.sql for each set of arguments; give the ids of the jobs that were still ours."""
    return {row[0] for row in connection.executemany(_POOL[name], many)}


def write(connection: apsw.Connection, name: str, arguments: Mapping[str, object]) -> bool:
    """Run a fenced statement of pool.sql; False means that the job is not ours any more."""
    return connection.execute(_POOL[name], arguments).get is not None


def cancelled(connection: apsw.Connection, owner: str) -> list[tuple[int, int]]:
    """Give id and attempt of the owner's jobs that were cancelled while their bodies run."""
    return [(row[0], row[1]) for row in connection.execute(_POOL["held_and_cancelled"], {"owner": owner})]


def held(connection: apsw.Connection, owner: str) -> list[tuple[int, int]]:
    """Give id and attempt of the jobs that the owner runs, as the file has it."""
    return [(row[0], row[1]) for row in connection.execute(_POOL["held_jobs"], {"owner": owner})]


def any_body(connection: apsw.Connection, owner: str) -> bool:
    """Tell whether a body of the owner runs, as the file has it: of a running job, or of one that is over."""
    return connection.execute(_POOL["body_of"], {"owner": owner}).get is not None


def next_due_time(connection: apsw.Connection) -> int | None:
    """Give the earliest time for which a job waits."""
    due: int | None = connection.execute(_POOL["next_due_time"]).get
    return due


def promote(connection: apsw.Connection, now: int) -> int:
    """Make jobs whose time has come claimable; give how many."""
    return len(connection.execute(_POOL["promote_due_jobs"], {"now": now}).fetchall())


def last_queued(connection: apsw.Connection, kinds: Iterable[str]) -> dict[str, int]:
    """Give, for each kind that has due jobs queued, the highest id among them."""
    found = {kind: connection.execute(_POOL["last_queued_id"], {"kind": kind}).get for kind in kinds}
    return {kind: job for kind, job in found.items() if job is not None}


def restore(connection: apsw.Connection, job: int) -> Any:
    """Give the last checkpoint of a job, None when there is none."""
    text = connection.execute(_POOL["get_checkpoint"], {"id": job}).get
    return None if text is None else json.loads(text)

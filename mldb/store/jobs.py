"""What a user does to jobs: submit, cancel, retry, prune, list."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from types import NoneType
from typing import Any

import apsw

from mldb.errors import UsageError
from mldb.job import LARGEST_ID, Job
from mldb.statements import statements

_JOBS = statements("jobs")
_SUBMIT = statements("submit")


def submit(connection: apsw.Connection, kind: object, target: object, spec: object, options: object, now: int) -> int:
    """Add a job and give its id, or the id of the live job that has the same unique key.

    `spec` and `options` are the texts of JSON objects or None. Two statements when a unique key is given: the caller
    holds a write transaction then. Raises UsageError, in the words of `submission_problem`.
    """
    try:
        if options is None and isinstance(kind, str) and isinstance(target, str) and isinstance(spec, (str, NoneType)):
            try:
                plain = {"kind": kind, "target": target, "spec": spec, "now": now}
                return int(connection.execute(_JOBS["submit_job"], plain).get)
            except apsw.ConstraintError:
                require_sound(connection, kind, target, spec, options)
                raise
        require_sound(connection, kind, target, spec, options)
        meaning = _row(connection, _SUBMIT["read_options"], {"options": options or "{}", "now": now})
        if meaning["unique_key"] is not None:
            key = {"kind": kind, "unique_key": meaning["unique_key"]}
            live = connection.execute(_JOBS["live_job_with_key"], key).get
            if live is not None:
                return int(live)
        arguments = {"kind": kind, "target": target, "spec": spec, "now": now, **meaning}
        return int(connection.execute(_JOBS["submit_job_with_options"], arguments).get)
    except apsw.ConstraintError as error:  # a trigger of the user
        raise UsageError(str(error)) from error
    except UnicodeEncodeError as error:
        raise UsageError("the job has a text that UTF-8 cannot hold; encode it first, for example in base64") from error


def as_text(connection: apsw.Connection, number: float) -> str:
    """Give a number as a column of texts keeps it."""
    return str(connection.execute(_JOBS["as_text"], {"value": number}).get)


def require_sound(connection: apsw.Connection, kind: object, target: object, spec: object, options: object) -> None:
    """Raise UsageError in plain words when a submission has a problem."""
    arguments = {"kind": kind, "target": target, "spec": spec, "options": options}
    problem = connection.execute(_SUBMIT["submission_problem"], arguments).get
    if problem is not None:
        raise UsageError(problem)


def cancel(connection: apsw.Connection, job: int, now: int) -> bool:
    """Cancel a job; False when it is unknown or over."""
    return connection.execute(_JOBS["cancel_job"], {"id": job, "now": now}).get is not None


def retry(connection: apsw.Connection, job: int, now: int) -> int | None:
    """Add a job like a terminal one and give its id; None for an unknown one. Raises UsageError for a live one."""
    try:
        new: int | None = connection.execute(_JOBS["retry_job"], {"id": job, "now": now}).get
    except apsw.ConstraintError as error:
        raise UsageError(str(error).removeprefix("ConstraintError: ")) from error
    if new is None and status(connection, job) is not None:
        raise UsageError(
            f"job {job} is not over yet; wait for it with ml_wait({job}), or cancel it with ml_cancel({job})"
        )
    return new


def status(connection: apsw.Connection, job: int) -> tuple[str, bool] | None:
    """Give the status of a job and whether its body has ended; None when there is no such job."""
    row = connection.execute(_JOBS["job_status"], {"id": job}).fetchone()
    return None if row is None else (row[0], bool(row[1]))


def old(connection: apsw.Connection, before: int, after: int, count: int) -> list[int]:
    """Give at most *count* ids above *after* of terminal jobs that finished at or before a time."""
    return [row[0] for row in connection.execute(_JOBS["old_jobs"], {"before": before, "after": after, "count": count})]


def delete(connection: apsw.Connection, jobs: Sequence[int]) -> int:
    """Delete terminal jobs and give how many were there; raise apsw.ConstraintError when one is live."""
    return len(connection.execute(_JOBS["delete_jobs"], {"ids": json.dumps(jobs)}).fetchall())


def columns(connection: apsw.Connection) -> dict[str, str]:
    """Give the columns of ML_JOBS in order, with their types."""
    return dict(connection.execute(_JOBS["job_columns"]))


def last_id(connection: apsw.Connection) -> int:
    """Give the highest id in the file, 0 when there is no job."""
    return int(connection.execute(_JOBS["last_job_id"]).get or 0)


def get(connection: apsw.Connection, job: int) -> Job | None:
    """Give one job, or None."""
    row = connection.execute(_JOBS["get_job"], {"id": job}).fetchone()
    return None if row is None else Job(*row)


def rows(
    connection: apsw.Connection,
    *,
    first: int = 0,
    last: int = LARGEST_ID,
    statuses: Iterable[str] | None = None,
    kind: str | None = None,
    target_name: str | None = None,
    descending: bool = False,
    count: int,
) -> tuple[list[tuple[Any, ...]], int | None]:
    """Give at most *count* rows of ML_JOBS, by id, and where the next ones begin.

    The second value is the new `first` (or, descending, the new `last`), None when there are no more. It may be given
    with fewer rows than *count*, or none: a chunk of a status is filtered by kind and target only after it was read.
    """
    span = {"first": first, "last": last, "count": count}
    filters = {"kind": kind, "target_name": target_name}
    if statuses is None:
        name = "list_jobs_down" if descending else "list_jobs_up"
        found: list[tuple[Any, ...]] = connection.execute(_JOBS[name], {**span, **filters}).fetchall()
        edge: int | None = int(found[-1][0]) if len(found) == count else None
    else:
        name = "pick_jobs_down" if descending else "pick_jobs_up"
        picked = [row[0] for row in connection.execute(_JOBS[name], {**span, "statuses": json.dumps(sorted(statuses))})]
        edge = int(picked[-1]) if len(picked) == count else None
        name = "list_picked_jobs_down" if descending else "list_picked_jobs"
        found = connection.execute(_JOBS[name], {"ids": json.dumps(picked), **filters}).fetchall()
    if edge is None:
        return found, None
    return found, edge - 1 if descending else edge + 1


def _row(connection: apsw.Connection, sql: str, arguments: dict[str, object]) -> dict[str, Any]:
    cursor = connection.execute(sql, arguments)
    names = [column[0] for column in cursor.get_description()]
    return dict(zip(names, cursor.fetchall()[0], strict=True))

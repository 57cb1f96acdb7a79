"""What a dispatcher has to write: gathered in memory, written in one transaction, forgotten once it is committed."""

from __future__ import annotations

import random
from typing import Any

import apsw

from mldb.connection import run as run_sql
from mldb.identity import now_ms
from mldb.run import Ending, Run, message_of
from mldb.store import models, work
from mldb.task import Task

LONGEST_BACKOFF_S = 3600.0


class Batch:
    """Endings, progress, log lines and values of one worker that wait to be written."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.endings: list[Ending] = []
        self.timeouts: list[Run] = []
        self.stopped: list[Run] = []
        self.returned: list[Run] = []
        self.abandoned: list[Run] = []
        self._progress: dict[int, dict[str, Any]] = {}
        self._lines: list[dict[str, Any]] = []
        self._values: list[dict[str, Any]] = []

    def __bool__(self) -> bool:
        return bool(
            self.endings
            or self.timeouts
            or self.stopped
            or self.returned
            or self._progress
            or self._lines
            or self._values
        )

    def report(self, task: Task) -> None:
        """Gather what a task has reported since the last time."""
        held = {"id": task.id, "owner": self.owner, "attempt": task.attempt}
        progress = task.take_progress()
        if progress is not None:
            self._progress[task.id] = {**held, "progress": progress[0], "message": progress[1]}
        for at_ms, line in task.take_lines():
            self._lines.append({**held, "at_ms": at_ms, "line": line})
        for at_ms, name, step, value in task.take_values():
            self._values.append({**held, "at_ms": at_ms, "name": name, "step": step, "value": value})

    def clear(self) -> None:
        """Forget what was written: the transaction is committed."""
        for gathered in (self.endings, self.timeouts, self.stopped, self.returned, self._lines, self._values):
            gathered.clear()
        self._progress.clear()

    def give_up_unwritable(self, connection: apsw.Connection) -> None:
        """Find out what makes `write` fail, and give it up: a report is dropped, a job fails in words.

        A job that cannot even fail (a trigger of the user refuses it) is abandoned: it stays running until this
        process ends. So one job never holds up the others. The caller holds a transaction, which stays as it was.
        """
        for place, ending in enumerate(tuple(self.endings)):
            error = self._alone("endings", ending).trial(connection)
            if error is not None:
                words = f"what its handler gave could not be kept: {message_of(error)}"
                self.endings[place] = Ending(ending.run, ending.seconds, error=words)
        for ending in tuple(self.endings):
            if self._alone("endings", ending).trial(connection) is not None:
                self.endings.remove(ending)
                self.abandoned.append(ending.run)
        for name in ("timeouts", "stopped", "returned"):
            for run in tuple(getattr(self, name)):
                if self._alone(name, run).trial(connection) is not None:
                    getattr(self, name).remove(run)
                    self.abandoned.append(run)
        for reports in (self._lines, self._values):
            for report in tuple(reports):
                alone = Batch(self.owner)
                (alone._lines if reports is self._lines else alone._values).append(report)
                if alone.trial(connection) is not None:
                    reports.remove(report)
        for job, noted in tuple(self._progress.items()):
            alone = Batch(self.owner)
            alone._progress[job] = noted
            if alone.trial(connection) is not None:
                del self._progress[job]

    def _alone(self, name: str, item: Ending | Run) -> Batch:
        alone = Batch(self.owner)
        getattr(alone, name).append(item)
        return alone

    def trial(self, connection: apsw.Connection) -> Exception | None:
        """Write all of it and take it back; give what was raised."""
        run_sql(connection, "SAVEPOINT ml_trial")
        try:
            self.write(connection)
        except Exception as error:  # noqa: BLE001 - whatever it is, this is what cannot be written
            return error
        else:
            return None
        finally:
            run_sql(connection, "ROLLBACK TO ml_trial")
            run_sql(connection, "RELEASE ml_trial")

    def write(self, connection: apsw.Connection) -> None:
        """Write all of it; the caller holds the transaction."""
        now = now_ms()
        self._write_reports(connection)
        for late in self.timeouts:
            error = f"timed out after {late.claim.timeout_s:g} s"
            work.write(connection, "fail_job", self._failure(late, now, error, stopped=False))
        over = [barred.held(self.owner) | {"now": now} for barred in self.stopped]
        plain, rest = [], []
        for ending in self.endings:
            if ending.run.over is not None:
                over.append(ending.run.held(self.owner) | {"now": now})
            elif ending.error is None and ending.model is None:
                plain.append(ending)
            else:
                rest.append(ending)
        over += self._complete(connection, plain, now)
        for ending in rest:
            kept = (
                self._fail(connection, ending, now)
                if ending.error is not None
                else self._keep_model(connection, ending, now)
            )
            if not kept:
                over.append(ending.run.held(self.owner) | {"now": now})
        if over:
            work.write_each(connection, "stop_job", over)
        if self.returned:
            work.write_each(connection, "release_job", [back.held(self.owner) for back in self.returned])

    def _write_reports(self, connection: apsw.Connection) -> None:
        # A job that completes is at 100 in a moment.
        done = {ending.run.claim.id for ending in self.endings if ending.error is None}
        progress = [noted for job, noted in self._progress.items() if job not in done or noted["message"] is not None]
        if progress:
            work.write_each(connection, "note_progress", progress)
        if self._lines:
            work.write_each(connection, "add_log_line", self._lines)
        if self._values:
            work.write_each(connection, "add_metric", self._values)

    def _complete(self, connection: apsw.Connection, endings: list[Ending], now: int) -> list[dict[str, Any]]:
        """Complete jobs; give what fences those that were not ours any more."""
        if not endings:
            return []
        many = [(ending.run.claim.id, ending.run.claim.attempt, ending.metrics) for ending in endings]
        kept = work.complete(connection, self.owner, many, now)
        if len(kept) == len(many):
            return []
        lost = [ending.run for ending in endings if ending.run.claim.id not in kept]
        return [job.held(self.owner) | {"now": now} for job in lost]

    def _keep_model(self, connection: apsw.Connection, ending: Ending, now: int) -> bool:
        """Complete a job and keep its model, both or neither."""
        claim = ending.run.claim
        assert ending.model is not None
        if not work.complete(connection, self.owner, [(claim.id, claim.attempt, ending.metrics)], now):
            return False
        models.add(connection, claim.target, ending.model, ending.metrics, claim.id, now)
        return True

    def _fail(self, connection: apsw.Connection, ending: Ending, now: int) -> bool:
        """Fail a job, or put it back for another attempt when it has any left. Crashes count apart."""
        claim = ending.run.claim
        assert ending.error is not None
        failures = claim.attempt - claim.crashes
        if failures >= claim.max_attempts:
            return work.write(connection, "fail_job", self._failure(ending.run, now, ending.error, stopped=True))
        pause = min(claim.backoff_s * 2.0 ** min(failures - 1, 30), LONGEST_BACKOFF_S) * random.uniform(0.75, 1.25)
        again = {
            "run_at_ms": now + round(pause * 1000),
            "message": f"attempt {claim.attempt} failed: {ending.error}",
        }
        return work.write(connection, "postpone_job", ending.run.held(self.owner) | again)

    def _failure(self, job: Run, now: int, error: str, *, stopped: bool) -> dict[str, Any]:
        return job.held(self.owner) | {"now": now, "error": error, "stopped": int(stopped), "message": None}

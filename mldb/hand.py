"""The jobs that a worker process holds: claimed, and their bodies not yet known to have ended."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from mldb.run import Ending, Run

MOST_AHEAD = 1000
HAND_BACK_S = 0.1
_AHEAD_S = 0.01
_TINY_S = 0.02


class Hand:
    """The runs in hand, for a number of threads. Belongs to the dispatcher's thread, but for `of` and `len`."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._runs: dict[tuple[int, int], Run] = {}
        self._timed: set[Run] = set()
        self._tempo: dict[str, float] = {}
        self._stalled = False

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(tuple(self._runs.values()))

    def of(self, job: int) -> list[Run]:
        """Give the runs of a job: several when it was taken away and came back while an old body runs."""
        return [run for run in self if run.claim.id == job]

    def get(self, job: int, attempt: int) -> Run | None:
        """Give the run of an attempt at a job."""
        return self._runs.get((job, attempt))

    def add(self, run: Run) -> None:
        """Take a run."""
        self._runs[run.claim.id, run.claim.attempt] = run
        if run.claim.timeout_s is not None:
            self._timed.add(run)

    def drop(self, run: Run) -> None:
        """Let a run go."""
        self._runs.pop((run.claim.id, run.claim.attempt), None)
        self._timed.discard(run)

    def note(self, ending: Ending) -> None:
        """Learn from a body that ended how long its kind takes."""
        self._stalled = False
        self._timed.discard(ending.run)
        kind, seconds = ending.run.claim.kind, ending.seconds
        self._tempo[kind] = 0.8 * self._tempo.get(kind, seconds) + 0.2 * seconds

    def tiny(self) -> AbstractSet[str]:
        """Give the kinds whose bodies take so little time that claiming ahead pays."""
        return {kind for kind, seconds in self._tempo.items() if seconds < _TINY_S}

    def room(self, leaving: int) -> tuple[int, int]:
        """Give how many jobs to claim for free threads, and how many ahead of them; *leaving* are about to go."""
        in_hand = len(self._runs) - leaving
        free = max(0, self.threads - in_hand)
        fastest = min(self._tempo.values(), default=_TINY_S)
        if self._stalled or fastest >= _TINY_S:
            return free, 0
        ahead = min(MOST_AHEAD, int(self.threads * _AHEAD_S / max(fastest, 1e-6)))
        return free, max(0, min(ahead, self.threads + ahead - in_hand))

    def late(self, now: float) -> list[Run]:
        """Give the runs whose time is up, each once."""
        for run in tuple(self._timed):
            if run.over is not None:
                self._timed.discard(run)
        late = [run for run in self._timed if _deadline(run, now) <= now]
        self._timed.difference_update(late)
        return late

    def next_deadline(self, now: float) -> float | None:
        """Give when the next time is up; a body that has not begun is looked at again in a moment."""
        return min((_deadline(run, now) for run in self._timed), default=None)

    def stalled(self, now: float) -> list[Run]:
        """Give what was claimed ahead and found no thread for a while; it will not begin any more."""
        if len(self._runs) <= self.threads:
            return []
        found = [
            run
            for run in self
            if run.began is None and run.over is None and now - run.claimed > HAND_BACK_S and run.bar()
        ]
        self._stalled = self._stalled or bool(found)
        return found


def _deadline(run: Run, now: float) -> float:
    assert run.claim.timeout_s is not None
    return now + 0.1 if run.began is None else run.began + run.claim.timeout_s

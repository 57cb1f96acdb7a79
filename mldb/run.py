"""One job in the hands of this process, and what came of its body."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mldb.errors import Cancelled, MldbError, UsageError
from mldb.outcome import PackedModel, Result, as_json, as_text, pack

if TYPE_CHECKING:
    from mldb.registry import Handler
    from mldb.store.work import Claim
    from mldb.task import Task

LARGEST_RESULT: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class Ending:
    """How a body ended, after so many seconds: with metrics (JSON text) and perhaps a model, or with an error."""

    run: Run
    seconds: float
    metrics: str | None = None
    model: PackedModel | None = None
    error: str | None = None


class Run:
    """A claimed job.

    `over` says in a word why what the body gives is not kept: "cancelled", "timed out", or "released" (put back).
    Times are seconds of time.monotonic().
    """

    __slots__ = ("_fate", "began", "claim", "claimed", "handler", "over", "task")

    def __init__(self, claim: Claim, handler: Handler, task: Task, claimed: float) -> None:
        self.claim = claim
        self.handler = handler
        self.task = task
        self.claimed = claimed
        self.began: float | None = None
        self.over: str | None = None
        self._fate: dict[int, str] = {}

    def begins(self) -> bool:
        """Tell whether a thread may begin the body: False once it was barred."""
        return self._fate.setdefault(0, "begins") == "begins"  # atomic: the first to ask decides

    def bar(self) -> bool:
        """Keep the body from beginning; False when it has begun."""
        return self._fate.setdefault(0, "barred") == "barred"

    def held(self, owner: str) -> dict[str, Any]:
        """Give what fences a write for this job: id, owner and attempt."""
        return {"id": self.claim.id, "owner": owner, "attempt": self.claim.attempt}

    def body(self) -> Ending:
        """Run the handler to its end. Whatever it raises ends the job, never the thread."""
        began = self.began = time.monotonic()
        metrics = model = error = None
        try:
            metrics, model = self._kept(self.handler.function(self.task))
        except Cancelled as cancelled:
            error = message_of(cancelled)
        except BaseException as raised:  # noqa: BLE001 - SystemExit and KeyboardInterrupt too
            error = message_of(raised)
            self.task.log("".join(traceback.format_exception(raised)).rstrip())
        return Ending(self, time.monotonic() - began, metrics, model, error)

    def _kept(self, result: object) -> tuple[str | None, PackedModel | None]:
        if isinstance(result, Result):
            metrics, model = result.metrics, result.model
        elif result is None or isinstance(result, dict):
            metrics, model = result, None
        else:
            raise UsageError(
                f"the handler of {self.claim.kind!r} returned a {type(result).__name__}; "
                "return a dict, an mldb.Result or None"
            )
        packed = None if model is None else pack(model)
        if not metrics:
            return (None if metrics is None else "{}"), packed
        text = as_json(dict(metrics), "the handler's metrics")
        if len(text) > LARGEST_RESULT:
            raise UsageError(
                f"the handler's metrics have {len(text)} characters and at most {LARGEST_RESULT} are kept; return less"
            )
        return text, packed


def message_of(error: BaseException) -> str:
    """Give the words of an exception; its type as well where the words alone say too little.

    >>> message_of(ValueError("bad hyperparameters")), message_of(KeyError("age")), message_of(KeyboardInterrupt())
    ('bad hyperparameters', "KeyError: 'age'", 'KeyboardInterrupt')
    """
    name = type(error).__name__
    try:
        words = as_text(error).strip()
    except BaseException:  # noqa: BLE001 - an exception that cannot even say what it is
        words = ""
    if not words:
        return name
    plain = isinstance(error, (MldbError, ValueError, RuntimeError)) or type(error) is Exception
    return (words if plain else f"{name}: {words}")[:10_000]

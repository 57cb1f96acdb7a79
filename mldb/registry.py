"""Which handler runs which kind of job.

Handlers come from the decorator `handler`, from entry points of the group "mldb.handlers" of any installed package,
or from the `handlers` argument of `mldb.open`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from typing import Any, Final

from mldb.errors import UsageError

GROUP: Final = "mldb.handlers"
Function = Callable[[Any], Any]
_BUILT_IN_QUERIES: Final[Mapping[str, tuple[str, ...]]] = {"train": ("query",), "backfill": ("query",)}
_LEARNING: Final = ("numpy", "sklearn", "skops")


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that runs jobs of a kind, and the keys of the spec that hold a query."""

    kind: str
    function: Function
    queries: tuple[str, ...] = ()


_registered: dict[str, Handler] = {}


def generation() -> int:
    """Give a number that grows when a handler is registered."""
    return len(_registered)


def handler(kind: str, *, queries: tuple[str, ...] = ()) -> Callable[[Function], Function]:
    """Make the decorated function the handler of a kind of job, in this process.

    `queries` names keys of the spec that hold a SELECT; it is checked when the job is submitted.
    Raises UsageError when the kind has another handler already.

    >>> @handler("docs.square")
    ... def square(task):
    ...     return {"square": task.spec["n"] ** 2}
    >>> square.__name__
    'square'
    """
    if not isinstance(kind, str) or not 1 <= len(kind) <= 200:
        raise UsageError("a kind of job is a text of 1 to 200 characters; write @mldb.handler('name')")

    def register(function: Function) -> Function:
        known = _registered.get(kind)
        if known is not None and known.function is not function:
            raise UsageError(
                f"kind {kind!r} already has the handler {known.function.__qualname__}; choose another name"
            )
        _registered[kind] = Handler(kind, function, queries)
        return function

    return register


def handlers(own: Mapping[str, Function] | None = None) -> dict[str, Handler]:
    """Give all handlers by kind: installed ones, then decorated ones, then *own*; the last of a kind holds."""
    found = {**_installed(), **_registered}
    for kind, function in (own or {}).items():
        found[kind] = Handler(kind, function)
    return found


def queries_of(kind: str) -> tuple[str, ...]:
    """Give the keys of a kind's spec that hold a query; none for a kind that is not known here."""
    if kind in _registered:
        return _registered[kind].queries
    return _BUILT_IN_QUERIES.get(kind, ())


@cache
def _installed() -> dict[str, Handler]:
    found: dict[str, Handler] = {}
    for point in metadata.entry_points(group=GROUP):
        if point.name in _BUILT_IN_QUERIES and not all(find_spec(name) for name in _LEARNING):
            continue  # left to a worker that has them
        found[point.name] = Handler(point.name, _Lazy(point.value), _BUILT_IN_QUERIES.get(point.name, ()))
    return found


class _Lazy:
    """A handler that is imported when its first job runs, so that opening a queue stays fast."""

    __slots__ = ("__qualname__", "_function", "_place")

    def __init__(self, place: str) -> None:
        self._place = place
        self._function: Function | None = None
        self.__qualname__ = place

    def __call__(self, task: Any) -> Any:
        if self._function is None:
            module, _, name = self._place.partition(":")
            self._function = getattr(importlib.import_module(module), name)
        return self._function(task)

"""Rows copied out of the database: small results stay in memory, large ones move to a temporary file.

A query's read transaction must end before work begins, or the write-ahead log grows for as long as the work
takes. So the rows are kept here, in frames of a few dozen, each written by `marshal`: it knows the five
types SQLite has, is as fast as building the tuples, and the file is ours alone (it has no name) and gone
with the process.
"""

from __future__ import annotations

import marshal
import tempfile
import threading
import weakref
from typing import TYPE_CHECKING, Any, Self

from mldb.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

Value = None | int | float | str | bytes
Row = tuple[Value, ...]

SPILL_BYTES = 64 * 1024 * 1024
"""A result larger than this many bytes moves from memory to a temporary file."""

_FORMAT = 2  # later marshal formats look every object up in a table of references, which rows do not need
_LENGTH = 8  # each frame stands behind its length
_BLOCK_ROWS = 512  # turned into columns at a time: enough for numpy, and still in the processor's cache
_BLOCK_BYTES = 16 * 1024 * 1024
_EXACT = 2**53  # the integers up to here are exact as float64


class Rows:
    """The rows of one query, to be read as often as needed, each a tuple of None, int, float, str and bytes.

    `names` are the columns' names, `len()` the number of rows, `size` their bytes as kept here, and
    `spilled` whether they moved to a temporary file. Any thread may iterate, also several at once.
    `close()`, the end of a `with` block, or forgetting the object frees memory and file.
    """

    __slots__ = ("__weakref__", "_close", "_count", "_file", "_lock", "_spill", "names", "size")

    def __init__(self, names: tuple[str, ...], *, spill: int = SPILL_BYTES) -> None:
        self.names = names
        self.size = 0
        self._count = 0
        self._spill = spill
        self._lock = threading.Lock()
        self._file = tempfile.SpooledTemporaryFile(max_size=spill, prefix="mldb-")  # noqa: SIM115 - see _close
        self._close = weakref.finalize(self, self._file.close)

    def append(self, rows: list[Row]) -> None:
        """Add rows at the end. Raises UsageError when closed, OSError when the temporary file cannot grow."""
        content: Any = rows
        frame = marshal.dumps(content, _FORMAT)
        with self._lock:
            self._refuse_closed()
            self._file.seek(self.size)
            self._file.write(len(frame).to_bytes(_LENGTH, "little"))
            self._file.write(frame)
            self.size += _LENGTH + len(frame)
            self._count += len(rows)

    def blocks(self) -> Iterator[list[Row]]:
        """Give all rows, some hundreds at a time, about 16 MiB of them at most unless a frame is larger."""
        block: list[Row] = []
        held = 0
        position = 0
        while position < self.size:
            with self._lock:
                self._refuse_closed()
                self._file.seek(position)
                length = int.from_bytes(self._file.read(_LENGTH), "little")
                frame = self._file.read(length)
            position += _LENGTH + length
            if block and (len(block) >= _BLOCK_ROWS or held + length > _BLOCK_BYTES):
                yield block
                block, held = [], 0
            block.extend(marshal.loads(frame))  # noqa: S302 - written by append, where nobody else can write
            held += length
        if block:
            yield block

    @property
    def spilled(self) -> bool:
        """Whether the rows are in a temporary file."""
        return self.size > self._spill

    def close(self) -> None:
        """Free the rows; closing twice does nothing."""
        with self._lock:
            self._close()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        self._refuse_closed()
        return (row for block in self.blocks() for row in block)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Rows: {self._count} of {', '.join(self.names)}>"

    def _refuse_closed(self) -> None:
        if not self._close.alive:
            raise UsageError("these rows are closed; run the query again")


def to_columns(rows: Rows) -> dict[str, np.ndarray[Any, Any]]:
    """Give one array per column, each of shape (len(rows),), in the order and under the names of the query.

    The type follows from the values that are there, since SQLite's columns have none of their own:

    - integers only: int64
    - floats, with or without integers, with or without NULLs: float64, NULL as NaN
    - integers and NULLs: float64, NULL as NaN
    - nothing but NULLs, or no rows: float64
    - integers beyond 2**53 that would have to become float64 and lose digits: object, NULL as None
    - text, blobs, or those mixed with numbers: object, NULL as None

    Beside the arrays only a block of rows is in memory at a time. Raises UsageError when the rows are
    closed or when two columns have one name.
    """
    import numpy as np

    if len(set(rows.names)) != len(rows.names):
        raise UsageError("two columns have one name; name each column with AS")
    types = _types(rows)
    arrays = {name: np.empty(len(rows), kind) for name, kind in zip(rows.names, types, strict=True)}
    start = 0
    for block in rows.blocks():
        stop = start + len(block)
        for array, column in zip(arrays.values(), zip(*block, strict=True), strict=True):
            array[start:stop] = np.fromiter(column, array.dtype, len(block))
        start = stop
    return arrays


def _types(rows: Rows) -> list[str]:
    found: list[set[type]] = [set() for _ in rows.names]
    for block in rows.blocks():
        for seen, column in zip(found, zip(*block, strict=True), strict=True):
            seen.update(map(type, column))
    chosen = [_type(seen) for seen in found]
    doubtful = {i for i, seen in enumerate(found) if int in seen and chosen[i] == "float64"}
    for block in rows.blocks() if doubtful else ():
        for i in [i for i in doubtful if any(_loses_digits(row[i]) for row in block)]:
            chosen[i] = "object"
            doubtful.discard(i)
    return chosen


def _type(seen: set[type]) -> str:
    if seen == {int}:
        return "int64"
    return "float64" if seen <= {int, float, type(None)} else "object"


def _loses_digits(value: Value) -> bool:
    return type(value) is int and not -_EXACT <= value <= _EXACT

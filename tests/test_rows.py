from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from mldb.errors import UsageError
from mldb.rows import Rows, to_columns

MIXED = [
    (None, 0, -0.5, "", b""),
    (1, 2**63 - 1, float("inf"), "naïve \0 text", b"\x00\xff\x00"),
    (2, -(2**63), 1e-320, "\U0001f600", bytes(300)),
]


def rows_of(*columns, spill=2**20, frame=3):
    rows = Rows(tuple(f"c{i}" for i in range(len(columns))), spill=spill)
    content = list(zip(*columns, strict=True))
    for start in range(0, len(content), frame):
        rows.append(content[start : start + frame])
    return rows


def test_rows_come_back_as_they_were_put_in_as_often_as_asked():
    rows = Rows(("a", "b", "c", "d", "e"))

    rows.append(MIXED)
    rows.append(MIXED[:1])

    assert list(rows) == [*MIXED, MIXED[0]]
    assert list(rows) == [*MIXED, MIXED[0]]
    assert [type(value) for value in next(iter(rows))] == [type(None), int, float, str, bytes]
    assert len(rows) == 4
    assert not rows.spilled


def test_rows_that_moved_to_a_file_equal_those_in_memory():
    content = [(i, i / 7, f"text {i}", None, bytes([i % 256]) * 20) for i in range(20_000)]
    small, large = Rows(tuple("abcde")), Rows(tuple("abcde"), spill=10_000)

    for start in range(0, len(content), 64):
        small.append(content[start : start + 64])
        large.append(content[start : start + 64])

    assert (small.spilled, large.spilled) == (False, True)
    assert list(large) == list(small) == content


def test_the_temporary_file_has_no_name_and_is_gone_when_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def files_open():
        # The link of the descriptor that lists the directory is gone when it is looked at.
        links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return [link for link in links if str(tmp_path) in str(link.readlink())]

    with Rows(("a",), spill=100) as rows:
        rows.append([("x" * 1000,)])

        assert len(files_open()) == 1
        assert list(tmp_path.iterdir()) == []

    assert files_open() == []


def test_forgotten_rows_close_their_file_quietly(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = Rows(("a",), spill=100)
    rows.append([("x" * 1000,)])
    file = rows._file

    del rows

    assert file.closed


def test_closed_rows_refuse_to_be_read_and_closing_twice_does_nothing():
    rows = Rows(("a",))
    rows.append([(1,)])
    begun = iter(rows)

    rows.close()
    rows.close()

    for attempt in (
        lambda: list(rows),
        lambda: next(begun),
        lambda: rows.append([(2,)]),
        lambda: to_columns(rows),
    ):
        with pytest.raises(UsageError, match="closed; run the query again"):
            attempt()


def test_two_iterations_at_once_do_not_disturb_each_other():
    rows = rows_of(range(50_000), spill=1000, frame=64)
    apart = [[], []]

    def collect(into):
        into.extend(value for (value,) in rows)

    threads = [threading.Thread(target=collect, args=(into,)) for into in apart]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert apart == [list(range(50_000))] * 2
    assert all(a == b for a, b in zip(rows, rows, strict=True))


def test_blocks_stay_bounded_when_rows_are_wide():
    rows = Rows(("a",))
    for _ in range(40):
        rows.append([(bytes(2**20),)])

    lengths = [sum(len(value) for (value,) in block) for block in rows.blocks()]

    assert sum(lengths) == 40 * 2**20
    assert max(lengths) <= 16 * 2**20


def test_rows_added_while_others_are_read_go_to_the_end():
    rows = Rows(("a",), spill=1000)
    for i in range(40):
        rows.append([(bytes([i]) * 2**20,)])

    next(rows.blocks())
    rows.append([(b"last",)])

    assert [value[:1] for (value,) in rows] == [*(bytes([i]) for i in range(40)), b"l"]


@pytest.mark.parametrize(
    ("column", "dtype", "expected"),
    [
        ([1, 2, 2**63 - 1], "int64", [1, 2, 2**63 - 1]),
        ([-(2**63), 0, 5], "int64", [-(2**63), 0, 5]),
        ([1, 2.5, 3], "float64", [1.0, 2.5, 3.0]),
        ([1.5, None, 3], "float64", [1.5, np.nan, 3.0]),
        ([1, None, 2**53], "float64", [1.0, np.nan, 2.0**53]),
        ([1, None, 2**53 + 1], "object", [1, None, 2**53 + 1]),
        ([0.5, 1, -(2**53) - 1], "object", [0.5, 1, -(2**53) - 1]),
        ([None, None, None], "float64", [np.nan] * 3),
        (["a\0", "", None], "object", ["a\0", "", None]),
        ([b"\0\0", b"", None], "object", [b"\0\0", b"", None]),
        ([1, "two", 3.0], "object", [1, "two", 3.0]),
    ],
)
@pytest.mark.parametrize("frame", [1, 3])
def test_a_column_gets_the_type_its_values_allow_without_loss(column, dtype, expected, frame):
    columns = to_columns(rows_of([7, 8, 9], column, frame=frame))

    assert list(columns) == ["c0", "c1"]
    assert columns["c0"].tolist() == [7, 8, 9]
    assert columns["c1"].dtype == dtype
    assert columns["c1"].shape == (3,)
    if dtype == "object":
        assert list(map(type, columns["c1"])) == list(map(type, expected))
        assert columns["c1"].tolist() == expected
    else:
        np.testing.assert_array_equal(columns["c1"], expected)


def test_a_value_far_down_decides_the_type_of_the_whole_column():
    late_null = [*range(30_000), None]
    late_text = [0.5] * 30_000 + ["x"]
    late_large = [None, *range(29_999), 2**60 + 1]

    columns = to_columns(rows_of(late_null, late_text, late_large, frame=64))

    assert [array.dtype for array in columns.values()] == ["float64", "object", "object"]
    assert columns["c0"][29_999] == 29_999
    assert np.isnan(columns["c0"][30_000])
    assert columns["c1"][30_000] == "x"
    assert columns["c2"][30_000] == 2**60 + 1


def test_no_rows_give_empty_arrays():
    columns = to_columns(Rows(("a", "b")))

    assert {name: array.shape for name, array in columns.items()} == {"a": (0,), "b": (0,)}


def test_columns_of_one_name_are_refused_rather_than_lost():
    rows = Rows(("id", "id"))

    with pytest.raises(UsageError, match="name each column with AS"):
        to_columns(rows)

"""The units of several tables, and columns of texts of which few are different."""

from __future__ import annotations

import numpy as np
import pytest
from springtide.frame import Coded, Frame
from springtide.laws.columns import begins, coded
from springtide.laws.units import UNIT_KEY, placed

Unit = tuple[bytes, bytes, int]
ALL: list[Unit] = [
    (src, dst, version) for src in (b"ams", b"fra") for dst in (b"10.0.0.0/24", b"nyc") for version in (4, 6)
]


@pytest.mark.parametrize(
    "tables",
    [
        (ALL, ALL, []),
        (ALL, ALL[::2], ALL[1:]),
        (ALL[::2], ALL, ALL[:1]),
        (ALL[::-1], ALL),
        ([*ALL, ALL[0]], ALL),
        ([], ALL[:3], ALL[2:]),
        ([], []),
    ],
)
@pytest.mark.parametrize("texts", [None, [b"ams", b"fra"], [b"none", b"fra", b"ams"]])
def test_units_are_placed_as_one_by_one(tables: tuple[list[Unit], ...], texts: list[bytes] | None) -> None:
    frames = [Frame.of(np.array(rows, UNIT_KEY)) for rows in tables]
    if texts:
        # The first and the others number the same texts in orders of their own.
        orders = [texts, *([texts[::-1]] * (len(frames) - 1))]
        frames = [_coded(frame, order) for frame, order in zip(frames, orders, strict=True)]
    units, places = placed(*frames)
    wanted = sorted({unit for rows in tables for unit in rows})
    assert units.tolist() == wanted
    for rows, found in zip(tables, places, strict=True):
        assert found.tolist() == [rows.index(unit) if unit in rows else -1 for unit in wanted]


def _coded(frame: Frame, texts: list[bytes]) -> Frame:
    numbers = np.array([texts.index(src) for src in frame["src_pop"].tolist()], np.uint32)
    return Frame(frame.dtype, {**frame.columns, "src_pop": Coded(np.array(texts), numbers)})


def test_one_table_is_not_the_other_s_for_its_numbers_alone() -> None:
    one, other = Frame.of(np.array(ALL[:4], UNIT_KEY)), Frame.of(np.array(ALL[4:], UNIT_KEY))
    units, (first, second) = placed(_coded(one, [b"ams"]), _coded(other, [b"fra"]))
    assert units.tolist() == ALL
    assert (first.tolist(), second.tolist()) == ([0, 1, 2, 3, -1, -1, -1, -1], [-1, -1, -1, -1, 0, 1, 2, 3])


def test_the_first_table_is_taken_as_it_is() -> None:
    frame, same = Frame.of(np.array(ALL, UNIT_KEY)), Frame.of(np.array(ALL, UNIT_KEY))
    assert placed(frame, same)[0] is frame
    coded = _coded(frame, [b"ams", b"fra"])
    assert placed(coded, _coded(same, [b"fra", b"", b"ams"]))[0] is coded
    assert placed(frame, same[:3])[0] is frame


def test_destinations_of_other_widths_are_compared_as_texts() -> None:
    def frame(names: list[bytes], form: str) -> Frame:
        values = {"src_pop": np.array([b"ams"] * 2), "destination": np.array(names, form)}
        return Frame(np.dtype(UNIT_KEY), {**values, "ip_version": np.array([4, 4])})

    for form in ("S1", "S8", "S16"):
        first, same = frame([b"a", b"b"], "S8"), frame([b"a", b"b"], form)
        assert placed(first, same)[0] is first
        units, (of_first, of_other) = placed(first, frame([b"c", b"d"], form))
        assert units["destination"].tolist() == [b"a", b"b", b"c", b"d"]
        assert (of_first.tolist(), of_other.tolist()) == ([0, 1, -1, -1], [-1, -1, 0, 1])


def test_numbers_that_ascend_are_not_names_that_do() -> None:
    rows = [unit for unit in ALL if unit[0] == b"fra"] + [unit for unit in ALL if unit[0] == b"ams"]
    frame = _coded(Frame.of(np.array(rows, UNIT_KEY)), [b"fra", b"ams"])
    units, [at] = placed(frame)
    assert units.tolist() == ALL
    assert at.tolist() == [4, 5, 6, 7, 0, 1, 2, 3]


@pytest.mark.parametrize("form", ["S1", "S8", "S16", "S24", "S64", "u4"])
def test_runs_begin_where_a_row_differs(form: str) -> None:
    column = np.array([1, 1, 12, 1, 12, 12], "u4").astype(form)
    if column.dtype.itemsize >= 16:
        # They differ in their last bytes only.
        column = np.char.rjust(column, column.dtype.itemsize - 1).astype(form)
    assert begins(column).tolist() == [True, *(column[1:] != column[:-1]).tolist()]
    if column.dtype.kind == "S":
        assert begins(coded(column)).tolist() == begins(column).tolist()
    assert begins(column[:0]).tolist() == []


def test_coded_texts_read_as_texts() -> None:
    form = np.dtype([("name", "S8"), ("n", "u1")])
    frame = Frame(form, {"name": Coded(np.array([b"b", b"a"]), np.array([1, 0, 1], np.uint8)), "n": np.arange(3)})
    assert frame["name"].tolist() == [b"a", b"b", b"a"]
    assert frame[1:].tolist() == [(b"b", 1), (b"a", 2)]
    assert frame.table()["name"].dtype == "S8"
    assert isinstance(frame[np.array([0])].columns["name"], Coded)

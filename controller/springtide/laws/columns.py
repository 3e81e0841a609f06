"""Many rows as arrays: structured, one column a name, joined by sorted keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.frame import Coded, Frame

Bits = NDArray[np.bool_]
Keys = NDArray[np.bytes_]
# A structured array: its columns by name.
Table = NDArray[np.void]
# Rows that a law decides on, in a form of its own: a table, or a frame.
Rows = Any
# Arrays of one length by name.
Columns = Mapping[str, NDArray[Any]]


def begins(column: NDArray[Any] | Coded) -> Bits:
    """Marks the rows that differ from the one before them; the first does."""
    if isinstance(column, Coded):
        return begins(column.numbers)
    different = np.ones(len(column), bool)
    if column.dtype.kind == "S" and column.dtype.itemsize % 8 == 0:
        # Eight bytes at once.
        words = np.ascontiguousarray(column).view(np.uint64).reshape(-1, column.dtype.itemsize // 8)
        different[1:] = False
        for at in range(words.shape[1]):
            different[1:] |= words[1:, at] != words[:-1, at]
    else:
        different[1:] = column[1:] != column[:-1]
    return different


def coded(column: NDArray[np.bytes_] | Coded) -> Coded:
    """Texts are numbered as they first come. Quick where most rows have their neighbour's: one of a run is read."""
    if isinstance(column, Coded):
        return column
    first = begins(column)
    known: dict[bytes, int] = {}
    numbers = [known.setdefault(text, len(known)) for text in column[first].tolist()]
    return Coded(np.array(list(known), column.dtype), np.array(numbers, np.uint32)[np.cumsum(first) - 1])


def located(own: Keys, wanted: Keys) -> NDArray[np.intp]:
    """The row that has each of the sorted keys `wanted`: the first of the rows with the keys `own`, -1 is none."""
    if own is wanted or np.array_equal(own, wanted):
        return np.arange(len(wanted))
    first = None
    if not _ascend(own):
        own, first = np.unique(own, return_index=True)
    at, found = _found(own, wanted)
    places = np.full(len(wanted), -1)
    places[found] = at[found] if first is None else first[at[found]]
    return places


def taken_at(
    frame: Frame, names: Iterable[str], rows: NDArray[np.intp], missing: Table | None = None
) -> dict[str, NDArray[Any]]:
    """These columns of these rows; of row -1 those of `missing`, or zeros."""
    has = rows >= 0
    if has.all():
        return {name: frame[name].take(rows) for name in names}
    columns = {}
    for name in names:
        # Not np.full: of texts its 0 is "0".
        columns[name] = np.zeros(len(rows), frame.dtype[name])
        if missing is not None:
            columns[name][~has] = missing[name]
        columns[name][has] = frame[name][rows[has]]
    return columns


def unseen(form: np.dtype[np.void]) -> Table:
    """A row of which nothing is known: 0, and NaN for what is no whole number."""
    row = np.zeros((), form)
    for name in form.names or ():
        if form[name].kind == "f":
            row[name] = np.nan
    return row


def union(*keys: Keys) -> Keys:
    """All of them, sorted and unique."""
    longest = max(keys, key=len)
    if not _ascend(longest):
        longest = np.unique(longest)
    more = np.concatenate([one[~_found(longest, one)[1]] for one in keys if one is not longest] or [longest[:0]])
    if not len(more):
        return longest
    # The stable sort merges what is sorted.
    return np.sort(np.concatenate([longest, np.unique(more)]), kind="stable")


def _found(unique: Keys, wanted: Keys) -> tuple[NDArray[np.intp], Bits]:
    """Where each of `wanted` is among the sorted keys, or would be, and whether it is there."""
    if np.array_equal(unique, wanted):
        return np.arange(len(unique)), np.ones(len(unique), bool)
    at = np.searchsorted(unique, wanted)
    found = at < len(unique)
    found[found] = unique[at[found]] == wanted[found]
    return at, found


def _ascend(keys: Keys) -> bool:
    return bool((keys[1:] > keys[:-1]).all())


def same(one: Table | Frame, other: Table | Frame) -> bool:
    """Whether the rows are the same, NaN like NaN."""
    if one.dtype != other.dtype or len(one) != len(other):
        return False
    return all(
        np.array_equal(one[name], other[name], equal_nan=one.dtype[name].kind == "f") for name in one.dtype.names or ()
    )

"""Many rows as arrays: structured, one column a name, joined by sorted keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]
Keys = NDArray[np.bytes_]
# A structured array: its columns by name.
Table = NDArray[np.void]


def align(table: Table, own: Keys, wanted: Keys, missing: Table | None = None) -> tuple[Table, Bits]:
    """The table's row for each of the sorted keys `wanted` (`missing` where it has none, or zeros), and which it has.

    `own` are the keys of the table's rows; of rows with one key the first counts. Not to be written into: where the
    keys are the same it is the table itself.
    """
    if np.array_equal(own, wanted):
        return table, np.ones(len(wanted), bool)
    aligned = np.zeros(len(wanted), table.dtype)
    if _ascend(own):
        unique, rows = own, table
    else:
        unique, first = np.unique(own, return_index=True)
        rows = table[first]
    at = np.searchsorted(unique, wanted)
    found = at < len(unique)
    found[found] = unique[at[found]] == wanted[found]
    aligned[found] = rows[at[found]]
    if missing is not None:
        aligned[~found] = missing
    return aligned, found


def union(*keys: Keys) -> Keys:
    """All of them, sorted and unique."""
    first, *others = [one for one in keys if len(one)] or keys
    if all(np.array_equal(first, one) for one in others) and _ascend(first):
        return first
    # Each is mostly sorted already: the stable sort merges what is, where the default one compares all names anew.
    every = np.sort(np.concatenate([first, *others]), kind="stable")
    return every[np.concatenate([[True], every[1:] != every[:-1]])[: len(every)]]


def _ascend(keys: Keys) -> bool:
    return bool((keys[1:] > keys[:-1]).all())


def same(one: Table, other: Table) -> bool:
    """Whether the rows are the same, NaN like NaN."""
    if one.dtype != other.dtype or len(one) != len(other):
        return False
    return all(
        np.array_equal(one[name], other[name], equal_nan=one.dtype[name].kind == "f") for name in one.dtype.names or ()
    )

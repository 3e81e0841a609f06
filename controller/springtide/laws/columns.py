"""Many rows as arrays: structured, one column a name, joined by sorted keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]
Keys = NDArray[np.bytes_]
# A structured array: its columns by name.
Table = NDArray[np.void]


def align(table: Table, own: Keys, wanted: Keys) -> tuple[Table, Bits]:
    """The table's row for each of the sorted keys `wanted` (zeros where it has none), and which it has.

    `own` are the keys of the table's rows; of rows with one key the first counts.
    """
    if np.array_equal(own, wanted):
        return table.copy(), np.ones(len(wanted), bool)
    unique, first = np.unique(own, return_index=True)
    aligned = np.zeros(len(wanted), table.dtype)
    at = np.searchsorted(unique, wanted)
    found = at < len(unique)
    found[found] = unique[at[found]] == wanted[found]
    aligned[found] = table[first[at[found]]]
    return aligned, found


def union(*keys: Keys) -> Keys:
    """All of them, sorted and unique."""
    first, *others = [one for one in keys if len(one)] or keys
    if all(np.array_equal(first, one) for one in others) and bool((first[1:] > first[:-1]).all()):
        return first
    return np.unique(np.concatenate([first, *others]))


def same(one: Table, other: Table) -> bool:
    """Whether the rows are the same, NaN like NaN."""
    if one.dtype != other.dtype or len(one) != len(other):
        return False
    return all(
        np.array_equal(one[name], other[name], equal_nan=one.dtype[name].kind == "f") for name in one.dtype.names or ()
    )

"""What the law decides on: an ordered pair of PoPs, or a PoP and a client prefix, one IP version."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.frame import Frame
from springtide.laws.columns import Keys, Table
from springtide.pieces import fill

# `destination` is the other PoP's name, or a client prefix as text, like 203.0.113.0/24.
UNIT_KEY = [("src_pop", "S64"), ("destination", "S64"), ("ip_version", "u1")]
_KEY = np.dtype(UNIT_KEY)


def keys(table: Table | Frame) -> Keys:
    """One sortable key a row: by source, destination, IP version."""
    packed = np.empty(len(table), _KEY)
    fill(packed, {name: table[name] for name in _KEY.names or ()})
    return packed.view(f"S{_KEY.itemsize}").reshape(len(table))


def shared_keys(table: Table | Frame, other: Table | Frame, other_keys: Keys) -> Keys:
    """The same, the other's where both are of the same units in the same order: nothing needs to be compared again."""
    alike = len(table) == len(other) and all(
        np.array_equal(_numbers(table[name]), _numbers(other[name])) for name in _KEY.names or ()
    )
    return other_keys if alike else keys(table)


def _numbers(column: NDArray[Any]) -> NDArray[Any]:
    """Texts as numbers, which are compared eight bytes at once."""
    return np.ascontiguousarray(column).view(np.uint64) if column.dtype.kind == "S" else column


def named(wanted: Keys) -> Frame:
    """The columns of such keys."""
    return Frame.of(wanted.astype(f"S{_KEY.itemsize}").view(_KEY).reshape(len(wanted)))

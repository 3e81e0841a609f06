"""Ordered pairs of PoPs in columns, and the rounds in which they had sufficient evidence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from springtide.laws.columns import Bits, Keys, Table, align, union
from springtide.observe.pairs import PAIR_KEY

_KEY = np.dtype(PAIR_KEY)


def keys(table: Table) -> Keys:
    """One sortable key a row: by source, destination, IP version."""
    packed = np.zeros(len(table), _KEY)
    for name in _KEY.names or ():
        packed[name] = table[name]
    return packed.view(f"S{_KEY.itemsize}").reshape(len(table))


def named(wanted: Keys) -> Table:
    """The columns of such keys."""
    return wanted.view(_KEY).reshape(len(wanted))


class DutyMemory:
    """Which of the last rounds had sufficient evidence of each pair, for who plays rounds without a store."""

    def __init__(self) -> None:
        self._known: Keys = np.zeros(0, f"S{_KEY.itemsize}")
        self._rounds: dict[int, Bits] = {}

    def remember(self, moment: int, measured: Keys) -> None:
        known = union(self._known, np.unique(measured))
        if len(known) != len(self._known):
            where = np.searchsorted(known, self._known)
            for before, flags in self._rounds.items():
                self._rounds[before] = np.zeros(len(known), bool)
                self._rounds[before][where] = flags
            self._known = known
        flags = self._rounds.setdefault(moment, np.zeros(len(known), bool))
        flags[np.searchsorted(known, measured)] = True

    def count(self, wanted: Table, since: int) -> NDArray[np.uint32]:
        """Of each of these pairs, the rounds from `since` on; those before are forgotten."""
        self._rounds = {moment: flags for moment, flags in self._rounds.items() if moment >= since}
        counts = np.zeros(len(self._known), [("rounds", "u4")])
        for flags in self._rounds.values():
            counts["rounds"] += flags
        # Sorted keys come back in their own order.
        own = keys(wanted)
        order = np.argsort(own, kind="stable")
        found, _ = align(counts, self._known, own[order])
        out = np.zeros(len(wanted), np.uint32)
        out[order] = found["rounds"]
        return out

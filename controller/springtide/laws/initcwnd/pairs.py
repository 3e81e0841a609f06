"""The rounds in which pairs of PoPs had sufficient evidence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from springtide.frame import Frame
from springtide.laws.columns import Bits, Keys, align, union
from springtide.laws.units import UNIT_KEY, keys


class DutyMemory:
    """Which of the last rounds had sufficient evidence of each pair, for who plays rounds without a store."""

    def __init__(self) -> None:
        self._known: Keys = keys(np.zeros(0, UNIT_KEY))
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

    def count(self, wanted: Frame, since: int) -> NDArray[np.uint32]:
        """The number of each pair's rounds from `since` on; those before are forgotten."""
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

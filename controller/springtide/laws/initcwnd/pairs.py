"""The rounds in which pairs of PoPs had sufficient evidence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from springtide.frame import Frame
from springtide.laws.columns import Keys
from springtide.laws.units import keys


class DutyMemory:
    """Which of the last rounds had sufficient evidence of each pair, for who plays rounds without a store."""

    def __init__(self) -> None:
        self._measured: dict[int, Keys] = {}

    def remember(self, moment: int, measured: Keys) -> None:
        self._measured[moment] = measured

    def count(self, wanted: Frame, since: int) -> NDArray[np.uint32]:
        """The number of each pair's rounds from `since` on; those before are forgotten."""
        self._measured = {moment: own for moment, own in self._measured.items() if moment >= since}
        pairs, counts = keys(wanted), np.zeros(len(wanted), np.uint32)
        for own in self._measured.values():
            counts += np.isin(pairs, own)
        return counts

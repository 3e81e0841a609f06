"""What connections of a unit are given: a window, a rate for each, and the path's rate for those that start at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide._core import MAX_RATE
from springtide.laws.columns import Bits, Columns
from springtide.laws.initcwnd.loss_guard import KERNEL_DEFAULT
from springtide.laws.start.policy import StartPolicy
from springtide.laws.start.shrink import Floats

Ints = NDArray[np.int64]

# Segments and bytes/s, 0 is none; in use, and on trial.
VALUES = [
    (f"{kind}{name}", form)
    for kind in ("", "trial_")
    for name, form in (("window", "<u4"), ("connection_rate", "<f8"), ("path_rate", "<f8"))
]
# Ethernet's, with TCP timestamps, where none was seen.
USUAL_MSS = 1448.0
# Windows a round trip, while it is in slow start.
_KERNEL_PACES = 2.0
# RFC 9959: at most half of what was saved.
CAREFUL = 0.5


@dataclass(frozen=True)
class Values:
    """Columns of equal length; where `window` is 0 all of them are."""

    window: Ints
    rate: Floats
    path: Floats

    @classmethod
    def of(cls, table: Columns, kind: str = "") -> Values:
        rate, path = table[f"{kind}connection_rate"], table[f"{kind}path_rate"]
        return cls(table[f"{kind}window"].astype(np.int64), rate.astype(np.float64), path.astype(np.float64))

    @classmethod
    def none(cls, count: int) -> Values:
        return cls(np.zeros(count, np.int64), np.zeros(count), np.zeros(count))

    def put(self, table: dict[str, NDArray[Any]], kind: str = "") -> None:
        table[f"{kind}window"] = self.window
        table[f"{kind}connection_rate"], table[f"{kind}path_rate"] = self.rate, self.path

    def at(self, rows: NDArray[np.intp]) -> Values:
        return Values(self.window[rows], self.rate[rows], self.path[rows])

    def but(self, rows: NDArray[np.intp], other: Values) -> Values:
        """These, and in these rows the other's, which has no others."""
        changed = Values(self.window.copy(), self.rate.copy(), self.path.copy())
        changed.window[rows], changed.rate[rows], changed.path[rows] = other.window, other.rate, other.path
        return changed

    def where(self, which: Bits, other: Values) -> Values:
        """These, and the other's elsewhere."""
        return Values(
            np.where(which, self.window, other.window),
            np.where(which, self.rate, other.rate),
            np.where(which, self.path, other.path),
        )

    def least(self, other: Values) -> Values:
        return Values(
            np.minimum(self.window, other.window), np.minimum(self.rate, other.rate), np.minimum(self.path, other.path)
        )

    def most(self, other: Values) -> Values:
        return Values(
            np.maximum(self.window, other.window), np.maximum(self.rate, other.rate), np.maximum(self.path, other.path)
        )

    def scaled(self, factor: Floats | float, most: int) -> Values:
        """The window at least the kernel's default, and at most as many segments."""
        window = np.clip(np.floor(self.window * factor).astype(np.int64), KERNEL_DEFAULT, most)
        rate, path = (np.clip(np.floor(one * factor), 1.0, MAX_RATE) for one in (self.rate, self.path))
        scaled = Values(window, rate, path)
        return scaled.where(self.window > 0, Values.none(len(window)))

    def above(self, other: Values, share: float = 0.0) -> Bits:
        """Where any is above the other's by more than this share of it."""
        over: Bits = (
            (self.window > other.window * (1 + share))
            | (self.rate > other.rate * (1 + share))
            | (self.path > other.path * (1 + share))
        )
        return over

    def below(self, other: Values, share: float = 0.0) -> Bits:
        """Where any is below the other's by more than this share of it."""
        under: Bits = (
            (self.window < other.window * (1 - share))
            | (self.rate < other.rate * (1 - share))
            | (self.path < other.path * (1 - share))
        )
        return under

    def differs(self, other: Values) -> Bits:
        return self.above(other) | self.below(other)


def size(share: Floats, path: Floats, rtt_us: Floats, seen: Columns, law: StartPolicy) -> Values:
    """What a share and a path's rate (bytes/s) ask for; none where the share or the round trip is unknown."""
    known = np.isfinite(share) & (share > 0) & np.isfinite(rtt_us) & (rtt_us > 0)
    kept = CAREFUL if law.careful else 1.0
    single, together = np.where(known, share, 0.0), np.where(known, np.fmax(path, share), 0.0)
    seconds = np.where(known, rtt_us, 0.0) / 1e6
    mss = segment(seen)
    # What floating point adds is no segment.
    window = np.ceil(kept * single * seconds / mss - 1e-6)
    window = np.minimum(window, np.maximum(KERNEL_DEFAULT, law.headroom * together * seconds / mss))
    with np.errstate(invalid="ignore"):
        receiver = np.where(seen["receiver_window"] > 0, seen["receiver_window"] / mss, np.inf)
    window = np.clip(np.floor(np.minimum(window, receiver)), KERNEL_DEFAULT, law.cmax).astype(np.int64)
    rate = np.maximum(np.floor(np.fmin(kept * law.pace_gain * single, most_paced(window, rtt_us, seen))), 1.0)
    sized = Values(window, rate, np.maximum(np.floor(law.pace_gain * together), rate))
    return sized.where(known, Values.none(len(share)))


def most_paced(window: Ints, rtt_us: Floats, seen: Columns) -> Floats:
    """Bytes/s. The kernel paces two windows a round trip at most (tcp_pacing_ss_ratio): more would never leave, nor be
    carried."""
    with np.errstate(divide="ignore", invalid="ignore"):
        paced: Floats = _KERNEL_PACES * window * segment(seen) / rtt_us * 1e6
    return paced


def segment(seen: Columns) -> Floats:
    """Bytes of a segment."""
    known = np.isfinite(seen["mss"]) & (seen["mss"] > 0)
    return np.where(known, seen["mss"], USUAL_MSS)

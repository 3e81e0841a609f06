"""The laws that are compared: Springtide's own, as it runs, and the naive ones.

Each gives every pair's window, round by round; 0 is the kernel's default.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from springtide.frame import Frame
from springtide.laws.columns import Table
from springtide.laws.initcwnd.law import PREVIOUS, decide
from springtide.laws.initcwnd.rows import WINDOWS, DutyMemory
from springtide.laws.units import keys
from springtide.policy import Policy

CMIN, CMAX = 10, 100
INTERVAL_S = 300
Windows = NDArray[np.int64]


class Controller(Protocol):
    name: str

    def decide(self, now: int, seen: Table) -> Windows:
        """`seen` has one OBSERVED row for each pair, always in the same order, which is that of their keys."""


class Springtide:
    def __init__(self, policy: Policy, name: str = "springtide") -> None:
        self.name = name
        self._policy = policy
        self._last = Frame.empty(0, PREVIOUS)
        self._measured = DutyMemory()

    def decide(self, now: int, seen: Table) -> Windows:
        window_s = (self._policy.initcwnd.duty_window_rounds - 2) * INTERVAL_S
        decided = decide(now, self._policy, seen, self._last)
        self._measured.remember(now, keys(decided[decided["last_evidence"] == now]))
        left = WINDOWS.carry(decided, now)
        self._last = Frame(PREVIOUS, {**left.columns, "measured_rounds": self._measured.count(left, now - window_s)})
        return decided["initcwnd"].astype(np.int64)


class LastValue:
    """The newest mean, clamped."""

    name = "last value"

    def __init__(self, pairs: int) -> None:
        self._windows = np.zeros(pairs, np.int64)

    def decide(self, now: int, seen: Table) -> Windows:
        self._windows = np.where(has(seen), clamp(seen["mean_cwnd"]), self._windows)
        return self._windows


class PlainAverage:
    """Riptide's own: an exponentially weighted mean, clamped, history and newest data alike."""

    name = "plain EWMA"

    def __init__(self, pairs: int) -> None:
        self._averages = np.full(pairs, np.nan)

    def decide(self, now: int, seen: Table) -> Windows:
        bounded = np.clip(seen["mean_cwnd"], CMIN, CMAX)
        mixed = np.where(np.isnan(self._averages), bounded, 0.5 * self._averages + 0.5 * bounded)
        self._averages = np.where(has(seen), mixed, self._averages)
        return clamp(self._averages)


class Threshold:
    """All or nothing: cmax where the newest mean is above the middle, the kernel's default where it is below."""

    name = "threshold"

    def __init__(self, pairs: int) -> None:
        self._windows = np.zeros(pairs, np.int64)

    def decide(self, now: int, seen: Table) -> Windows:
        wanted = np.where(seen["mean_cwnd"] > (CMIN + CMAX) / 2, CMAX, 0)
        self._windows = np.where(has(seen), wanted, self._windows)
        return self._windows


def has(seen: Table) -> NDArray[np.bool_]:
    """Pairs that have a newest mean."""
    known: NDArray[np.bool_] = np.isfinite(seen["mean_cwnd"]) & (seen["connections_earned"] > 0)
    return known


def clamp(window: NDArray[np.float64]) -> Windows:
    """0 where there is none."""
    rounded: Windows = np.floor(np.clip(np.nan_to_num(window), CMIN, CMAX) + 0.5).astype(np.int64)
    return np.where(np.isnan(window), 0, rounded)

"""The laws that are compared: Springtide's own, as it runs, and the naive ones.

Each gives every pair's window, round by round; None is the kernel's default.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from springtide.decide.initcwnd import Previous, carry, decide
from springtide.observe.rounds import Pair, PairObservation
from springtide.policy import Policy

CMIN, CMAX = 10, 100
INTERVAL_S = 300


class Controller(Protocol):
    name: str

    def decide(self, now: int, seen: Sequence[PairObservation]) -> list[int | None]:
        """`seen` has one entry for each pair, always in the same order."""


class Springtide:
    def __init__(self, policy: Policy, name: str = "springtide") -> None:
        self.name = name
        self._policy = policy
        self._last: dict[Pair, Previous] = {}
        self._measured: dict[Pair, deque[int]] = {}

    def decide(self, now: int, seen: Sequence[PairObservation]) -> list[int | None]:
        window_s = (self._policy.initcwnd.duty_window_rounds - 2) * INTERVAL_S
        decisions = decide(now, self._policy, seen, self._last)
        self._last = {}
        windows = {}
        for decision in decisions:
            measured = self._measured.setdefault(decision.pair, deque())
            if decision.last_evidence == now:
                measured.append(now)
            while measured and measured[0] < now - window_s:
                measured.popleft()
            left = carry(decision, len(measured))
            if left is not None:
                self._last[decision.pair] = left
            windows[decision.pair] = decision.initcwnd
        return [windows[one.pair] for one in seen]


class LastValue:
    """The newest mean, clamped."""

    name = "last value"

    def __init__(self, pairs: int) -> None:
        self._windows: list[int | None] = [None] * pairs

    def decide(self, now: int, seen: Sequence[PairObservation]) -> list[int | None]:
        for at, one in enumerate(seen):
            if one.mean_cwnd is not None and one.connections_earned:
                self._windows[at] = clamp(one.mean_cwnd)
        return list(self._windows)


class PlainAverage:
    """Riptide's own: an exponentially weighted mean, clamped, history and newest data alike."""

    name = "plain EWMA"

    def __init__(self, pairs: int) -> None:
        self._averages: list[float | None] = [None] * pairs

    def decide(self, now: int, seen: Sequence[PairObservation]) -> list[int | None]:
        for at, one in enumerate(seen):
            if one.mean_cwnd is not None and one.connections_earned:
                before = self._averages[at]
                bounded = min(max(one.mean_cwnd, CMIN), CMAX)
                self._averages[at] = bounded if before is None else 0.5 * before + 0.5 * bounded
        return [None if average is None else clamp(average) for average in self._averages]


class Threshold:
    """All or nothing: cmax where the newest mean is above the middle, the kernel's default where it is below."""

    name = "threshold"

    def __init__(self, pairs: int) -> None:
        self._windows: list[int | None] = [None] * pairs

    def decide(self, now: int, seen: Sequence[PairObservation]) -> list[int | None]:
        for at, one in enumerate(seen):
            if one.mean_cwnd is not None and one.connections_earned:
                self._windows[at] = CMAX if one.mean_cwnd > (CMIN + CMAX) / 2 else None
        return list(self._windows)


def clamp(window: float) -> int:
    return int(min(max(window, CMIN), CMAX) + 0.5)

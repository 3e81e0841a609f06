"""Flap damping of a value that is published round by round (RFC 2439 section 4).

Each change adds one to a penalty that halves every `half_life_s`. Above `suppress_above` changes are held back until
the penalty has decayed below `reuse_below`. It has a ceiling: nothing is held longer than `max_suppress_s` after its
last change (RFC 2439 section 4.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from springtide.policy import DampingPolicy


@dataclass(frozen=True)
class Penalty:
    """What earlier changes left: the penalty at the instant `at` (seconds), and whether changes are held back."""

    value: float = 0.0
    at: int = 0
    suppressed: bool = False


NONE = Penalty()


def decay(penalty: Penalty, now: int, policy: DampingPolicy) -> Penalty:
    """The penalty at `now`, before this round's change; a clock that went back leaves it as it is."""
    value = penalty.value * 0.5 ** (max(0, now - penalty.at) / policy.half_life_s)
    suppressed = penalty.suppressed and value >= policy.reuse_below
    return Penalty(value, max(now, penalty.at), suppressed)


def charge(penalty: Penalty, policy: DampingPolicy) -> Penalty:
    """One more change."""
    value = min(penalty.value + 1.0, policy.ceiling)
    return Penalty(value, penalty.at, penalty.suppressed or value > policy.suppress_above)


def decay_all(values: NDArray[np.float64], elapsed_s: NDArray[np.int64], policy: DampingPolicy) -> NDArray[np.float64]:
    """What `decay` makes of many penalties."""
    decayed: NDArray[np.float64] = values * 0.5 ** (np.maximum(0, elapsed_s) / policy.half_life_s)
    return decayed


def charge_all(values: NDArray[np.float64], changed: NDArray[np.bool_], policy: DampingPolicy) -> NDArray[np.float64]:
    """What `charge` makes of those that changed."""
    return np.where(changed, np.minimum(values + 1.0, policy.ceiling), values)


def most_changes(policy: DampingPolicy, seconds: float) -> int:
    """An upper bound on the changes within `seconds` that are let through, held-back ones aside.

    The penalty is at most its ceiling at the beginning. What is let through adds one each time while the penalty is at
    most `suppress_above`; in `seconds` decay removes at most what a penalty at the ceiling loses.
    """
    lost_per_s = policy.ceiling * math.log(2.0) / policy.half_life_s
    return math.ceil(policy.suppress_above + 1.0 + lost_per_s * seconds)

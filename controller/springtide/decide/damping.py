"""Flap damping of a value that is published round by round (RFC 2439).

Each change adds one to a penalty that halves every `half_life_s`. Above `suppress_above` changes are held back until
the penalty has decayed below `reuse_below`. It has a ceiling: nothing is held longer than `max_suppress_s` after its
last change.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from springtide.policy import DampingPolicy

Floats = NDArray[np.float64]


def decay(values: Floats, elapsed_s: NDArray[np.int64], policy: DampingPolicy) -> Floats:
    """The penalties now, before this round's changes; a clock that went back leaves them as they are."""
    # Few rounds are the last one of a pair or prefix. The library's power is the same on every processor, numpy's not.
    steps, which = np.unique(np.maximum(0, elapsed_s), return_inverse=True)
    factors = np.array([0.5 ** (step / policy.half_life_s) for step in steps.tolist()])
    decayed: Floats = values * factors[which]
    return decayed


def charge(values: Floats, changed: NDArray[np.bool_], policy: DampingPolicy) -> Floats:
    """One more change for each that changed."""
    return np.where(changed, np.minimum(values + 1.0, policy.ceiling), values)


def most_changes(policy: DampingPolicy, seconds: float) -> int:
    """An upper bound on the changes within `seconds` that are let through, held-back ones aside.

    The penalty is at most its ceiling at the beginning. What is let through adds one each time while the penalty is at
    most `suppress_above`; in `seconds` decay removes at most what a penalty at the ceiling loses.
    """
    lost_per_s = policy.ceiling * math.log(2.0) / policy.half_life_s
    return math.ceil(policy.suppress_above + 1.0 + lost_per_s * seconds)

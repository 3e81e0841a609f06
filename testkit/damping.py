"""Changes that flap damping allows, whatever is damped."""

from __future__ import annotations

import math

from springtide.policy import DampingPolicy


def most_changes(policy: DampingPolicy, seconds: float) -> int:
    """An upper bound on the changes within `seconds` that are let through, held-back ones aside.

    The penalty is at most its ceiling at the beginning. What is let through adds one each time while the penalty is at
    most `suppress_above`; in `seconds` decay removes at most what a penalty at the ceiling loses.
    """
    lost_per_s = policy.ceiling * math.log(2.0) / policy.half_life_s
    return math.ceil(policy.suppress_above + 1.0 + lost_per_s * seconds)

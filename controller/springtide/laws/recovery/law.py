"""The timeout of each path's handshakes, and its copies: a round of the step that springtide-core makes
(core/src/step/recovery). Here rows become columns for it, and what it decides becomes rows."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from springtide.frame import Frame
from springtide.laws.columns import taken_at, unseen
from springtide.laws.step import Rows, as_json, forms, step
from springtide.laws.units import UNIT_KEY, placed
from springtide.override import Path, in_force
from springtide.policy import Policy

SEEN, STATE = forms("recovery", "seen"), forms("recovery", "state")
# Evidence of the rounds up to this one, and state that the decisions before it left; `round` is theirs.
OBSERVED = np.dtype([*UNIT_KEY, *SEEN])
PREVIOUS = np.dtype([*UNIT_KEY, *STATE, ("round", "<u4")])
# The rows of path_decisions without what a round has in common.
DECIDED = np.dtype([*UNIT_KEY, *forms("recovery", "decided"), *STATE, *SEEN])
_UNSEEN = unseen(OBSERVED)
_OVERRIDE = np.dtype([*UNIT_KEY, *forms("recovery", "override")])


def decide(now: int, policy: Policy, observed: Frame, last: Frame, frozen: Collection[str] = ()) -> Frame:
    """The round's DECIDED rows of OBSERVED and PREVIOUS rows, sorted by path: every path that has a row in one of them
    or is overridden.

    `now` is the round. `frozen`: PoPs from which too little of the round arrived to be trusted.
    """
    words = _words(policy, now)
    paths, (at_seen, at_last, at_word) = placed(observed, last, words)
    shown = taken_at(observed, [name for name, _ in SEEN], at_seen, _UNSEEN)
    tables = Rows(observed, at_seen), Rows(last, at_last), Rows(words, at_word)
    # A value outlives the bundle that carries it.
    window_s = max(policy.recovery.window_rounds * policy.round.interval_s, policy.bundle.ttl_s)
    law = as_json(policy, ("recovery",), window_s=window_s)
    return step("recovery", now, law, paths, tables, DECIDED, shown, frozen)


def named(policy: Policy, now: int) -> dict[str, dict[Path, float]]:
    """Give what overrides in force say, by value and path. The first in the file that names a value counts."""
    found = {}
    for name, _ in forms("recovery", "override"):
        words = [one for one in policy.recovery_overrides if getattr(one, name) is not None]
        found[name] = {path: float(getattr(one, name)) for path, one in in_force(words, now).items()}
    return found


def _words(policy: Policy, now: int) -> Frame:
    """NaN is what no override names."""
    of_values = named(policy, now).values()
    paths = sorted({path for own in of_values for path in own})
    return Frame.of(np.array([(*path, *(own.get(path, math.nan) for own in of_values)) for path in paths], _OVERRIDE))

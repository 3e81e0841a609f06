"""The initial congestion window of an ordered pair of PoPs (Riptide III-B): a round of the step that springtide-core
makes (core/src/step/initcwnd). Here rows become columns for it, and what it decides becomes rows."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from springtide.frame import Frame
from springtide.laws.columns import Table, taken_at, unseen
from springtide.laws.initcwnd.edges import edge_decisions
from springtide.laws.step import Rows, as_json, forms, step
from springtide.laws.switchback import turn
from springtide.laws.units import UNIT_KEY, placed
from springtide.observe.pairs import OBSERVED
from springtide.override import in_force
from springtide.policy import Policy

# Columns that a step leaves for the next round, and those that it decides: core/src/step/initcwnd/rows.rs.
STATE, _OTHERS = forms("initcwnd", "state"), forms("initcwnd", "decided")
# State that the decisions before this round left of a pair with history or a window in use; `round` is theirs. Counted
# in `measured_rounds` are those of the last `duty_window_rounds`, this one excluded.
PREVIOUS = np.dtype([*UNIT_KEY, *STATE, ("round", "<u4")])
# Columns that a decision repeats.
_KEPT = (
    "connections_seen",
    "connections_earned",
    "min_cwnd",
    "max_cwnd",
    "retransmit_ratio",
    "young_connections",
    "young_lossy_connections",
    "young_timeout_connections",
    "receiver_cwnd",
)
# The rows of path_decisions without what a round has in common.
DECIDED = np.dtype([*UNIT_KEY, *_OTHERS, *STATE, *((name, OBSERVED[name]) for name in _KEPT)])
_OVERRIDE = np.dtype([*UNIT_KEY, *forms("initcwnd", "override")])
# Counts as wide as they come.
_SEEN = np.dtype([(name, OBSERVED[name] if name in _KEPT else form) for name, form in forms("initcwnd", "seen")])
_TURNS = {"switchback": 1, "disable_test": 2}
UNSEEN = unseen(OBSERVED)


def decide(now: int, policy: Policy, observed: Table | Frame, last: Frame, frozen: Collection[str] = ()) -> Frame:
    """The round's DECIDED rows of OBSERVED and PREVIOUS rows in any order: every pair that was seen in the round, has
    history, or is overridden, if only for an edge, sorted by pair.

    `now` is the round. `frozen`: PoPs from which too little of the round arrived to be trusted; what they had decided
    stands, as long as it would without evidence.
    """
    overrides = _overrides(policy, now)
    of_edges = Frame.of(np.array(sorted({one.pair for one in edge_decisions(policy, now)}), UNIT_KEY))
    seen = Frame.of(observed)
    pairs, (at_seen, at_last, at_override, _) = placed(seen, last, overrides, of_edges)
    window = {"mean": "mean_cwnd", "max": "max_cwnd", "traffic": "traffic_cwnd"}.get(
        policy.initcwnd.combiner, f"cwnd_{policy.initcwnd.combiner}"
    )
    shown = taken_at(seen, {*_KEPT, "mean_cwnd", window}, at_seen, UNSEEN)
    evidence = Frame(_SEEN, {**shown, "window": shown[window].astype(np.float64), "turn": _turns(policy, now, pairs)})
    given = {name: shown[name] for name in _KEPT}
    tables = Rows(evidence, np.arange(len(pairs))), Rows(last, at_last), Rows(overrides, at_override)
    return step("initcwnd", now, as_json(policy, ("initcwnd", "damping")), pairs, tables, DECIDED, given, frozen)


# Columns that time ends; those that the loss guard remembers stay.
_LEARNT = {"smoothed_cwnd", "last_evidence", "initcwnd", "penalty", "suppressed", "measured_rounds"}


def only_guard(last: Frame) -> Frame:
    """The part of PREVIOUS rows that no time ends: the ceilings of pairs, which use no window any more."""
    kept = last[last["harmful_initcwnd"] > 0]
    ended = {name: np.zeros(len(kept), PREVIOUS[name]) for name in _LEARNT}
    return Frame(PREVIOUS, {**kept.columns, **ended, "smoothed_cwnd": np.full(len(kept), np.nan)})


def _turns(policy: Policy, now: int, pairs: Frame) -> NDArray[np.uint8]:
    """Number why an experiment has a pair off in this round; 0: it has not."""
    found = np.zeros(len(pairs), np.uint8)
    if policy.experiment.switches:
        for row, (src, dst, *_) in enumerate(pairs.tolist()):
            why = turn(policy.experiment, policy.round.interval_s, src.decode(), dst.decode(), now).why
            found[row] = _TURNS.get(why, 0)
    return found


def _overrides(policy: Policy, now: int) -> Frame:
    """The pairs that an override in force names, and its value, 0 for the default; the first in the file counts."""
    found = in_force((one for one in policy.overrides if one.edges is None), now, "dst")
    return Frame.of(np.array([(*pair, one.initcwnd or 0) for pair, one in found.items()], _OVERRIDE))

"""Rate and window with which connections of each unit start: a round of the step that springtide-core makes.

A unit is an ordered pair of PoPs, or a PoP and a client prefix, one IP version. The code that decides is in
core/src/step/start. Here rows become columns for it, and its decisions become rows.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from springtide.frame import Coded, Frame
from springtide.laws.columns import Table, coded, taken_at, unseen
from springtide.laws.rows import Decisions
from springtide.laws.start.evidence import OBSERVED, SEEN
from springtide.laws.step import Rows, as_json, forms, step
from springtide.laws.units import UNIT_KEY, placed
from springtide.override import in_force
from springtide.policy import Policy

# Columns that a step leaves for the next round, and others that it decides: core/src/step/start/state.rs and round.rs.
STATE, _OTHERS = forms("start", "state"), forms("start", "decided")
# Rows that the decisions before this round left; `round` is their own. Instants in seconds since the epoch, 0 is none.
PREVIOUS = np.dtype([*UNIT_KEY, *STATE, ("round", "<u4")])
# Columns that a round shows, and decisions keep no row of: sums of them are in their state.
_NOT_KEPT = {"path_rate", "path_buckets", "default_flights", "default_lossy"}
_KEPT = [name for name, _ in SEEN if name not in _NOT_KEPT]
# The rows of path_decisions without what a round has in common. `group`: whose estimates the unit may borrow.
DECIDED = np.dtype(
    [
        *UNIT_KEY,
        *_OTHERS,
        *STATE,
        ("group", "S64"),
        *((name, OBSERVED[name]) for name in _KEPT),
        ("seen_path_rate", "<f4"),
    ]
)
STARTS = Decisions(
    "start", DECIDED, PREVIOUS, ("window", "trial_permille", "share_weight", "measured_rounds", "harmful_rate")
)
_OVERRIDE = np.dtype([*UNIT_KEY, *forms("start", "override")])
UNSEEN = unseen(OBSERVED)


def decide(
    now: int,
    policy: Policy,
    observed: Table | Frame,
    previous: Table | Frame,
    groups: Table | Frame,
    frozen: Collection[str] = (),
    without: Collection[str] = (),
) -> Frame:
    """The round's DECIDED rows, sorted by unit, of OBSERVED, PREVIOUS and GROUPED rows in any order: every unit that
    has a row in one of them or is overridden.

    `now` is the round. `frozen`: PoPs from which too little of the round arrived to be trusted; what they had decided
    stands until it expires. `without`: rules that a bench leaves out, by their names.
    """
    overrides = _overrides(policy, now)
    # One table may be both.
    is_both = groups is observed
    observed, previous = Frame.of(observed), Frame.of(previous)
    groups = observed if is_both else Frame.of(groups)
    units, (at_seen, at_previous, at_group, at_override) = placed(observed, previous, groups, overrides)
    shown = observed.columns
    if units is not observed:
        shown = taken_at(observed, [*_KEPT, "path_rate"], at_seen, UNSEEN)
    group = coded(groups.columns["group"] if units is groups else taken_at(groups, ["group"], at_group)["group"])
    # Columns that no step changes are not copied.
    given = {name: shown[name] for name in _KEPT} | {"seen_path_rate": shown["path_rate"], "group": group}
    tables = Rows(observed, at_seen), Rows(previous, at_previous), Rows(overrides, at_override)
    law = as_json(policy, ("start", "damping", "enforce"), without=list(without))
    return step("start", now, law, units, tables, DECIDED, given, frozen, _numbers(group))


def _overrides(policy: Policy, now: int) -> Frame:
    """The units that an override in force names, 0 for what it does not say; the first in the file counts, of those for
    starts, then of those for pairs' windows."""
    of_pairs = in_force((one for one in policy.overrides if one.edges is None), now, "dst")
    found = {unit: (one.initcwnd or 0, 0, 0) for unit, one in of_pairs.items()}
    for unit, own in in_force(policy.start_overrides, now).items():
        found[unit] = (own.initcwnd or 0, own.connection_rate or 0, own.path_rate or 0)
    return Frame.of(np.array([(*unit, *values) for unit, values in found.items()], _OVERRIDE))


def _numbers(group: Coded) -> NDArray[np.uint32]:
    """Numbers of the rows' groups, from 1 on; 0 is none. A frame may know more names than its rows have."""
    is_there = np.zeros(len(group.texts), bool)
    is_there[group.numbers] = True
    is_there &= group.texts != b""
    of_names = (np.cumsum(is_there) * is_there).astype(np.uint32)
    numbers: NDArray[np.uint32] = of_names[group.numbers]
    return numbers

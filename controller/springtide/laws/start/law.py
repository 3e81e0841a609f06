"""How fast and how wide connections of a unit start, with its reasons.

A unit is an ordered pair of PoPs, or a PoP and a client prefix, one IP version. In the order in which they act:

1. **prove** (estimate.py): a single connection's share of the path, from connections that met the path, shrunken
   towards the group's where there are few; without any a lower bound (what was reached, or is in use), or the group's
   low quantile; and the rate of all together;
2. **size**: the start rate is the share with some room, the window what it carries in a round trip, within bounds;
3. **fall at once**: where the share collapsed, where first flights lose clearly more than they may or come back slower
   than they left, where an edge's brake acted, where the round trip left its range (profile careful);
4. **rise by trials only** (trial.py): other values are given to a randomised share of the connections, and to all once
   that many first flights show neither loss nor delay; of a step beyond what was reached they are given what the path
   carried. What failed leaves a ceiling, and a hold that doubles; after it the ceiling is approached by halves;
5. **calmly**: hysteresis, a wait for evidence, damping; an operator's override precedes all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.frame import Coded, Frame
from springtide.laws import damping
from springtide.laws.columns import Bits, Columns, Table, begins, coded, taken_at
from springtide.laws.start.decision import Action, Reason
from springtide.laws.start.estimate import LEARNT, Proved, prove, shows_others
from springtide.laws.start.evidence import OBSERVED
from springtide.laws.start.moves import Moves, ceiling, falls, trials
from springtide.laws.start.policy import BESIDE, StartPolicy
from springtide.laws.start.shrink import Floats
from springtide.laws.start.trial import COUNTED, judge
from springtide.laws.start.units import UNIT_KEY, placed
from springtide.laws.start.values import CAREFUL, VALUES, Values, segment, size
from springtide.laws.vocabulary import codes
from springtide.policy import Policy

Codes = NDArray[np.uint8]

_CODE, _ACTION = codes(Reason), codes(Action)
_MOST_ROUNDS = 255
# What a counter holds.
_MOST = np.iinfo(np.uint32).max
# Units that are decided together: the arithmetic's columns are small enough for a processor's cache, and for memory
# that is used again. Larger ones are fetched, and given back, at every step.
_TOGETHER = 16_000

# What is in use and on trial (values.py), what is counted (trial.py) and learnt (estimate.py), and: `borrowed`,
# `trial_borrowed`, `trial_step`: flags of what the values come from. `harmful_rate`: the lowest connection rate that
# did harm or was tried in vain, 0 is none, with the instant until which nothing near it is tried, and how long that
# hold was. `shared_at`: when flights were last carried less than trains show that the path carries. `was_cut`: what is
# in use is what harm left of what was. `learnt_rtt_us`: the lowest round trip when what is in use was proved.
STATE = [
    *VALUES,
    ("trial_permille", "<u2"),
    ("borrowed", "u1"),
    ("trial_borrowed", "u1"),
    ("trial_step", "u1"),
    *COUNTED,
    *LEARNT,
    ("harmful_rate", "<f8"),
    ("hold_until", "<u4"),
    ("hold_s", "<u4"),
    ("harmful_share", "<f8"),
    ("shared_at", "<u4"),
    ("was_cut", "u1"),
    ("learnt_rtt_us", "<f4"),
    ("measured_rounds", "u1"),
    ("penalty", "<f8"),
    ("suppressed", "u1"),
    ("overridden", "u1"),
    ("last_evidence", "<u4"),
]
# What the decisions before this round left; instants in seconds since the epoch, 0 is none; `round` is their own.
PREVIOUS = np.dtype([*UNIT_KEY, *STATE, ("round", "<u4")])
SEEN = (
    "connections",
    "min_rtt_us",
    "mss",
    "share_rate",
    "share_connections",
    "reached_rate",
    "reached_connections",
    "at_once",
    "receiver_window",
    "trains",
    "train_low_rate",
    "train_rate",
    *(f"{name}_{arm}" for arm in (0, 1) for name in ("flights", "lossy", "resent", "segments")),
    *(f"{name}_{arm}_us" for arm in (0, 1) for name in ("t50", "t100")),
    *(f"{name}_{arm}" for arm in (0, 1) for name in ("carried", "path_carried")),
    "braked",
)
# The rows of start_decisions without what a round has in common. `proved_*`: what the paths' evidence asks for, before
# it was tried, bytes/s; `own_weight`: of the unit's own evidence in it; `group_*`: whose, from how many units, and its
# low quantile.
DECIDED = np.dtype(
    [
        *UNIT_KEY,
        ("action", "u1"),
        ("reason", "u1"),
        *STATE,
        ("previous_window", "<u4"),
        ("previous_connection_rate", "<f8"),
        ("proved_share", "<f4"),
        ("proved_path", "<f4"),
        ("own_weight", "<f4"),
        ("group", "S64"),
        ("group_units", "<u4"),
        ("group_rate", "<f4"),
        *((name, OBSERVED[name]) for name in SEEN),
        ("seen_path_rate", "<f4"),
        ("expires_at", "<u4"),
    ]
)
_OVERRIDE = np.dtype([*UNIT_KEY, ("window", "<u4"), ("connection_rate", "<f8"), ("path_rate", "<f8")])
# What the law reads of rows: all but names.
_OBSERVED, _PREVIOUS, _OVERRIDDEN = (
    [name for name in form.names or () if form[name].kind != "S" and name != "ip_version"]
    for form in (OBSERVED, PREVIOUS, _OVERRIDE)
)


def decide(
    now: int,
    policy: Policy,
    observed: Table | Frame,
    previous: Table | Frame,
    groups: Table | Frame,
    frozen: Collection[str] = (),
) -> Frame:
    """The round's DECIDED rows, sorted by unit, of OBSERVED, PREVIOUS and GROUPED rows in any order: every unit that
    has a row in one of them or is overridden.

    `now` is the round. Of PoPs that are `frozen` too little of the round arrived to be trusted: what they had decided
    stands until it expires.
    """
    overrides = _overrides(policy, now)
    # One table may be both.
    is_both = groups is observed
    observed, previous = Frame.of(observed), Frame.of(previous)
    groups = observed if is_both else Frame.of(groups)
    units, (at_seen, at_previous, at_group, at_override) = placed(observed, previous, groups, overrides)
    shown = observed.columns
    if units is not observed:
        shown = taken_at(observed, [*SEEN, "path_rate"], at_seen, UNSEEN)
    group = coded(groups.columns["group"] if units is groups else taken_at(groups, ["group"], at_group)["group"])
    # What no step changes is not copied.
    src = coded(units.columns["src_pop"])
    given = {name: units.columns[name] for name, _ in UNIT_KEY} | {name: shown[name] for name in SEEN}
    given |= {"seen_path_rate": shown["path_rate"], "src_pop": src, "group": group}
    decided = Frame(DECIDED, {**Frame.empty(len(units), DECIDED).columns, **given})
    is_frozen = np.isin(src.texts, np.array(sorted(frozen), "S64"))[src.numbers]
    for rows, member in _together(_numbers(group)):
        out = _decide(
            now,
            policy,
            _wide(taken_at(observed, _OBSERVED, at_seen[rows], UNSEEN)),
            _wide(taken_at(previous, _PREVIOUS, at_previous[rows])),
            taken_at(overrides, _OVERRIDDEN, at_override[rows]),
            at_override[rows] >= 0,
            is_frozen[rows],
            member,
        )
        for name, column in out.items():
            decided[name][rows] = np.minimum(column, _MOST) if DECIDED[name] == np.uint32 else column
    return decided


def _wide(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """For arithmetic: rows have what is measured, and learnt, in half of a double's bytes."""
    return {name: column.astype(np.float64) if column.dtype.kind == "f" else column for name, column in columns.items()}


def _together(group: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int64]]]:
    """Rows that are decided together, and the numbers of their groups among them: whole groups, since a unit depends on
    no other than those of its own. 0 is no group."""
    # Of two bytes they are sorted by counting, ten times as fast.
    order = np.argsort(group.astype(np.min_scalar_type(group.max(initial=0))), kind="stable")
    ordered = group[order]
    first = begins(ordered) | (ordered == 0)
    ends = np.append(np.flatnonzero(first), len(order))
    begin = 0
    while begin < len(order):
        # The last group that ends within so many rows, else the first one that ends.
        at = max(np.searchsorted(ends, begin + _TOGETHER, "right") - 1, np.searchsorted(ends, begin, "right"))
        rows = slice(begin, int(ends[at]))
        yield order[rows], np.where(ordered[rows] == 0, 0, np.cumsum(first[rows]))
        begin = rows.stop


def _decide(
    now: int,
    policy: Policy,
    seen: Columns,
    before: Columns,
    word: Columns,
    is_overridden: Bits,
    is_frozen: Bits,
    member: NDArray[np.int64],
) -> dict[str, NDArray[Any]]:
    """The columns of DECIDED but for names and SEEN; `member` are the numbers of whole groups.

    Long: the steps in their order, each over all units at once.
    """
    law = policy.start
    out: dict[str, NDArray[Any]] = {}
    last_evidence = before["last_evidence"].astype(np.int64)
    alive = (last_evidence > 0) & (now < last_evidence + law.ttl_s)
    rtt_us = np.where(seen["min_rtt_us"] > 0, seen["min_rtt_us"], before["learnt_rtt_us"])

    in_use = _in_use(before, is_overridden, law)
    kept = CAREFUL if law.careful else 1.0
    brake = policy.enforce
    brakes = brake.brake_lost_permille / 1000, brake.brake_connections
    judged = judge(now, seen, before, is_frozen, member, law, *brakes)
    # Of what is in use no more than the path carries.
    share = np.fmin(judged.carried, 1.0) * in_use.rate / (law.pace_gain * kept)
    shared_at = np.where(
        shows_others(now, seen, before, judged, is_frozen, law), now, before["shared_at"].astype(np.int64)
    )
    is_shared = (shared_at > 0) & (now < shared_at + law.ttl_s)
    proved = prove(now, seen, before, share, is_shared, judged.sound, alive, is_frozen, member, law)
    target = size(proved.share, proved.path, rtt_us, seen, law)
    most = size(proved.carries, proved.carries, rtt_us, seen, law)

    evident = (proved.measured | proved.borrowed) & ~is_frozen
    evidence = np.where(evident, now, last_evidence)
    living = (evidence > 0) & (now < evidence + law.ttl_s)
    rounds = np.minimum(np.where(alive, before["measured_rounds"], 0).astype(np.int64) + evident, _MOST_ROUNDS)
    penalty = damping.decay(before["penalty"], now - before["round"].astype(np.int64), policy.damping)
    suppressed = (before["suppressed"] > 0) & (penalty >= policy.damping.reuse_below)
    may_begin = living & ~is_frozen & ~is_overridden & ((rounds >= law.duty_rounds) | (in_use.window > 0))

    moves = falls(now, seen, before, in_use, target, most, rtt_us, proved, judged, is_frozen, law)
    bound = ceiling(now, before, target, proved, judged, moves, law)
    tried = trials(now, seen, rtt_us, before, target, most, proved, judged, moves, bound, may_begin, suppressed, law)
    nothing = Values.none(len(member))
    value = _word(word, rtt_us, seen, law).where(is_overridden, moves.value.where(living, nothing))
    on_trial = tried.values.where(living & ~is_overridden, nothing)

    used, tested = before["window"] > 0, before["trial_permille"] > 0
    lowered = (in_use.window > 0) & value.below(in_use) & living & ~is_overridden & ~moves.asks
    penalty = damping.charge(penalty, lowered, policy.damping)
    reason = _reason(moves, proved, seen, value, on_trial, used | tested, living, is_frozen, rounds, law)
    reason[is_overridden] = _CODE[Reason.OVERRIDE]
    value.put(out)
    on_trial.put(out, "trial_")
    leans = judged.leans & (value.window > 0) & ~is_overridden
    part = np.where(tried.begins | leans & ~moves.goes_on, _part(seen, policy), before["trial_permille"])
    many = np.where(on_trial.window > 0, policy.enforce.max_trial_permille, np.where(leans, BESIDE, 0))
    out["trial_permille"] = np.minimum(part, many)
    of_group = np.where(moves.promoted, before["trial_borrowed"], before["borrowed"])
    out["borrowed"] = np.where((value.window > 0) & ~is_overridden, of_group, 0)
    out["trial_borrowed"] = tried.borrowed & (on_trial.window > 0)
    out["trial_step"] = tried.step & (on_trial.window > 0)
    # Other values have other first flights; and what the default lost on another path is asked anew.
    stale = {
        "used": value.differs(Values.of(before)),
        "trial": ~moves.goes_on | (on_trial.window != before["trial_window"]),
        "default": moves.asks,
    }
    for name, column in judged.left.items():
        which = stale.get(name.partition("_")[0])
        out[name] = column if which is None else np.where(which, 0, column)
    # Its times are of the path as it was.
    out["default_timed_at"] = np.where(proved.fell, 0, out["default_timed_at"])
    out |= proved.left
    # A unit that nobody connects to any more leaves no row for good: its ceiling ends a hold after the hold.
    _, hold_until, hold_s, _ = bound
    gone = ~living & (now >= hold_until + hold_s)
    for name, column in zip(("harmful_rate", "hold_until", "hold_s", "harmful_share"), bound, strict=True):
        out[name] = np.where(gone, 0, column)
    out["shared_at"] = np.where(is_shared, shared_at, 0)
    out["was_cut"] = moves.cut | ((before["was_cut"] > 0) & ~moves.changed & (value.window > 0))
    renewed = (moves.changed & (value.window > 0)) | ~(before["learnt_rtt_us"] > 0)
    out["learnt_rtt_us"] = np.where(renewed, rtt_us, before["learnt_rtt_us"])
    out["measured_rounds"] = np.where(living, rounds, 0)
    out["penalty"], out["last_evidence"] = penalty, evidence
    out["suppressed"] = suppressed | (penalty > policy.damping.suppress_above)
    out["overridden"] = is_overridden
    out["expires_at"] = np.where(evidence > 0, evidence + law.ttl_s, 0)
    out["action"] = np.select(
        [value.window > 0, on_trial.window > 0, used | tested],
        [_ACTION[Action.SET], _ACTION[Action.TRY], _ACTION[Action.WITHDRAW]],
        _ACTION[Action.NONE],
    )
    out["reason"] = reason
    _explain(out, before, proved)
    return out


UNSEEN = np.zeros((), OBSERVED)
for _name in OBSERVED.names or ():
    if OBSERVED[_name].kind == "f":
        UNSEEN[_name] = np.nan


def carry(decided: Frame, now: int) -> Frame:
    """What a round's decisions leave for the next one, as PREVIOUS rows."""
    lasting = decided[lasting_rows(decided)]
    return Frame(PREVIOUS, {**lasting.columns, "round": np.full(len(lasting), now)})


def lasting_rows(decided: Frame) -> Bits:
    """Those that leave something for the next round."""
    lasts: Bits = (
        (decided["window"] > 0)
        | (decided["trial_permille"] > 0)
        | (decided["share_weight"] > 0)
        | (decided["measured_rounds"] > 0)
        | (decided["harmful_rate"] > 0)
    )
    return lasts


def _in_use(before: Columns, is_overridden: Bits, law: StartPolicy) -> Values:
    """Within the policy's bounds, which may have become narrower. What an operator had set was never judged: once the
    override has ended the unit begins anew."""
    own = (before["connection_rate"] > 0) & ((before["overridden"] == 0) | is_overridden)
    return Values.of(before).scaled(1.0, law.cmax).where(own, Values.none(len(own)))


def _part(seen: Columns, policy: Policy) -> NDArray[np.int64]:
    """Of a thousand connections those on trial: as many as show in a round or two what is asked of a trial. Of few
    connections it is a large part, at most what edges allow; it costs few."""
    law, most = policy.start, policy.enforce.max_trial_permille
    wanted = 1000 * law.trial_flights // np.maximum(seen["connections"].astype(np.int64), 1)
    part: NDArray[np.int64] = np.clip(wanted, min(law.trial_permille, most), most)
    return part


def _reason(
    moves: Moves,
    proved: Proved,
    seen: Columns,
    value: Values,
    on_trial: Values,
    acted: Bits,
    living: Bits,
    is_frozen: Bits,
    rounds: NDArray[np.int64],
    law: StartPolicy,
) -> Codes:
    """The moves' own, and what they say nothing of."""
    reason = moves.reason.copy()
    nothing = (value.window == 0) & (on_trial.window == 0)
    silent = nothing & (reason == _CODE[Reason.NO_EVIDENCE])
    some = (seen["connections"] > 0) & np.isnan(proved.share)
    reason[silent & some] = _CODE[Reason.THIN_EVIDENCE]
    reason[silent & (rounds > 0) & (rounds < law.duty_rounds)] = _CODE[Reason.BELOW_DUTY_CYCLE]
    running = moves.goes_on & (value.window == 0) & (on_trial.window > 0)
    reason[running] = _CODE[Reason.ON_TRIAL]
    reason[is_frozen] = _CODE[Reason.HELD_INCOMPLETE_INPUT]
    reason[acted & ~living] = _CODE[Reason.EXPIRED]
    return reason


def _word(word: Columns, rtt_us: Floats, seen: Columns, law: StartPolicy) -> Values:
    """An operator's. A window without rates gets the rate that carries it in a round trip, where that is known: else it
    would leave as a burst."""
    window = word["window"].astype(np.int64)
    known = np.isfinite(rtt_us) & (rtt_us > 0) & (window > 0)
    carried = np.floor(law.pace_gain * window * segment(seen) / np.where(known, rtt_us, 1.0) * 1e6)
    rate = np.where(word["connection_rate"] > 0, word["connection_rate"], np.where(known, carried, 0.0))
    return Values(window, rate, np.where(word["path_rate"] > 0, word["path_rate"], rate))


def _overrides(policy: Policy, now: int) -> Frame:
    """The units that an override in force names, 0 for what it does not say; the first in the file counts, of those for
    starts, then of those for pairs' windows."""
    found: dict[tuple[bytes, bytes, int], tuple[int, int, int]] = {}
    for one in policy.start_overrides:
        for version in (4, 6):
            if one.covers(version, now):
                unit = one.src.encode(), one.to.encode(), version
                found.setdefault(unit, (one.initcwnd or 0, one.connection_rate or 0, one.path_rate or 0))
    for other in policy.overrides:
        for version in (4, 6):
            if other.edges is None and other.covers(version, now):
                found.setdefault((other.src.encode(), other.dst.encode(), version), (other.initcwnd or 0, 0, 0))
    return Frame.of(np.array([(*unit, *values) for unit, values in found.items()], _OVERRIDE))


def _numbers(group: Coded) -> NDArray[np.int64]:
    """Of groups; 0 is none."""
    of_names: NDArray[np.int64] = np.where(group.texts != b"", np.arange(1, len(group.texts) + 1), 0)
    numbers: NDArray[np.int64] = of_names[group.numbers]
    return numbers


def _explain(out: dict[str, NDArray[Any]], before: Columns, proved: Proved) -> None:
    out["previous_window"], out["previous_connection_rate"] = before["window"], before["connection_rate"]
    out["proved_share"], out["proved_path"], out["own_weight"] = proved.share, proved.path, proved.own_weight
    out["group_units"] = proved.group.units
    out["group_rate"] = np.exp2(proved.group.low)

"""The initial congestion window of an ordered pair of PoPs (Riptide III-B), with its reasons.

In the order in which they act:

1. **observe**: the combined window of the connections that earned it, given enough of them;
2. **smooth** with the last value: a rise slowly, a fall at once; **bound** by cmin and cmax. That is the history of the
   next round. It is bounded because Riptide III-B stores the bounded value: one of 1,000 segments behind a cmax of 100
   would hold a collapsed path at cmax for many rounds. Without evidence the last value stays until `ttl_s` after it;
3. **limit** what is made of it: half of it where the profile is careful, the receiver's window, and the loss guard's
   ceiling (loss_guard.py): where loss was seen the window falls at once, and rises by judged steps only;
4. **publish** calmly: a pair that has rarely been measured gets nothing yet, a small change is not worth a route, and
   one that keeps changing may only fall. An operator's override precedes all of it.

Where the policy measures by switchback, or tests that all can be disabled, a pair whose turn it is to be off gets
nothing, whatever was learnt; it is learnt all the same (laws/switchback.py).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.laws import damping
from springtide.laws.columns import Bits, Table, align, union
from springtide.laws.damping import Floats
from springtide.laws.initcwnd import loss_guard
from springtide.laws.initcwnd.decision import Action, Reason
from springtide.laws.initcwnd.edges import edge_decisions
from springtide.laws.initcwnd.loss_guard import GUARD, Judgement
from springtide.laws.initcwnd.pairs import keys, named
from springtide.laws.switchback import turn
from springtide.laws.vocabulary import codes
from springtide.observe.pairs import OBSERVED, PAIR_KEY
from springtide.policy import InitcwndPolicy, Policy

Ints = NDArray[np.int64]
Codes = NDArray[np.uint8]

_CODE = codes(Reason)
_ACTION = codes(Action)

# What the decisions before this round left of a pair that has history or a window in use; windows in segments, instants
# in seconds since the epoch, 0 is none, NaN is unknown. `smoothed_cwnd` is the bounded value before rounding and before
# the limits, `last_evidence` the round that last had sufficient evidence, `initcwnd` what new connections start with
# now, `round` the decisions' own, `measured_rounds` how many of the last `duty_window_rounds` rounds, this one
# excluded, had sufficient evidence; GUARD is the loss guard's.
PREVIOUS = np.dtype(
    [
        *PAIR_KEY,
        ("smoothed_cwnd", "<f8"),
        ("last_evidence", "<u4"),
        ("initcwnd", "<u4"),
        *GUARD,
        ("penalty", "<f8"),
        ("suppressed", "u1"),
        ("round", "<u4"),
        ("measured_rounds", "<u4"),
    ]
)
# The rows of initcwnd_decisions without what a round has in common; `action` and `reason` count in ACTIONS and REASONS.
# `ceiling_initcwnd` is what the loss guard allows at most, 0 where it bounds nothing.
DECIDED = np.dtype(
    [
        *PAIR_KEY,
        ("action", "u1"),
        ("initcwnd", "<u4"),
        ("reason", "u1"),
        ("connections_seen", "<u8"),
        ("connections_earned", "<u8"),
        ("observed_cwnd", "<f8"),
        ("min_cwnd", "<i8"),
        ("max_cwnd", "<i8"),
        ("retransmit_ratio", "<f8"),
        ("young_connections", "<u8"),
        ("young_lossy_connections", "<u8"),
        ("young_timeout_connections", "<u8"),
        ("receiver_cwnd", "<f8"),
        ("previous_initcwnd", "<u4"),
        ("previous_cwnd", "<f8"),
        ("smoothed_cwnd", "<f8"),
        ("target_cwnd", "<f8"),
        ("measured_rounds", "<u4"),
        *GUARD,
        ("ceiling_initcwnd", "<u4"),
        ("penalty", "<f8"),
        ("suppressed", "u1"),
        ("last_evidence", "<u4"),
        ("expires_at", "<u4"),
    ]
)


def decide(now: int, policy: Policy, observations: Table, last: Table, frozen: Collection[str] = ()) -> Table:
    """The round's DECIDED rows of OBSERVED and PREVIOUS rows in any order: every pair that was seen in the round, has
    history, or is overridden, if only for an edge, sorted by pair.

    `now` is the round. Of PoPs that are `frozen` too little of the round arrived to be trusted: what they had decided
    stands, as long as it would without evidence.

    Long: the steps in their order, each over all pairs at once.
    """
    law = policy.initcwnd
    overrides = _overrides(policy, now)
    of_edges = np.array(sorted({one.pair for one in edge_decisions(policy, now)}), PAIR_KEY)
    seen_keys, last_keys, override_keys = keys(observations), keys(last), keys(overrides)
    wanted = union(seen_keys, last_keys, override_keys, keys(of_edges))
    seen, _ = align(observations, seen_keys, wanted, UNSEEN)
    before, _ = align(last, last_keys, wanted)
    own_value, overridden = align(overrides, override_keys, wanted)

    out = np.zeros(len(wanted), DECIDED)
    for name in ("src_pop", "dst_pop", "ip_version"):
        out[name] = named(wanted)[name]
    for name in SEEN:
        out[name] = seen[name]
    is_frozen = np.isin(out["src_pop"], np.array(sorted(frozen), "S64"))
    last_evidence = before["last_evidence"].astype(np.int64)
    alive = np.where((last_evidence > 0) & (now < last_evidence + law.ttl_s), before["smoothed_cwnd"], np.nan)
    observed = np.where(is_frozen, np.nan, combine(seen, law))
    measured = np.isfinite(observed)
    smoothed, reason = _learn(seen, observed, alive, is_frozen, law)
    learnt = np.isfinite(smoothed)

    in_use = before["initcwnd"].astype(np.int64)
    used = in_use > 0
    # Bounds hold whatever else would keep a value as it is.
    current = np.where(used, np.clip(in_use, law.cmin, law.cmax), law.cmin)
    penalty = damping.decay(before["penalty"], now - before["round"].astype(np.int64), policy.damping)
    suppressed = (before["suppressed"] > 0) & (penalty >= policy.damping.reuse_below)
    judged = loss_guard.judge(now, seen, before, is_frozen, law)

    target = _limit(smoothed, reason, seen, law)
    _guard(target, reason, judged)
    value = to_segments(np.where(learnt, target, 0.0))
    measured_rounds = before["measured_rounds"].astype(np.int64) + measured
    rare = learnt & ~used & (measured_rounds < law.duty_rounds)
    value[rare] = 0
    reason[rare] = _CODE[Reason.BELOW_DUTY_CYCLE]
    _calm(value, reason, current, learnt & used, is_frozen, judged, suppressed, law)
    reason[~learnt & used] = _CODE[Reason.EXPIRED]
    _switch_off(value, reason, out, now, policy)
    value = np.where(overridden, own_value["initcwnd"], value)
    reason[overridden] = _CODE[Reason.OVERRIDE]

    changed = used & (value > 0) & (value != in_use)
    # Steps are few by themselves: each needs a judgement, and what they end in a hold that grows.
    stepped = (reason == _CODE[Reason.LOSS_GUARD_STEP]) & (value > in_use)
    penalty = damping.charge(penalty, changed & ~stepped, policy.damping)
    evidence = np.where(measured, now, last_evidence)
    out["action"] = np.where(value > 0, _ACTION[Action.SET], np.where(used, _ACTION[Action.WITHDRAW], 0))
    out["initcwnd"] = value
    out["reason"] = reason
    out["observed_cwnd"] = np.where(measured, observed, seen["mean_cwnd"])
    out["previous_initcwnd"] = in_use
    out["previous_cwnd"] = alive
    out["smoothed_cwnd"] = smoothed
    out["target_cwnd"] = target
    out["measured_rounds"] = measured_rounds
    for name in judged.left.dtype.names or ():
        out[name] = judged.left[name]
        # Another window is another trial.
        if name.startswith("trial_"):
            out[name][value != in_use] = 0
    out["ceiling_initcwnd"] = np.where(judged.bounded, judged.ceiling, 0)
    out["penalty"] = penalty
    out["suppressed"] = suppressed | (changed & ~stepped & (penalty > policy.damping.suppress_above))
    out["last_evidence"] = evidence
    out["expires_at"] = np.where(evidence > 0, evidence + law.ttl_s, 0)
    return out


# Columns that a decision repeats.
SEEN = (
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
UNSEEN = np.zeros((), OBSERVED)
for _name in OBSERVED.names or ():
    if OBSERVED[_name].kind in "fi":
        UNSEEN[_name] = np.nan if OBSERVED[_name].kind == "f" else -1


def lasting(decided: Table) -> Table:
    """Those of a round's decisions that leave anything for the next one."""
    left: Table = decided[
        np.isfinite(decided["smoothed_cwnd"]) | (decided["initcwnd"] > 0) | (decided["harmful_initcwnd"] > 0)
    ]
    return left


def only_guard(last: Table) -> Table:
    """Of PREVIOUS rows what no time ends: the ceilings of pairs, for which no window is in use any more."""
    left = np.zeros(len(last), PREVIOUS)
    left["smoothed_cwnd"] = np.nan
    for name in (*(key for key, _ in PAIR_KEY), *(name for name, _ in GUARD), "round"):
        left[name] = last[name]
    return left[left["harmful_initcwnd"] > 0]


def carry(decided: Table, now: int, measured_rounds: NDArray[np.integer[Any]]) -> Table:
    """What `lasting` decisions of the round `now` leave for the next one; `measured_rounds` of each as in PREVIOUS."""
    left = np.zeros(len(decided), PREVIOUS)
    for name in PREVIOUS.names or ():
        if name in (DECIDED.names or ()):
            left[name] = decided[name]
    left["round"] = now
    left["measured_rounds"] = measured_rounds
    return left


def combine(seen: Table, law: InitcwndPolicy) -> Floats:
    """The round's one window of each pair; NaN without sufficient evidence, or where what was sampled is not a
    number."""
    column = {"mean": "mean_cwnd", "max": "max_cwnd", "traffic": "traffic_cwnd"}.get(
        law.combiner, f"cwnd_{law.combiner}"
    )
    window = seen[column].astype(np.float64)
    sufficient = (seen["connections_earned"] >= law.min_connections) & np.isfinite(window) & (window > 0)
    return np.where(sufficient, window, np.nan)


def smooth(observed: Floats, previous: Floats, law: InitcwndPolicy) -> Floats:
    """Exponentially weighted moving average with a weight of its own for falls; a collapse is followed at once.
    Riptide's text gives alpha to the history, its Table I to the newest data: these weights are the history's."""
    weight = np.where(observed > previous, law.history_weight, law.falling_history_weight)
    afresh = np.isnan(previous) | (observed <= law.collapse * previous)
    return np.where(afresh, observed, weight * previous + (1.0 - weight) * observed)


def bound(smoothed: Floats, law: InitcwndPolicy) -> tuple[Floats, Codes]:
    """Within cmin and cmax, and which of them bound it."""
    reason = np.full(len(smoothed), _CODE[Reason.LEARNT], np.uint8)
    reason[smoothed > law.cmax] = _CODE[Reason.CLAMPED_TO_CMAX]
    reason[smoothed < law.cmin] = _CODE[Reason.CLAMPED_TO_CMIN]
    return np.clip(smoothed, law.cmin, law.cmax), reason


def to_segments(cwnd: Floats) -> Ints:
    """Rounded half up."""
    segments: Ints = np.floor(cwnd + 0.5).astype(np.int64)
    return segments


def smallest_change(initcwnd: Ints, law: InitcwndPolicy) -> Ints:
    """Segments by which a value must differ from the one in use to be published."""
    least: Ints = np.maximum(1, np.ceil(law.hysteresis * initcwnd)).astype(np.int64)
    return least


def _learn(seen: Table, observed: Floats, alive: Floats, is_frozen: Bits, law: InitcwndPolicy) -> tuple[Floats, Codes]:
    """Steps 1 and 2: the history for the next round, and why it is what it is."""
    fresh, reason = bound(smooth(observed, alive, law), law)
    # Bounded again: the policy may have become narrower since.
    held, _ = bound(alive, law)
    some, living = seen["connections_earned"] > 0, np.isfinite(alive)
    why = np.where(some, _CODE[Reason.HELD_THIN_EVIDENCE], _CODE[Reason.HELD_NO_EVIDENCE])
    why = np.where(is_frozen, _CODE[Reason.HELD_INCOMPLETE_INPUT], why)
    never = np.where(some, _CODE[Reason.THIN_EVIDENCE], _CODE[Reason.NO_EVIDENCE])
    measured = np.isfinite(observed)
    return np.where(measured, fresh, held), np.where(measured, reason, np.where(living, why, never))


def _limit(smoothed: Floats, reason: Codes, seen: Table, law: InitcwndPolicy) -> Floats:
    """Step 3 without the loss guard: what is made of the smoothed value; sets the reason."""
    target = smoothed
    if law.careful:
        halved = target > law.cmin
        target = np.where(halved, np.maximum(law.cmin, target / 2.0), target)
        reason[halved] = _CODE[Reason.CAREFUL]
    if law.receiver_cap:
        receiver = seen["receiver_cwnd"]
        capped = (receiver < target) & (target > law.cmin)
        target = np.where(capped, np.maximum(law.cmin, receiver), target)
        reason[capped] = _CODE[Reason.RECEIVER_LIMITED]
    return target.copy()


def _guard(target: Floats, reason: Codes, judged: Judgement) -> None:
    """The loss guard, in place."""
    over = judged.bounded & (judged.ceiling < target)
    target[over] = judged.ceiling[over]
    stepped = judged.clean & (judged.ceiling > judged.left["clean_initcwnd"])
    reason[over] = _CODE[Reason.LOSS_GUARD_HOLD]
    reason[over & stepped] = _CODE[Reason.LOSS_GUARD_STEP]
    reason[over & judged.harm] = _CODE[Reason.LOSS_GUARD]


def _calm(
    value: Ints,
    reason: Codes,
    current: Ints,
    subject: Bits,
    is_frozen: Bits,
    judged: Judgement,
    suppressed: Bits,
    law: InitcwndPolicy,
) -> None:
    """Step 4 of pairs with a window in use, in place."""
    too_high = judged.bounded & (current > judged.ceiling)
    differs = subject & ~is_frozen & (value != current) & ~judged.harm & ~too_high
    stepped = reason == _CODE[Reason.LOSS_GUARD_STEP]
    small = differs & ~stepped & (np.abs(value - current) < smallest_change(current, law))
    damped = differs & ~small & (value > current) & suppressed
    stay = [
        (subject & is_frozen & ~too_high, Reason.HELD_INCOMPLETE_INPUT),
        (small, Reason.HELD_HYSTERESIS),
        (damped, Reason.HELD_DAMPING),
    ]
    for which, why in stay:
        value[which], reason[which] = current[which], _CODE[why]


def _switch_off(value: Ints, reason: Codes, pairs: Table, now: int, policy: Policy) -> None:
    """Pairs whose turn it is to be off, in place."""
    [chosen] = np.nonzero((value > 0) & policy.experiment.switches)
    for row in chosen.tolist():
        pair = pairs["src_pop"][row].decode(), pairs["dst_pop"][row].decode()
        why = turn(policy.experiment, policy.round.interval_s, *pair, now).why
        if why:
            value[row], reason[row] = 0, _CODE[Reason(why)]


def _overrides(policy: Policy, now: int) -> Table:
    """The pairs that an override in force names, and its value, 0 for the default; the first in the file counts."""
    found: dict[tuple[bytes, bytes, int], int] = {}
    for override in policy.overrides:
        for ip_version in (4, 6):
            if override.edges is None and override.covers(ip_version, now):
                pair = override.src.encode(), override.dst.encode(), ip_version
                found.setdefault(pair, override.initcwnd or 0)
    return np.array([(*pair, value) for pair, value in found.items()], np.dtype([*PAIR_KEY, ("initcwnd", "<u4")]))

"""BBR or the kernel's default per PoP and client prefix (the selective-BBR article), with its reasons.

In the order in which they act:

1. **observe**: in each round of the window, whether a prefix had enough evidence, and whether it was in its PoP's
   lowest share by delivery rate (sql/congestion/evidence.sql). A rate under BBR is divided by `bbr_discount` first;
2. **choose** those that are consistently low: a high duty cycle, few changes of state. Never back-office traffic, nor a
   path with a low round-trip time and few retransmissions; not one that was given back or has changed too often lately;
   so many a round, so many in all. A hashed share of the chosen is held out;
3. **keep** them for a minimum stay, and then until their duty cycle is low;
4. **give back** what BBR does not help: what, by an interval, grew no more than the held-out prefixes did, which were
   chosen by the same rule, so that regression to the mean is in both.

Where a PoP's newest round cannot be trusted, its last decisions stay in force. An operator's override precedes all of
it.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from springtide.laws import damping
from springtide.laws.columns import Bits, Table
from springtide.laws.congestion.prefixes import (
    EVIDENCE,
    KEY,
    addresses,
    align,
    first_of,
    halves,
    history,
    keys,
    state_changes,
)
from springtide.laws.effect import LEVEL, difference
from springtide.laws.holdout import is_held_out
from springtide.laws.vocabulary import codes
from springtide.policy import CongestionPolicy, Policy


class Action(StrEnum):
    NONE = "none"
    ENTER = "enter"
    KEEP = "keep"
    LEAVE = "leave"


ACTIONS = tuple(Action)


class Reason(StrEnum):
    """The rule that made the decision what it is."""

    CONSISTENTLY_LOW = "consistently_low"
    HELD_HYSTERESIS = "held_hysteresis"
    HELD_MIN_STAY = "held_min_stay"
    HELD_THIN_EVIDENCE = "held_thin_evidence"
    HELD_INCOMPLETE_INPUT = "held_incomplete_input"
    RECOVERED = "recovered"
    NO_EVIDENCE = "no_evidence"
    NOT_HELPED = "not_helped"
    BACK_OFFICE = "back_office"
    HEALTHY_PATH = "healthy_path"
    FLAPPING = "flapping"
    HELD_DAMPING = "held_damping"
    GIVEN_BACK = "given_back"
    CAPPED = "capped"
    BELOW_DUTY_CYCLE = "below_duty_cycle"
    THIN_EVIDENCE = "thin_evidence"
    OVERRIDE = "override"


REASONS = tuple(Reason)
_CODE = codes(Reason)
ACTION = codes(Action)

# Held-out prefixes from which on their spread's end is known: beyond it lies one of them (2 / (1 - LEVEL)).
ALONE = 80

_STATE = [
    ("held_out", "u1"),
    ("baseline_rate", "<f8"),
    ("selected_since", "<u4"),
    ("hold_until", "<u4"),
    ("penalty", "<f8"),
    ("suppressed", "u1"),
]
# What the decisions before this round left; instants in seconds since the epoch, 0 is none; rates in bytes per second,
# NaN is unknown.
PREVIOUS = np.dtype([*KEY, ("ip_version", "u1"), ("round", "<u4"), *_STATE])
# The rows of congestion_decisions without what a round has in common; `action` and `reason` count in ACTIONS and
# REASONS.
DECIDED = np.dtype(
    [
        *KEY,
        ("ip_version", "u1"),
        ("action", "u1"),
        ("algorithm", "u1"),
        ("reason", "u1"),
        ("measured_rounds", "u1"),
        ("low_rounds", "u1"),
        ("state_changes", "u1"),
        ("back_office", "u1"),
        ("rtt_us", "<f8"),
        ("retransmit_ratio", "<f8"),
        ("rate", "<f8"),
        ("recent_rate", "<f8"),
        ("benefit", "<f8"),
        *_STATE,
    ]
)


def decide(
    now: int, policy: Policy, evidence: Table, last: Table, frozen: Collection[str] = (), *, everyone: bool = False
) -> Table:
    """The round's DECIDED rows, sorted by PoP and prefix, of EVIDENCE and PREVIOUS rows in any order.

    `now` is the round. PoPs that are `frozen` have no trustworthy newest round. Rows are given for what is chosen, let
    go, poor, waiting or overridden; with `everyone`, for all of the evidence.
    """
    law = policy.congestion
    overridden, wants_bbr = _overrides(policy, now)
    wanted = np.unique(np.concatenate([keys(evidence), keys(last), keys(overridden)]))
    seen, has = align(evidence, wanted)
    before, _ = align(last, wanted)
    override, is_overridden = align(overridden, wanted)
    bbr_wanted = is_overridden & np.isin(wanted, keys(overridden)[wants_bbr])
    out = np.zeros(len(wanted), DECIDED)
    for name in ("pop", "high", "low"):
        out[name] = np.where(has, seen[name], np.where(is_overridden, override[name], before[name]))
    out["ip_version"] = np.maximum(np.maximum(seen["ip_version"], before["ip_version"]), override["ip_version"])
    _observe(out, seen, has, law)

    chosen = before["selected_since"] > 0
    stay = now - before["selected_since"].astype(np.int64)
    judged = chosen & (stay >= law.benefit_rounds * policy.round.interval_s)
    out["benefit"], not_helped = _benefit(out, before, judged, law)
    penalty = damping.decay(before["penalty"], now - before["round"].astype(np.int64), policy.congestion_damping)
    suppressed = (before["suppressed"] > 0) & (penalty >= policy.congestion_damping.reuse_below)
    is_frozen = np.isin(out["pop"], np.array(sorted(frozen), "S64"))

    leave = np.zeros(len(out), bool)
    reason = np.full(len(out), _CODE[Reason.THIN_EVIDENCE], np.uint8)
    _keep_or_leave(out, reason, leave, chosen, stay, not_helped, is_frozen, law)
    enter = _enter(out, reason, chosen, leave, suppressed, now < before["hold_until"], is_frozen, law)

    enter = np.where(is_overridden, bbr_wanted & ~chosen, enter)
    leave = np.where(is_overridden, ~bbr_wanted & chosen, leave)
    reason[is_overridden] = _CODE[Reason.OVERRIDE]
    penalty = damping.charge(penalty, enter | leave, policy.congestion_damping)
    # As in routers: what is below half of the reuse limit is forgotten.
    penalty[penalty < policy.congestion_damping.reuse_below / 2] = 0.0

    after = (chosen & ~leave) | enter
    out["action"] = np.select(
        [enter, leave, chosen], [ACTION[Action.ENTER], ACTION[Action.LEAVE], ACTION[Action.KEEP]], ACTION[Action.NONE]
    )
    out["held_out"] = np.where(chosen, before["held_out"], _held_out(out, enter, law)) * after * ~bbr_wanted
    out["algorithm"] = after & (out["held_out"] == 0)
    out["reason"] = reason
    out["baseline_rate"] = np.where(enter, out["rate"], np.where(after, before["baseline_rate"], np.nan))
    out["selected_since"] = np.where(enter, now, np.where(after, before["selected_since"], 0))
    given_back = leave & (reason == _CODE[Reason.NOT_HELPED])
    hold_until = np.where(given_back, now + law.give_back_hold_s, before["hold_until"])
    out["hold_until"] = np.where(hold_until > now, hold_until, 0)
    out["penalty"] = penalty
    out["suppressed"] = suppressed | (penalty > policy.congestion_damping.suppress_above)
    if everyone:
        return out
    poor = _poor(out, law)
    return out[after | leave | poor | (penalty > 0) | (out["hold_until"] > 0) | is_overridden]


def carry(decided: Table, now: int) -> Table:
    """What a round's decisions leave for the next one, as PREVIOUS rows."""
    lasting = decided[(decided["selected_since"] > 0) | (decided["penalty"] > 0) | (decided["hold_until"] > now)]
    left = np.zeros(len(lasting), PREVIOUS)
    for name in PREVIOUS.names or ():
        left[name] = now if name == "round" else lasting[name]
    return left


def least_low_rounds(law: CongestionPolicy) -> int:
    """With fewer low rounds than this in the window no prefix can be chosen."""
    return max(1, int(np.ceil(law.enter_duty * law.min_rounds - 1e-9)))


def _observe(out: Table, seen: Table, has: Bits, law: CongestionPolicy) -> None:
    measured = history(seen["measured_0"], seen["measured_1"], law.window_rounds)
    low = history(seen["low_0"], seen["low_1"], law.window_rounds) & measured
    out["measured_rounds"] = measured.sum(axis=1)
    out["low_rounds"] = low.sum(axis=1)
    out["state_changes"] = state_changes(measured, low)
    out["back_office"] = seen["back_office"]
    for name in ("rtt_us", "retransmit_ratio"):
        out[name] = np.where(has & (seen[name] >= 0), seen[name], np.nan)
    for name in ("rate", "recent_rate"):
        log2 = seen[name.replace("rate", "log2_rate")]
        out[name] = np.where(has & (log2 >= 0), np.exp2(np.maximum(log2, 0)), np.nan)


def _duty(out: Table) -> NDArray[np.float64]:
    duty: NDArray[np.float64] = out["low_rounds"] / np.maximum(out["measured_rounds"], 1)
    return duty


def _poor(out: Table, law: CongestionPolicy) -> Bits:
    poor: Bits = (out["measured_rounds"] >= law.min_rounds) & (_duty(out) >= law.enter_duty)
    return poor


def _healthy(out: Table, law: CongestionPolicy) -> Bits:
    healthy: Bits = (out["rtt_us"] < law.low_rtt_us) & (out["retransmit_ratio"] < law.few_retransmits)
    return healthy


def _benefit(out: Table, before: Table, judged: Bits, law: CongestionPolicy) -> tuple[NDArray[np.float64], Bits]:
    """Each judged prefix's growth beyond that of the held-out ones, NaN where it is unknown; and which treated ones
    are not helped, as far as intervals show it.

    Growth is of the recent rate over the rate when it was chosen. Difference in differences: the held-out prefixes were
    chosen by the same rule, and share the PoP's minutes.
    """
    growth = np.log2(out["recent_rate"]) - np.log2(
        np.where(before["baseline_rate"] > 0, before["baseline_rate"], np.nan)
    )
    known = judged & np.isfinite(growth)
    control = known & (before["held_out"] > 0)
    treated = known & (before["held_out"] == 0)
    benefit = np.full(len(out), np.nan)
    not_helped = np.zeros(len(out), bool)
    fleet = growth[control]
    for pop in np.unique(out["pop"][known]):
        here = out["pop"] == pop
        own = growth[here & control]
        theirs = own if len(own) >= law.min_held_out else fleet
        if len(theirs) < law.min_held_out:
            continue
        benefit[here & known] = np.exp2(growth[here & known] - np.median(theirs)) - 1.0
        those = here & treated
        not_helped |= those & _too_little(growth, own if len(own) >= ALONE else fleet, law)
        if _none_is_helped(growth[those], theirs, law):
            not_helped |= those
    return benefit, not_helped


def _none_is_helped(ours: NDArray[np.float64], theirs: NDArray[np.float64], law: CongestionPolicy) -> bool:
    """Whether the interval of the median difference lies at or below `min_benefit`, as the report's does."""
    # An interval contains its middle: where that is above there is no need to draw.
    if len(ours) < law.min_held_out or np.exp2(np.median(ours) - np.median(theirs)) - 1.0 > law.min_benefit + 1e-9:
        return False
    is_treated = np.repeat([True, False], [len(ours), len(theirs)])
    found = difference(np.concatenate([ours, theirs]), is_treated, minimum=law.min_held_out)
    return found.high is not None and found.high <= law.min_benefit + 1e-9


def _too_little(growth: NDArray[np.float64], theirs: NDArray[np.float64], law: CongestionPolicy) -> Bits:
    """Those that, whichever held-out prefix they are compared with, grew too little: one growth has no interval of its
    own, but what it might have been without BBR has, the spread of the held-out ones."""
    if len(theirs) < ALONE:
        return np.zeros(len(growth), bool)
    least = np.quantile(theirs, (1 - LEVEL) / 2)
    too_little: Bits = np.exp2(growth - least) - 1.0 <= law.min_benefit + 1e-9
    return too_little


def _keep_or_leave(
    out: Table,
    reason: NDArray[np.uint8],
    leave: Bits,
    chosen: Bits,
    stay: NDArray[np.int64],
    not_helped: Bits,
    is_frozen: Bits,
    law: CongestionPolicy,
) -> None:
    duty = _duty(out)
    enough = out["measured_rounds"] >= law.min_rounds
    better = (enough & (duty <= law.leave_duty)) | _healthy(out, law)
    silent = out["measured_rounds"] == 0
    young = stay < law.min_stay_s
    # The first that holds counts.
    rules: list[tuple[Bits, Reason, bool]] = [
        # Nothing in the whole window: what was known of it is too old to stand on.
        (silent, Reason.NO_EVIDENCE, True),
        (is_frozen, Reason.HELD_INCOMPLETE_INPUT, False),
        (out["back_office"] > 0, Reason.BACK_OFFICE, True),
        (not_helped, Reason.NOT_HELPED, True),
        (better & young, Reason.HELD_MIN_STAY, False),
        (_healthy(out, law), Reason.HEALTHY_PATH, True),
        (better, Reason.RECOVERED, True),
        (~enough, Reason.HELD_THIN_EVIDENCE, False),
        (duty < law.enter_duty, Reason.HELD_HYSTERESIS, False),
        (np.ones(len(out), bool), Reason.CONSISTENTLY_LOW, False),
    ]
    _first_that_holds(rules, chosen, reason, leave)


def _enter(
    out: Table,
    reason: NDArray[np.uint8],
    chosen: Bits,
    leave: Bits,
    suppressed: Bits,
    waiting: Bits,
    is_frozen: Bits,
    law: CongestionPolicy,
) -> Bits:
    poor = _poor(out, law)
    enter = np.zeros(len(out), bool)
    rules: list[tuple[Bits, Reason, bool]] = [
        (out["measured_rounds"] < law.min_rounds, Reason.THIN_EVIDENCE, False),
        (~poor, Reason.BELOW_DUTY_CYCLE, False),
        (out["back_office"] > 0, Reason.BACK_OFFICE, False),
        (_healthy(out, law), Reason.HEALTHY_PATH, False),
        (out["state_changes"] > law.max_flap_rate * out["measured_rounds"], Reason.FLAPPING, False),
        (waiting, Reason.GIVEN_BACK, False),
        (suppressed, Reason.HELD_DAMPING, False),
        (is_frozen, Reason.HELD_INCOMPLETE_INPUT, False),
        (np.ones(len(out), bool), Reason.CONSISTENTLY_LOW, True),
    ]
    _first_that_holds(rules, ~chosen, reason, enter)
    # The worst first; the key decides between equals, so that the order of the input does not.
    names, pop = np.unique(out["pop"], return_inverse=True)
    in_use = np.bincount(pop[chosen & ~leave], minlength=len(names))
    room = np.minimum(law.max_new, np.maximum(0, law.max_selected - in_use))
    candidates = np.flatnonzero(enter)
    order = candidates[np.lexsort((candidates, out["rate"][candidates], -_duty(out)[candidates]))]
    let_in = first_of(out, order, pop, room[pop])
    reason[enter & ~let_in] = _CODE[Reason.CAPPED]
    return enter & let_in


def _first_that_holds(
    rules: list[tuple[Bits, Reason, bool]], subject: Bits, reason: NDArray[np.uint8], flag: Bits
) -> None:
    undecided = subject.copy()
    for holds, name, sets in rules:
        hit = undecided & holds
        reason[hit] = _CODE[name]
        flag[hit] = sets
        undecided &= ~holds


def _held_out(out: Table, enter: Bits, law: CongestionPolicy) -> NDArray[np.uint8]:
    held = np.zeros(len(out), np.uint8)
    new = np.flatnonzero(enter)
    for at, address in zip(new, addresses(out[new]), strict=True):
        held[at] = is_held_out(bytes(out["pop"][at]), address, law.holdout_share)
    return held


def _overrides(policy: Policy, now: int) -> tuple[Table, Bits]:
    """The prefixes that an override in force names, as EVIDENCE rows without evidence, and whether it is for BBR.

    Where two name one prefix, the first in the file counts.
    """
    found: dict[tuple[bytes, int, int], tuple[int, bool]] = {}
    for override in policy.congestion_overrides:
        if now < override.until_unix_s:
            version = 6 if ":" in override.prefix else 4
            found.setdefault((override.pop.encode(), *halves(override.prefix)), (version, override.algorithm == "bbr"))
    table = np.zeros(len(found), EVIDENCE)
    for at, ((pop, high, low), (version, _)) in enumerate(found.items()):
        table["pop"][at], table["high"][at], table["low"][at], table["ip_version"][at] = pop, high, low, version
    return table, np.array([bbr for _, bbr in found.values()], bool)

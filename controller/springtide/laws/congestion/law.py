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
from springtide.laws.congestion.judge import judge
from springtide.laws.congestion.prefixes import (
    EVIDENCE,
    KEY,
    addresses,
    align,
    excess,
    first_of,
    halves,
    history,
    keys,
    state_changes,
)
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

_STATE = [
    ("held_out", "u1"),
    ("baseline_rate", "<f8"),
    ("selected_since", "<u4"),
    ("hold_until", "<u4"),
    ("penalty", "<f8"),
    ("suppressed", "u1"),
    ("trial_growth", "<f8"),
]
# What the decisions before this round left; instants in seconds since the epoch, 0 is none; rates in bytes per second,
# growth in powers of two, NaN is unknown.
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
        ("low_excess", "<f8"),
        ("good_excess", "<f8"),
        ("back_office", "u1"),
        ("rtt_us", "<f8"),
        ("retransmit_ratio", "<f8"),
        ("rate", "<f8"),
        ("recent_rate", "<f8"),
        ("benefit", "<f8"),
        ("expected_benefit", "<f8"),
        *_STATE,
    ]
)


def decide(
    now: int, policy: Policy, evidence: Table, last: Table, frozen: Collection[str] = (), *, everyone: bool = False
) -> Table:
    """The round's DECIDED rows, sorted by PoP and prefix, of EVIDENCE and PREVIOUS rows in any order.

    `now` is the round. PoPs that are `frozen` have no trustworthy newest round. Rows are given for what is chosen, let
    go, poor, waiting or overridden; with `everyone`, for all of the evidence. Long: one step after the other, each over
    all prefixes at once.
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
    judged = judge(out, _known(before), np.where(chosen, stay // policy.round.interval_s, -1), law)
    out["benefit"], out["expected_benefit"] = judged.benefit, judged.expected_benefit
    penalty = damping.decay(before["penalty"], now - before["round"].astype(np.int64), policy.congestion_damping)
    suppressed = (before["suppressed"] > 0) & (penalty >= policy.congestion_damping.reuse_below)
    is_frozen = np.isin(out["pop"], np.array(sorted(frozen), "S64"))

    leave = np.zeros(len(out), bool)
    reason = np.full(len(out), _CODE[Reason.THIN_EVIDENCE], np.uint8)
    _keep_or_leave(out, reason, leave, chosen, stay, judged.not_helped, is_frozen, law)
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
    # Of the newest rounds, as the rate that it is compared with: paths change by themselves within hours.
    out["baseline_rate"] = np.where(enter, out["recent_rate"], np.where(after, before["baseline_rate"], np.nan))
    out["selected_since"] = np.where(enter, now, np.where(after, before["selected_since"], 0))
    given_back = leave & (reason == _CODE[Reason.NOT_HELPED])
    hold_until = np.where(given_back, now + law.give_back_hold_s, before["hold_until"])
    out["hold_until"] = np.where(hold_until > now, hold_until, 0)
    # Those that were given back count on: else only the helped would say how prefixes differ.
    out["trial_growth"] = np.where((after & ~enter) | (out["hold_until"] > 0), judged.trial_growth, np.nan)
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
    """With fewer low rounds than this in the window no prefix can be chosen: an excess over `enter_duty` that
    `min_rounds` low ones show, fewer cannot."""
    return law.min_rounds


def needed_excess(law: CongestionPolicy) -> float:
    """By how many rounds low ones must exceed `enter_duty` of the newest, or fall short of `leave_duty`: by as many as
    they do when `min_rounds` are low one after the other."""
    return (1.0 - law.enter_duty) * law.min_rounds


def _known(before: Table) -> Table:
    """Of those that are not remembered no growth is known either."""
    known = before.copy()
    known["trial_growth"][before["round"] == 0] = np.nan
    return known


def _observe(out: Table, seen: Table, has: Bits, law: CongestionPolicy) -> None:
    measured = history(seen["measured_0"], seen["measured_1"], law.window_rounds)
    low = history(seen["low_0"], seen["low_1"], law.window_rounds) & measured
    out["measured_rounds"] = measured.sum(axis=1)
    out["low_rounds"] = low.sum(axis=1)
    out["state_changes"] = state_changes(measured, low)
    out["low_excess"] = excess(low, measured, law.enter_duty)
    out["good_excess"] = excess(measured & ~low, measured, 1.0 - law.leave_duty)
    out["back_office"] = seen["back_office"]
    for name in ("rtt_us", "retransmit_ratio"):
        out[name] = np.where(has & (seen[name] >= 0), seen[name], np.nan)
    for name in ("rate", "recent_rate"):
        log2 = seen[name.replace("rate", "log2_rate")]
        out[name] = np.where(has & (log2 >= 0), np.exp2(np.maximum(log2, 0)), np.nan)


def _poor(out: Table, law: CongestionPolicy) -> Bits:
    poor: Bits = (out["measured_rounds"] >= law.min_rounds) & (out["low_excess"] >= needed_excess(law) - 1e-9)
    return poor


def _healthy(out: Table, law: CongestionPolicy) -> Bits:
    healthy: Bits = (out["rtt_us"] < law.low_rtt_us) & (out["retransmit_ratio"] < law.few_retransmits)
    return healthy


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
    enough = out["measured_rounds"] >= law.min_rounds
    better = (enough & (out["good_excess"] >= needed_excess(law) - 1e-9)) | _healthy(out, law)
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
        (~_poor(out, law), Reason.HELD_HYSTERESIS, False),
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
    order = candidates[np.lexsort((candidates, out["rate"][candidates], -out["low_excess"][candidates]))]
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

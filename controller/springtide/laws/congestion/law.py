"""BBR or the kernel's default per PoP and client prefix: a round of the step that springtide-core makes.

What decides is in core/src/step/congestion. Here rows become columns for it, growth is judged beside the held-out
prefixes', and what is decided becomes rows.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide import _core
from springtide.frame import Frame
from springtide.laws.columns import Bits, Table, coded, taken_at
from springtide.laws.congestion.judge import judge
from springtide.laws.step import Rows, as_json, forms, step
from springtide.laws.units import UNIT_KEY, placed
from springtide.override import Path
from springtide.policy import Policy

# By number.
ACTIONS = _core.actions("congestion")
REASONS = [name for name, _ in _core.reasons("congestion")]
# Reasons of prefixes that get no row, unless something else is remembered of them: most are never chosen.
_USUAL = [REASONS.index(name) for name in ("thin_evidence", "below_duty_cycle")]

# Columns that a step reads and leaves, and those that it decides: core/src/step/congestion/rows.rs. Instants in seconds
# since the epoch, 0 is none; rates in bytes per second, growth in powers of two, NaN is unknown.
_SEEN, _STATE = np.dtype(forms("congestion", "seen")), forms("congestion", "state")
# Columns that sql/congestion/evidence.sql gives for each prefix; `high` and `low` are the halves of its first address,
# IPv4 mapped, by which some are held out. -1 is unknown.
EVIDENCE = np.dtype(
    [
        *UNIT_KEY,
        *((name, "<u8") for name in ("high", "low")),
        ("back_office", "u1"),
        *((name, "<u8") for name in ("measured_0", "measured_1", "low_0", "low_1")),
        *((name, "<f8") for name in ("rtt_us", "retransmit_ratio", "log2_rate", "recent_log2_rate")),
    ]
)
# State that the decisions before this round left; `round` is theirs.
PREVIOUS = np.dtype([*UNIT_KEY, ("round", "<u4"), *_STATE])
# The rows of path_decisions without what a round has in common.
DECIDED = np.dtype(
    [
        *UNIT_KEY,
        *forms("congestion", "decided"),
        ("back_office", "u1"),
        *((name, "<f8") for name in ("rtt_us", "retransmit_ratio", "rate", "recent_rate")),
        ("benefit", "<f8"),
        ("expected_benefit", "<f8"),
        *_STATE,
    ]
)
_GIVEN = ("back_office", "rtt_us", "retransmit_ratio", "rate", "recent_rate")
_OVERRIDE = np.dtype([*UNIT_KEY, *forms("congestion", "override")])
_LOG2 = {"rate": "log2_rate", "recent_rate": "recent_log2_rate"}


def decide(
    now: int,
    policy: Policy,
    evidence: Table | Frame,
    last: Table | Frame,
    frozen: Collection[str] = (),
    *,
    everyone: bool = False,
) -> Frame:
    """The round's DECIDED rows, sorted by PoP and prefix, of EVIDENCE and PREVIOUS rows in any order.

    `now` is the round. PoPs that are `frozen` have no trustworthy newest round. Rows are given for what is chosen, let
    go, poor, waiting or overridden; with `everyone`, for all of the evidence.
    """
    seen, left, words = Frame.of(evidence), Frame.of(last), _overrides(policy, now)
    prefixes, (at_seen, at_left, at_word) = placed(seen, left, words)
    pop = coded(prefixes.columns["src_pop"])
    shown = _shown(seen, at_seen)
    known = taken_at(left, ["held_out", "baseline_rate", "selected_since", "trial_growth"], at_left)
    known["trial_growth"][at_left < 0] = np.nan
    rounds = (now - known["selected_since"].astype(np.int64)) // policy.round.interval_s
    age = np.where(known["selected_since"] > 0, rounds, -1)
    judged = judge(pop.numbers, shown["recent_rate"], known, age, policy.congestion)
    shown |= {"trial_growth": judged.trial_growth, "not_helped": judged.not_helped}

    given = {name: shown[name] for name in _GIVEN}
    given |= {"benefit": judged.benefit, "expected_benefit": judged.expected_benefit}
    law = as_json(policy, ("congestion", "congestion_damping"), pops=[name.decode() for name in pop.texts])
    tables = Rows(Frame(_SEEN, shown), np.arange(len(pop))), Rows(left, at_left), Rows(words, at_word)
    groups = (pop.numbers + 1).astype(np.uint32)
    decided = step("congestion", now, law, prefixes, tables, DECIDED, given, frozen, groups)
    return decided if everyone else decided[_worth_writing(decided)]


def _shown(seen: Frame, at: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
    """Evidence of each prefix; NaN is unknown."""
    shown = taken_at(seen, (EVIDENCE.names or ())[len(UNIT_KEY) :], at)
    for name in ("rtt_us", "retransmit_ratio", *_LOG2.values()):
        shown[name] = np.where((at >= 0) & (shown[name] >= 0), shown[name], np.nan)
    return shown | {name: np.exp2(shown[log2]) for name, log2 in _LOG2.items()}


def _worth_writing(decided: Frame) -> Bits:
    """Find the rows that say more than that a prefix is not poor."""
    is_usual = (decided["action"] == ACTIONS.index("none")) & np.isin(decided["reason"], _USUAL)
    found: Bits = ~is_usual | (decided["penalty"] > 0) | (decided["hold_until"] > 0)
    return found


def _overrides(policy: Policy, now: int) -> Frame:
    """The prefixes that an override in force names. Where two name one prefix, the first in the file counts."""
    found: dict[Path, bool] = {}
    for one in policy.congestion_overrides:
        if now < one.until_unix_s:
            path = one.pop.encode(), one.prefix.encode(), 6 if ":" in one.prefix else 4
            found.setdefault(path, one.algorithm == "bbr")
    return Frame.of(np.array([(*path, bbr) for path, bbr in found.items()], _OVERRIDE))

"""The law of BBR or not in PoPs that have few chosen prefixes, and compare them with the fleet's held-out ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from springtide.frame import Frame
from springtide.laws.columns import Table
from springtide.laws.congestion.law import EVIDENCE, PREVIOUS, decide
from springtide.laws.congestion.rows import PREFIXES
from springtide.policy import CongestionPolicy, Policy

ROUND = 1_767_322_800
STEP = 300
NOBODY = np.zeros(0, PREVIOUS)
ALL = 2**64 - 1


def prefix(number: int, pop: str) -> Table:
    """Evidence of one that was low in each of the newest 64 rounds."""
    row = np.zeros(1, EVIDENCE)
    row["src_pop"], row["destination"], row["ip_version"] = pop.encode(), f"0.0.{number:04}.0/24".encode(), 4
    row["low"] = number << 8
    row["measured_0"] = row["low_0"] = ALL
    row["rtt_us"], row["retransmit_ratio"] = 60_000.0, 0.02
    row["log2_rate"] = row["recent_log2_rate"] = np.log2(1e6)
    return row


def small_pops(factor: float, chosen: int, seed: int, invented: int = 0, rounds: int = 2) -> tuple[Frame, Any]:
    """A decision once all are judged, of ten PoPs that have so many chosen prefixes each and share the fleet's held-out
    ones; and which are of `ams`. Edges of one more PoP invent held-out ones that grew tenfold."""
    bare = {"window_rounds": 20, "min_rounds": 4, "benefit_rounds": 2, "min_stay_s": 600}
    most = {"holdout_share": 0.3, "max_new": 5000, "max_selected": 5000, "min_held_out": 20}
    law = Policy(congestion=CongestionPolicy.model_validate({**bare, **most}))
    names = ["ams", *(f"p{n}" for n in range(9))]
    seen = np.concatenate([prefix(n, pop) for pop in names for n in range(chosen)])
    if invented:
        seen = np.concatenate([seen, *(prefix(n, "zzz") for n in range(invented))])
    first = decide(ROUND, law, seen, NOBODY)
    held, ams = first["held_out"] == 1, first["src_pop"] == b"ams"
    later = seen.copy()
    grown = np.exp2(np.random.default_rng(seed).normal(0.0, 0.5, len(seen))) * np.where(held, 1.0, factor)
    grown[(first["src_pop"] == b"zzz") & held] = 10.0
    later["recent_log2_rate"] += np.log2(grown)
    decided = first
    for number in range(rounds):
        decided = decide(ROUND + (number + 1) * STEP, law, later, PREFIXES.carry(decided, ROUND + number * STEP))
    return decided, ams & ~held


@pytest.mark.parametrize("chosen", [12, 20])
@pytest.mark.parametrize(("factor", "least", "most"), [(1.3, 0, 0), (1.0, 0, 2), (0.3, 18, 20)])
def test_a_pop_with_few_chosen_is_given_back_too(chosen: int, factor: float, least: int, most: int) -> None:
    """About eight of twelve chosen are treated: fewer than the interval by resampling asks for."""
    gone = 0
    for seed in range(20):
        decided, treated = small_pops(factor, chosen, seed)
        assert 6 < treated.sum() < 20
        gone += bool((decided["algorithm"][treated] == 0).all())
    assert least <= gone <= most


@pytest.mark.parametrize("chosen", [20, 40])
def test_what_one_pops_edges_invent_gives_back_no_other_pops(chosen: int) -> None:
    """They are most of the fleet's held-out prefixes, with which PoPs compare theirs that have few of their own."""
    decided, treated = small_pops(2.0, chosen, 1, invented=2000, rounds=4)
    assert (decided["algorithm"][treated] == 1).all()

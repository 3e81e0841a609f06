"""Conclusions of the gate from counts: more losses than chance explains, and no more than that."""

from __future__ import annotations

from dataclasses import replace
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from springtide.gate.judge import (
    Inputs,
    Kind,
    Tally,
    Verdict,
    Windows,
    chance_of_look,
    decide,
)
from springtide.gate.proportions import Share, deviate, pooled, rise, wilson
from springtide.policy import GatePolicy

FRESH: dict[str, float | None] = {"ams-1": 5.0}


def tally(count: int = 100, **more: int) -> Tally:
    base = Tally(count, count, count * 2 // 100, 0, 0, count, 0, count, 0, count, count // 10)
    return replace(base, **more)


def one(before: Tally, after: Tally) -> Windows:
    return {"before": before, "after": after}


CLEAN = one(tally(), tally())
LOSSY = one(tally(), tally(young_lost=31))


def inputs(
    changed: dict[str, Windows],
    unchanged: dict[str, Windows],
    kind: Kind = Kind.WINDOWS,
    silence: dict[str, float | None] = FRESH,
) -> Inputs:
    return Inputs({(kind, True): changed, (kind, False): unchanged}, silence)


@pytest.mark.parametrize(
    ("changed", "unchanged", "kind", "silence", "verdict", "reason"),
    [
        (
            CLEAN,
            CLEAN,
            Kind.WINDOWS,
            FRESH,
            Verdict.GO,
            "2 of 100 new connections lost of their first flight, 2 of",
        ),
        (CLEAN, None, Kind.WINDOWS, FRESH, Verdict.GO, "no unchanged edges to compare with"),
        (
            one(tally(), tally(young_lost=31)),
            one(tally(500), tally(400)),
            Kind.WINDOWS,
            FRESH,
            Verdict.ROLL_BACK,
            "31 of 100 new connections lost of their first flight, 2 of 100 before; unchanged edges 8 of 400 and 10 of",
        ),
        (LOSSY, None, Kind.WINDOWS, FRESH, Verdict.ROLL_BACK, "31 of 100 new connections lost"),
        # It came over everyone.
        (LOSSY, LOSSY, Kind.WINDOWS, FRESH, Verdict.GO, "no worse"),
        # Too few to compare with excuse nothing.
        (LOSSY, one(tally(99), tally(99, young_lost=99)), Kind.WINDOWS, FRESH, Verdict.ROLL_BACK, "31 of 100"),
        # All destinations together: of few to those whose window differs nothing would be known.
        (LOSSY, CLEAN, Kind.KEPT, FRESH, Verdict.ROLL_BACK, "31 of 100 new connections lost"),
        (
            one(tally(), tally(timed_out=30)),
            CLEAN,
            Kind.WINDOWS,
            FRESH,
            Verdict.ROLL_BACK,
            "30 of 100 new connections had a r",
        ),
        (
            one(tally(), tally(failed=30)),
            CLEAN,
            Kind.WINDOWS,
            FRESH,
            Verdict.ROLL_BACK,
            "30 of 100 new connections got",
        ),
        (
            one(tally(), tally(slow=90)),
            CLEAN,
            Kind.WINDOWS,
            FRESH,
            Verdict.ROLL_BACK,
            "connections had an RTT",
        ),
        (
            one(tally(0, grown=100, grown_lossy=20), tally(0, grown=100, grown_lossy=80)),
            CLEAN,
            Kind.WINDOWS,
            FRESH,
            Verdict.ROLL_BACK,
            "80 of 100 new connections sent much again, 20 of 100 before",
        ),
        # Only clients beyond the bytes from which on they are treated; separately.
        (LOSSY, CLEAN, Kind.CLIENTS, FRESH, Verdict.GO, "no worse"),
        (
            one(tally(grown=100), tally(grown=100, grown_lossy=70)),
            CLEAN,
            Kind.CLIENTS,
            FRESH,
            Verdict.ROLL_BACK,
            "70 of 100 new connections of clients sent much again",
        ),
        (one(tally(), tally(99)), CLEAN, Kind.WINDOWS, FRESH, Verdict.WAIT, "99 of 100 new connections"),
        (CLEAN, CLEAN, Kind.WINDOWS, {"ams-1": None}, Verdict.WAIT, "from ams-1"),
        (CLEAN, CLEAN, Kind.WINDOWS, {"ams-1": 61.0}, Verdict.WAIT, "within 60 s from ams-1"),
        # Harm that is seen does not wait for a collector.
        (LOSSY, CLEAN, Kind.WINDOWS, {"ams-1": None}, Verdict.ROLL_BACK, "31 of 100"),
        # Before there was nothing: then the wave accounts for all of it.
        (
            {"after": tally(young_lost=31)},
            None,
            Kind.WINDOWS,
            FRESH,
            Verdict.ROLL_BACK,
            "31 of 100 new connections lost",
        ),
    ],
)
def test_the_verdict(
    changed: Windows,
    unchanged: Windows | None,
    kind: Kind,
    silence: dict[str, float | None],
    verdict: Verdict,
    reason: str,
) -> None:
    others = {} if unchanged is None else {"ams-2": unchanged}
    answer = decide(inputs({"ams-1": changed}, others, kind, silence), GatePolicy())
    assert answer.verdict == verdict, answer.reason
    assert reason in answer.reason


def test_kernels_that_count_no_timeouts_are_judged_by_the_rest() -> None:
    old = one(tally(timed=0, tried=0), tally(timed=0, tried=0))
    assert decide(inputs({"a": old}, {"b": old}), GatePolicy()).verdict is Verdict.GO
    harmed = one(old["before"], replace(old["after"], young_lost=31))
    assert decide(inputs({"a": harmed}, {"b": old}), GatePolicy()).verdict is Verdict.ROLL_BACK


def test_an_edge_that_lies_hides_no_harm_of_the_others() -> None:
    harmed = {f"e{number}": one(tally(40), tally(40, young_lost=14)) for number in range(4)}
    clean = one(tally(40), tally(10_000_000, young_lost=0))
    truthful = {f"u{number}": one(tally(40), tally(40)) for number in range(20)}
    for changed, unchanged in (
        ({**harmed, "liar": clean}, truthful),
        # A share that rose as far on an unchanged edge, were it true, would be no fault of the wave.
        (harmed, {**truthful, "liar": one(tally(40), tally(10_000_000, young_lost=10_000_000))}),
        (harmed, {**truthful, "liar": one(tally(10_000_000, young_lost=0), tally(40, young_lost=40))}),
    ):
        answer = decide(inputs(changed, unchanged), GatePolicy())
        assert answer.verdict is Verdict.ROLL_BACK, answer.reason
    # Its word alone is not enough to go on.
    alone = {"liar": clean, **{f"e{number}": one(tally(40), tally(1)) for number in range(4)}}
    answer = decide(inputs(alone, truthful), GatePolicy())
    assert (answer.verdict, answer.judged) == (Verdict.WAIT, False)
    assert "no edge counts for much more than the others" in answer.reason


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=3, max_size=9), st.integers(51, 10**9))
def test_no_claim_moves_the_sum_by_more_than_its_weight(truthful: list[tuple[int, int]], claimed: int) -> None:
    shares = [Share(min(hits, of), of) for hits, of in truthful]
    least = pooled([*shares, Share(0, claimed)], 2.0, 0.0)
    most = pooled([*shares, Share(claimed, claimed)], 2.0, 0.0)
    middle = sorted([*(share.of for share in shares), claimed])[len(shares) // 2]
    assert most.of == least.of
    assert most.hits - least.hits <= 2 * middle + 1e-6
    # Scaled down, an edge keeps its share: equal shares give the same share.
    assert pooled([Share(of / 4, of) for _, of in truthful], 2.0, 0.0).value() == pytest.approx(0.25)


def exact(n: int, p: float) -> list[float]:
    return [comb(n, hits) * p**hits * (1 - p) ** (n - hits) for hits in range(n + 1)]


@pytest.mark.parametrize(("n", "p"), [(20, 0.02), (20, 0.1), (100, 0.02), (100, 0.1), (100, 0.5)])
def test_a_test_errs_no_more_often_than_its_level(n: int, p: float) -> None:
    """By all counts that there can be, without a rise: binomials' chances against the one that it is made for."""
    chance = chance_of_look(1, 1, GatePolicy()) / 4
    weights = exact(n, p)
    wrong = sum(
        weights[before] * weights[after]
        for before in range(n + 1)
        for after in range(before + 1, n + 1)
        if weights[before] * weights[after] > 1e-12
        and rise(Share(before, n), Share(after, n), chance).low > GatePolicy().max_lost_rise
    )
    assert wrong <= chance


def test_intervals_are_those_of_their_sources() -> None:
    """Newcombe 1998, table II, method 10: 56 of 70 and 48 of 80, to 95 %."""
    z = deviate(0.025)
    found = wilson(Share(56, 70), z).minus(wilson(Share(48, 80), z))
    assert (round(found.low, 4), round(found.high, 4)) == (0.0524, 0.3339)
    assert wilson(Share(), z).low == 0.0


def test_the_error_budget_holds_for_any_number_of_waves_and_looks() -> None:
    policy = GatePolicy()
    spent = sum(chance_of_look(wave, look, policy) for wave in range(1, 40) for look in range(1, 40))
    assert spent <= policy.max_false_roll_backs


def rollout(chance: np.random.Generator, harm: float) -> int:
    """The wave at which 3,000 edges in five regions are rolled back; 0: never. Each has 20 new connections a look."""
    changed = 0
    for wave, size in enumerate((5, 15, 45, 135, 405, 1215, 1180), start=1):
        changed += size

        def tally(edges: int, lost: float) -> Tally:
            n = 20 * edges
            young_lost, timed_out, failed = (int(chance.binomial(n, p)) for p in (lost, 0.01, 0.01))
            return Tally(n, n, young_lost, 0, 0, n, timed_out, n, failed)

        groups = {
            (Kind.WINDOWS, True): {"c": one(tally(changed, 0.02), tally(changed, 0.02 + harm))},
            (Kind.WINDOWS, False): {"u": one(tally(3000 - changed, 0.02), tally(3000 - changed, 0.02))},
        }
        for look in (1, 2):
            if decide(Inputs(groups, FRESH, wave, look), GatePolicy()).verdict is Verdict.ROLL_BACK:
                return wave
    return 0


def test_a_rollout_to_3000_edges_is_taken_back_for_harm_and_not_by_chance() -> None:
    assert [rollout(np.random.default_rng(seed), 0.0) for seed in range(100)].count(0) == 100
    assert [rollout(np.random.default_rng(seed), 0.28) for seed in range(40)].count(1) >= 38


def spread_wave(chance: np.random.Generator, edges: tuple[int, int], count: int, harm: float, skewed: bool) -> bool:
    """Whether a wave to these edges, (changed, unchanged), is rolled back; every edge and window has shares of its
    own, 2 % around what is usual."""

    def share(usual: float) -> float:
        if skewed:
            return min(1.0, float(chance.gamma((usual / 0.02) ** 2, 0.02**2 / usual)))
        return min(1.0, max(0.0, chance.normal(usual, 0.02)))

    def drawn(more: float) -> Tally:
        lost, timed_out, failed, slow = (
            int(chance.binomial(count, min(1.0, p))) for p in (share(0.02) + more, share(0.01), share(0.01), share(0.1))
        )
        return Tally(count, count, lost, 0, 0, count, timed_out, count, failed, count, slow)

    groups = {
        (Kind.WINDOWS, changed): {f"e{n}": one(drawn(0), drawn(harm if changed else 0)) for n in range(number)}
        for changed, number in zip((True, False), edges, strict=True)
    }
    return decide(Inputs(groups, FRESH), GatePolicy()).verdict is Verdict.ROLL_BACK


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize(
    ("edges", "count", "seen"),
    [
        ((2, 10), 1000, 0.9),
        pytest.param((5, 50), 1000, 0.98, marks=pytest.mark.proof),
        pytest.param((1, 50), 2000, 0.5, marks=pytest.mark.proof),
        ((10, 0), 1000, 0.98),
    ],
)
def test_a_spread_of_edges_and_minutes_is_no_harm(
    edges: tuple[int, int], count: int, seen: float, skewed: bool
) -> None:
    """At most one of a hundred unchanged waves is taken back; 28 points more that lose are seen, of one changed edge in
    half of the waves, whose own spread could be as much."""
    chance = np.random.default_rng(7)
    assert sum(spread_wave(chance, edges, count, 0.0, skewed) for _ in range(400)) <= 4
    assert sum(spread_wave(chance, edges, count, 0.28, skewed) for _ in range(100)) >= 100 * seen


@pytest.mark.parametrize(
    ("changed", "unchanged"),
    [([(10, 310), (200, 500)], [(10, 10), (200, 200)]), ([(20, 400)], [(600, 20)])],
)
def test_what_edges_differ_in_for_good_and_one_that_recovers_excuse_no_harm(
    changed: list[tuple[int, int]], unchanged: list[tuple[int, int]]
) -> None:
    """Cases are the numbers of 1,000 connections that lost, before and after, edge by edge."""

    def group(shares: list[tuple[int, int]]) -> dict[str, Windows]:
        return {
            f"e{n}": one(tally(1000, young_lost=before), tally(1000, young_lost=after))
            for n, (before, after) in enumerate(shares)
        }

    tallies = {(Kind.WINDOWS, True): group(changed), (Kind.WINDOWS, False): group(unchanged)}
    assert decide(Inputs(tallies, FRESH), GatePolicy()).verdict is Verdict.ROLL_BACK

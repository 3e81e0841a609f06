"""The benefit of what is switched on and off: the interval against all draws of signs, and against a shared bottleneck
of which the truth is known."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from springtide.laws.effect import BenefitLine, Effect
from springtide.laws.initcwnd import switched
from springtide.laws.paired import contrasts, middle
from springtide.laws.start import shares
from springtide.laws.switchback import counts, turn
from springtide.policy import Policy

INTERVAL = 300
# A day that begins a block of four hours.
DAY = 20_000 * 86_400
SHARED = Policy.model_validate({"experiment": {"kind": "share"}})
RUNS = 200
DAY_ROUNDS = 86_400 // INTERVAL
PAIRS = list(permutations(("ams", "fra", "lhr", "nyc", "sin", "syd"), 2))


def refused(differences: list[float], effect: float) -> bool:
    """Whether the signed-rank test refuses this effect at 5 %: over all draws of signs, one by one."""
    rest = np.array(differences) - effect
    ranks = np.argsort(np.argsort(np.abs(rest))) + 1
    found = ranks[rest > 0].sum()
    draws = np.array(
        [
            sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)
            for signs in product((0, 1), repeat=len(ranks))
        ]
    )
    return bool(min((draws <= found).mean(), (draws >= found).mean()) <= 0.025)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(8, 10))
def test_the_interval_is_what_the_randomisation_does_not_refuse(seed: int, count: int) -> None:
    differences = (np.random.default_rng(seed).normal(0.3, 1, count)).tolist()
    found = middle(differences, log2=False)
    assert found.low is not None
    assert found.high is not None
    for inside in (found.low + 1e-9, (found.low + found.high) / 2, found.high - 1e-9):
        assert not refused(differences, inside)
    for outside in (found.low - 1e-9, found.high + 1e-9):
        assert refused(differences, outside)


@pytest.mark.parametrize("count", [8, 20, 49, 50, 120])
def test_nineteen_of_twenty_intervals_cover_the_truth(count: int) -> None:
    """Differences have long tails; by the exact distribution and by the normal one."""
    draw = np.random.default_rng(count)
    found = [middle(draw.standard_t(3, count) + 0.5, log2=False) for _ in range(1000)]
    covered = sum(one.low is not None and one.high is not None and one.low <= 0.5 <= one.high for one in found)
    # Three standard deviations of 1,000 are 21; few differences cover a little more.
    assert 929 <= covered <= 985


def test_thousands_of_blocks_are_answered_and_too_few_are_not() -> None:
    many = middle(np.random.default_rng(1).normal(-0.2, 1, 9001), log2=True)
    assert many.effect == pytest.approx(2**-0.2 - 1, abs=0.02)
    assert middle([1.0] * 7, log2=True) == Effect(7, 7)
    assert middle([1.0, float("nan")] * 7, log2=True) == Effect(7, 7)


def test_a_cell_with_one_side_only_says_nothing() -> None:
    cells = [(1, "a", True, 5.0, 1.0), (1, "a", False, 3.0, 1.0), (1, "b", True, 99.0, 9.0), (2, "a", True, 1.0, 1.0)]
    assert list(contrasts(cells).values()) == [2.0]
    # By what both sides weigh: 2 * 2 / (2 + 2) against 1 * 1 / (1 + 1).
    heavier = [(1, "c", True, 1.0, 2.0), (1, "c", False, 2.0, 2.0)]
    assert list(contrasts([*cells, *heavier]).values()) == [pytest.approx((2.0 * 0.5 - 1.0 * 1.0) / 1.5)]


def seconds(treated_share: float, treated: bool) -> float:
    """The time of 100 kB where ten connections share a bottleneck of 4 Mbit/s over 50 ms. A treated one takes three
    times the part of an untreated one, and waits for two round trips less."""
    taken = 3.0 if treated else 1.0
    all_taken = 10 * (3.0 * treated_share + 1.0 - treated_share)
    return (2 if treated else 4) * 0.05 + 100_000 * all_taken / taken / 500_000


# The effect of treating all against treating none, with nobody beside them.
TRUTH = seconds(1.0, True) / seconds(0.0, False) - 1


def day(policy: Policy, seed: int) -> list[dict[str, Any]]:
    """Rows as switched.read_switchback gives them: a tide over the hours of the day, chance in every round and pair.
    Connections of the two rounds before live on."""
    law, draw = policy.experiment, np.random.default_rng(seed)
    together = 0.1 * draw.normal(size=DAY_ROUNDS)
    tides = 0.5 * np.sin(2 * np.pi * np.arange(DAY, DAY + 86_400, INTERVAL) / 86_400) + together
    all_on, all_off = np.log2(seconds(1.0, True)), np.log2(seconds(0.0, False))
    counted = [
        np.array([place for place in range(12) if counts(law, INTERVAL, DAY + hour * 3600 + place * INTERVAL)])
        for hour in range(24)
    ]
    rows = []
    for pair in PAIRS:
        level = draw.normal()
        hours = [turn(law, INTERVAL, *pair, DAY + hour * 3600).on for hour in range(-1, 24)]
        for hour, places in enumerate(counted):
            # The share of this round and the two before that was on.
            on = np.mean([np.where(places >= back, hours[hour + 1], hours[hour]) for back in (1, 2, 3)], axis=0)
            log2 = on * all_on + (1 - on) * all_off + level + tides[12 * hour + places]
            log2_sum = 10 * (log2 + 0.2 * draw.normal(size=len(places))).sum()
            again = (0.01 + 0.005 * on + 0.002 * draw.random(len(places))).mean()
            rows.append(
                {
                    "period_s": DAY + hour * 3600,
                    "src_pop": pair[0],
                    "dst_pop": pair[1],
                    "ip_version": 4,
                    "size_class_bytes": 100_000,
                }
                | {
                    "timed": 10 * len(places),
                    "log2_busy_sum": log2_sum,
                    "bytes_sent": 1e6,
                    "bytes_retransmitted": again * 1e6,
                }
            )
    return rows


def of(lines: list[BenefitLine], by: str, outcome: str) -> Effect:
    [found] = [line.effect for line in lines if (line.by, line.outcome) == (by, outcome)]
    return found


@pytest.mark.proof
def test_switching_finds_the_truth_that_a_plain_comparison_misses() -> None:
    """Truth: treated connections take from untreated ones what nobody gains where all are treated."""
    plain = seconds(0.5, True) / seconds(0.5, False) - 1
    assert pytest.approx(-0.045, abs=0.01) == TRUTH
    assert plain < -0.5
    found = []
    for seed in range(RUNS):
        policy = Policy.model_validate({"experiment": {"kind": "switchback", "seed": str(seed)}})
        found.append(switched.of_switchback(day(policy, seed), policy))
    effects = [of(lines, "all", "busy time") for lines in found]
    covered = sum(one.low is not None and one.high is not None and one.low <= TRUTH <= one.high for one in effects)
    # 190 of 200 runs are expected; three standard deviations are 9.
    assert 181 <= covered <= 199
    assert np.mean([one.effect for one in effects if one.effect is not None]) == pytest.approx(TRUTH, abs=0.005)
    assert all(one.high is not None and one.high > plain / 2 for one in effects)
    again = [of(lines, "all", "bytes sent again") for lines in found]
    assert sum(one.low is not None and one.high is not None and one.low <= 0.005 <= one.high for one in again) >= 181


def shared_day(seed: int, *, bottleneck: bool) -> list[dict[str, Any]]:
    """Rows as shares.FLIGHTS gives them: the bottleneck above, or a path that nobody shares."""
    draw = np.random.default_rng(seed)
    rows = []
    for moment in range(DAY, DAY + 86_400, INTERVAL):
        for destination in ("fra", "nyc", "203.0.113.0/24"):
            share = turn(SHARED.experiment, INTERVAL, "ams", destination, moment - INTERVAL).share
            tide = 0.3 * draw.normal()
            for treated in (True, False):
                log2 = np.log2(seconds(share if bottleneck else 0.0 if not treated else 1.0, treated))
                count = int(200 * (share if treated else 1 - share))
                rows.append(
                    {"round_s": moment, "started_s": moment - INTERVAL, "pop": "ams", "destination": destination}
                    | {"ip_version": 4, "treated": treated, "timed": count, "segments": 80 * count, "resent": count}
                    | {"log2_time_sum": count * (log2 + tide + 0.3 * draw.normal() / np.sqrt(count))}
                )
    return rows


def test_an_effect_that_changes_with_the_share_is_shown_as_interference() -> None:
    biased = shares.lines(shared_day(1, bottleneck=True), SHARED)
    at = {line.group: line.effect for line in biased if line.outcome == "time of 100 kB"}
    assert list(at) == ["10% treated", "50% treated", "90% treated"]
    for share, effect in zip((0.1, 0.5, 0.9), at.values(), strict=True):
        plain = seconds(share, True) / seconds(share, False) - 1
        assert effect.effect == pytest.approx(plain, abs=0.01)
        assert effect.shown
        assert (effect.high or 0.0) < TRUTH, "within one share it is biased"
    assert of(biased, "share", "time of 100 kB, interference").shown
    clean = [shares.lines(shared_day(seed, bottleneck=False), SHARED) for seed in range(40)]
    shown = sum(of(lines, "share", "time of 100 kB, interference").shown for lines in clean)
    assert shown <= 7, "one in twenty by chance"
    for line in clean[0]:
        if line.outcome == "time of 100 kB":
            assert line.effect.effect == pytest.approx(TRUTH, abs=0.01)


def test_what_all_pairs_meet_in_a_test_is_one_observation() -> None:
    """All of them are off at once: what happens in an hour happens to all, and no hash has chosen it."""
    draw, covered = np.random.default_rng(1), 0
    for _ in range(RUNS):
        rows: list[dict[str, Any]] = []
        for test in range(8):
            in_test = draw.normal(0, 0.2)
            for src, dst in PAIRS:
                for is_off in (False, True):
                    cell = {"src_pop": src, "dst_pop": dst, "ip_version": 4, "size_class_bytes": 10_000}
                    log2 = 17 + draw.normal(0, 0.05) + in_test * is_off
                    sums = {"timed": 100, "log2_busy_sum": 100 * log2, "bytes_sent": 0, "bytes_retransmitted": 0}
                    rows.append({"test_s": test, "is_off": is_off, **cell, **sums})
        effect = switched.of_tests(rows)[0].effect
        assert effect.treated == 8
        assert effect.low is not None
        assert effect.high is not None
        covered += effect.low <= 0 <= effect.high
    assert covered >= 0.92 * RUNS
    assert switched.of_tests([row for row in rows if row["test_s"] < 7])[0].effect.low is None

"""The benefit: what is known to be there is found, what is not is not claimed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from springtide.laws.effect import Effect, difference

RUNS = 100


def prefixes(effect: float, seed: int) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.intp]]:
    """Growth of rates of the worst fifth of 4,000 prefixes at eight PoPs, chosen by a noisy look at them.

    Choosing the worst guarantees regression to the mean: without any effect they grow. Each PoP has a tide
    of its own, each prefix a path that wanders; a tenth of the chosen is held out.
    """
    draw = np.random.default_rng(seed)
    pop = draw.integers(0, 8, 4000)
    level = draw.normal(20, 2, 4000)
    before = level + draw.normal(0, 1, 4000)
    chosen = before < np.quantile(before, 0.2)
    treated = draw.random(4000) >= 0.1
    tide = draw.normal(0, 0.5, 8)[pop]
    # A few paths change altogether.
    wander = draw.normal(0, 0.3, 4000) + (draw.random(4000) < 0.05) * draw.normal(0, 3, 4000)
    after = level + tide + wander + np.log2(1 + effect) * treated
    return (after - before)[chosen], treated[chosen], pop[chosen]


def edges(effect: float, seed: int) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.intp]]:
    """Busy times of 34 PoPs with eight edges, one of them held out; an edge is some 10 % slower or faster."""
    draw = np.random.default_rng(seed)
    pop = np.repeat(np.arange(34), 8)
    treated = np.tile(np.arange(8) > 0, 34)
    slow = np.log2(1 / (1 + effect))
    values = draw.normal(0, 1.5, 34)[pop] + draw.normal(0, 0.15, len(pop)) + slow * treated
    return values, treated, pop


def effects(make: object, effect: float) -> list[Effect]:
    assert callable(make)
    return [difference(*make(effect, seed)) for seed in range(RUNS)]


@pytest.mark.parametrize("effect", [0.0, 0.05, 0.30])
def test_the_interval_covers_the_true_growth_of_rates(effect: float) -> None:
    found = effects(prefixes, effect)
    covered = sum(one.low is not None and one.high is not None and one.low <= effect <= one.high for one in found)
    assert covered >= 93
    if effect == 0.0:
        assert sum(not one.shown for one in found) >= 93
    if effect == 0.30:
        assert sum(one.shown for one in found) > RUNS / 3


@pytest.mark.parametrize("effect", [0.0, 0.05, 0.30])
def test_the_interval_covers_the_true_change_of_times(effect: float) -> None:
    true = 1 / (1 + effect) - 1
    found = effects(edges, effect)
    covered = sum(one.low is not None and one.high is not None and one.low <= true <= one.high for one in found)
    assert covered >= 93
    if effect == 0.0:
        assert sum(not one.shown for one in found) >= 93
    if effect == 0.30:
        assert sum(one.shown for one in found) >= 93


def test_before_against_after_alone_would_claim_what_is_not_there() -> None:
    """Choosing the worst makes them better by itself."""
    naive, against = [], []
    for seed in range(20):
        growth, treated, pop = prefixes(0.0, seed)
        naive.append(2 ** np.median(growth[treated]) - 1)
        against.append(difference(growth, treated, pop).effect)
    assert np.mean(naive) > 0.2
    assert abs(np.mean([one for one in against if one is not None])) < 0.1


def test_too_few_on_a_side_give_no_answer() -> None:
    values = np.zeros(100)
    treated = np.arange(100) >= 19
    assert difference(values, treated) == Effect(81, 19)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_order_changes_nothing_and_values_that_are_not_numbers_are_left_out(seed: int) -> None:
    values, treated, pop = prefixes(0.1, 2)
    order = np.random.default_rng(seed).permutation(len(values))
    expected = difference(values, treated, pop)
    again = difference(
        np.r_[values[order], np.nan, np.inf], np.r_[treated[order], True, False], np.r_[pop[order], 0, 0]
    )
    assert again == expected

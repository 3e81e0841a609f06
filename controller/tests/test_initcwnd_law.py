"""The law by itself: what must hold whatever is observed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from springtide.decide.initcwnd import Action, Decision, Previous, Reason, decide
from springtide.observe.rounds import Pair, PairObservation
from springtide.policy import InitcwndPolicy, Policy

ROUND = 1_767_322_800
STEP = 300


def observation(
    mean: float | None = 40.0, earned: int = 5, seen: int | None = None, dst: str = "fra"
) -> PairObservation:
    bound = None if mean is None else int(mean)
    return PairObservation("ams", dst, 4, earned if seen is None else seen, earned, mean, bound, bound, 0.01)


def policy(**keys: float) -> Policy:
    return Policy(initcwnd=InitcwndPolicy.model_validate(keys))


def run(rounds: list[list[PairObservation]], law: Policy) -> list[list[Decision]]:
    """Rounds one after the other, each remembering what the one before it set."""
    last: dict[Pair, Previous] = {}
    history = []
    for index, observations in enumerate(rounds):
        decisions = decide(ROUND + STEP * index, law, observations, last)
        last = {
            d.pair: Previous(d.smoothed_cwnd, d.last_evidence)
            for d in decisions
            if d.action is Action.SET and d.smoothed_cwnd is not None and d.last_evidence is not None
        }
        history.append(decisions)
    return history


def test_first_evidence_is_taken_as_it_is() -> None:
    [[decision]] = run([[observation(41.5)]], policy())
    assert (decision.initcwnd, decision.reason, decision.previous_cwnd) == (42, Reason.LEARNT, None)
    assert decision.expires_at == ROUND + 1800


@pytest.mark.parametrize(("weight", "expected"), [(0.0, 80), (0.25, 70), (0.5, 60), (0.9, 44)])
def test_history_weight_is_the_weight_of_history(weight: float, expected: int) -> None:
    _, [decision] = run([[observation(40.0)], [observation(80.0)]], policy(history_weight=weight))
    assert decision.initcwnd == expected


def test_a_bound_is_named_and_bounds_the_history_too() -> None:
    [[high], [low]] = run([[observation(500.0)], [observation(2.0)]], policy(history_weight=0.0))
    assert (high.initcwnd, high.reason, high.smoothed_cwnd) == (100, Reason.CLAMPED_TO_CMAX, 100.0)
    assert (low.initcwnd, low.reason, low.smoothed_cwnd) == (10, Reason.CLAMPED_TO_CMIN, 10.0)


def test_a_huge_window_of_old_does_not_hold_a_collapsed_path_at_cmax() -> None:
    rounds = [[observation(1500.0)], *[[observation(10.0)]] * 4]
    values = [decision.initcwnd for [decision] in run(rounds, policy(history_weight=0.5))]
    assert values == [100, 55, 33, 21, 16]


def test_without_evidence_a_value_is_held_then_withdrawn_then_forgotten() -> None:
    rounds = [
        [observation(40.0)],
        [observation(90.0, earned=2)],
        [observation(None, earned=0)],
        [],
        [],
        [],
        [],
        [],
    ]
    history = run(rounds, policy(ttl_s=1500))
    assert [[(d.action, d.reason, d.initcwnd) for d in decisions] for decisions in history] == [
        [(Action.SET, Reason.LEARNT, 40)],
        [(Action.SET, Reason.HELD_THIN_EVIDENCE, 40)],
        [(Action.SET, Reason.HELD_NO_EVIDENCE, 40)],
        [(Action.SET, Reason.HELD_NO_EVIDENCE, 40)],
        [(Action.SET, Reason.HELD_NO_EVIDENCE, 40)],
        [(Action.WITHDRAW, Reason.EXPIRED, None)],
        [],
        [],
    ]
    assert {d.expires_at for decisions in history for d in decisions} == {ROUND + 1500}


def test_a_pair_that_was_never_learnt_says_why() -> None:
    [[thin, none]] = run([[observation(50.0, earned=2), observation(None, 0, dst="nyc")]], policy())
    assert (thin.action, thin.reason) == (Action.NONE, Reason.THIN_EVIDENCE)
    assert (none.action, none.reason) == (Action.NONE, Reason.NO_EVIDENCE)


def test_dead_history_is_no_history() -> None:
    last = {("ams", "fra", 4): Previous(90.0, ROUND - 1800)}
    [decision] = decide(ROUND, policy(), [observation(40.0)], last)
    assert (decision.initcwnd, decision.previous_cwnd) == (40, None)


means = st.floats(0.5, 5000)
observations_of_a_round = st.lists(
    st.builds(observation, mean=means, earned=st.integers(0, 6), dst=st.sampled_from(["fra", "nyc", "lax"])),
    max_size=3,
    unique_by=lambda o: o.dst_pop,
)
laws = st.builds(
    lambda weight, bounds, need, ttl: policy(
        history_weight=weight, cmin=min(bounds), cmax=max(bounds), min_connections=need, ttl_s=ttl
    ),
    st.floats(0, 0.99),
    st.tuples(st.integers(1, 1000), st.integers(1, 1000)),
    st.integers(1, 5),
    st.integers(900, 3000),
)


@given(st.lists(observations_of_a_round, max_size=12), laws)
def test_bounds_hold_and_values_never_outlive_their_evidence(rounds: list[list[PairObservation]], law: Policy) -> None:
    evidence: dict[Pair, int] = {}
    for index, (seen, decisions) in enumerate(zip(rounds, run(rounds, law), strict=True)):
        now = ROUND + STEP * index
        evidence |= {o.pair: now for o in seen if o.connections_earned >= law.initcwnd.min_connections}
        for decision in decisions:
            if decision.action is Action.SET:
                assert decision.initcwnd is not None
                assert law.initcwnd.cmin <= decision.initcwnd <= law.initcwnd.cmax
                assert now < evidence[decision.pair] + law.initcwnd.ttl_s
            else:
                assert decision.initcwnd is None
                assert now >= evidence.get(decision.pair, 0) + law.initcwnd.ttl_s
        assert {d.pair for d in decisions} >= {o.pair for o in seen}


@given(means, means, st.floats(0, 0.95))
def test_constant_input_converges_and_then_never_changes(start: float, constant: float, weight: float) -> None:
    rounds = [[observation(start)]] + [[observation(constant)]] * 400
    values = [decisions[0].smoothed_cwnd for decisions in run(rounds, policy(history_weight=weight))]
    goal = min(max(constant, 10.0), 100.0)
    distances = [abs(value - goal) for value in values if value is not None]
    assert all(after <= before + 1e-9 * goal for before, after in pairwise(distances))
    assert distances[-1] <= 1e-6 * max(start, goal)


@given(observations_of_a_round)
def test_the_order_of_observations_is_no_matter(seen: list[PairObservation]) -> None:
    assert decide(ROUND, policy(), seen, {}) == decide(ROUND, policy(), list(reversed(seen)), {})


@given(st.lists(st.tuples(means, means), min_size=1, max_size=10), laws)
def test_a_smaller_observation_never_gives_a_larger_window(pairs: list[tuple[float, float]], law: Policy) -> None:
    low = run([[observation(min(pair))] for pair in pairs], law)
    high = run([[observation(max(pair))] for pair in pairs], law)
    for [below], [above] in zip(low, high, strict=True):
        assert (below.initcwnd or 0) <= (above.initcwnd or 0)

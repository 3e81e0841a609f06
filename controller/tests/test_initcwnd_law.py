"""The law of the initial window: what each rule does, and what holds for every input."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from springtide import instants
from springtide.laws.initcwnd.decision import Action, Pair
from springtide.policy import DampingPolicy, InitcwndPolicy, Policy

from testkit.damping import most_changes
from testkit.home import ROUND
from testkit.law import (
    PAIR,
    STEP,
    any_observation,
    histories,
    laws,
    means,
    observation,
    observations_of_a_round,
    override,
    policy,
    reasons,
    run,
    values,
)
from testkit.pairs import PairObservation, Previous, Reason, carry, model
from testkit.pairs import decide_pairs as decide

# Observe, smooth, bound


def test_first_evidence_is_taken_as_it_is() -> None:
    [[decision]] = run([[observation(41.5)]], policy())
    assert (decision.initcwnd, decision.reason, decision.previous_cwnd) == (42, Reason.LEARNT, None)
    assert decision.expires_at == ROUND + 3600


@pytest.mark.parametrize(("combiner", "expected"), [("mean", 40), ("max", 90), ("p25", 30), ("traffic", 60)])
def test_each_combiner_takes_its_own_window(combiner: str, expected: int) -> None:
    seen = observation(40.0, max_cwnd=90, cwnd_p25=30.0, traffic_cwnd=60.0)
    assert values([seen], policy(combiner=combiner)) == [expected]


@pytest.mark.parametrize(("weight", "expected"), [(0.0, 80), (0.25, 70), (0.5, 60), (0.9, 44)])
def test_history_weight_is_the_weight_of_history(weight: float, expected: int) -> None:
    assert values([observation(40.0), observation(80.0)], policy(history_weight=weight)) == [40, expected]


def test_rises_and_falls_have_weights_of_their_own_and_a_collapse_is_followed_at_once() -> None:
    law = policy(history_weight=0.5, falling_history_weight=0.25, collapse=0.5)
    rounds = [observation(cwnd) for cwnd in (20.0, 80.0, 80.0, 45.0, 25.0)]
    assert values(rounds, law) == [20, 50, 65, 50, 25]


def test_a_bound_is_named_and_bounds_the_history_too() -> None:
    [[high], [low]] = run([[observation(500.0)], [observation(2.0)]], policy())
    assert (high.initcwnd, high.reason, high.smoothed_cwnd) == (100, Reason.CLAMPED_TO_CMAX, 100.0)
    assert (low.initcwnd, low.reason, low.smoothed_cwnd) == (10, Reason.CLAMPED_TO_CMIN, 10.0)


def test_a_huge_window_of_old_does_not_hold_a_collapsed_path_at_cmax() -> None:
    rounds = [observation(1500.0), *[observation(10.0)] * 4]
    assert values(rounds, policy(falling_history_weight=0.5, collapse=0.0)) == [100, 55, 33, 21, 16]


def test_without_evidence_a_value_is_held_then_withdrawn_then_forgotten() -> None:
    rounds = [[observation(40.0)], [observation(90.0, earned=2)], [observation(None, earned=0)], [], [], [], [], []]
    assert [[(d.action, d.reason, d.initcwnd) for d in decisions] for decisions in run(rounds, policy(ttl_s=1500))] == [
        [(Action.SET, Reason.LEARNT, 40)],
        [(Action.SET, Reason.HELD_THIN_EVIDENCE, 40)],
        [(Action.SET, Reason.HELD_NO_EVIDENCE, 40)],
        [(Action.SET, Reason.HELD_NO_EVIDENCE, 40)],
        [(Action.SET, Reason.HELD_NO_EVIDENCE, 40)],
        [(Action.WITHDRAW, Reason.EXPIRED, None)],
        [],
        [],
    ]


def test_a_pair_that_was_never_learnt_has_a_reason() -> None:
    [[thin, none]] = run([[observation(50.0, earned=2), observation(None, 0, dst="nyc")]], policy())
    assert (thin.action, thin.reason) == (Action.NONE, Reason.THIN_EVIDENCE)
    assert (none.action, none.reason) == (Action.NONE, Reason.NO_EVIDENCE)


def test_expired_history_does_not_count() -> None:
    [decision] = decide(ROUND, policy(history_weight=0.9), [observation(40.0)], {PAIR: Previous(90.0, ROUND - 3600)})
    assert (decision.initcwnd, decision.previous_cwnd) == (40, None)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -5.0, 0.0])
def test_impossible_windows_are_not_evidence(broken: float) -> None:
    seen = PairObservation("ams", "fra", 4, 9, 9, mean_cwnd=broken)
    [decision] = decide(ROUND, policy(), [seen], {PAIR: Previous(40.0, ROUND - STEP, 40)})
    assert (decision.initcwnd, decision.reason) == (40, Reason.HELD_THIN_EVIDENCE)


# Limits


def test_the_careful_profile_takes_half() -> None:
    rounds = [observation(80.0), observation(500.0), observation(12.0)]
    assert values(rounds, policy(careful=True)) == [40, 50, 10]
    assert reasons(rounds, policy(careful=True)) == [Reason.CAREFUL] * 3


def test_the_receivers_window_caps_and_cmin_stays() -> None:
    seen = [observation(80.0, receiver_cwnd=window) for window in (45.0, 90.0, 4.0)]
    assert values(seen, policy()) == [45, 80, 10]
    assert reasons(seen, policy()) == [Reason.RECEIVER_LIMITED, Reason.LEARNT, Reason.RECEIVER_LIMITED]
    assert values(seen, policy(receiver_cap=False)) == [80, 80, 80]


# Publishing calmly


def test_a_pair_is_given_a_window_only_when_it_was_measured_often_enough() -> None:
    seen, unseen = observation(40.0), observation(None, 0)
    law = policy(duty_rounds=3, duty_window_rounds=4, ttl_s=86_400)
    rounds = [seen, unseen, unseen, seen, seen, unseen, seen, unseen, unseen, unseen]
    assert values(rounds, law) == [None, None, None, None, None, None, 40, 40, 40, 40]
    assert reasons(rounds, law)[:6] == [Reason.BELOW_DUTY_CYCLE] * 6


def test_a_change_too_small_is_not_published() -> None:
    rounds = [observation(cwnd) for cwnd in (50.0, 54.0, 46.0, 45.0, 49.0, 51.0)]
    assert values(rounds, policy(hysteresis=0.1)) == [50, 50, 50, 45, 45, 51]
    assert reasons(rounds, policy(hysteresis=0.1))[1:3] == [Reason.HELD_HYSTERESIS] * 2


def test_a_pair_that_keeps_changing_may_fall_but_not_rise_until_it_calmed_down() -> None:
    rounds = [observation(50.0 if n % 2 else 90.0) for n in range(14)] + [observation(30.0)] + [observation(90.0)] * 14
    found = run([[one] for one in rounds], policy())
    published = [d.initcwnd for [d] in found]
    # Without damping the first 14 rounds change the value 13 times.
    assert sum(a != b for a, b in pairwise(published[:14])) <= 6
    assert published[14] == 30
    assert Reason.HELD_DAMPING in {d.reason for [d] in found}
    assert published[-1] == 90


def test_an_override_counts_until_its_end_and_what_was_learnt_stays() -> None:
    law = Policy(initcwnd=policy().initcwnd, overrides=[override(ip_version=4)])
    assert values([observation(80.0)] * 3, law) == [20, 20, 80]
    law = Policy(initcwnd=policy().initcwnd, overrides=[override(ip_version=4, initcwnd=None)])
    assert [d.action for [d] in run([[observation(80.0)]] * 3, law)] == [Action.NONE, Action.NONE, Action.SET]


def test_an_override_needs_no_evidence_and_leaves_nothing_behind() -> None:
    law = Policy(overrides=[override(ip_version=4)])
    history = run([[], [], [], []], law)
    assert [[(d.pair, d.action, d.initcwnd) for d in decisions] for decisions in history] == [
        [(PAIR, Action.SET, 20)],
        [(PAIR, Action.SET, 20)],
        [(PAIR, Action.WITHDRAW, None)],
        [],
    ]


# Damping by itself: core/src/step/damping.rs tests the penalty


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"suppress_above": 5.0}, "nothing would ever be held back"),
        ({"max_suppress_s": 1800}, "nothing would ever be held back"),
        ({"reuse_below": 2.5}, "is not below suppress_above"),
    ],
)
def test_limits_that_can_never_fire_are_named(keys: dict[str, float], why: str) -> None:
    assert why in (DampingPolicy.model_validate(keys).contradiction(STEP) or "")
    assert DampingPolicy().contradiction(STEP) is None


@given(histories, laws)
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
        assert {d.pair for d in decisions} >= {o.pair for o in seen}


@pytest.mark.proof
@given(st.lists(st.tuples(any_observation, any_observation), min_size=1, max_size=20), laws)
@settings(deadline=None, max_examples=10)
def test_constant_input_converges_and_then_never_changes(
    pairs: list[tuple[PairObservation, PairObservation]], law: Policy
) -> None:
    first = [observation(start.mean_cwnd, dst=f"p{at}") for at, (start, _) in enumerate(pairs)]
    constant = [
        observation(one.mean_cwnd, dst=f"p{at}", receiver_cwnd=one.receiver_cwnd) for at, (_, one) in enumerate(pairs)
    ]
    for published in zip(
        *[[one.initcwnd for one in decisions] for decisions in run([first] + [constant] * 500, law)], strict=True
    ):
        assert len(set(published[-20:])) == 1
        # Monotone on the way there: no overshoot, no ringing.
        known = [value for value in published[1:] if value is not None]
        assert known in (sorted(known), sorted(known, reverse=True))


@given(
    st.lists(st.tuples(observations_of_a_round, st.booleans()), max_size=8),
    laws,
    st.sampled_from(["mean", "max", "traffic", "p10", "p90"]),
    st.lists(st.tuples(st.sampled_from(["fra", "nyc"]), st.none() | st.integers(1, 1000)), max_size=3),
    st.randoms(use_true_random=False),
)
@settings(deadline=None)
def test_columns_decide_as_a_plain_implementation_of_the_law(
    rounds: list[tuple[list[PairObservation], bool]],
    law: Policy,
    combiner: str,
    overridden: list[tuple[str, int | None]],
    chance: random.Random,
) -> None:
    ends = [instants.show(ROUND + STEP * chance.randint(0, 8)) for _ in overridden]
    law = law.model_copy(
        update={
            "initcwnd": law.initcwnd.model_copy(update={"combiner": combiner}),
            "overrides": [
                override(dst=dst, initcwnd=value, until=until)
                for (dst, value), until in zip(overridden, ends, strict=True)
            ],
        }
    )
    last: dict[Pair, Previous] = {}
    for index, (seen, is_frozen) in enumerate(rounds):
        now = ROUND + STEP * index
        seen = [PairObservation(**{**vars(one), "traffic_cwnd": 33.3, "cwnd_p10": 7.5}) for one in seen]
        frozen = ["ams"] if is_frozen else []
        expected = model(now, law, seen, last, frozen)
        chance.shuffle(seen)
        shuffled = dict(chance.sample(sorted(last.items()), len(last)))
        # The same override twice counts once.
        assert decide(now, law, seen + seen[:1], shuffled, frozen) == expected
        following = [(one.pair, carry(one, chance.randint(0, 3))) for one in expected]
        last = {pair: left for pair, left in following if left is not None}


@given(histories, laws)
def test_the_order_of_observations_does_not_matter(rounds: list[list[PairObservation]], law: Policy) -> None:
    assert run(rounds, law) == run([list(reversed(seen)) for seen in rounds], law)


@given(histories, observations_of_a_round, laws)
def test_what_comes_later_changes_nothing_before(
    rounds: list[list[PairObservation]], later: list[PairObservation], law: Policy
) -> None:
    assert run([*rounds, later], law)[:-1] == run(rounds, law)


@given(histories, means, means, laws)
def test_a_smaller_observation_never_gives_a_larger_window(
    before: list[list[PairObservation]], one: float, other: float, law: Policy
) -> None:
    low, high = (
        next(d.initcwnd for d in run([*before, [observation(mean)]], law)[-1] if d.dst_pop == "fra")
        for mean in sorted((one, other))
    )
    assert (low or 0) <= (high or 0)


@given(
    st.lists(st.sampled_from([20.0, 50.0, 90.0]), min_size=2, max_size=60),
    st.builds(
        DampingPolicy,
        half_life_s=st.integers(600, 3600),
        suppress_above=st.floats(1.1, 2.5),
        reuse_below=st.floats(0.3, 1.0),
        max_suppress_s=st.integers(3600, 7200),
    ),
)
def test_changes_are_at_most_what_damping_allows(cwnds: list[float], calm: DampingPolicy) -> None:
    assume(calm.contradiction(STEP) is None)
    law = Policy(initcwnd=policy().initcwnd, damping=calm)
    published = values([observation(cwnd) for cwnd in cwnds], law)
    rises = sum(b > a for a, b in pairwise(published) if a is not None and b is not None)
    assert rises <= most_changes(calm, STEP * len(cwnds))


def test_alternating_input_changes_the_output_far_less_often() -> None:
    rounds = [observation(20.0 if n % 2 else 90.0) for n in range(288)]
    damped = values(rounds, policy())
    calm = sum(a != b for a, b in pairwise(damped))
    undamped = values(rounds, Policy(initcwnd=policy().initcwnd, damping=DampingPolicy(suppress_above=100)))
    assert sum(a != b for a, b in pairwise(undamped)) == 287
    assert calm < 287 / 3, calm


def test_an_idle_echo_does_not_hold_up_a_path_whose_capacity_fell() -> None:
    """Fifty idle connections show the window of 100 that they were given; three busy ones show what is left of
    the path. The plain average of all (Riptide III-B) takes the idle ones for evidence; ours is there at once."""
    before = observation(100.0, earned=53)
    idle, busy = 50, 3
    after = observation(15.0, earned=busy, connections_seen=idle + busy)
    assert values([before, before, after, after], Policy(initcwnd=InitcwndPolicy(duty_rounds=1)))[2:] == [15, 15]
    plain = 100.0
    for _ in range(2):
        # Their next connections start with the average itself: the echo.
        plain = 0.5 * plain + 0.5 * (idle * plain + busy * 15.0) / (idle + busy)
    assert plain > 90.0

"""The law of the initial window: what each rule does, and what holds for every input."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from samplekit.pairs import (
    PairObservation,
    Previous,
    Remembered,
    carry,
    model,
    observed_table,
    previous_table,
)
from samplekit.pairs import decide_pairs as decide
from springtide import instants
from springtide.decide import damping, loss_guard
from springtide.decide.decision import Action, Decision, Pair, Reason
from springtide.decide.initcwnd import DECIDED, only_guard
from springtide.decide.initcwnd import decide as decide_columns
from springtide.policy import DampingPolicy, InitcwndPolicy, Override, Policy

ROUND = 1_767_322_800
STEP = 300
PAIR = ("ams", "fra", 4)


def observation(mean: float | None = 40.0, earned: int = 5, dst: str = "fra", **more: Any) -> PairObservation:
    bound = None if mean is None else int(mean)
    values: dict[str, Any] = {
        "connections_seen": earned,
        "connections_earned": earned,
        "mean_cwnd": mean,
        "min_cwnd": bound,
        "max_cwnd": bound,
        "retransmit_ratio": 0.01,
        **more,
    }
    return PairObservation("ams", dst, 4, **values)


def lossy(mean: float | None = 40.0, share: float = 0.5, young: int = 100, **more: Any) -> PairObservation:
    return observation(mean, young_connections=young, young_lossy_connections=round(share * young), **more)


def clean(mean: float | None = 40.0, young: int = 100, **more: Any) -> PairObservation:
    return lossy(mean, 0.0, young, **more)


def policy(**keys: Any) -> Policy:
    """The bare law: what calms it is off unless asked for."""
    bare = {
        "duty_rounds": 1,
        "hysteresis": 0.0,
        "history_weight": 0.0,
        "falling_history_weight": 0.0,
        "min_connections": 3,
        "loss_step_rounds": 1,
    }
    return Policy(initcwnd=InitcwndPolicy.model_validate({**bare, **keys}))


def run(rounds: Iterable[Sequence[PairObservation]], law: Policy) -> list[list[Decision]]:
    """Rounds one after the other, each remembering what the ones before it left."""
    last: dict[Pair, Previous] = {}
    measured: dict[Pair, list[int]] = defaultdict(list)
    history = []
    for index, observations in enumerate(rounds):
        now = ROUND + STEP * index
        decisions = decide(now, law, observations, last)
        since = now + STEP - (law.initcwnd.duty_window_rounds - 1) * STEP
        last = {}
        for decision in decisions:
            if decision.last_evidence == now:
                measured[decision.pair].append(now)
            left = carry(decision, sum(moment >= since for moment in measured[decision.pair]))
            if left is not None:
                last[decision.pair] = left
        history.append(decisions)
    return history


def values(rounds: Iterable[PairObservation], law: Policy) -> list[int | None]:
    return [decision.initcwnd for [decision] in run([[one] for one in rounds], law)]


def reasons(rounds: Iterable[PairObservation], law: Policy) -> list[Reason]:
    return [decision.reason for [decision] in run([[one] for one in rounds], law)]


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


def test_a_pair_that_was_never_learnt_says_why() -> None:
    [[thin, none]] = run([[observation(50.0, earned=2), observation(None, 0, dst="nyc")]], policy())
    assert (thin.action, thin.reason) == (Action.NONE, Reason.THIN_EVIDENCE)
    assert (none.action, none.reason) == (Action.NONE, Reason.NO_EVIDENCE)


def test_dead_history_is_no_history() -> None:
    [decision] = decide(ROUND, policy(history_weight=0.9), [observation(40.0)], {PAIR: Previous(90.0, ROUND - 3600)})
    assert (decision.initcwnd, decision.previous_cwnd) == (40, None)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -5.0, 0.0])
def test_what_is_no_window_is_no_evidence(broken: float) -> None:
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


def test_harm_falls_at_once_and_comes_back_by_judged_steps_only() -> None:
    """20 -> 80 in one round once the hold had ended, it was."""
    rounds = [clean(80.0), lossy(80.0), *[clean(80.0)] * 20]
    assert values(rounds, policy()) == [80, 10, 12, 15, 18, 22, 27, 33, 41, 51, 63, 72, 76, 78, 79, *[80] * 7]
    told = reasons(rounds, policy())
    assert told[:3] == [Reason.LEARNT, Reason.LOSS_GUARD, Reason.LOSS_GUARD_STEP]
    # Without young connections nothing is judged, and no time raises anything.
    rounds = [clean(80.0), lossy(80.0), *[observation(80.0)] * 40]
    assert values(rounds, policy()) == [80] + [10] * 41
    assert reasons(rounds, policy())[2:] == [Reason.LOSS_GUARD_HOLD] * 40


def test_it_falls_to_the_last_window_that_was_clean() -> None:
    rounds = [observation(30.0), clean(30.0), observation(80.0), lossy(80.0), *[clean(80.0)] * 3]
    assert values(rounds, policy()) == [30, 30, 80, 30, 37, 40, 40]


def test_within_the_hold_steps_end_at_the_ceiling_and_a_hold_in_vain_doubles() -> None:
    law = policy(loss_hold_s=6 * STEP)
    start = [clean(40.0), clean(40.0), clean(60.0), lossy(60.0)]
    [*_, [held]] = run([[one] for one in [*start, *[clean(60.0)] * 5]], law)
    assert (held.initcwnd, held.reason, held.ceiling_initcwnd) == (40, Reason.LOSS_GUARD_HOLD, 40)
    [*_, [tried], [again]] = run([[one] for one in [*start, *[clean(60.0)] * 6, lossy(60.0)]], law)
    assert (tried.initcwnd, tried.reason, tried.guard_hold_s) == (50, Reason.LOSS_GUARD_STEP, 6 * STEP)
    assert (again.initcwnd, again.reason, again.guard_hold_s) == (40, Reason.LOSS_GUARD, 12 * STEP)


def test_a_window_is_judged_only_in_rounds_that_it_served_whole() -> None:
    rounds = [observation(20.0), lossy(20.0), *[clean(20.0)] * 4]
    assert values(rounds, policy(loss_step_rounds=2, loss_hold_s=0)) == [20, 10, 10, 12, 12, 15]


def test_few_connections_add_up_until_they_are_enough() -> None:
    rounds = [observation(20.0), lossy(20.0), *[clean(20.0, young=5)] * 9]
    assert values(rounds, policy(loss_hold_s=0)) == [20, 10, 10, 10, 10, 12, 12, 12, 12, 15, 15]
    # Of those that lost, three are enough where all did; one of many is nothing.
    assert values([observation(80.0), lossy(80.0, share=1.0, young=3)], policy()) == [80, 10]
    assert values([observation(80.0), lossy(80.0, share=1.0, young=2)], policy()) == [80, 80]
    # A quarter of twenty is not sure; of forty it is.
    assert values([observation(80.0), *[lossy(80.0, share=0.25, young=20)] * 2], policy()) == [80, 80, 10]


def test_random_loss_is_no_harm_and_what_the_default_loses_is_not_held_against_a_window() -> None:
    """0.06 % a segment on a path that carries 97: of connections of one flight 6 % lose something."""
    rounds = [observation(97.0), *[lossy(97.0, share=0.06, young=400)] * 5]
    assert values(rounds, policy()) == [97] * 6
    before = [lossy(60.0, share=0.04, young=1000)] * 2
    assert values([*before, lossy(60.0, share=0.12, young=1000)], policy(duty_rounds=2)) == [None, 60, 60]
    before = [clean(60.0, young=1000)] * 2
    assert values([*before, lossy(60.0, share=0.12, young=1000)], policy(duty_rounds=2)) == [None, 60, 10]


def test_loss_cuts_a_held_value_too_and_never_below_cmin() -> None:
    rounds = [observation(30.0), *[lossy(None, earned=0)] * 3]
    assert values(rounds, policy()) == [30, 10, 10, 10]


def test_a_lossy_pair_without_a_window_starts_at_cmin() -> None:
    assert values([lossy(80.0)], policy()) == [10]


def test_counts_that_nothing_reaches_do_not_wrap() -> None:
    """Two broken rows of all that 64 bits hold, one after the other."""
    most = 2**63
    judged = loss_guard.judge(
        300,
        np.array([(most, most)], [("young_connections", "<u8"), ("young_lossy_connections", "<u8")]),
        np.array(
            [(40, *([most] * len(loss_guard.GUARD)))], [("initcwnd", "<u4"), *((n, "<u8") for n, _ in loss_guard.GUARD)]
        ),
        np.array([False]),
        InitcwndPolicy(),
    )
    assert judged.harm.all()


def test_timeouts_without_loss_do_not_judge() -> None:
    assert values([clean(80.0), clean(80.0, young_timeout_connections=100)], policy()) == [80, 80]


def test_no_way_round_the_steps_leads_back_to_a_harmful_window() -> None:
    """Its time runs out; an override ends; decisions are missing for days: the ceiling is where it was."""
    harmed = [observation(80.0), lossy(80.0)]
    silence = [observation(None, 0)] * 6
    assert values([*harmed, *silence, *[observation(80.0)] * 2], policy(ttl_s=900))[-4:] == [None, None, 10, 10]
    spoken = override(initcwnd=80, ip_version=4, until=instants.show(ROUND + 4 * STEP))
    law = Policy(initcwnd=policy().initcwnd, overrides=[spoken])
    assert values([*harmed, *[observation(80.0)] * 3], law) == [80, 80, 80, 80, 10]
    [_, [left]] = run([[one] for one in harmed], policy())
    kept = carry(left, 1)
    assert kept is not None
    late = only_guard(previous_table({PAIR: kept}))
    [decided] = decide_columns(ROUND + 864_000, policy(), observed_table([observation(80.0)]), late).tolist()
    assert dict(zip(DECIDED.names or (), decided, strict=True))["initcwnd"] == 10


def test_decisions_from_before_have_no_ceiling() -> None:
    last = {PAIR: Previous(20.0, ROUND - STEP, 20, Remembered(until=ROUND + 900))}
    assert [one.initcwnd for one in decide(ROUND, policy(), [observation(80.0)], last)] == [80]


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


def override(**keys: Any) -> Override:
    plain = {"src": "ams", "dst": "fra", "initcwnd": 20, "until": "2026-01-02T03:10:00Z", "reason": "drain"}
    return Override.model_validate({**plain, **keys})


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


# Damping by itself


def test_the_penalty_halves_and_its_ceiling_bounds_how_long_it_holds() -> None:
    law = DampingPolicy()
    penalty = np.zeros(1)
    for _ in range(1000):
        penalty = damping.charge(penalty, np.array([True]), law)
    assert penalty > law.suppress_above
    after = damping.decay(
        np.repeat(penalty, 4), np.array([1800, law.max_suppress_s - 1, law.max_suppress_s + 1, -5]), law
    )
    assert after[0] == pytest.approx(penalty[0] / 2)
    assert after[1] > law.reuse_below > after[2]
    assert after[3] == penalty[0]


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


# What holds for every input

means = st.floats(0.5, 5000)
any_observation = st.builds(
    lambda mean, earned, dst, share, young, receiver: lossy(
        mean, share, young, earned=earned, dst=dst, receiver_cwnd=receiver
    ),
    means,
    st.integers(0, 6),
    st.sampled_from(["fra", "nyc", "lax"]),
    st.sampled_from([0.0, 0.0, 0.03, 0.1, 0.5]) | st.floats(0, 1),
    st.integers(0, 60),
    st.none() | st.floats(0, 500),
)
observations_of_a_round = st.lists(any_observation, max_size=3, unique_by=lambda o: o.dst_pop)
laws = st.builds(
    lambda keys, bounds: policy(**keys, cmin=min(bounds), cmax=max(bounds)),
    st.fixed_dictionaries(
        {
            "history_weight": st.floats(0, 0.99),
            "falling_history_weight": st.floats(0, 0.99),
            "collapse": st.floats(0, 1),
            "min_connections": st.integers(1, 5),
            "ttl_s": st.integers(900, 3000),
            "careful": st.booleans(),
            "hysteresis": st.floats(0, 0.5),
            "duty_rounds": st.integers(1, 3),
            "loss_hold_s": st.integers(0, 3000),
            "loss_step_rounds": st.integers(1, 2),
            "loss_min_connections": st.integers(1, 40),
            "loss_step": st.floats(1.05, 2),
        }
    ),
    st.tuples(st.integers(1, 1000), st.integers(1, 1000)),
)
histories = st.lists(observations_of_a_round, max_size=12)


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
def test_columns_decide_what_a_plain_reading_of_the_law_does(
    rounds: list[tuple[list[PairObservation], bool]],
    law: Policy,
    combiner: str,
    spoken: list[tuple[str, int | None]],
    chance: random.Random,
) -> None:
    ends = [instants.show(ROUND + STEP * chance.randint(0, 8)) for _ in spoken]
    law = law.model_copy(
        update={
            "initcwnd": law.initcwnd.model_copy(update={"combiner": combiner}),
            "overrides": [
                override(dst=dst, initcwnd=value, until=until) for (dst, value), until in zip(spoken, ends, strict=True)
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
        # Twice says nothing more than once.
        assert decide(now, law, seen + seen[:1], shuffled, frozen) == expected
        following = [(one.pair, carry(one, chance.randint(0, 3))) for one in expected]
        last = {pair: left for pair, left in following if left is not None}


@given(histories, laws)
def test_the_order_of_observations_is_no_matter(rounds: list[list[PairObservation]], law: Policy) -> None:
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


@given(histories, any_observation, st.floats(0, 1), laws)
def test_more_loss_never_raises_a_window(
    before: list[list[PairObservation]], seen: PairObservation, more: float, law: Policy
) -> None:
    one = replace(seen, dst_pop="fra")
    lost = max(one.young_lossy_connections, round(more * one.young_connections))
    worse = replace(one, young_lossy_connections=lost)
    windows = [next(d.initcwnd for d in run([*before, [last]], law)[-1] if d.dst_pop == "fra") for last in (one, worse)]
    assert (windows[1] or 0) <= (windows[0] or 0)


@given(
    st.lists(
        st.tuples(
            means,
            st.integers(0, 6),
            st.sampled_from([0, 10, 60, 500]),
            st.sampled_from([5, 12, 25, 41, 41, 90]),
            st.sampled_from([None, None, None, None, 30, 90]),
        ),
        min_size=4,
        max_size=40,
    ),
    laws,
)
@settings(deadline=None)
def test_above_a_harmful_window_leads_only_a_chain_of_clean_steps(
    rounds: list[tuple[float, int, int, int, int | None]], law: Policy
) -> None:
    """On a path that loses of every connection what exceeds its capacity. Once it has, no window is more than a step
    above one that the path has carried since or that lies below, whatever was unseen, overridden or withdrawn."""
    cmin, factor = law.initcwnd.cmin, law.initcwnd.loss_step
    last: dict[Pair, Previous] = {}
    carried: set[int] = set()
    served, harmed = 0, False
    for at, (mean, earned, young, capacity, spoken) in enumerate(rounds):
        now = ROUND + STEP * at
        words = [] if spoken is None else [override(initcwnd=spoken, ip_version=4, until=instants.show(now + 1))]
        lost = young if (served or 10) > capacity else 0
        seen = observation(mean, earned, young_connections=young, young_lossy_connections=lost)
        decided = decide(now, law.model_copy(update={"overrides": words}), [seen], last)
        [decision] = [one for one in decided if one.pair == PAIR]
        window = decision.initcwnd or 0
        if lost >= 60:
            harmed = True
            carried = {one for one in carried if one < served}
            assert spoken is not None or window < served or window <= cmin
        elif young and not lost:
            carried.add(served or 10)
        if harmed and spoken is None:
            assert window <= max(
                max(cmin, one) for one in (max(one + 1, int(one * factor)) for one in {cmin, *carried})
            )
        served = window
        left = carry(decision, 0)
        last = {} if left is None else {PAIR: left}


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
    assert rises <= damping.most_changes(calm, STEP * len(cwnds))


def test_alternating_input_changes_the_output_far_less_often() -> None:
    rounds = [observation(20.0 if n % 2 else 90.0) for n in range(288)]
    damped = values(rounds, policy())
    calm = sum(a != b for a, b in pairwise(damped))
    undamped = values(rounds, Policy(initcwnd=policy().initcwnd, damping=DampingPolicy(suppress_above=100)))
    assert sum(a != b for a, b in pairwise(undamped)) == 287
    assert calm < 287 / 3, calm


def test_an_idle_echo_does_not_hold_up_a_path_whose_capacity_fell() -> None:
    """Fifty idle connections still show the window of 100 that they were given; three busy ones show what is left of
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

"""The loss guard of the initial window: what harm takes, what steps back up need, what always holds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from springtide import instants
from springtide.laws.initcwnd.decision import Pair
from springtide.laws.initcwnd.law import DECIDED, only_guard
from springtide.laws.initcwnd.law import decide as decide_columns
from springtide.policy import Policy

from testkit.home import ROUND
from testkit.law import (
    PAIR,
    STEP,
    any_observation,
    clean,
    histories,
    laws,
    lossy,
    means,
    observation,
    override,
    policy,
    reasons,
    run,
    values,
)
from testkit.pairs import PairObservation, Previous, Reason, Remembered, carry, observed_table, previous_table
from testkit.pairs import decide_pairs as decide


def test_harm_falls_at_once_and_comes_back_by_judged_steps_only() -> None:
    """20 -> 80 in one round once the hold had ended, it was."""
    rounds = [clean(80.0), lossy(80.0), *[clean(80.0)] * 20]
    assert values(rounds, policy()) == [80, 10, 12, 15, 18, 22, 27, 33, 41, 51, 63, 72, 76, 78, 79, *[80] * 7]
    found = reasons(rounds, policy())
    assert found[:3] == [Reason.LEARNT, Reason.LOSS_GUARD, Reason.LOSS_GUARD_STEP]
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
    # Three that lost are enough where all did; one of many is nothing.
    assert values([observation(80.0), lossy(80.0, share=1.0, young=3)], policy()) == [80, 10]
    assert values([observation(80.0), lossy(80.0, share=1.0, young=2)], policy()) == [80, 80]
    # A quarter of twenty is not sure; of forty it is.
    assert values([observation(80.0), *[lossy(80.0, share=0.25, young=20)] * 2], policy()) == [80, 80, 10]


def test_random_loss_is_not_harm_and_a_window_is_not_blamed_for_the_defaults_loss() -> None:
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
    rounds = [[observation(80.0)], *[[lossy(80.0, share=1.0, young=2**63)]] * 2]
    [_, [once], [again]] = run(rounds, policy())
    assert (once.initcwnd, once.reason) == (again.initcwnd, again.reason) == (10, Reason.LOSS_GUARD)


def test_timeouts_without_loss_do_not_judge() -> None:
    assert values([clean(80.0), clean(80.0, young_timeout_connections=100)], policy()) == [80, 80]


def test_no_way_round_the_steps_leads_back_to_a_harmful_window() -> None:
    """Its time runs out; an override ends; decisions are missing for days: the ceiling is where it was."""
    harmed = [observation(80.0), lossy(80.0)]
    silence = [observation(None, 0)] * 6
    assert values([*harmed, *silence, *[observation(80.0)] * 2], policy(ttl_s=900))[-4:] == [None, None, 10, 10]
    overridden = override(initcwnd=80, ip_version=4, until=instants.show(ROUND + 4 * STEP))
    law = Policy(initcwnd=policy().initcwnd, overrides=[overridden])
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


# Properties that hold for every input


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
    for at, (mean, earned, young, capacity, overridden) in enumerate(rounds):
        now = ROUND + STEP * at
        words = (
            [] if overridden is None else [override(initcwnd=overridden, ip_version=4, until=instants.show(now + 1))]
        )
        lost = young if (served or 10) > capacity else 0
        seen = observation(mean, earned, young_connections=young, young_lossy_connections=lost)
        decided = decide(now, law.model_copy(update={"overrides": words}), [seen], last)
        [decision] = [one for one in decided if one.pair == PAIR]
        window = decision.initcwnd or 0
        if lost >= 60:
            harmed = True
            carried = {one for one in carried if one < served}
            assert overridden is not None or window < served or window <= cmin
        elif young and not lost:
            carried.add(served or 10)
        if harmed and overridden is None:
            assert window <= max(
                max(cmin, one) for one in (max(one + 1, int(one * factor)) for one in {cmin, *carried})
            )
        served = window
        left = carry(decision, 0)
        last = {} if left is None else {PAIR: left}

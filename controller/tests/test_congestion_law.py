"""The law of BBR or not: what each rule does, and what holds for every input.

Long: one law, whose tests share its evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from springtide.frame import Frame
from springtide.laws.columns import Table
from springtide.laws.congestion.judge import ALONE
from springtide.laws.congestion.law import ACTIONS, DECIDED, EVIDENCE, PREVIOUS, REASONS, decide
from springtide.laws.congestion.rows import PREFIXES
from springtide.laws.units import keys
from springtide.policy import CongestionDampingPolicy, CongestionPolicy, Policy

from testkit.damping import most_changes

ROUND = 1_767_322_800
STEP = 300
NOBODY = np.zeros(0, PREVIOUS)
ALL = 2**64 - 1


def prefix(
    low: int | Sequence[int] = ALL,
    measured: int = ALL,
    number: int = 0,
    pop: str = "ams",
    rate: float = 1e6,
    **more: Any,
) -> Table:
    """One row of evidence; masks of the newest 64 rounds, or flags with the newest first."""
    mask = low if isinstance(low, int) else sum(flag << age for age, flag in enumerate(low))
    row = np.zeros(1, EVIDENCE)
    values = {
        "src_pop": pop.encode(),
        "destination": f"0.0.{number:04}.0/24".encode(),
        "low": number << 8,
        "ip_version": 4,
        "measured_0": measured,
        "low_0": mask & measured,
        "rtt_us": 60_000.0,
        "retransmit_ratio": 0.02,
        "log2_rate": np.log2(rate),
        "recent_log2_rate": np.log2(more.pop("recent", rate)),
        **more,
    }
    for name, value in values.items():
        row[name] = value
    return row


def policy(**keys: Any) -> Policy:
    bare = {"window_rounds": 20, "min_rounds": 4, "benefit_rounds": 2, "min_stay_s": 600, "holdout_share": 0.0}
    return Policy(congestion=CongestionPolicy.model_validate({**bare, **keys}))


def rows(decided: Frame) -> list[tuple[str, str, str]]:
    return [
        (ACTIONS[row["action"]].upper(), ("default", "bbr")[row["algorithm"]], REASONS[row["reason"]])
        for row in decided
    ]


def run(rounds: Iterable[Table], law: Policy, **more: Any) -> list[Frame]:
    last, decisions = Frame.of(NOBODY), list[Frame]()
    for index, evidence in enumerate(rounds):
        decisions.append(decide(ROUND + index * STEP, law, evidence, last, **more))
        last = PREFIXES.carry(decisions[-1], ROUND + index * STEP)
    return decisions


def one(rounds: Iterable[Table], law: Policy, **more: Any) -> list[tuple[str, str, str]]:
    return [row for decided in run(rounds, law, **more) for row in rows(decided)]


CHOSEN = ("ENTER", "bbr", "consistently_low")


def test_the_consistently_low_are_chosen() -> None:
    """min_rounds low ones show it, one after the other; where every third is not low it takes twice as many. What was
    before counts for nothing."""
    for low, chosen in (
        ([1] * 4, True),
        ([1] * 3, False),
        ([1] * 4 + [0] * 16, True),
        ([1] * 3 + [0] * 17, False),
        ([1, 1, 0] * 3, True),
        ([1, 1, 0] * 2, False),
        ([1, 0] * 10, False),
    ):
        measured = (1 << len(low)) - 1
        law = policy(enter_duty=0.5, max_flap_rate=1.0)
        assert one([prefix(low, measured)], law)[:1] == ([CHOSEN] if chosen else []), low


def test_a_round_without_evidence_is_neither_low_nor_not() -> None:
    assert one([prefix(measured=0b1111)], policy()) == [CHOSEN]
    assert one([prefix(measured=0b0111)], policy()) == []


def test_by_the_strictest_policy_nothing_but_low_rounds_show_it() -> None:
    """A duty of 1.0 leaves no excess: to ask for none would choose whatever was measured."""
    with pytest.raises(ValueError, match=r"less than or equal to 0\.95"):
        policy(enter_duty=1.0)
    assert one([prefix([0, 0, 0, 1] * 5)], policy(enter_duty=0.95, max_flap_rate=1.0)) == []


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"back_office": 1}, "back_office"),
        ({"rtt_us": 5000.0, "retransmit_ratio": 0.001}, "healthy_path"),
        ({"low": [1, 0, 1, 1, 0] * 4}, "flapping"),
    ],
)
def test_what_is_not_for_bbr_is_not_chosen(more: dict[str, Any], reason: str) -> None:
    assert one([prefix(**more)], policy()) == [("NONE", "default", reason)]


def test_an_unknown_round_trip_time_is_not_a_low_one() -> None:
    assert one([prefix(rtt_us=-1.0, retransmit_ratio=0.0)], policy()) == [CHOSEN]


def test_between_the_thresholds_and_within_the_stay_nothing_changes() -> None:
    """As much evidence lets go as chose: of rounds that are all good, (1 - enter_duty) x min_rounds / leave_duty."""
    half, good = prefix(low=[1, 1, 0, 0] * 5), prefix(low=0)
    for rounds, reason in ((9, "held_hysteresis"), (10, "recovered")):
        late = prefix(low=[0] * rounds + [1] * (20 - rounds))
        law = policy(enter_duty=0.5, leave_duty=0.2)
        assert one([prefix(), half, late], law)[2][2] == reason
    assert one([prefix(), good, good, good], policy()) == [
        CHOSEN,
        ("KEEP", "bbr", "held_min_stay"),
        ("LEAVE", "default", "recovered"),
        ("NONE", "default", "below_duty_cycle"),
    ]
    assert one([prefix(), half, half, half], policy())[1:] == [("KEEP", "bbr", "held_hysteresis")] * 3


def test_a_value_that_is_not_a_number_breaks_nothing() -> None:
    nan = float("nan")
    broken = prefix(rtt_us=nan, retransmit_ratio=nan, log2_rate=nan, recent_log2_rate=nan)
    assert one([broken, broken, broken], policy(holdout_share=0.0))[0] == CHOSEN
    assert np.isnan(run([broken] * 3, policy())[-1]["benefit"]).all()


def test_thin_rounds_keep_and_silence_lets_go() -> None:
    nothing = np.zeros(0, EVIDENCE)
    assert one([prefix(), prefix(low=0, measured=0b11), nothing], policy()) == [
        CHOSEN,
        ("KEEP", "bbr", "held_thin_evidence"),
        ("LEAVE", "default", "no_evidence"),
    ]


def test_back_office_traffic_leaves_at_once() -> None:
    assert one([prefix(), prefix(back_office=1)], policy())[1] == ("LEAVE", "default", "back_office")


def test_a_frozen_pop_keeps_its_last_decisions() -> None:
    law = policy()
    first = decide(ROUND, law, prefix(), NOBODY)
    now = ROUND + 10 * STEP
    evidence = np.concatenate([prefix(low=0), prefix(number=2)])
    held = decide(now, law, evidence, PREFIXES.carry(first, ROUND), frozen={"ams"})
    assert rows(held) == [("KEEP", "bbr", "held_incomplete_input"), ("NONE", "default", "held_incomplete_input")]
    assert rows(decide(now, law, evidence, PREFIXES.carry(first, ROUND), frozen={"fra"}))[1] == CHOSEN


def test_the_worst_enter_first_so_many_a_round_and_so_many_in_all() -> None:
    seen = np.concatenate([prefix(number=n, rate=1e6 + 1000 * n) for n in range(8)])
    law = policy(max_new=3, max_selected=5)
    by_round = [
        {int(row["destination"].split(b".")[2]) for row in decided if row["algorithm"]}
        for decided in run([seen] * 4, law)
    ]
    assert by_round == [{0, 1, 2}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}]
    assert {reason for _, _, reason in rows(run([seen], law)[0])} == {"consistently_low", "capped"}
    other = np.concatenate([seen, np.concatenate([prefix(number=n, pop="fra") for n in range(8)])])
    assert sum(run([other], law)[0]["algorithm"]) == 6


def held_out_share(decided: Frame) -> float:
    return float(decided["held_out"].sum() / len(decided))


def test_a_hashed_share_of_the_chosen_stays_held_out() -> None:
    seen = np.concatenate([prefix(number=n) for n in range(2000)])
    law = policy(holdout_share=0.1, max_new=5000, max_selected=5000)
    first, second = run([seen, seen], law)
    assert held_out_share(first) == pytest.approx(0.1, abs=0.03)
    assert (first["algorithm"] == 1 - first["held_out"]).all()
    assert (second["held_out"] == first["held_out"]).all()


def judged(growth_treated: Any, growth_held: Any, count: int = 200, rounds: int = 4, **more: Any) -> list[Frame]:
    """Chosen in the first round; from the third on judged by these factors."""
    law = policy(holdout_share=0.3, max_new=5000, max_selected=5000, min_held_out=20, **more)
    seen = np.concatenate([prefix(number=n) for n in range(count)])
    first = decide(ROUND, law, seen, NOBODY)
    held = first["held_out"] == 1
    later = seen.copy()
    later["recent_log2_rate"] += np.log2(np.where(held, growth_held, growth_treated))
    decisions = [first]
    for index in range(1, rounds):
        last = PREFIXES.carry(decisions[-1], ROUND + (index - 1) * STEP)
        decisions.append(decide(ROUND + index * STEP, law, later, last))
    return decisions


def test_what_grew_no_more_than_the_held_out_is_given_back_and_waits() -> None:
    """Both doubled: regression to the mean, and not BBR."""
    first, second, third, fourth = judged(2.0, 2.0)
    treated = first["held_out"] == 0
    assert (second["algorithm"] == treated).all()
    assert set(rows(third[treated])) == {("LEAVE", "default", "not_helped")}
    assert set(rows(third[~treated])) == {("KEEP", "default", "consistently_low")}
    assert third["benefit"] == pytest.approx(0.0, abs=1e-12)
    assert set(rows(fourth[treated])) == {("NONE", "default", "given_back")}
    assert (third["hold_until"][treated] == ROUND + 2 * STEP + 3 * 86_400).all()


def test_what_grew_more_stays() -> None:
    *_, last = judged(2.0, 1.5)
    assert set(rows(last[last["held_out"] == 0])) == {("KEEP", "bbr", "consistently_low")}
    assert last["benefit"][last["held_out"] == 0] == pytest.approx(1 / 3)


def spread(count: int, seed: int, factor: float = 1.0) -> Any:
    """Growths that vary by 40 % around a factor: paths change by themselves."""
    return factor * np.exp2(np.random.default_rng(seed).normal(0.0, 0.5, count))


@pytest.mark.parametrize(("factor", "least", "most"), [(1.3, 0, 0), (1.0, 0, 2), (0.7, 19, 20)])
def test_a_pop_is_given_back_where_the_interval_shows_no_benefit(factor: float, least: int, most: int) -> None:
    """By point estimates half of what BBR does nothing to would be given back, and a third of what it helps."""
    pops = 0
    for seed in range(20):
        first, _, third, _ = judged(spread(200, seed, factor), spread(200, 100 + seed))
        treated = first["held_out"] == 0
        left = (third["algorithm"][treated] == 0).mean()
        assert left == 1.0 or left <= 0.05
        pops += left == 1.0
    assert least <= pops <= most


def test_one_prefix_is_given_back_where_it_grew_less_than_all_that_are_held_out() -> None:
    ours = spread(400, 1, 1.5)
    [lost, *_] = np.flatnonzero(judged(ours, ours, 400)[0]["held_out"] == 0)
    ours[lost] = 0.1
    first, *_, before, last = judged(ours, spread(400, 2), 400, rounds=5)
    assert (first["held_out"] == 1).sum() >= ALONE
    # Its trial has twice benefit_rounds.
    assert (before["algorithm"] == (first["held_out"] == 0)).all()
    gone = np.flatnonzero((first["held_out"] == 0) & (last["algorithm"] == 0))
    assert lost in gone
    assert len(gone) <= 3
    # Fewer than that show nothing of one prefix.
    first, *_, last = judged(ours[:200], spread(200, 2), rounds=5)
    assert (first["held_out"] == 1).sum() < ALONE
    assert (last["algorithm"] == (first["held_out"] == 0)).all()


def test_where_prefixes_differ_in_what_bbr_does_those_that_it_slows_are_given_back() -> None:
    """Two thirds gain a factor of two, a third loses as much; paths change by themselves by far less. Hardly any of the
    helped goes."""
    chance = np.random.default_rng(5)
    helped = chance.random(600) < 2 / 3
    paths = np.exp2(chance.normal(0.0, 0.3, 600))
    first, *_, last = judged(paths * np.where(helped, 2.0, 0.5), paths[::-1], 600, rounds=6)
    treated = first["held_out"] == 0
    given_back = treated & (last["algorithm"] == 0)
    assert (given_back & ~helped).sum() >= 0.95 * (treated & ~helped).sum()
    assert (given_back & helped).sum() <= 0.05 * (treated & helped).sum()
    assert not last["algorithm"][first["held_out"] == 1].any()


def test_where_bbr_does_the_same_to_all_chance_gives_back_hardly_any() -> None:
    first, *_, last = judged(spread(600, 3, 1.5), spread(600, 4), 600, rounds=6)
    treated = first["held_out"] == 0
    assert (last["algorithm"][treated] == 0).mean() <= 0.03


def test_too_few_held_out_judge_nothing() -> None:
    law = policy(holdout_share=0.3, max_new=5000, max_selected=5000, min_held_out=1000)
    *_, last = run([np.concatenate([prefix(number=n, recent=1.0) for n in range(200)])] * 4, law)
    assert np.isnan(last["benefit"]).all()
    assert last["algorithm"][last["held_out"] == 0].all()


# Damping


def alternating(period: int, rounds: int) -> list[Table]:
    """Evidence of a prefix that is low for `period` rounds and then not for as many, through a window of 20."""
    states = [(n // period) % 2 == 0 for n in range(-20, rounds)]
    return [prefix(low=[int(flag) for flag in reversed(states[n + 1 : n + 21])]) for n in range(rounds)]


def changes(decisions: list[Frame]) -> int:
    return sum(
        int(((one["action"] == ACTIONS.index("enter")) | (one["action"] == ACTIONS.index("leave"))).sum())
        for one in decisions
    )


def test_the_default_damping_fires_on_a_prefix_that_keeps_changing() -> None:
    """The window is shorter than the default's, so the limits are scaled with it."""
    law = policy(max_flap_rate=1.0)
    scaled = CongestionDampingPolicy(half_life_s=12_000, max_suppress_s=24_000)
    off = CongestionDampingPolicy(suppress_above=100.0)
    damped = run(alternating(16, 600), law.model_copy(update={"congestion_damping": scaled}))
    undamped = run(alternating(16, 600), law.model_copy(update={"congestion_damping": off}))
    assert changes(damped) < 0.75 * changes(undamped)
    assert any(REASONS[row["reason"]] == "held_damping" for one in damped for row in one)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.booleans(), min_size=40, max_size=160), st.floats(2.0, 4.0), st.integers(1000, 20_000))
def test_changes_are_never_more_than_damping_allows(flags: list[bool], above: float, half_life: int) -> None:
    calm = CongestionDampingPolicy(suppress_above=above, half_life_s=half_life, max_suppress_s=4 * half_life)
    law = policy(max_flap_rate=1.0, min_stay_s=0).model_copy(update={"congestion_damping": calm})
    evidence = [
        prefix(low=[int(flag) for flag in reversed(flags[max(0, n - 5) : n + 1])], measured=0b111111)
        for n in range(len(flags))
    ]
    decisions = run(evidence, law)
    # Leaving is always allowed, and each end has a beginning that was let through.
    assert changes(decisions) <= 2 * most_changes(calm, STEP * len(flags))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**20 - 1), st.integers(0, 2**20 - 1))
def test_constant_input_converges_and_then_never_changes(low: int, measured: int) -> None:
    decisions = run([prefix(low=low, measured=measured)] * 60, policy())
    assert changes(decisions[30:]) == 0


EVIDENCES = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from(["ams", "fra", "nyc"]),
        st.integers(0, 2**20 - 1),
        st.integers(0, 2**20 - 1),
        st.booleans(),
        st.floats(1e3, 1e9),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda each: each[:2],
)


def table(drawn: Sequence[tuple[int, str, int, int, bool, float]]) -> Table:
    return np.concatenate(
        [
            prefix(low=low, measured=measured, number=number, pop=pop, back_office=int(own), rate=rate)
            for number, pop, low, measured, own, rate in drawn
        ]
    )


@settings(max_examples=60, deadline=None)
@given(EVIDENCES, EVIDENCES, st.randoms(use_true_random=False), st.integers(1, 3))
def test_order_and_copies_change_no_bit(before: list[Any], after: list[Any], chance: Any, cap: int) -> None:
    law = policy(max_new=cap, holdout_share=0.3)
    first = decide(ROUND, law, table(before), NOBODY)
    last = PREFIXES.carry(first, ROUND).table()
    expected = decide(ROUND + STEP, law, table(after), last)
    shuffled = [*after, chance.choice(after)]
    chance.shuffle(shuffled)
    again = decide(ROUND + STEP, law, table(shuffled), np.concatenate([last[::-1], last[:1]]))
    assert again.table().tobytes() == expected.table().tobytes()
    assert (np.sort(keys(expected)) == keys(expected)).all()


@settings(max_examples=60, deadline=None)
@given(EVIDENCES, EVIDENCES, st.integers(1, 3), st.integers(1, 4))
def test_bounds_always_hold(before: list[Any], after: list[Any], new: int, most: int) -> None:
    law = policy(max_new=new, max_selected=most)
    first, second = run([table(before), table(after)], law)
    for decided in (first, second):
        assert decided.dtype == DECIDED
        for pop in np.unique(decided["src_pop"]):
            here = decided[decided["src_pop"] == pop]
            assert (here["action"] == ACTIONS.index("enter")).sum() <= new
            assert (here["selected_since"] > 0).sum() <= most
        own = decided["back_office"] == 1
        assert not decided["algorithm"][own].any()


@given(st.lists(st.sampled_from([None, True, False]), min_size=1, max_size=128))
def test_state_changes_are_those_between_measured_rounds(flags: list[bool | None]) -> None:
    """The newest first; None is a round without evidence."""
    measured = sum((flag is not None) << age for age, flag in enumerate(flags))
    low = sum(bool(flag) << age for age, flag in enumerate(flags))
    law = policy(window_rounds=max(len(flags), 2), min_rounds=1, benefit_rounds=1)
    one = prefix(low & ALL, measured & ALL, measured_1=measured >> 64, low_1=low >> 64)
    [row] = decide(ROUND, law, one, NOBODY, everyone=True)
    known = (flag for flag in flags if flag is not None)
    assert row["state_changes"] == sum(a != b for a, b in pairwise(known))

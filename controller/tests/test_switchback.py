"""When pairs are on and off: balanced, washed out, at most half of the fleet, and the same whoever asks."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from springtide.errors import InputError
from springtide.laws.switchback import DAY_S, Kind, block, counts, disable_test, turn
from springtide.policy import ExperimentPolicy, load_policy

from testkit.home import ROUND

INTERVAL = 300
NAMES = st.from_regex(r"[a-z]{3}[0-9]?", fullmatch=True)
PAIRS = st.tuples(NAMES, NAMES).filter(lambda pair: pair[0] != pair[1])
WASHOUTS = st.integers(2, 5)


@st.composite
def laws(draw: st.DrawFn, kind: Kind = "switchback") -> ExperimentPolicy:
    washout = draw(WASHOUTS)
    return ExperimentPolicy(
        kind=kind,
        washout_rounds=washout,
        period_rounds=draw(st.integers(2 * washout, 20)),
        block_periods=2 * draw(st.integers(1, 6)),
        seed=draw(st.text("abc", max_size=3)),
    )


def rounds(law: ExperimentPolicy, number: int, periods: int) -> range:
    """Those of one block."""
    length = law.period_rounds * periods * INTERVAL
    return range(number * length, (number + 1) * length, INTERVAL)


@given(laws(), PAIRS, st.integers(1, 10_000))
def test_half_of_each_block_is_on_for_whole_periods(law: ExperimentPolicy, pair: tuple[str, str], number: int) -> None:
    there = rounds(law, number, law.block_periods)
    on = [turn(law, INTERVAL, *pair, moment).on for moment in there]
    assert sum(on) * 2 == len(on)
    assert {block(law, INTERVAL, moment) for moment in there} == {number}
    for at in range(0, len(on), law.period_rounds):
        assert len(set(on[at : at + law.period_rounds])) == 1


@given(laws(), PAIRS, st.integers(1, 10_000))
def test_no_round_counts_that_a_switch_may_have_touched(
    law: ExperimentPolicy, pair: tuple[str, str], number: int
) -> None:
    """By a clock that runs from the last switch; of each period equally many rounds count."""
    there = rounds(law, number, law.block_periods)
    start = there[0] - 2 * law.period_rounds * law.block_periods * INTERVAL
    last, since = None, 0
    for moment in range(start, there[-1] + 1, INTERVAL):
        now = turn(law, INTERVAL, *pair, moment).on
        since = 0 if now != last else since + 1
        last = now
        if counts(law, INTERVAL, moment):
            assert since >= law.washout_rounds or moment < there[0]
    counted = sum(counts(law, INTERVAL, moment) for moment in there)
    assert counted == law.block_periods * (law.period_rounds - law.washout_rounds)


@given(laws(), st.sets(NAMES, min_size=2, max_size=7), st.integers(1, 10_000_000))
def test_at_every_moment_half_of_a_fleets_pairs_are_off(law: ExperimentPolicy, pops: set[str], number: int) -> None:
    pairs = list(permutations(sorted(pops), 2))
    assert 2 * sum(turn(law, INTERVAL, *pair, number * INTERVAL).on for pair in pairs) == len(pairs)


@given(laws("share"), PAIRS, st.integers(1, 10_000))
def test_each_block_has_every_share_once(law: ExperimentPolicy, pair: tuple[str, str], number: int) -> None:
    there = rounds(law, number, len(law.shares))
    found = Counter(turn(law, INTERVAL, *pair, moment).share for moment in there)
    assert found == dict.fromkeys(law.shares, law.period_rounds)
    assert all(turn(law, INTERVAL, *pair, moment).on for moment in there)


def test_every_order_is_drawn_as_often_and_a_seed_draws_others() -> None:
    law = ExperimentPolicy(kind="switchback")

    def drawn(seeded: ExperimentPolicy) -> list[str]:
        periods = [rounds(seeded, number, 4)[:: seeded.period_rounds] for number in range(1, 3001)]
        return ["".join("01"[turn(seeded, INTERVAL, "ams", "fra", at).on] for at in own) for own in periods]

    found = drawn(law)
    # Each of six orders has 500 of 3,000; its standard deviation is 20.
    assert set(Counter(found)) == {"0011", "0101", "0110", "1001", "1010", "1100"}
    assert all(400 < count < 600 for count in Counter(found).values())
    same = sum(one == other for one, other in zip(found, drawn(law.model_copy(update={"seed": "b"})), strict=True))
    assert 400 < same < 600


def test_the_order_is_a_contract() -> None:
    """Another version that drew another order could not say what a running experiment showed."""
    law = ExperimentPolicy(kind="switchback", seed="winter")
    found = "".join("01"[turn(law, INTERVAL, "ams", "fra", number * 3600).on] for number in range(500_000, 500_016))
    assert found == "1010110010011001"


def test_the_default_switches_nothing() -> None:
    for moment in range(ROUND, ROUND + 30 * DAY_S, 1800):
        found = turn(ExperimentPolicy(), INTERVAL, "ams", "fra", moment)
        assert (found.on, found.share, disable_test(ExperimentPolicy(), moment)) == (True, 1.0, None)


@given(
    st.sampled_from(["holdout", "switchback", "share"]), st.integers(1, 30), st.integers(0, 23), st.integers(600, 21600)
)
def test_a_disable_test_is_for_all_pairs_on_the_hour_and_ends(kind: Kind, days: int, hour: int, seconds: int) -> None:
    law = ExperimentPolicy(kind=kind, disable_every_days=days, disable_at_hour=hour, disable_for_s=seconds)
    began = 40 * days * DAY_S + hour * 3600
    inside = [began, began + seconds - 1]
    outside = [began - 1, began + seconds]
    assert [disable_test(law, moment) for moment in inside] == 2 * [(began, began + seconds)]
    assert [disable_test(law, moment) for moment in outside] == [None, None]
    for pair in (("ams", "fra"), ("fra", "ams"), ("nyc", "ams")):
        assert {turn(law, INTERVAL, *pair, moment).why for moment in inside} == {"disable_test"}
        assert not {turn(law, INTERVAL, *pair, moment).why for moment in outside} & {"disable_test"}
    after = range(began // INTERVAL * INTERVAL, began + seconds + law.washout_rounds * INTERVAL, INTERVAL)
    assert not any(counts(law, INTERVAL, moment) for moment in after if moment >= began)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("experiment: {kind: switchback, block_periods: 3}", "block_periods: is 3"),
        ("experiment: {period_rounds: 5}", "washout_rounds: is 3, more than half of experiment.period_rounds = 5"),
        ("experiment: {kind: share}", "no edge enforces by bpf"),
        ("experiment: {kind: share}\nenforce: {by: bpf}", "900 of 1000 connections start with"),
        ("experiment: {shares: [0.5, 0.1]}", "are no shares to compare"),
        ("experiment: {shares: [0.0, 0.5]}", "are no shares to compare"),
        ("experiment: {shares: []}", "are no shares to compare"),
        ("experiment: {kind: chance}", "kind"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_policy(path)


def test_a_whole_section_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "experiment: {kind: share, shares: [0.1, 0.5, 0.9], disable_every_days: 7}\n"
        "enforce: {by: bpf, max_trial_permille: 900}\n"
    )
    assert load_policy(path).experiment.shares == [0.1, 0.5, 0.9]

"""The law of starts: what is tried, on how many, and when it is given to all.

Long: one case after the other of the same law.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from springtide.laws.start.law import STARTS
from springtide.policy import Policy

from testkit.start_law import STEP, Loop, Reason, group, policy, proved, reason, row, well


def test_the_first_value_is_given_on_trial_and_then_to_all() -> None:
    loop = Loop(policy())
    first = loop.round(proved(5e6))
    assert (reason(first), STARTS.actions[first["action"][0]]) == (Reason.BELOW_DUTY_CYCLE, "none")
    tried = loop.round(proved(5e6))
    assert (reason(tried), STARTS.actions[tried["action"][0]]) == (Reason.TRIAL_PROVED, "try")
    # 5 MB/s for 100 ms are 346 segments; the rate leaves some room; of a hundred connections twenty are on trial.
    assert (tried["window"][0], tried["trial_window"][0], tried["trial_permille"][0]) == (0, 346, 200)
    assert tried["trial_connection_rate"][0] == pytest.approx(4.75e6, rel=1e-6)
    assert tried["trial_path_rate"][0] == pytest.approx(9.5e6, rel=1e-6)
    few = loop.round(proved(5e6, **well(flights_1=9)))
    assert (reason(few), few["window"][0]) == (Reason.ON_TRIAL, 0)
    # One that lost: it takes all of the twenty.
    still = loop.round(proved(5e6, **well(flights_1=10, lossy_1=1)))
    assert (reason(still), still["window"][0]) == (Reason.ON_TRIAL, 0)
    done = loop.round(proved(5e6, **well(flights_1=1)))
    assert (reason(done), STARTS.actions[done["action"][0]]) == (Reason.PROMOTED, "set")
    assert (done["window"][0], done["trial_permille"][0]) == (346, 0)
    assert done["connection_rate"][0] == tried["trial_connection_rate"][0]


def test_a_trial_that_loses_leaves_a_ceiling_and_a_hold_that_doubles() -> None:
    loop = Loop(policy(hold_s=2 * STEP))
    loop.round(proved(5e6))
    loop.round(proved(5e6))
    lost = loop.round(proved(5e6, **well(lossy_1=25)))
    assert (reason(lost), lost["window"][0], lost["trial_window"][0]) == (Reason.TRIAL_LOSS, 0, 0)
    assert (lost["hold_s"][0], lost["harmful_rate"][0]) == (2 * STEP, pytest.approx(4.75e6))
    # Within the hold no more than the cut is tried.
    held = loop.round(proved(5e6))
    most = policy().start.cut * lost["harmful_rate"][0]
    assert 0 < held["trial_connection_rate"][0] <= most
    again = loop.round(proved(5e6, **well(lossy_1=25)))
    later = loop.round(proved(5e6))
    assert again["harmful_rate"][0] <= most
    for _ in range(4):
        later = loop.round(proved(5e6))
    assert later["trial_connection_rate"][0] > 0
    worse = loop.round(proved(5e6, **well(lossy_1=25)))
    assert worse["hold_s"][0] >= 2 * lost["hold_s"][0]


def test_a_trial_that_is_slower_is_not_given_to_all() -> None:
    loop = Loop(policy())
    loop.round(proved(5e6))
    loop.round(proved(5e6))
    slower = loop.round(proved(5e6, **well(t100_1_us=400_000)))
    assert (reason(slower), slower["window"][0]) == (Reason.TRIAL_SLOWER, 0)
    assert slower["harmful_rate"][0] == 0
    assert loop.round(proved(5e6))["trial_window"][0] == 0


def test_a_trial_that_seems_slower_by_chance_goes_on_until_it_is_known() -> None:
    """Slower by 15 %, of ten flights: medians of so few differ by as much."""
    loop = Loop(policy())
    loop.round(proved(5e6))
    loop.round(proved(5e6))
    few = well(flights_1=10, t100_1_us=345_000)
    for _ in range(7):
        assert reason(loop.round(proved(5e6, **few))) is Reason.ON_TRIAL
    assert reason(loop.round(proved(5e6, **few))) is Reason.TRIAL_SLOWER


def test_a_step_that_seems_faster_by_chance_goes_on_until_it_is_known() -> None:
    """Where flights lose so much that none shows what the path carried, times are all that there is."""
    loop = Loop(policy())
    before = loop.in_use(5e6)["connection_rate"][0]
    path: dict[str, Any] = {"flights_0": 200, "segments_0": 60_000}
    assert reason(loop.round(row(connections=100, **path))) is Reason.TRIAL_STEP
    # Faster by 10 %, of twenty flights: half of all steps without a gain seem faster.
    few = path | {"flights_1": 20, "segments_1": 6000, "t100_0_us": 300_000, "t100_1_us": 270_000}
    found = loop.round(row(connections=100, **few))
    assert (found["connection_rate"][0], found["trial_flights"][0]) == (before, 20)
    for _ in range(3):
        found = loop.round(row(connections=100, **few))
    assert (reason(found), found["connection_rate"][0] > before) == (Reason.PROMOTED, True)
    # Clearly faster, it is given to all at once.
    loop = Loop(policy())
    loop.in_use(5e6)
    loop.round(row(connections=100, **path))
    assert reason(loop.round(row(connections=100, **few | {"t100_1_us": 240_000}))) is Reason.PROMOTED


@pytest.mark.parametrize("step", [1.5, 2.0])
def test_a_step_is_not_overtaken_by_what_it_was_a_step_beyond(step: float) -> None:
    """Else it would begin again each round, of however many flights, and never be judged."""
    loop = Loop(policy(step=step))
    loop.in_use(5e6)
    path: dict[str, Any] = {"flights_0": 200, "segments_0": 60_000, "carried_0": 1.0}
    assert reason(loop.round(row(connections=100, **path))) is Reason.TRIAL_STEP
    for flights in (4, 8):
        found = loop.round(row(connections=100, flights_1=4, segments_1=1200, **path))
        assert found["trial_flights"][0] == flights


def test_a_step_of_which_all_together_were_carried_no_more_is_in_vain() -> None:
    """Alone, on one of three edges, each was carried whole; of that nothing is left to give."""
    loop = Loop(policy())
    loop.in_use(5e6)
    loop.last["path_rate"] = loop.last["connection_rate"]
    path: dict[str, Any] = {"flights_0": 200, "segments_0": 60_000, "carried_0": 1.0}
    # Polls show less of so short lives.
    loop.last["path_log2"] = np.log2(1e6)
    before = loop.round(row(connections=100, path_rate=1e6, path_buckets=10, path_carried_0=1.0, **path))
    assert reason(before) is Reason.TRIAL_STEP
    times = path | {"flights_1": 30, "t100_0_us": 300_000, "t100_1_us": 200_000}
    found = loop.round(row(connections=100, carried_1=1.0, path_carried_1=0.6, **times))
    assert (reason(found), found["trial_window"][0]) == (Reason.TRIAL_NO_GAIN, 0)
    assert found["hold_s"][0] == policy().start.hold_s
    assert found["path_rate"][0] == before["path_rate"][0]


def test_nothing_is_given_to_all_in_the_round_of_a_collapse() -> None:
    loop = Loop(policy())
    loop.in_use(5e6)
    path: dict[str, Any] = {"flights_0": 200, "segments_0": 60_000}
    assert reason(loop.round(row(connections=100, **path))) is Reason.TRIAL_STEP
    few: dict[str, Any] = {"flights_0": 2, "segments_0": 600, "flights_1": 30, "t100_0_us": 3e5, "t100_1_us": 1.7e5}
    found = loop.round(proved(5e5, **few))
    assert reason(found) is Reason.COLLAPSED
    assert found["connection_rate"][0] == pytest.approx(0.95 * 5e5, rel=1e-5)


def test_a_step_that_small_objects_never_show_is_in_vain() -> None:
    loop = Loop(policy())
    loop.in_use(5e6)
    path: dict[str, Any] = {"flights_0": 200, "segments_0": 60_000}
    assert reason(loop.round(row(connections=100, **path))) is Reason.TRIAL_STEP
    found = [loop.round(row(connections=100, flights_1=20, segments_1=600, **path)) for _ in range(4)]
    assert found[2]["trial_window"][0] > 0
    assert reason(found[3]) is Reason.TRIAL_NO_GAIN


@pytest.mark.parametrize(
    ("carried", "after"),
    # All of it, and nearly; a part that is worth it, less 5 %; what others were given already.
    [(1.05, 1.5), (0.96, 1.5), (0.8, 0.95 * 1.2), (0.7, 1.0), (0.2, 1.0)],
)
def test_of_a_step_what_the_path_carried_is_given_to_all(carried: float, after: float) -> None:
    """Whatever the times of flights that start with others now and then say."""
    loop = Loop(policy())
    before = loop.in_use(5e6)["connection_rate"][0]
    path: dict[str, Any] = {"flights_0": 200, "segments_0": 60_000, "carried_0": 1.0}
    assert reason(loop.round(proved(5e5, **path))) is Reason.TRIAL_STEP
    same_times = path | {"flights_1": 30, "t100_0_us": 300_000, "t100_1_us": 300_000}
    found = loop.round(proved(5e5, **same_times, carried_1=carried))
    assert found["connection_rate"][0] == pytest.approx(after * before, rel=1e-5)
    assert reason(found) is (Reason.PROMOTED if after > 1 else Reason.TRIAL_NO_GAIN)


@pytest.mark.parametrize(("t100_us", "why"), [(420_000, Reason.PROMOTED), (700_000, Reason.TRIAL_SLOWER)])
def test_what_is_carried_is_not_slower_by_chance(t100_us: int, why: Reason) -> None:
    """Ten flights in a crowd, beside others that were alone, are slower by 40 %, though all of it was carried."""
    loop = Loop(policy())
    before = loop.in_use(5e6)["connection_rate"][0]
    path: dict[str, Any] = {"flights_0": 200, "segments_0": 60_000, "carried_0": 1.0}
    assert reason(loop.round(row(connections=100, **path))) is Reason.TRIAL_STEP
    times = path | {"flights_1": 10, "t100_0_us": 300_000, "t100_1_us": t100_us}
    found = loop.round(row(connections=100, carried_1=1.0, **times))
    assert (reason(found), found["connection_rate"][0] > before) == (why, why is Reason.PROMOTED)


@pytest.mark.parametrize("carried", ["carried_0", "path_carried_0", None])
def test_a_step_is_not_beyond_what_polls_showed_unless_first_flights_were_carried(carried: str | None) -> None:
    loop = Loop(policy())
    before = loop.in_use(5e6)["connection_rate"][0]
    path: dict[str, Any] = {"flights_0": 200, "segments_0": 60_000}
    loop.last["path_log2"] = np.log2(2e6)
    seen = row(connections=100, path_rate=2e6, path_buckets=10, **path | ({carried: 1.0} if carried else {}))
    assert loop.round(seen)["trial_connection_rate"][0] == (pytest.approx(1.5 * before, rel=1e-5) if carried else 0)


def test_no_rate_is_beyond_two_windows_a_round_trip() -> None:
    """The kernel paces no faster; a step beyond it would be carried in part, whatever the path is."""
    loop = Loop(policy())
    before = loop.in_use(8.5e6)
    most = 2 * 400 * 1448 / 0.1
    assert before["window"][0] == 400
    assert before["connection_rate"][0] < most < 1.5 * before["connection_rate"][0]
    path: dict[str, Any] = {"flights_0": 200, "segments_0": 60_000, "carried_0": 1.0}
    assert loop.round(row(connections=100, **path))["trial_connection_rate"][0] == pytest.approx(most, rel=0.01)


def test_steps_go_on_as_long_as_they_show_a_gain() -> None:
    """Nothing meets the path; connections are as fast as what they are given."""
    loop = Loop(policy())
    rates = []
    for _ in range(20):
        rate = loop.last["connection_rate"][0] if len(loop.last) else 0.0
        tried = loop.last["trial_connection_rate"][0] if len(loop.last) else 0.0
        # 100 kB at a rate, at most 2 MB/s: what the path gives.
        times = {
            f"t100_{arm}_us": 1e5 + 1e11 / min(max(one, 4e5), 2e6)
            for arm, one in enumerate((rate, tried))
            if arm or one
        }
        values: dict[str, Any] = {"flights_0": 200, "flights_1": 30 if tried else 0, "t100_0_us": 4e5} | times
        found = loop.round(row(connections=50, reached_rate=max(rate, 6e5), reached_connections=30, **values))
        rates.append(found["connection_rate"][0])
    assert rates == sorted(rates)
    assert 1.3e6 < rates[-1] < 3.1e6
    # The step that gained nothing made it wait.
    assert found["hold_s"][0] >= policy().start.hold_s


def test_windows_that_collapsed_do_not_hide_what_starts_carry() -> None:
    """Connections that overshot a short queue go on at a tenth of the path; first flights show that it carries more."""
    loop = Loop(policy())
    before = loop.in_use(5e6)
    path: dict[str, Any] = {"flights_0": 200, "segments_0": 60_000, "t100_0_us": 300_000}
    sound = loop.round(proved(5e5, resent_0=300, lossy_0=10, **path))
    assert sound["connection_rate"][0] == before["connection_rate"][0]
    # And the next step is tried, as nothing has shown the limit.
    assert (reason(sound), sound["trial_step"][0]) == (Reason.TRIAL_STEP, 1)
    assert sound["trial_connection_rate"][0] == pytest.approx(1.5 * before["connection_rate"][0], rel=1e-6)


@pytest.mark.parametrize(
    "path",
    [
        # They lose; too few of them.
        {"flights_0": 200, "segments_0": 60_000, "resent_0": 6000},
        {"flights_0": 2, "segments_0": 600},
    ],
)
def test_first_flights_that_show_no_room_do_not_hold_a_collapsed_share(path: dict[str, Any]) -> None:
    loop = Loop(policy())
    loop.in_use(5e6)
    assert reason(loop.round(proved(5e5, **path))) is Reason.COLLAPSED


def test_where_single_rates_are_the_limit_nothing_beyond_is_tried() -> None:
    loop = Loop(policy())
    loop.in_use(5e6)
    path: dict[str, Any] = {"flights_0": 200, "segments_0": 60_000, "t100_0_us": 300_000}
    assert loop.round(proved(5e6, **path))["trial_window"][0] == 0


def test_steps_end_where_all_together_are_delivered_no_more() -> None:
    """A trial that takes from the others is faster than they are, at any rate."""
    loop = Loop(policy())
    rates = []
    for _ in range(20):
        rate = loop.last["connection_rate"][0] if len(loop.last) else 0.0
        seen: dict[str, Any] = {"reached_rate": min(max(rate, 6e5), 2e6), "reached_connections": 30}
        path: dict[str, Any] = {"path_rate": min(max(2 * rate, 1e6), 2e6), "path_buckets": 10}
        rates.append(loop.round(row(connections=50, **seen, **path, **well()))["connection_rate"][0])
    assert rates == sorted(rates)
    assert 1.9e6 < rates[-1] < 2 * 2e6


def test_the_first_trial_is_a_step_beyond_what_the_default_reached() -> None:
    loop = Loop(policy())
    for _ in range(2):
        found = loop.round(row(connections=50, reached_rate=1e6, reached_connections=30))
    assert found["trial_connection_rate"][0] == pytest.approx(1.5 * 0.95 * 1e6, rel=1e-5)
    # A rate that met the path is not a lower bound.
    loop = Loop(policy())
    for _ in range(2):
        found = loop.round(proved(1e6))
    assert found["trial_connection_rate"][0] == pytest.approx(0.95 * 1e6, rel=1e-5)


def test_what_was_promoted_is_not_lowered_by_what_others_met_in_the_same_round() -> None:
    """Few connections at the default, some of which lost: their rates are far below what the trial was carried."""
    loop = Loop(policy(), group("a", "b", "c", "thin"))
    full = [proved(4e6, name) for name in "abc"]
    for _ in range(2):
        tried = loop.round(*full, row("thin", connections=3))[-1]
    assert STARTS.reasons[tried["reason"]] == Reason.TRIAL_BORROWED
    found = loop.round(*full, proved(0.6 * tried["trial_connection_rate"], "thin", **well()))[-1]
    assert STARTS.reasons[found["reason"]] == Reason.PROMOTED_BORROWED
    assert found["connection_rate"] == tried["trial_connection_rate"]


def test_few_connections_have_a_larger_share_on_trial() -> None:
    for connections, permille in ((4, 500), (100, 200), (10_000, 100)):
        loop = Loop(policy())
        loop.round(proved(5e6))
        seen = proved(5e6)
        seen["connections"] = connections
        assert loop.round(seen)["trial_permille"][0] == permille
        seen["connections"] = 50
        assert loop.round(seen)["trial_permille"][0] == permille


@pytest.mark.parametrize("frozen", [(), ("ams",)])
def test_a_trial_that_runs_keeps_to_a_policy_that_became_more_cautious(frozen: tuple[str, ...]) -> None:
    """No bundle may have more: those of all edges would be refused."""
    loop = Loop(policy())
    for _ in range(2):
        tried = loop.round(row(connections=30, reached_rate=5e6, reached_connections=30))
    assert (tried["trial_window"][0], tried["trial_permille"][0]) == (400, 500)
    loop.round(row(connections=30, flights_0=30, flights_1=4))
    loop.policy = Policy.model_validate({"start": {"cmax": 20}, "enforce": {"max_trial_permille": 100}})
    found = loop.round(row(connections=30), frozen=frozen)
    assert (found["trial_window"][0], found["trial_permille"][0]) == (20, 100)
    # Flights with other values say nothing of these.
    assert found["trial_flights"][0] == 0


@pytest.mark.parametrize(("resent", "expected"), [(1100, Reason.PROMOTED), (1500, Reason.TRIAL_LOSS)])
def test_a_trial_may_lose_as_much_as_the_default_and_no_more(resent: int, expected: Reason) -> None:
    """Every flight with the default overshoots a short queue: a quarter is sent again, or by chance more."""
    loop = Loop(policy())
    default: dict[str, Any] = {"flights_0": 40, "lossy_0": 40, "segments_0": 4000, "resent_0": 1000}
    loop.round(proved(5e6, **default))
    loop.round(proved(5e6, **default))
    trial: dict[str, Any] = {"flights_1": 40, "lossy_1": 40, "segments_1": 4000, "resent_1": resent}
    assert reason(loop.round(proved(5e6, **default | trial))) is expected


def test_a_step_of_one_gives_all_together_no_more_than_they_were_delivered() -> None:
    loop = Loop(policy())
    for _ in range(12):
        rate = loop.last["connection_rate"][0] if len(loop.last) else 0.0
        seen: dict[str, Any] = {"reached_rate": max(rate, 6e5), "reached_connections": 30}
        found = loop.round(row(connections=50, **seen, path_rate=3e6, path_buckets=10, **well()))
        for kind in ("", "trial_"):
            most = max(1.5 * 0.95 * 3e6, 1.25 * found[f"{kind}connection_rate"][0])
            assert found[f"{kind}path_rate"][0] <= most + 1
    assert found["connection_rate"][0] > 3e6


def test_borrowers_are_judged_together_and_each_by_its_own_losses() -> None:
    thin = [f"t{at}" for at in range(10)]
    loop = Loop(policy(), group("a", "b", "c", *thin))
    full = [proved(4e6, name) for name in "abc"]
    for _ in range(2):
        loop.round(*full, *(row(name, connections=3) for name in thin))
    rows = [row(name, connections=3, flights_1=3) for name in thin[1:]]
    lost = row("t0", connections=3, flights_1=4, lossy_1=4)
    found = loop.round(*full, lost, *rows)
    by_name = {bytes(one["destination"]).decode(): one for one in found}
    assert by_name["t0"]["window"] == 0
    assert all(by_name[name]["window"] > 0 for name in thin[1:])
    assert STARTS.reasons[by_name["t1"]["reason"]] == Reason.PROMOTED_BORROWED


@pytest.mark.parametrize(("part", "stays"), [(0.79, True), (0.77, False)])
def test_what_a_weak_round_carries_nearly_four_fifths_of_stays(part: float, stays: bool) -> None:
    """A path's rate differs by a tenth from round to round: to follow that would be two changes for nothing."""
    loop = Loop(policy())
    rate = loop.in_use(5e6)["connection_rate"][0]
    found = loop.round(proved(5e6, flights_0=200, segments_0=14_000, carried_0=part))
    assert (found["connection_rate"][0] == rate) == stays


def test_a_ceilings_own_descent_is_no_other_path() -> None:
    """Where flights lose above a third of what the evidence asks for: cuts after cuts do not forget the ceiling."""
    loop = Loop(policy())
    failed = 0
    for _ in range(2 * 288):
        rate = float(loop.last["trial_connection_rate"][0]) if len(loop.last) else 0.0
        values: dict[str, Any] = well(flights_0=30, segments_0=2100)
        if rate > 0:
            over = rate > 0.38 * 5e6
            failed += over
            values |= {"flights_1": 20, "segments_1": 1400, "lossy_1": 20 * over, "resent_1": 400 * over}
        found = loop.round(proved(5e6, **values))
    assert 0 < found["connection_rate"][0] <= 0.38 * 5e6
    # In two days.
    assert failed < 60


def test_a_share_that_doubled_is_tried_at_once() -> None:
    loop = Loop(policy())
    loop.in_use(2e6)
    found = loop.round(proved(8e6, flights_0=200))
    assert found["trial_connection_rate"][0] == pytest.approx(0.95 * 8e6, rel=1e-6)

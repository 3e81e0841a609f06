"""Estimates of what paths carry, where a round has few trains of segments, or few first flights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from testkit.start_law import (
    Loop,
    Reason,
    beginning,
    carried,
    good,
    in_use,
    policy,
    reason,
    row,
    trains,
)


@pytest.fixture
def fresh() -> Loop:
    return beginning()


def test_few_trains_a_round_say_it_together(fresh: Loop) -> None:
    for count, known in ((1, False), (1, False), (0, False), (1, True), (0, True)):
        found = fresh.round(row(connections=2, **trains(6e6, trains=count), flights_0=1, flights_1=1))
        assert (found["trial_connection_rate"][0] > 5e6) == known


def test_few_trains_that_contradict_one_another_say_nothing(fresh: Loop) -> None:
    for number in range(20):
        found = fresh.round(row(connections=2, **trains(2e6 * 2 ** (number % 2), trains=1), flights_0=1))
        assert found["trial_connection_rate"][0] < 1e6


def test_one_train_a_round_is_smoothed_and_one_alone_moves_little(fresh: Loop) -> None:
    for _ in range(6):
        fresh.round(row(connections=2, **trains(6e6, trains=1), flights_0=1, flights_1=1))
    assert 2 ** fresh.last["train_log2"][0] == pytest.approx(6e6)
    fresh.round(row(connections=2, **trains(5.4e6, trains=1), flights_0=1, flights_1=1))
    assert 2 ** fresh.last["train_log2"][0] == pytest.approx(6e6 * 0.9**0.25, rel=1e-3)


@pytest.mark.parametrize("rate", [1e3, 1.5e6, 3.9e6, 9e6])
def test_few_trains_take_nothing_back_of_what_many_said(fresh: Loop, rate: float) -> None:
    collapsed: dict[str, Any] = {"share_rate": 5e5, "share_connections": 20}
    in_use(fresh, 6e6)
    fresh.round(row(connections=100, **trains(6e6), **collapsed, **carried()))
    for _ in range(4):
        found = fresh.round(row(connections=100, **trains(rate, trains=2), **collapsed, **carried()))
        assert (found["connection_rate"][0], found["trial_permille"][0]) == (pytest.approx(5.7e6), 0)


def test_one_train_a_round_follows_a_path_that_has_become_another(fresh: Loop) -> None:
    for rate, rounds in ((6e6, 6), (2e6, 8)):
        for _ in range(rounds):
            fresh.round(row(connections=2, **trains(rate, trains=1), flights_0=1, flights_1=1))
        assert 2 ** fresh.last["train_log2"][0] == pytest.approx(rate)


def test_jitter_of_one_train_a_round_holds_nothing_down(fresh: Loop) -> None:
    """Its middle is its quarter: how much trains differ shows only from round to round."""
    for number in range(40):
        rate = 6e6 * (0.35, 0.6, 0.44)[number % 3]
        reached = max(4e5, float(fresh.last["connection_rate"][0]))
        found = fresh.round(row(reached_rate=reached, reached_connections=30, **trains(rate, trains=1), **good()))
    assert found["connection_rate"][0] > 4e6


def test_a_round_in_which_more_was_delivered_blurs_trains_for_itself_only(fresh: Loop) -> None:
    for reached in (None, None, None, None, 9e6, None):
        values: dict[str, Any] = {} if reached is None else {"reached_rate": reached, "reached_connections": 9}
        fresh.round(row(connections=2, **trains(6e6, trains=1), flights_0=1, flights_1=1, **values))
        assert fresh.last["train_sharp"][0] == 1


def test_few_flights_beside_a_bulk_flow_end_a_trial_and_do_not_swing(fresh: Loop) -> None:
    changes, before = 0, 0.0
    for _ in range(60):
        use, tried = (float(fresh.last[name][0]) for name in ("connection_rate", "trial_connection_rate"))
        parts: dict[str, Any] = {
            f"carried_{arm}": min(1.0, 3e6 / rate) for arm, rate in ((0, use), (1, tried)) if rate > 0
        }
        times: dict[str, Any] = {"t100_0_us": 3e5, "t100_1_us": 2e5}
        values: dict[str, Any] = {
            "flights_0": 4,
            "segments_0": 280,
            "flights_1": 4 * (tried > 0),
            "segments_1": 280 * (tried > 0),
        }
        found = fresh.round(row(connections=8, **trains(6e6, trains=2), **values, **parts, **times))
        changes += found["connection_rate"][0] != before
        before = float(found["connection_rate"][0])
    assert changes <= 6
    assert before < 4e6


def _one_flight(arm: int, part: float, **values: Any) -> dict[str, Any]:
    return {f"flights_{arm}": 1, f"segments_{arm}": 70, f"carried_{arm}": part} | values


def test_one_flight_that_lost_a_tenth_of_its_segments_ends_a_trial(fresh: Loop) -> None:
    fresh.round(row(connections=3, **trains(6e6), flights_0=1, segments_0=70))
    assert fresh.last["trial_connection_rate"][0] > 5e6
    same = fresh.round(row(connections=3, **trains(6e6), **_one_flight(1, np.nan, lossy_1=1, resent_1=6)))
    assert same["trial_connection_rate"][0] > 5e6
    ended = fresh.round(row(connections=3, **trains(6e6), **_one_flight(1, np.nan, lossy_1=1, resent_1=20)))
    assert reason(ended) is Reason.TRIAL_LOSS


def test_one_flight_that_lost_a_tenth_of_its_segments_lowers_what_is_in_use(fresh: Loop) -> None:
    in_use(fresh, 6e6)
    for resent, lower in ((6, False), (20, True)):
        values = _one_flight(0, np.nan, lossy_0=1, resent_0=resent)
        found = fresh.round(row(connections=2, **trains(6e6, trains=1), **values))
        assert (found["connection_rate"][0] < 5.6e6) == lower


def test_a_trial_beyond_the_trains_of_now_ends(fresh: Loop) -> None:
    """With few connections it lasts for hours, and what it began with may be of a path that was."""
    in_use(fresh, 2e6)
    begun = fresh.round(row(connections=3, **trains(6e6), flights_0=1, segments_0=70))
    assert begun["trial_connection_rate"][0] > 5.6e6
    found = fresh.round(row(connections=3, **trains(4.5e6), flights_0=1, segments_0=70))
    assert found["trial_connection_rate"][0] < 5e6


def beside_others(fresh: Loop) -> dict[str, Any]:
    """Trains ask for what the path carries of a unit whose connections met a quarter of it."""
    in_use(fresh, 2e6)
    for _ in range(3):
        fresh.round(row(connections=60, **trains(6e6), share_rate=1.5e6, share_connections=4))
    assert fresh.last["trial_connection_rate"][0] > 5.6e6
    return {"flights_1": 1, "segments_1": 70, "carried_1": 0.4}


def test_a_slow_flight_of_a_round_that_is_too_incomplete_to_be_trusted_shows_nothing(fresh: Loop) -> None:
    found = fresh.round(row(connections=2, **beside_others(fresh)), frozen=("ams",))
    assert found["shared_at"][0] == 0


@pytest.mark.parametrize("flights", [1, 0])
def test_a_step_is_bounded_by_what_all_were_delivered_with_and_without_a_flight_in_the_round(flights: int) -> None:
    """In use are 1.9 MB/s, and all together were delivered 0.5."""
    loop = Loop(policy())
    loop.in_use(2e6)
    loop.last["share_weight"], loop.last["path_log2"] = 0, np.log2(5e5)
    values: dict[str, Any] = {
        "reached_rate": 4e5,
        "reached_connections": 3,
        "flights_0": flights,
        "segments_0": 70 * flights,
    }
    found = loop.round(row(connections=3, **values))
    assert (found["trial_connection_rate"][0], found["trial_path_rate"][0]) == (0, 0)

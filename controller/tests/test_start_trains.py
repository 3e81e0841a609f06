"""Rates that paths carry, by the trains of segments with which connections start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from testkit.home import ROUND
from testkit.path_traffic import DECIDED, FRA, Traffic
from testkit.rolled import Rolled
from testkit.start_law import STEP, Loop, Reason, beginning, carried, good, in_use, policy, proved, reason, row, trains
from testkit.together import together

# Nine segments.
TRAIN = 13_032


@pytest.fixture
def fresh() -> Loop:
    return beginning()


def test_what_trains_show_is_given_on_trial_at_once_and_a_round_later_to_all(fresh: Loop) -> None:
    tried = fresh.round(row(connections=100, **trains(6e6), **carried(flights_1=3)))
    # 6 MB/s for 100 ms are 415 segments, of which the policy allows 400.
    assert (tried["window"][0], tried["trial_window"][0]) == (0, 400)
    assert tried["trial_connection_rate"][0] == tried["trial_path_rate"][0] == pytest.approx(5.7e6)
    done = fresh.round(row(connections=100, **trains(6e6), **good()))
    assert (reason(done), done["connection_rate"][0]) == (Reason.PROMOTED, pytest.approx(5.7e6))


def test_nothing_beyond_sharp_trains_is_tried(fresh: Loop) -> None:
    in_use(fresh, 6e6)
    for _ in range(30):
        found = fresh.round(row(connections=100, **trains(6e6), **carried()))
        assert found["trial_permille"][0] == 0


def test_blurred_trains_hold_nothing_down(fresh: Loop) -> None:
    """Jitter makes them longer: the path carries more, which steps find."""
    in_use(fresh, 2e6)
    for _ in range(12):
        found = fresh.round(row(connections=100, **trains(2e6, low=0.6), **good()))
    assert found["connection_rate"][0] > 5e6


@pytest.mark.parametrize("left", [0.1, 0.25, 0.7])
def test_a_path_that_carries_less_is_followed_at_once_though_every_flight_loses(fresh: Loop, left: float) -> None:
    in_use(fresh, 6e6)
    fallen = fresh.round(row(connections=100, **trains(left * 6e6), flights_0=30, lossy_0=30, segments_0=2100))
    assert 0.8 * left * 6e6 < fallen["connection_rate"][0] <= 0.9501 * left * 6e6
    assert fallen["path_rate"][0] <= 0.9501 * left * 6e6


def test_a_path_that_carries_four_times_as_much_is_tried_whole(fresh: Loop) -> None:
    in_use(fresh, 1e6)
    tried = fresh.round(row(connections=100, **trains(4e6), **carried()))
    assert tried["trial_connection_rate"][0] == pytest.approx(3.8e6)
    assert in_use(fresh, 4e6)["window"][0] > 250


def test_a_rate_for_all_at_once_that_is_beyond_the_path_is_lowered(fresh: Loop) -> None:
    """Two that start on one of two edges were carried all of its part of it."""
    loop = fresh
    in_use(loop, 6e6)
    loop.last["path_rate"] = 1.6 * 6e6
    found = loop.round(row(connections=100, **trains(6e6), **carried(path_carried_0=1.0)))
    assert (reason(found), found["path_rate"][0]) == (Reason.LOWERED, pytest.approx(5.7e6))
    assert found["connection_rate"][0] == pytest.approx(5.7e6)


def slow_trial(loop: Loop) -> None:
    """Before anything was named no train was recorded: the first trial is of what the default reached on its way up."""
    slow = loop.round(row(connections=100, reached_rate=8e5, reached_connections=30))
    assert 0 < slow["trial_connection_rate"][0] < 1.3e6


@pytest.mark.parametrize(("shown", "tried"), [(6e6, 5.7e6), (0.0, 0.0)])
def test_what_trains_show_is_tried_though_far_less_was_slower(fresh: Loop, shown: float, tried: float) -> None:
    slow_trial(fresh)
    times: dict[str, Any] = {"flights_0": 40, "segments_0": 2800, "t100_0_us": 325_000, "t100_1_us": 515_000}
    seen = trains(shown) if shown else {}
    found = fresh.round(row(connections=100, **seen, **times, flights_1=40, segments_1=2800))
    assert reason(found) is (Reason.TRIAL_PROVED if shown else Reason.TRIAL_SLOWER)
    assert found["trial_connection_rate"][0] == pytest.approx(tried)


def test_a_part_of_far_less_than_trains_show_is_no_sign_of_others(fresh: Loop) -> None:
    """Hosts that are late look the same."""
    slow_trial(fresh)
    found = fresh.round(row(connections=100, **trains(6e6), **carried(flights_1=20, path_carried_1=0.8)))
    assert (found["shared_at"][0], found["trial_connection_rate"][0]) == (0, pytest.approx(5.7e6))


def test_where_others_are_on_the_path_the_share_counts_for_a_while(fresh: Loop) -> None:
    """Trains are as fast beside a bulk flow as without; what follows them is not."""
    shared: dict[str, Any] = {"share_rate": 2e6, "share_connections": 20}
    values: dict[str, Any] = {"connections": 100, **trains(6e6), **shared, "path_rate": 6e6, "path_buckets": 10}
    fresh.round(row(**values))
    part = fresh.round(row(**values, **good(carried_1=0.6)))
    assert part["connection_rate"][0] == pytest.approx(0.95 * 0.6 * 5.7e6, rel=0.01)
    for _ in range(policy().start.ttl_s // STEP - 1):
        found = fresh.round(row(**values, **carried()))
        assert (found["trial_permille"][0], found["shared_at"][0]) == (0, part["shared_at"][0])
    # They may have gone.
    asked = fresh.round(row(**values, **carried()))
    assert asked["trial_connection_rate"][0] == pytest.approx(5.7e6)


def test_single_rates_that_collapsed_are_not_the_paths(fresh: Loop) -> None:
    """Connections that overshot a short queue go on at a tenth of the path: they met it, and say little of it."""
    collapsed: dict[str, Any] = {"share_rate": 5e5, "share_connections": 20}
    for _ in range(4):
        found = fresh.round(row(connections=100, **trains(6e6), **collapsed, **good()))
    assert found["connection_rate"][0] == pytest.approx(5.7e6)


def test_rounds_without_connections_change_nothing_of_what_is_on_trial(fresh: Loop) -> None:
    tried = fresh.round(row(connections=100, **trains(6e6), **carried()))
    for _ in range(3):
        quiet = fresh.round(proved(5e5))
        assert quiet["trial_connection_rate"][0] == tried["trial_connection_rate"][0] > 0


def test_few_trains_and_frozen_rounds_show_nothing(fresh: Loop) -> None:
    few = fresh.round(row(connections=2, **trains(6e6, trains=2)))
    assert few["trial_connection_rate"][0] < 1e6
    in_use(fresh, 6e6)
    frozen = fresh.round(row(connections=100, **trains(1e6)), frozen=("ams",))
    assert frozen["connection_rate"][0] == pytest.approx(5.7e6)


@together
def test_trains_are_of_all_records_and_their_median_is_of_all_hosts() -> Iterator[Rolled]:
    """With whatever they started, lost or braked; what takes less than half a millisecond counts as that long."""
    traffic = Traffic()
    traffic.hosts("ams-1", "ams-2", "ams-3")
    peer = "::ffff:10.77.2.9"
    for took in (2_172, 4_344, 13_032):
        traffic.flight("ams-1", peer, ROUND - 900, 0, train_bytes=TRAIN, train_time=took, first_flight_retrans=30)
        traffic.flight("ams-2", peer, ROUND - 300, 60, train_bytes=TRAIN, train_time=took, step=2)
        # Says whatever it likes: bounded by the others, and no more of it than of them together.
        for _ in range(10):
            traffic.flight("ams-3", peer, ROUND - 300, 60, train_bytes=4_000_000_000, train_time=1)
    traffic.flight("ams-1", peer, ROUND - 300, 60, train_bytes=TRAIN)
    traffic.flight("ams-1", peer, ROUND - 300, 60, train_time=100)
    yield (rolled := Rolled(traffic.rows))
    found = rolled.seen(FRA)
    assert found["trains"] == 11
    assert found["train_low_rate"] == 3_000_000
    assert 3_000_000 <= found["train_rate"] <= 7_400_000


@together
def test_a_train_that_is_over_too_fast_is_believed_half_a_millisecond() -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-1")
    for took in (1, 499):
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 60, train_bytes=TRAIN, train_time=took)
    yield (rolled := Rolled(traffic.rows))
    assert rolled.seen(FRA)["train_rate"] == TRAIN * 2000


def test_one_low_round_does_not_starve_a_path(fresh: Loop) -> None:
    """A withdrawn path leaves records as every path does: the next round's trains show what it carries."""
    in_use(fresh, 6e6)
    low = fresh.round(row(connections=100, **trains(1e5), flights_0=30, segments_0=2100))
    assert low["window"][0] == 0
    for _ in range(3):
        after = fresh.round(row(connections=100, **trains(6e6)))
    assert after["trial_connection_rate"][0] > 5e6


def test_trains_that_come_no_more_are_forgotten(fresh: Loop) -> None:
    in_use(fresh, 2e6)
    reasons = set()
    for _ in range(2 * policy().start.ttl_s // STEP):
        found = fresh.round(proved(6e6, **carried()))
        reasons.add(reason(found))
    assert found["connection_rate"][0] > 2e6 or found["trial_connection_rate"][0] > 2e6


def test_trains_hold_nothing_below_what_was_delivered_in_the_same_round(fresh: Loop) -> None:
    in_use(fresh, 6e6)
    reached: dict[str, Any] = {"reached_rate": 5.5e6, "reached_connections": 20}
    for _ in range(10):
        found = fresh.round(row(connections=100, **trains(6.5e5), **reached, **carried()))
    assert found["connection_rate"][0] == pytest.approx(5.7e6)


def test_next_to_nothing_is_withdrawn_and_not_given(fresh: Loop) -> None:
    in_use(fresh, 6e6)
    fresh.last["shared_at"] = fresh.now - STEP
    found = fresh.round(row(connections=100, **trains(1e3), flights_0=30, segments_0=2100))
    assert (found["window"][0], found["connection_rate"][0]) == (0, 0)


def test_a_small_receive_window_is_no_reason_to_lower_anything(fresh: Loop) -> None:
    for _ in range(6):
        found = fresh.round(row(connections=100, receiver_window=65_535, **trains(6e6), **good()))
        assert reason(found) is not Reason.LOWERED
    assert 40 <= found["window"][0] <= 45


def test_a_trial_under_a_ceiling_goes_on_to_its_end(fresh: Loop) -> None:
    """It cannot be what trains show: to begin it anew for that each round would show nothing, ever."""
    in_use(fresh, 6e6)
    fresh.last["window"] = fresh.last["connection_rate"] = fresh.last["path_rate"] = 0
    fresh.last["harmful_rate"], fresh.last["harmful_share"], fresh.last["hold_s"] = 2.5e6, 5.7e6, 900
    fresh.last["default_flights"], fresh.last["default_lossy"], fresh.last["default_resent"] = 40, 40, 8
    values: dict[str, Any] = trains(6e6) | {"flights_0": 20, "lossy_0": 20, "segments_0": 1400, "resent_0": 160}
    fresh.round(row(connections=100, **values))
    for _ in range(3):
        few: dict[str, Any] = {"flights_1": 2, "lossy_1": 2, "segments_1": 140, "resent_1": 16}
        found = fresh.round(row(connections=100, **values, **few))
    assert found["connection_rate"][0] == pytest.approx(2e6, rel=0.01)


def test_a_ceiling_of_a_path_that_has_become_faster_is_forgotten(fresh: Loop) -> None:
    in_use(fresh, 2e6)
    flood: dict[str, Any] = {"flights_0": 30, "lossy_0": 30, "segments_0": 2100, "resent_0": 500}
    cut = fresh.round(row(connections=100, **trains(2e6), **flood))
    assert (reason(cut), cut["harmful_rate"][0]) == (Reason.LOSS, pytest.approx(1.9e6))
    # A third more is no other path.
    same = fresh.round(row(connections=100, **trains(2.6e6), **carried()))
    assert same["harmful_rate"][0] > 0
    # Nor is what one round shows.
    assert fresh.round(row(connections=100, **trains(3.6e6), **carried()))["harmful_rate"][0] > 0
    faster = fresh.round(row(connections=100, **trains(3.6e6), **carried()))
    assert (faster["harmful_rate"][0], faster["hold_until"][0]) == (0, 0)
    assert faster["trial_connection_rate"][0] == pytest.approx(3.42e6)


def test_loss_by_what_trains_show_is_of_others_where_connections_met_less(fresh: Loop) -> None:
    """Flights that lose something do not show what was carried of them."""
    in_use(fresh, 6e6)
    met: dict[str, Any] = {"share_rate": 2e6, "share_connections": 20, "path_rate": 2.2e6}
    met |= {"path_buckets": 10, "reached_rate": 2e6, "reached_connections": 20}
    fresh.round(row(connections=100, **trains(6e6), **met))
    flood: dict[str, Any] = {"flights_0": 30, "lossy_0": 30, "segments_0": 2100, "resent_0": 120}
    once = fresh.round(row(connections=100, **trains(6e6), **met, **flood | {"lossy_0": 25}))
    assert (reason(once), once["shared_at"][0]) == (Reason.LOSS, 0)
    cut = fresh.round(row(connections=100, **trains(6e6), **met, **flood))
    assert cut["shared_at"][0] == fresh.now - STEP
    assert 1.8e6 < cut["connection_rate"][0] < 2.2e6


def test_loss_beside_what_single_connections_reach_is_not_of_others(fresh: Loop) -> None:
    """A single rate that collapsed, and others that reached what trains show: nobody else is there."""
    in_use(fresh, 6e6)
    met: dict[str, Any] = {"share_rate": 6e5, "share_connections": 20}
    met |= {"reached_rate": 5.5e6, "reached_connections": 20}
    fresh.round(row(connections=100, **trains(6e6), **met, **carried()))
    flood: dict[str, Any] = {"flights_0": 30, "lossy_0": 30, "segments_0": 2100, "resent_0": 500}
    cut = fresh.round(row(connections=100, **trains(6e6), **met, **flood))
    assert (reason(cut), cut["shared_at"][0]) == (Reason.LOSS, 0)
    # Half a cut: what trains show is not far from the path.
    assert cut["connection_rate"][0] == pytest.approx(5.7e6 * 0.8**0.5, rel=1e-3)


def test_trains_that_swing_do_not_end_a_hold_every_other_round(fresh: Loop) -> None:
    failed = 0
    for number in range(200):
        rate = float(fresh.last["trial_connection_rate"][0])
        values: dict[str, Any] = {"flights_0": 30, "segments_0": 2100, "t100_0_us": 3e5, "t100_1_us": 2e5}
        if rate > 0:
            over = max(0.0, 1 - 1.5e6 / rate)
            failed += over > 0
            values |= {"flights_1": 20, "segments_1": 1400, "resent_1": int(1400 * over), "lossy_1": 20 if over else 0}
        fresh.round(row(connections=100, **trains((4e6, 6e6)[number % 2]), **values))
    assert failed < 50


def test_neither_a_frozen_round_nor_an_operators_word_says_who_else_is_there(fresh: Loop) -> None:
    in_use(fresh, 6e6)
    met: dict[str, Any] = {"share_rate": 5e5, "share_connections": 20}
    fresh.round(row(connections=100, **trains(6e6), **met))
    flood: dict[str, Any] = {"flights_0": 30, "lossy_0": 30, "segments_0": 2100, "resent_0": 500}
    for name in ("overridden", ""):
        loop = Loop(policy(), now=fresh.now, last=fresh.last.copy())
        if name:
            loop.last[name] = 1
        for _ in range(3):
            found = loop.round(row(connections=100, **trains(6e6), **met, **flood), frozen=() if name else ("ams",))
            assert found["shared_at"][0] == 0
            if name:
                loop.last[name] = 1


def test_what_sharp_trains_show_is_judged_by_a_quarter_of_the_flights(fresh: Loop) -> None:
    fresh.round(row(connections=100, **trains(6e6), **carried()))
    few: dict[str, Any] = {"flights_1": 4, "segments_1": 280, "t100_0_us": 3e5, "t100_1_us": 2e5}
    assert fresh.round(row(connections=100, **trains(6e6), **carried(**few)))["window"][0] == 0
    done = fresh.round(row(connections=100, **trains(6e6), **carried(**few | {"flights_1": 1, "segments_1": 70})))
    assert reason(done) is Reason.PROMOTED


def test_what_fails_at_what_trains_show_is_not_tried_again_every_other_round(fresh: Loop) -> None:
    """A policer lets a train pass, and nothing of the kind after it."""
    lossy = 0
    for _ in range(300):
        rate = float(fresh.last["trial_connection_rate"][0]) if len(fresh.last) else 0.0
        values: dict[str, Any] = {"flights_0": 30, "segments_0": 2100}
        if rate > 0:
            over = max(0.0, 1 - 2e6 / rate)
            lossy += over > 0
            values |= {"flights_1": 20, "segments_1": 1400, "resent_1": int(1400 * over), "lossy_1": 20 if over else 0}
            values |= {"t100_0_us": 3e5, "t100_1_us": 2e5}
        fresh.round(row(connections=100, **trains(12e6), **values))
    assert lossy < 75


@together
def test_of_three_hosts_one_alone_decides_neither_the_median_nor_shows_one() -> Iterator[Sequence[Rolled]]:
    """Its mean is the others', but nearly all of its records say next to nothing."""
    traffic = Traffic()
    traffic.hosts("ams-1", "ams-2", "ams-3")
    peer = "::ffff:10.77.2.9"
    for number in range(12):
        for host in ("ams-1", "ams-2"):
            traffic.flight(host, peer, ROUND - 300, 60, train_bytes=TRAIN, train_time=2_172)
        for _ in range(2):
            took = 2_172_000 if number < 11 else 181
            traffic.flight("ams-3", peer, ROUND - 300, 60, train_bytes=TRAIN, train_time=took)
    alone = Traffic()
    alone.hosts("ams-1", "ams-2", "ams-3")
    for host in ("ams-1", "ams-2", "ams-3"):
        for _ in range(3):
            own = {"train_bytes": TRAIN, "train_time": 9_000_000} if host == "ams-3" else {}
            alone.flight(host, peer, ROUND - 300, 60, started_rate=4_000_000, **own)
    with_others, by_itself = Rolled(traffic.rows), Rolled(alone.rows, decided=DECIDED)
    yield with_others, by_itself
    assert with_others.seen(FRA)["train_rate"] == 6_000_000
    found = by_itself.seen(FRA)
    assert (found["trains"], np.isnan(found["train_rate"])) == (0, True)


def test_what_a_path_shows_by_turns_is_smoothed(fresh: Loop) -> None:
    """A tenth more and less from round to round is its own noise: what is in use does not follow."""
    shown = []
    for number in range(40):
        fresh.round(row(connections=100, **trains(6e6 * 1.15 ** (-1) ** number), **good()))
        shown.append(2 ** float(fresh.last["train_log2"][0]))
    assert max(shown[20:]) < 1.05 * min(shown[20:])


def test_a_rise_by_more_than_a_fifth_is_tried(fresh: Loop) -> None:
    in_use(fresh, 6e6)
    fresh.last["connection_rate"] = fresh.last["path_rate"] = 5.7e6 / 1.22
    tried = fresh.round(row(connections=100, **trains(6e6), **carried()))
    assert tried["trial_connection_rate"][0] == pytest.approx(5.7e6, rel=1e-3)


def test_in_a_round_in_which_none_met_a_shared_path_nothing_beyond_its_share_is_tried(fresh: Loop) -> None:
    met: dict[str, Any] = {"share_rate": 3e6, "share_connections": 20}
    in_use(fresh, 6e6)
    fresh.last["shared_at"] = fresh.now - STEP
    for _ in range(2):
        low = fresh.round(row(connections=100, **trains(6e6), **met))
    assert low["connection_rate"][0] < 4e6
    for _ in range(3):
        found = fresh.round(row(connections=100, **trains(6e6), **carried()))
        assert (reason(found), found["trial_permille"][0]) == (Reason.PROVED, 0)

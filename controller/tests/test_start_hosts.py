"""Influence of one of three edges or more on a unit where few connections start, and what few flights say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from testkit.home import ROUND
from testkit.path_model import Host
from testkit.path_traffic import DECIDED, FRA, Traffic
from testkit.rolled import Rolled
from testkit.start_hosts import Day, host, shown
from testkit.start_law import beginning
from testkit.together import together

FRANKFURT = "::ffff:10.77.2.9"


def three_hosts() -> Traffic:
    """Each has a connection, and no first flight."""
    traffic = Traffic()
    traffic.hosts("ams-1", "ams-2", "ams-3")
    for name in ("ams-1", "ams-2", "ams-3"):
        traffic.connection(name, FRANKFURT, 10**6)
    return traffic


def flight(traffic: Traffic, name: str, took_us: int, **more: Any) -> None:
    """Alone on its host: 98,552 bytes in so long; all of 2 MB/s is 49,276 us."""
    times = {"min_rtt": 50_000, "first_acked_time": 50_000, "acked_100k_time": 50_000 + took_us}
    values = {"started_rate": 2_000_000, "started_at_once": 1} | times | more
    traffic.flight(name, FRANKFURT, ROUND - 300, 72, **values)
    for number, one in enumerate(reversed(traffic.rows[-2:])):
        one["time_unix_us"] = (ROUND - 290 + 2 * (traffic.cookies % 100)) * 1_000_000 + number


@together
@pytest.mark.parametrize(("others", "flights", "resent"), [(0, 1, 1), (1, 2, 1), (2, 3, 1)])
def test_one_host_has_less_than_half_of_the_flights_though_some_are_idle(
    others: int, flights: int, resent: int
) -> Iterator[Rolled]:
    traffic = three_hosts()
    for name in ("ams-1", "ams-2")[:others]:
        flight(traffic, name, 49_276)
    for _ in range(20):
        flight(traffic, "ams-3", 400_000, first_flight_retrans=35)
        flight(traffic, "ams-3", 400_000, step=1)
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found = rolled.seen(FRA)
    assert (found["hosts"], found["flights_0"], found["resent_0"], found["braked"]) == (3, flights, resent, 0)


@together
def test_what_one_of_three_hosts_alone_says_was_carried_is_not_known() -> Iterator[Rolled]:
    traffic = three_hosts()
    for _ in range(20):
        flight(traffic, "ams-3", 98_552, train_bytes=13_032, train_time=10_000)
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found = rolled.seen(FRA)
    assert np.isnan(found["carried_0"])
    # The law believes no single train, but those of several rounds.
    assert (found["flights_0"], found["trains"], found["train_rate"]) == (1, 1, 1_303_200)


@together
@pytest.mark.parametrize("name", ["ams-2", "ams-3"])
def test_of_two_of_three_hosts_neither_says_less_than_the_other(name: str) -> Iterator[Rolled]:
    traffic = three_hosts()
    for _ in range(2):
        flight(traffic, "ams-1", 49_276 * 10 // 8, train_bytes=13_032, train_time=10_000)
    for _ in range(20):
        flight(traffic, name, 400_000, train_bytes=13_032, train_time=100_000)
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found = rolled.seen(FRA)
    assert found["carried_0"] == 0.8
    # Nobody else says which of them is right.
    assert found["trains"] == 0


@together
@pytest.mark.parametrize(("times", "trains"), [(1.3, 10), (1.5, 0), (10_000, 0)])
def test_of_two_of_three_hosts_neither_says_that_the_path_carries_more(times: float, trains: int) -> Iterator[Rolled]:
    traffic = three_hosts()
    for name, size in (("ams-1", 13_032), ("ams-3", int(13_032 * times))):
        for _ in range(5):
            flight(traffic, name, 49_276, train_bytes=size, train_time=10_000)
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    assert rolled.seen(FRA)["trains"] == trains


@together
def test_clean_flights_of_one_of_three_hosts_do_not_hide_that_all_others_lose() -> Iterator[Rolled]:
    traffic = three_hosts()
    for name in ("ams-1", "ams-2"):
        for _ in range(5):
            flight(traffic, name, 400_000, first_flight_retrans=28)
    for _ in range(30):
        flight(traffic, "ams-3", 49_276)
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found = rolled.seen(FRA)
    assert 2 * found["lossy_0"] > found["flights_0"]


@together
@pytest.mark.parametrize(("hosts", "connections"), [(3, 10), (4, 10), (4, 30)])
def test_one_host_does_not_say_the_lowest_round_trip(hosts: int, connections: int) -> Iterator[Rolled]:
    """Two of five of its connections: of all they are a tenth or more."""
    names = [f"ams-{number}" for number in range(1, hosts + 1)]
    traffic = Traffic()
    traffic.hosts(*names)
    for name in names:
        for number in range(connections if name == names[-1] else 10):
            low = {"min_rtt": 1} if name == names[-1] and number % 5 < 2 else {}
            traffic.connection(name, FRANKFURT, 10**6, **low)
    yield (rolled := Rolled(traffic.rows))
    assert rolled.seen(FRA)["min_rtt_us"] == 40_000


@together
@pytest.mark.parametrize(("flights", "lossy", "known"), [(1, 0, True), (2, 0, True), (1, 1, True), (1, 2, False)])
def test_what_few_flights_in_use_were_carried_is_known_where_there_are_no_more(
    flights: int, lossy: int, known: bool
) -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-1")
    for _ in range(flights):
        flight(traffic, "ams-1", 98_552)
    for _ in range(lossy):
        flight(traffic, "ams-1", 98_552, first_flight_retrans=1)
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found = rolled.seen(FRA)["carried_0"]
    assert found == 0.5 if known else np.isnan(found)


LIES: dict[str, Host | None] = {
    "none": None,
    "carried": host([(70, 0, 100)] * 30),
    "carried once": host([(70, 0, 100)]),
    "brake": host([(70, 0, 1000)] * 30, braked=30),
    "flood": host([(70, 35, 0)] * 30),
    "trains": host([(70, 0, 100)] * 30, trains=[6e5] * 30),
    "all": host([(70, 0, 100)] * 30, [(70, 35, 0)] * 30, braked=30, trains=[6e5] * 30),
}


@together
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize(("mean_flights", "edges"), [(0.3, 3), (1, 3), (2, 3), (0.3, 5)])
def test_one_edge_of_three_takes_nothing_from_a_thin_unit(lie: str, mean_flights: float, edges: int) -> Iterator[Day]:
    yield (day := Day(LIES[lie], mean_flights, edges))
    assert np.mean(day.rates) / 5.7e6 > 0.95


@together
@pytest.mark.parametrize("others", [1, 2])
def test_what_connections_reached_is_what_those_of_a_second_host_reached(others: int) -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-1", "ams-2", "ams-3")
    for name in ("ams-1", "ams-2")[:others]:
        traffic.connection(name, FRANKFURT, 10**6)
    if others == 1:
        # It has a connection, of which nothing is said.
        traffic.connection("ams-2", FRANKFURT, 10**6, delivery_rate=None, sent=20_000)
    for _ in range(5):
        traffic.connection("ams-3", FRANKFURT, 2 * 10**7)
    yield (rolled := Rolled(traffic.rows))
    assert rolled.seen(FRA)["reached_rate"] <= 1.01e6


@together
def test_moments_of_one_of_three_hosts_do_not_say_what_the_path_carries() -> Iterator[Rolled]:
    """Its rate is the others' on the mean: next to nothing but in one poll of six."""
    traffic = three_hosts()
    for one in traffic.rows:
        if one["host"] == "ams-3" and one.get("unacked"):
            one["delivery_rate"] = 6_000_000 if one["poll_sequence"] % 6 == 0 else 1
    yield (rolled := Rolled(traffic.rows))
    assert rolled.seen(FRA)["path_rate"] <= 4.1e6


@pytest.mark.parametrize("mean_flights", [1.0, 4.0])
@pytest.mark.parametrize(("claims", "trains"), [(10, 1), (20, 1), (10, 10), (20, 10)])
def test_what_one_edge_of_three_claims_does_not_stand_against_the_others_trains(
    mean_flights: float, claims: int, trains: int
) -> None:
    """It claims to have reached so many times the path, and such trains."""
    draw, loop = np.random.default_rng(0), beginning()
    for number in range(60):
        last = loop.last[0]
        use = float(last["connection_rate"])
        hosts = {}
        for edge in range(3):
            count = max(draw.poisson(mean_flights), int(edge == 2))
            of_trial = draw.binomial(count, last["trial_permille"] / 1000)
            in_use_now, on_trial = (
                [(70, 0, min(1000.0, 6e9 / max(rate, 1.0)))] * many
                for many, rate in ((count - of_trial, use), (of_trial, float(last["trial_connection_rate"])))
            )
            times, of_trains = (claims, trains) if edge == 2 else (1, 1)
            shows = list(of_trains * 6e6 * np.exp(draw.normal(0, 0.05, count)))
            reached = list(times * np.clip(use, 4e5, 5.8e6) * np.exp(draw.normal(0, 0.05, count)))
            hosts[f"ams-{edge}"] = host(in_use_now, on_trial, trains=shows, reached=reached)
        found = loop.round(shown(hosts))[0]
        if number > 10:
            given = [
                found[name] for name in ("connection_rate", "path_rate", "trial_connection_rate", "trial_path_rate")
            ]
            assert max(given) <= 6e6
    assert found["connection_rate"] > 5e6


def test_an_edge_with_nearly_all_of_the_flights_of_three_still_teaches_the_law() -> None:
    """A flight, and a train, a round: trains of three rounds are enough, and five flights of what they show."""
    loop = beginning()
    for _ in range(12):
        tried = [(70, 0, 1000)] * 10 if loop.last["trial_permille"][0] else []
        hosts = {"ams-1": host([(70, 0, 1000)] * 90, tried, trains=[6e6] * 100), "ams-2": host(), "ams-3": host()}
        found = loop.round(shown(hosts, reached_rate=4e5, reached_connections=30))
    assert found["connection_rate"][0] > 5e6

"""A round's evidence of paths, from samples over the roll-up, beside plain loops."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Mapping, Sequence

import numpy as np
import pytest
from springtide.laws.start.evidence import GROUPED, observe
from springtide.laws.start.law import PREVIOUS, STARTS, decide
from springtide.observe.rollup import rollup
from springtide.policy import Policy, StartPolicy
from springtide.store import Row, Store

from testkit import path_model, start_law
from testkit.home import ROUND
from testkit.path_model import Gave, Unit
from testkit.path_traffic import (
    CLIENTS,
    DECIDED,
    FRA,
    INTERVAL,
    MSS,
    SLOW,
    Traffic,
    mixed,
    roll_up,
    seen,
    thin,
    unit_of,
)
from testkit.rolled import Rolled
from testkit.start_law import Reason
from testkit.together import together

LAW = StartPolicy(share_quantile=0.25)

pytestmark = pytest.mark.usefixtures("path_fleet")


def matching(rolled: Rolled, rows: list[Row], decided: Mapping[int, Gave]) -> dict[Unit, Row]:
    """Returns the rows of paths, which are the same in the plain loops."""
    expected, found = path_model.paths(rows, ROUND, decided), {unit_of(row): row for row in rolled.rows("round_paths")}
    # Prefixes without anything to gain have no row.
    assert {unit for unit in expected if "/" not in unit[1]} <= set(found) <= set(expected)
    for unit, row in found.items():
        for name, value in expected[unit].items():
            if isinstance(value, str):
                assert row[name] == value, unit
            elif name != "starts":
                # Sums of held rates are rounded for each of four hosts.
                close = pytest.approx(value, rel=1e-4, abs=4 if name.startswith("path") else 1e-5)
                assert row[name] == close, (unit, name)
    parts = rolled.rows("round_path_starts")
    assert {(*unit_of(row), row["host"]): row["starts"] for row in parts} == {
        (*unit, host): count for unit in found for host, count in expected[unit]["starts"].items()
    }
    return found


@together
@pytest.mark.parametrize("seed", range(6))
def test_paths_match_the_definition(seed: int) -> Iterator[Rolled]:
    rows = mixed(seed)
    yield (rolled := Rolled(rows, decided=DECIDED))
    found = matching(rolled, rows, DECIDED)
    assert len(found) >= 10
    assert any(row["entry_flights"] + row["trial_flights"] for row in found.values())


@together
@pytest.mark.parametrize("seed", range(3))
def test_paths_with_few_flights_match_the_definition(seed: int) -> Iterator[Rolled]:
    rows, decided = thin(seed)
    yield (rolled := Rolled(rows, decided=decided))
    found = matching(rolled, rows, decided)
    for hosts in (2, 3, 4):
        of_hosts = [row for row in found.values() if row["hosts"] == hosts]
        for name in ("entry_flights", "entry_resent", "trial_flights", "trains", "entry_carried_permille"):
            assert any(row[name] for row in of_hosts), (hosts, name)
    assert any(row["braked"] for row in found.values() if row["hosts"] >= 3)
    assert not all(row["entry_carried_permille"] for row in found.values() if row["entry_flights"])


@together
def test_copies_order_and_splitting_change_no_byte() -> Iterator[Sequence[Rolled]]:
    rows = mixed(1)
    shuffled = rows * 2
    random.Random(3).shuffle(shuffled)
    clean = Rolled(rows, decided=DECIDED)
    copies = Rolled(shuffled[:100], shuffled[100:], rows[:50], decided=DECIDED)
    yield clean, copies
    assert copies.contents() == clean.contents()


@together
def test_neither_what_is_beside_it_nor_a_second_run_changes_a_byte() -> Generator[Rolled, pytest.FixtureRequest]:
    """Nor that others decide in more rounds."""
    rows, decided = mixed(1), {ROUND - 600: DECIDED[ROUND - 600]}
    request = yield (rolled := Rolled(rows, decided=decided))
    beside = rolled.contents()
    store = request.getfixturevalue("store")
    roll_up(store, [rows], decided)
    assert rolled.alone(store).contents() == beside
    rollup(store, ROUND, INTERVAL, ROUND + 600, paced=True)
    assert rolled.alone(store).contents() == beside


def test_an_empty_round_shows_nothing(store: Store) -> None:
    roll_up(store, [])
    assert len(observe(store, ROUND, LAW)) == 0


@together
def test_idle_connections_show_nothing() -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-1")
    yield (rolled := Rolled(traffic.rows))
    assert len(rolled.observe(LAW)) == 0


@together
@pytest.mark.parametrize("peer", ["::ffff:10.77.2.9", "fd77:2::9", "::ffff:203.0.113.7", "2001:db8:12:3456::1"])
def test_single_rates_are_those_of_connections_that_met_the_path(peer: str) -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-1")
    for rate in (1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000):
        traffic.connection("ams-1", peer, rate)
    # In slow start, and limited by their application.
    for rate in (800_000, 900_000):
        traffic.connection("ams-1", peer, rate, sent=100_000)
    for _ in range(9):
        traffic.connection("ams-1", peer, 10_000, delivery_rate_app_limited=True)
    yield (rolled := Rolled(traffic.rows))
    destination = {"::ffff:203.0.113.7": "203.0.113.0/24", "2001:db8:12:3456::1": "2001:db8:12:3400::/56"}
    unit = "ams", destination.get(peer, "fra"), 4 if "ffff" in peer else 6
    found = rolled.seen(unit, StartPolicy(share_quantile=0.25))
    assert (found["share_connections"], found["reached_connections"]) == (5, 7)
    assert 1_000_000 <= found["share_rate"] <= 2_000_000
    assert rolled.seen(unit, StartPolicy(share_quantile=0.5))["share_rate"] == pytest.approx(3_000_000, rel=1e-6)
    assert found["reached_rate"] == 5_000_000
    assert (found["connections"], found["hosts"], found["mss"], found["min_rtt_us"]) == (16, 1, MSS, 40_000)


@together
def test_only_application_limited_connections_prove_no_rate() -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-1")
    for _ in range(5):
        traffic.connection("ams-1", "::ffff:10.77.2.9", 10**6, delivery_rate_app_limited=True)
    yield (rolled := Rolled(traffic.rows))
    found = rolled.seen(FRA)
    assert (found["share_connections"], found["reached_connections"], found["path_buckets"]) == (0, 0, 0)
    assert all(np.isnan(found[name]) for name in ("share_rate", "reached_rate", "path_rate", "at_once"))
    assert found["connections"] == 5


@together
def test_a_rate_of_an_earlier_round_is_no_evidence() -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-1")
    for poll in range(20):
        row = traffic.row("ams-1", 77, "::ffff:10.77.2.9", poll, bytes_acked=10**7 + poll, bytes_sent=10**7 + poll)
        traffic.rows.append(row | {"delivery_rate": 5_000_000, "unacked": 0})
    yield (rolled := Rolled(traffic.rows))
    assert rolled.seen(FRA)["share_connections"] == 0


@together
def test_rates_of_one_time_add_up_over_the_hosts() -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-1", "ams-2")
    for host in ("ams-1", "ams-2"):
        for _ in range(2):
            traffic.connection(host, "::ffff:10.77.2.9", 1_000_000, born=10, polls=10)
    # Before them, and alone: at another time.
    traffic.connection("ams-1", "::ffff:10.77.2.9", 900_000, born=3, polls=5)
    yield (rolled := Rolled(traffic.rows))
    found = rolled.seen(FRA)
    assert (found["path_buckets"], found["at_once"], found["hosts"]) == (10, 4, 2)
    assert found["path_rate"] == pytest.approx(4_000_000, rel=1e-4)


@together
def test_no_host_determines_what_a_path_carries() -> Iterator[Sequence[Rolled]]:
    ordinary = Traffic()
    ordinary.hosts("ams-1", "ams-2", "ams-3")
    for host in ("ams-1", "ams-2"):
        for n in range(8):
            ordinary.connection(host, "::ffff:10.77.2.9", 1_000_000 + 10_000 * n, born=10, polls=10)
            ordinary.flight(host, "::ffff:10.77.2.9", ROUND - 300, 40)
    without = Rolled(ordinary.rows, decided=DECIDED)
    for n in range(300):
        ordinary.connection("ams-3", "::ffff:10.77.2.9", 10**10 + n, born=10, polls=10, sample_weight=60_000)
        ordinary.flight("ams-3", "::ffff:10.77.2.9", ROUND - 300, 40, first_flight_retrans=60)
    with_it = Rolled(ordinary.rows, decided=DECIDED)
    yield without, with_it
    before, after = without.seen(FRA), with_it.seen(FRA)
    assert before["flights_0"] == 16
    for name, most in (("share_rate", 2.1), ("path_rate", 3.2), ("at_once", 2.1), ("flights_0", 2.1)):
        assert before[name] <= after[name] <= most * before[name], name
    assert 2 * after["lossy_0"] <= after["flights_0"]
    assert after["share_connections"] <= 2 * before["share_connections"]


@together
def test_rates_far_apart_of_one_host_stop_no_round() -> Iterator[Rolled]:
    """Bounded by the others' its lowest are less than a byte a second."""
    traffic = Traffic()
    traffic.hosts("ams-1", "ams-2", "ams-3")
    for host in ("ams-1", "ams-2"):
        for _ in range(4):
            traffic.connection(host, "::ffff:10.77.2.9", 1_000_000)
    for rate in (10, 10, 10**11):
        traffic.connection("ams-3", "::ffff:10.77.2.9", rate)
    yield (rolled := Rolled(traffic.rows))
    found = rolled.seen(FRA)
    assert found["share_connections"] == 11


@together
@pytest.mark.parametrize(("braking", "expected"), [(1, 0), (2, 2)])
def test_of_three_hosts_the_brake_of_one_alone_is_its_own(braking: int, expected: int) -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-1", "ams-2", "ams-3")
    for n, host in enumerate(("ams-1", "ams-2", "ams-3")):
        for _ in range(4):
            traffic.flight(host, "::ffff:10.77.2.9", ROUND - 300, 40)
        if n < braking:
            traffic.flight(host, "::ffff:10.77.2.9", ROUND - 300, 40, step=1)
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found = rolled.seen(FRA)
    assert (found["flights_0"], found["braked"]) == (12, expected)


@together
def test_no_record_hides_what_others_lost() -> Iterator[Rolled]:
    """A quarter of what the others send again is left at least, whatever a record claims to have sent."""
    traffic = Traffic()
    traffic.hosts("ams-1", "ams-2", "ams-3", "ams-4")
    for host in ("ams-1", "ams-2", "ams-3"):
        for _ in range(8):
            traffic.flight(host, "::ffff:10.77.2.9", ROUND - 300, 60, arm=1, first_flight_retrans=35)
    for _ in range(30):
        traffic.flight("ams-4", "::ffff:10.77.2.9", ROUND - 300, 60, arm=1, data_segs_out=2**32 - 1)
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found = rolled.seen(FRA)
    assert found["resent_1"] * 70 * 4 >= found["segments_1"] * 35


@together
def test_a_long_connection_hides_no_lossy_first_flight() -> Iterator[Rolled]:
    """One of eight connections lasts for 100 MB: what first flights lost is of what they sent."""
    traffic = Traffic()
    traffic.hosts("ams-1", "ams-2")
    for host in ("ams-1", "ams-2"):
        for number in range(12):
            all_sent = 69_000 if number % 8 == 0 else 78
            sent = {"data_segs_out": all_sent, "total_retrans": 8, "first_flight_retrans": 8, "first_flight_segs": 78}
            traffic.flight(host, "::ffff:10.77.2.9", ROUND - 300, 40, **sent)
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found = rolled.seen(FRA)
    lost = {f"{name}_0": found[f"{name}_0"] for name in ("flights", "lossy", "resent", "segments")}
    assert list(lost.values()) == [24, 24, 192, 1_872]
    loop = start_law.beginning()
    rate = start_law.in_use(loop, 8e6)["connection_rate"][0]
    assert loop.round(start_law.row(connections=24, **lost))["connection_rate"][0] < 0.9 * rate


@together
def test_no_more_was_sent_again_than_was_sent() -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-4")
    traffic.flight("ams-4", "::ffff:10.77.2.9", ROUND - 300, 40, data_segs_out=70, first_flight_retrans=2**31)
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found = rolled.seen(FRA)
    assert (found["resent_0"], found["segments_0"]) == (70, 70)


@together
def test_one_hosts_losses_of_the_default_excuse_no_trial() -> Iterator[Rolled]:
    """All that start with the values on trial lose something, none of the default's do; one host says the opposite."""
    traffic = Traffic()
    traffic.hosts("ams-1", "ams-2", "ams-3", "ams-4")
    peer = "::ffff:203.0.113.7"
    for host in ("ams-1", "ams-2", "ams-3", "ams-4"):
        lies = host == "ams-4"
        for _ in range(30 if lies else 10):
            traffic.flight(host, peer, ROUND - 300, 0, first_flight_retrans=70 * lies)
            traffic.flight(host, peer, ROUND - 300, 20, arm=1, first_flight_retrans=0 if lies else 35)
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found = rolled.observe(LAW)
    client = found[found["destination"] == CLIENTS[1].encode()]
    assert client["lossy_0"][0] <= 0.05 * client["flights_0"][0]
    assert 2 * client["lossy_1"][0] >= client["flights_1"][0]
    before = np.zeros(1, PREVIOUS)
    for name, value in zip(("src_pop", "destination", "ip_version"), CLIENTS, strict=True):
        before[name] = value
    before["trial_window"], before["trial_connection_rate"], before["trial_path_rate"] = SLOW
    before["trial_permille"], before["measured_rounds"], before["round"] = 100, 3, ROUND - 300
    before["last_evidence"] = ROUND - 300
    [decided] = decide(ROUND, Policy(), client, before, np.zeros(0, GROUPED))
    assert (STARTS.reasons[decided["reason"]], decided["window"]) == (Reason.TRIAL_LOSS, 0)


@together
def test_a_stranger_and_an_address_of_another_pop_count_for_nothing() -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-1", "ams-9")
    traffic.connection("ams-9", "::ffff:10.77.2.9", 10**6)
    traffic.flight("ams-9", "::ffff:10.77.2.9", ROUND - 300, 40)
    traffic.connection("ams-1", "::ffff:10.77.2.9", 10**6, src_pop="nyc")
    traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 40, src_pop="nyc")
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    assert len(rolled.observe(LAW)) == 0


@together
def test_first_flights_count_with_the_values_that_are_in_force() -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-1")
    fra, client = "::ffff:10.77.2.9", "::ffff:203.0.113.7"
    for n in range(4):
        # The same values since two rounds ago; a bundle is of a time at or after its decisions.
        traffic.flight("ams-1", fra, ROUND - 600 + n * 100, 40, first_flight_retrans=n, acked_100k_time=200_000 + n)
    for _ in range(5):
        traffic.flight("ams-1", fra, ROUND - 900, 20, first_flight_retrans=9)
    for _ in range(2):
        traffic.flight("ams-1", fra, ROUND - 300, 60, arm=1, acked_100k_time=150_000)
    traffic.flight("ams-1", fra, ROUND - 900, 20, arm=1)
    traffic.flight("ams-1", fra, ROUND - 300, 20, step=1)
    traffic.flight("ams-1", fra, ROUND - 300, 40, data_segs_out=12, total_retrans=2)
    # An entry with a trial only: the others start with the kernel's default.
    for _ in range(3):
        traffic.flight("ams-1", client, ROUND - 300, 0)
    traffic.flight("ams-1", client, ROUND - 300, 20, arm=1)
    traffic.flight("ams-1", client, ROUND - 300, 20)
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found = rolled.seen(FRA)
    assert [found[f"{name}_0"] for name in ("flights", "lossy", "resent", "segments")] == [4, 3, 6, 280]
    assert (found["entry_window_p50"], found["entry_rate_p50_bytes_per_s"]) == (40, 800_000)
    assert (found["t50_0_us"], found["t100_0_us"]) == (150_000, 200_001)
    assert [found[f"{name}_1"] for name in ("flights", "lossy", "t100")[:2]] == [2, 0]
    assert (found["trial_window_p50"], found["t100_1_us"]) == (60, 150_000)
    assert found["braked"] == 1
    client_found = rolled.seen(CLIENTS)
    assert (client_found["flights_0"], client_found["flights_1"], client_found["trial_window_p50"]) == (3, 1, 20)
    assert client_found["entry_window_p50"] == 0
    # A connection with a record is not a default start once more.
    assert client_found["default_flights"] == 0


def test_without_decisions_first_flights_are_of_nothing_in_force(store: Store) -> None:
    traffic = Traffic()
    traffic.hosts("ams-1")
    traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 40)
    traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 40, arm=1)
    roll_up(store, [traffic.rows])
    found = seen(store, FRA)
    assert (found["flights_0"], found["flights_1"], found["braked"]) == (0, 0, 0)


@together
def test_starts_that_the_bundle_does_not_name_are_the_defaults() -> Iterator[Rolled]:
    """Beside values in use they are held against these; where there are none they are the path's own."""
    traffic = Traffic()
    traffic.hosts("ams-1")
    unnamed: Row = {"started_prefix_length": 0, "first_flight_segs": 70}
    for peer in ("::ffff:10.77.2.9", "::ffff:10.77.3.9"):
        traffic.connection("ams-1", peer, 10**6, sent=14 * MSS, polls=0)
        for more in ({}, {}, {"first_flight_retrans": 3, "total_retrans": 3}, {"first_flight_segs": 10}):
            traffic.flight("ams-1", peer, ROUND - 300, 0, **unnamed | more)
    # Named, but its SYN was sent again: it was left alone for that. Begun more than an hour ago. To the host itself.
    for more in ({}, {**unnamed, "lived_time": 4000 * 10**6}):
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 0, **more)
    traffic.connection("ams-1", "::ffff:203.0.113.7", 10**6, sent=14 * MSS, polls=0)
    traffic.flight("ams-1", "::ffff:203.0.113.200", ROUND - 300, 0, **unnamed, src_ip="::ffff:203.0.113.200")
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found, nyc, clients = (rolled.seen(unit) for unit in (FRA, ("ams", "nyc", 4), CLIENTS))
    assert (found["default_flights"], found["default_lossy"], found["flights_0"]) == (3, 1, 0)
    assert found["receiver_window"] == 65_535
    assert (nyc["default_flights"], nyc["flights_0"], nyc["lossy_0"]) == (0, 3, 1)
    assert (clients["connections"], clients["flights_0"], clients["trains"]) == (1, 0, 0)


@together
def test_a_restarted_host_is_not_new_connections() -> Iterator[Rolled]:
    traffic = Traffic()
    # Another, that the middle host polls as often as always.
    traffic.hosts("ams-1", "ams-2")
    traffic.connection("ams-1", "::ffff:10.77.2.9", 10**6)
    # After a restart all that its first poll shows is as old as it may be.
    for cookie in range(900, 940):
        for poll in (15, 16):
            row = traffic.row("ams-1", cookie, "::ffff:10.77.2.9", poll, bytes_acked=10**6, bytes_sent=10**6)
            traffic.rows.append(row | {"boot_id": "after", "poll_sequence": poll - 14})
    yield (rolled := Rolled(traffic.rows))
    assert rolled.seen(FRA)["connections"] == 1

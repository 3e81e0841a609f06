"""First flights show what the path carried of the rates that they were given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from testkit.home import ROUND
from testkit.path_traffic import DECIDED, FAST, FRA, NONE, Traffic, decision_rows
from testkit.rolled import Rolled
from testkit.together import together


def one_after_another(traffic: Traffic) -> None:
    """All flights, four seconds apart; each has a row for its close and one for its record."""
    rows = [one for one in traffic.rows if one["kind"] in ("CLOSE", "FIRST_FLIGHT")]
    for number, one in enumerate(rows):
        one["time_unix_us"] = (ROUND - 290 + 4 * (number // 2)) * 1_000_000


@together
def test_what_the_path_carried_of_what_a_single_one_is_given() -> Iterator[Rolled]:
    """50 or 100 kB that the window covers, since the first acknowledgement; the median of those without loss."""
    traffic = Traffic()
    traffic.hosts("ams-1")
    more: dict[str, Any] = {"started_rate": 2_000_000, "min_rtt": 50_000, "started_at_once": 1}
    # 98,552 bytes, since the first segment is what the first acknowledgement is of: all, four fifths twice, two fifths.
    for took, first in ((90_000, 50_000), (111_595, 0), (111_595, 0), (193_190, 70_000)):
        times = {"acked_100k_time": took, "first_acked_time": first}
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 72, **times, **more)
    # Flights that lost; that waited for their window; that have no time, or one that cannot be; that left with less,
    # since others were there lately.
    for _ in range(5):
        late = more | {"acked_100k_time": 950_000, "acked_50k_time": None}
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 72, **late, first_flight_retrans=1)
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 35, **late)
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 72, **late | {"acked_100k_time": None})
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 72, **late | {"acked_100k_time": 50_000})
        lately = {"started_rate": 1_500_000, "started_at_once": 4}
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 72, **late | lately)
        # A larger object than the window, which is used up within the round trip: it shows that, and not the path.
        large = {"min_rtt": 60_000, "bytes_acked": 1_000_000, "acked_100k_time": 190_000}
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 72, **late | large)
        # An object that is over in 14 ms is closed some milliseconds late.
        short = {"started_rate": 7_000_000, "acked_100k_time": 80_000}
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 250, **late | short)
        # A rate that the kernel does not pace: of 30 segments no more than two windows in 50 ms leave.
        paced = {"bytes_acked": 40_000, "acked_100k_time": None, "acked_50k_time": 150_000}
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 30, **late | paced)
    # On trial: 48,552 bytes in 15 ms are faster than what was given.
    trial = more | {"started_rate": 2_500_000, "arm": 1, "bytes_acked": 50_000}
    traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 60, acked_50k_time=65_000, **trial)
    one_after_another(traffic)
    # The first of several left as if it were alone.
    slow = more | {"acked_100k_time": 950_000}
    for at_once in (1, 2, 3, 4):
        of_several = slow | {"started_rate": 2_000_000 // at_once, "started_at_once": at_once}
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 72, **of_several)
    for one in traffic.rows[-8:]:
        one["time_unix_us"] = (ROUND - 5) * 1_000_000
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found = rolled.seen(FRA)
    assert (found["carried_0"], found["carried_1"]) == (0.8, 1.0)
    # The several say what is carried of what all are given: each was delivered 98,552 bytes in 900 ms.
    assert found["path_carried_0"] == pytest.approx(4 * 98_552 / 0.9 / 2_000_000, abs=0.001)
    assert np.isnan(found["path_carried_1"])


@together
def test_what_the_path_carried_of_what_all_at_once_are_given() -> Iterator[Rolled]:
    """Flights that leave while all of the host's part is in use say it, and not one that is alone with its share."""
    traffic = Traffic()
    traffic.hosts("ams-1")
    # Four that share 8 MB/s, of which the path carries 6: each gets 1.5 instead of 2.
    group: dict[str, Any] = {"started_rate": 2_000_000, "min_rtt": 60_000, "started_at_once": 4, "acked_50k_time": None}
    each = {"acked_100k_time": 60_000 + round(98_552 / 1.5)}
    for _ in range(4):
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 72, **group | each)
    for one in traffic.rows[-8:]:
        one["time_unix_us"] = traffic.rows[-1]["time_unix_us"]
    # Alone a minute later, and given a fourth since four were there lately: it says nothing of all.
    for minute in range(1, 4):
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 72, **group | {"acked_100k_time": 105_000})
        for one in traffic.rows[-2:]:
            one["time_unix_us"] = traffic.rows[-3]["time_unix_us"] + minute * 1_000_000
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found = rolled.seen(FRA)
    assert found["path_carried_0"] == 0.75
    # They left at what a single one is given, and came back no slower.
    assert found["carried_0"] == 1.0


@together
def test_all_who_start_together_are_on_trial_or_show_a_tenth_more_than_they_left_at() -> Iterator[Rolled]:
    """Three of six are given half more: five sixths of what six would be, which were carried."""
    traffic = Traffic()
    traffic.hosts("ams-1")
    same: dict[str, Any] = {"min_rtt": 60_000, "started_at_once": 6, "acked_50k_time": None, "bytes_acked": 100_000}
    for arm, rate in ((0, 2_000_000), (1, 3_000_000)) * 3:
        took = 60_000 + round(98_552 * 1_000_000 / rate)
        more = {"started_rate": rate, "arm": arm, "acked_100k_time": took}
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 125, **same, **more)
    for one in traffic.rows[-12:]:
        one["time_unix_us"] = traffic.rows[-1]["time_unix_us"]
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found = rolled.seen(FRA)
    # Those in use were given more than their part, since the others were, and it was carried.
    assert found["path_carried_0"] == 1.0
    # 15 of 18 MB/s while all are under way, and a tenth more.
    assert found["path_carried_1"] == pytest.approx(1.1 * 15 / 18, abs=0.001)


def timed(traffic: Traffic, host: str, at_s: int, took: int, **more: Any) -> None:
    same: dict[str, Any] = {"started_rate": 2_000_000, "min_rtt": 60_000, "started_at_once": 1, "acked_50k_time": None}
    traffic.flight(host, "::ffff:10.77.2.9", ROUND - 300, 72, **same | {"acked_100k_time": 60_000 + took} | more)
    for one in traffic.rows[-2:]:
        one["time_unix_us"] = (ROUND - 290 + at_s) * 1_000_000


@together
@pytest.mark.parametrize(("others", "says", "carried"), [(49_276, 500_000, 1.0), (98_552, 49_276, 0.5)])
def test_no_host_of_three_decides_what_the_path_carried(others: int, says: int, carried: float) -> Iterator[Rolled]:
    """However many flights of one say less, or more. Half of it a round would soon be nothing."""
    traffic = Traffic()
    traffic.hosts("ams-1", "ams-2", "ams-3")
    for host, took, count in (("ams-1", others, 12), ("ams-2", others, 12), ("ams-3", says, 60)):
        for n in range(count):
            timed(traffic, host, 4 * n, took)
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    assert rolled.seen(FRA)["carried_0"] == carried


@together
def test_two_flights_of_many_do_not_say_what_the_path_carried() -> Iterator[Rolled]:
    """Their senders may have waited for what they sent."""
    traffic = Traffic()
    traffic.hosts("ams-1")
    for n in range(12):
        timed(traffic, "ams-1", 4 * n, 49_276)
    for _ in range(2):
        timed(traffic, "ams-1", 200, 9_000_000, started_at_once=2)
    yield (rolled := Rolled(traffic.rows, decided=DECIDED))
    found = rolled.seen(FRA)
    assert (found["flights_0"], found["carried_0"]) == (14, 1.0)
    assert np.isnan(found["path_carried_0"])


@together
def test_what_one_host_of_three_shows_alone_is_not_known() -> Iterator[Sequence[Rolled]]:
    traffic = Traffic()
    traffic.hosts("ams-1", "ams-2", "ams-3")
    for host in ("ams-1", "ams-2", "ams-3"):
        for n in range(12):
            timed(traffic, host, 4 * n, 49_276)
    # Two at once, which took nine seconds.
    for _ in range(2):
        timed(traffic, "ams-3", 200, 9_000_000, started_at_once=2)
    of_one = Rolled(traffic.rows, decided=DECIDED)
    for _ in range(2):
        timed(traffic, "ams-2", 200, 9_000_000, started_at_once=2)
    of_two = Rolled(traffic.rows, decided=DECIDED)
    yield of_one, of_two
    found = of_one.seen(FRA)
    assert (found["flights_0"], found["carried_0"]) == (38, 1.0)
    assert np.isnan(found["path_carried_0"])
    assert of_two.seen(FRA)["path_carried_0"] < 0.01


@together
@pytest.mark.parametrize(("permille", "counts"), [(200, 3), (0, 0)])
def test_starts_with_the_default_beside_what_is_in_use_are_the_trials(permille: int, counts: int) -> Iterator[Rolled]:
    """Where the law has not decided so, they are an experiment's."""
    traffic = Traffic()
    traffic.hosts("ams-1")
    for n in range(3):
        traffic.flight("ams-1", "::ffff:10.77.2.9", ROUND - 300, 0, arm=1, first_flight_retrans=n)
    [decided] = decision_rows({ROUND - 300: {FRA: (FAST, NONE)}})
    yield (rolled := Rolled(traffic.rows, decided=[decided | {"trial_permille": permille}]))
    found = rolled.seen(FRA)
    assert (found["flights_1"], found["lossy_1"], found["flights_0"]) == (counts, max(0, counts - 1), 0)

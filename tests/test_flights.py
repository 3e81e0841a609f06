"""The model of first flights against what was measured in the lab, and what holds of it by itself."""

from __future__ import annotations

import pytest

from bench.calm import measured
from bench.calm.flights import NO_RATE, Path, completion, completions


def test_it_agrees_with_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured.rows()
    with capsys.disabled():
        print(f"\n{len(found)} points, median error {measured.median_error(found):.1%}\n{measured.table(found)}")
    assert len(found) >= 30
    assert measured.median_error(found) < 0.1
    # Nine of ten are within a half; what a law may choose, a rate divided or at its share, within a tenth.
    errors = sorted(abs(error) for *_, error in found)
    assert errors[int(0.9 * len(errors))] < 0.5
    chosen = ("100 at rate", "400 at rate", "rate divided", "100 at its share")
    worst = max(
        abs(error)
        for one, *_, error in found
        if one.way in chosen and one.size == 100_000 and (not one.path.flows or one.way == "100 at its share")
    )
    assert worst < 0.1


def test_a_flight_that_fits_takes_a_round_trip_and_its_serving() -> None:
    path = Path(50, 100, 1000)
    ms, resent = completion(path, 100_000, 100, None)
    assert resent == 0
    # Headers are on the wire too.
    assert path.limit_ms(100_000) < ms < path.limit_ms(100_000) + 1.5


def test_nothing_is_faster_than_the_limit_and_what_is_lost_is_sent_again() -> None:
    for queue in (2, 10, 50):
        for window in (10, 50, 400):
            for rate in (None, NO_RATE, 1e6, 1e7):
                for at_once in (1, 3):
                    path = Path(20, 60, queue)
                    found = completions(path, 200_000, window, rate, at_once)
                    assert len(found) == at_once
                    assert max(ms for ms, *_ in found) > path.limit_ms(200_000, at_once)
                    assert all(resent >= first >= 0 for _, resent, first in found)


def test_a_burst_loses_what_the_queue_does_not_hold() -> None:
    """All at once into a queue of 20: one is served meanwhile."""
    _, resent = completion(Path(10, 100, 20), 60 * 1448, 60, None)
    assert resent == pytest.approx(60 - 20, abs=1)
    assert completion(Path(10, 100, 20), 60 * 1448, 60, 0.9 * 10 * 125_000)[1] == 0

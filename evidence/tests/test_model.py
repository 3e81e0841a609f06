"""The paper's model beside a simulation that sends segment by segment, and the numbers that the paper prints."""

from __future__ import annotations

import math
from random import Random

import pytest

from evidence import model
from testkit.slowstart import Sender

SIZES = sorted({*range(1_000, 40_000, 997), *range(40_000, 1_200_000, 40_009), 15_000, 75_000, 100_000, 150_000})


def sent(size: int, window: int, segment: int) -> int:
    """Flights of a sender that doubles: a round trip each."""
    sender, left, flights = Sender(window), math.ceil(size / segment), 0
    while left > 0:
        flight = min(left, sender.window)
        sender.send(flight)
        left, flights = left - flight, flights + 1
    return flights


@pytest.mark.parametrize("segment", [1448, model.SEGMENT])
@pytest.mark.parametrize("window", model.WINDOWS)
def test_round_trips_are_those_of_a_sender_that_doubles(window: int, segment: int) -> None:
    # A size between two whole segments takes as long as one of whole segments.
    sizes = [math.ceil(size / segment) * segment for size in SIZES]
    assert [int(one) for one in model.trips(sizes, window, segment)] == [sent(size, window, segment) for size in sizes]


def test_files_drawn_from_the_curve_take_the_round_trips_that_the_paper_prints() -> None:
    """Figure 3 by a draw of files, of which a simulation sends each: 31 points more at 50, all but 15 % at 100."""
    chance, curve = Random(3), model.through({15_000: 0.46, 75_000: 0.77, 150_000: 0.85})
    drawn = [int(chance.choice(curve)) for _ in range(20_000)]
    first = {window: sum(sent(size, window, 1500) == 1 for size in drawn) / len(drawn) for window in (10, 50, 100)}
    # Three standard deviations of 20,000 draws are a point.
    assert first[10] == pytest.approx(0.46, abs=0.01)
    assert first[50] - first[10] == pytest.approx(0.31, abs=0.015)
    assert first[100] == pytest.approx(0.85, abs=0.01)


def test_100_kb_save_two_round_trips() -> None:
    assert [sent(100_000, window, 1500) for window in model.WINDOWS] == [3, 2, 2, 1]
    found = model.measured()
    assert found["fig6-median"].ours == pytest.approx(2 * 125, rel=1e-3)
    assert found["fig6-p90-share"].ours == 100


def test_curves_go_through_what_is_stated() -> None:
    for sizes in model.curves({15_000: 0.46, 200_000: 0.85}):
        assert (sizes <= 15_000).mean() == pytest.approx(0.46, abs=0.001)
        assert (sizes <= 200_000).mean() == pytest.approx(0.85, abs=0.001)

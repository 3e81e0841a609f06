"""Something else comes onto a path: what is in use begins to lose more, and goes down to an equal part."""

from __future__ import annotations

from typing import Any

import pytest

from testkit.start_law import STEP, Loop, Reason, Rows, beginning, carried, in_use, reason, row, trains

# What trains show, and what is then given of it.
PATH, GIVEN = 6e6, 5.7e6


@pytest.fixture
def short() -> Loop:
    """A queue so short that each flight of the default lost something, and half of those with the path's rate do."""
    loop = beginning()
    in_use(loop, PATH)
    loop.last["default_flights"], loop.last["default_lossy"], loop.last["default_resent"] = 40, 40, 20
    loop.last["default_at"] = loop.now - STEP
    for _ in range(4):
        assert lost(loop)["connection_rate"][0] == pytest.approx(GIVEN)
    return loop


def lost(loop: Loop, lossy: int = 12, of: int = 24, each: int = 4, rate: float = PATH, **values: Any) -> Rows:
    """A round in which so many flights lose so many segments each; none shows what was carried of it."""
    flights: dict[str, Any] = {"flights_0": of, "segments_0": 100 * of, "lossy_0": lossy, "resent_0": each * lossy}
    return loop.round(row(connections=100, **trains(rate), **flights, **values))


def test_what_loses_more_than_it_did_has_an_equal_part_beside_one_more(short: Loop) -> None:
    found = lost(short, lossy=20, each=10)
    assert reason(found) is Reason.LOSS
    assert found["connection_rate"][0] == pytest.approx(GIVEN / 2, rel=0.01)
    # Of those who start at once each has that one beside it.
    assert found["path_rate"][0] > 0.85 * GIVEN
    assert (found["harmful_rate"][0], found["trial_window"][0]) == (pytest.approx(GIVEN), 0)


def test_what_has_a_half_is_not_halved_again(short: Loop) -> None:
    """One of several edges that says so every other round would take all."""
    for number in range(40):
        short.last["default_at"] = short.now - STEP
        found = lost(short, lossy=20, each=10) if number % 2 else lost(short, lossy=8, each=1)
        assert found["connection_rate"][0] > 0.45 * GIVEN


def test_loss_that_does_no_harm_says_nothing(short: Loop) -> None:
    """Of each segment one in a hundred by chance: most flights lose one."""
    for _ in range(12):
        lost(short, lossy=0)
    assert lost(short, lossy=14, each=2)["connection_rate"][0] == pytest.approx(GIVEN)


def test_what_an_operator_set_is_not_judged(short: Loop) -> None:
    short.last["overridden"] = 1
    assert lost(short, lossy=20, each=10)["harmful_rate"][0] == 0


def test_what_is_carried_beside_it_goes_up_by_steps_below_the_ceiling(short: Loop) -> None:
    lost(short, lossy=20, each=10)
    found = short.round(row(connections=100, **trains(PATH), **carried()))
    assert GIVEN / 2 < found["trial_connection_rate"][0] <= 0.8 * GIVEN


@pytest.mark.parametrize(
    ("what", "lossy", "each"),
    [
        ("as much as before", 14, 4),
        ("more by chance", 15, 5),
        ("few of the flights, as one host's are", 11, 20),
    ],
)
def test_nothing_falls_by(short: Loop, what: str, lossy: int, each: int) -> None:
    for _ in range(3):
        assert lost(short, lossy=lossy, each=each)["connection_rate"][0] == pytest.approx(GIVEN), what


def test_of_thousands_of_flights_no_small_rise_says_it(short: Loop) -> None:
    for _ in range(4):
        lost(short, lossy=6_000, of=10_000, each=2)
    found = lost(short, lossy=6_500, of=10_000, each=2)
    assert found["connection_rate"][0] == pytest.approx(GIVEN)


def test_a_path_that_trains_show_to_be_less_is_followed(short: Loop) -> None:
    found = lost(short, lossy=20, each=10, rate=PATH / 2)
    assert reason(found) is not Reason.LOSS
    assert found["connection_rate"][0] == pytest.approx(GIVEN / 2, rel=0.01)

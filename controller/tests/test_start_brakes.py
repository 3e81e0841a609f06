"""Evidence of an edge's brake about a unit: harm, unless the kernel's default loses as much there."""

from __future__ import annotations

from typing import Any

import pytest

from testkit.start_law import STEP, Loop, Reason, policy, proved, reason, well


def test_a_brake_cuts_what_is_in_use_or_ends_the_trial() -> None:
    loop = Loop(policy())
    loop.round(proved(5e6))
    loop.round(proved(5e6))
    ended = loop.round(proved(5e6, braked=5))
    assert (reason(ended), ended["trial_window"][0]) == (Reason.TRIAL_LOSS, 0)
    loop = Loop(policy())
    before = loop.in_use(5e6)
    braked = loop.round(proved(5e6, braked=1))
    assert reason(braked) is Reason.BRAKED
    assert braked["connection_rate"][0] < before["connection_rate"][0]


LOSSY: dict[str, Any] = {"lossy_0": 120, "segments_0": 14_000, "resent_0": 2400}
HELD_OUT: dict[str, Any] = {"default_flights": 60, "default_lossy": 40}


def test_a_brake_where_the_default_loses_as_much_cuts_nothing_and_ends_no_trial() -> None:
    """Several at once overrun a queue of ten by the segments that the kernel does not pace: with any value."""
    trial: dict[str, Any] = {"lossy_1": 18, "segments_1": 2100, "resent_1": 360}
    loop = Loop(policy())
    loop.round(proved(5e6, **well(flights_1=0, **LOSSY)))
    tried = loop.round(proved(5e6, **well(flights_1=0, **LOSSY)))
    assert tried["trial_window"][0] > 0
    found = loop.round(proved(5e6, braked=1, **well(**LOSSY, **trial)))
    assert (reason(found), found["connection_rate"][0]) == (Reason.PROMOTED, tried["trial_connection_rate"][0])
    kept = loop.round(proved(5e6, braked=1, **well(flights_1=0, **LOSSY), **HELD_OUT))
    assert (reason(kept), kept["connection_rate"][0]) == (Reason.PROVED, found["connection_rate"][0])
    # And nothing more is tried meanwhile.
    more = loop.round(proved(9e6, braked=1, **well(flights_1=0, **LOSSY), **HELD_OUT))
    assert (more["connection_rate"][0], more["trial_window"][0]) == (found["connection_rate"][0], 0)


@pytest.mark.parametrize(
    "shown",
    [
        # A tenth of its flights make no edge brake, whatever it lost before.
        {**LOSSY, **HELD_OUT, "default_lossy": 6},
        # More of the flights lose, or they lose more.
        {**LOSSY, **HELD_OUT, "lossy_0": 190},
        {**LOSSY, **HELD_OUT, "resent_0": 4800},
        # Those that a brake counts may be too small for the law.
        {**HELD_OUT, "flights_0": 0},
    ],
)
def test_a_brake_that_the_default_does_not_explain_is_harm(shown: dict[str, Any]) -> None:
    loop = Loop(policy())
    for _ in range(3):
        found = loop.round(proved(5e6, **well(**LOSSY, lossy_1=18, segments_1=2100, resent_1=360)))
    assert found["window"][0] > 0
    for _ in range(3):
        found = loop.round(proved(5e6, **well(flights_1=0, **LOSSY), **HELD_OUT))
    cut = loop.round(proved(5e6, braked=1, **(well(flights_1=0) | shown)))
    assert reason(cut) in (Reason.BRAKED, Reason.LOSS)
    assert cut["connection_rate"][0] < 0.9 * found["connection_rate"][0]


def test_what_the_default_lost_explains_a_brake_and_is_asked_again_once_it_is_old() -> None:
    """Nobody is held out: with values in use no flight starts with the default, and these send little again."""
    loop, few = Loop(policy()), {**LOSSY, "resent_0": 100}
    for _ in range(3):
        found = loop.round(proved(5e6, **well(**few, lossy_1=18, segments_1=2100, resent_1=30)))
    assert found["window"][0] > 0
    rate, lasts, shares = found["connection_rate"][0], policy().start.ttl_s // STEP, []
    for _ in range(lasts):
        found = loop.round(proved(5e6, braked=1, **well(flights_1=0, **few)))
        assert (reason(found), found["connection_rate"][0]) == (Reason.PROVED, rate)
        shares.append(int(found["trial_permille"][0]))
    # From then on a share starts with the default beside them.
    assert (shares, found["trial_window"][0]) == ([0] * (lasts - 1) + [200], 0)
    # The default loses nothing any more: the brake is for what the values lose.
    for _ in range(8):
        found = loop.round(proved(5e6, braked=1, **well(**few, flights_1=20, segments_1=1400)))
        if reason(found) is Reason.BRAKED:
            break
    assert reason(found) is Reason.BRAKED


@pytest.mark.parametrize(("share", "is_cut"), [(0.35, False), (0.1, True)])
def test_a_brake_that_comes_by_chance_where_the_default_loses_as_often_is_no_harm(share: float, is_cut: bool) -> None:
    """Nine of twenty connections lose in every fourth look where 35 % do, and an edge brakes at eight."""
    lossy: dict[str, Any] = {"lossy_0": int(200 * share), "segments_0": 14_000, "resent_0": int(400 * share)}
    loop = Loop(policy())
    for _ in range(3):
        found = loop.round(proved(5e6, **well(**lossy, lossy_1=int(30 * share), segments_1=2100, resent_1=10)))
    assert found["window"][0] > 0
    for _ in range(3):
        found = loop.round(proved(5e6, **well(flights_1=0, **lossy)))
    braked = loop.round(proved(5e6, braked=1, **well(flights_1=0, **lossy)))
    assert (reason(braked) is Reason.BRAKED) == is_cut
    assert (braked["connection_rate"][0] < found["connection_rate"][0]) == is_cut


def test_few_of_the_default_in_a_round_contradict_nothing_by_chance() -> None:
    """Both lose something in six of ten; a round's held-out flights show less now and then."""
    both: dict[str, Any] = {"lossy_0": 120, "segments_0": 14_000, "resent_0": 240}
    loop = Loop(policy())
    for _ in range(3):
        found = loop.round(proved(5e6, **well(**both, lossy_1=18, segments_1=2100, resent_1=36)))
    rate = found["connection_rate"][0]
    assert rate > 0
    for lossy in (12, 8, 14, 9, 12):
        found = loop.round(proved(5e6, braked=1, default_flights=20, default_lossy=lossy, **well(flights_1=0, **both)))
        assert (reason(found), found["connection_rate"][0]) == (Reason.PROVED, rate)


@pytest.mark.parametrize(
    ("flights", "lossy", "is_cut"),
    [(6, 4, False), (3, 2, True), (6, 2, False), (6, 1, True)],
    ids=["ten or more say it", "fewer than ten", "a third of them make edges brake by chance", "a sixth do not"],
)
def test_few_flights_of_the_default_say_what_it_loses(flights: int, lossy: int, is_cut: bool) -> None:
    """Where few connect, values are in use before twenty flights have started with the default: three rounds here."""
    few: dict[str, Any] = {"flights_0": flights, "lossy_0": lossy, "segments_0": 70 * flights, "resent_0": 20 * lossy}
    own: dict[str, Any] = {"flights_0": 24, "lossy_0": 7, "segments_0": 1680, "resent_0": 30}
    loop = Loop(policy())
    for _ in range(3):
        found = loop.round(proved(5e6, **well(**few, flights_1=20, segments_1=1400)))
    assert found["window"][0] > 0
    for _ in range(3):
        found = loop.round(proved(5e6, **well(**own, flights_1=0)))
    rate = found["connection_rate"][0]
    braked = loop.round(proved(5e6, braked=1, **well(**own, flights_1=0)))
    assert (reason(braked) is Reason.BRAKED, braked["connection_rate"][0] < 0.9 * rate) == (is_cut, is_cut)

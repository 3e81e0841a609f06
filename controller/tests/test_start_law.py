"""The law of starts: what it gives, how it falls and rises, what always holds.

Long: one law, and the rounds that lead up to each case are shared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from springtide.laws.columns import same
from springtide.laws.start import law, shrink
from springtide.laws.start.decision import ACTIONS, REASONS, Action, Reason
from springtide.laws.start.evidence import GROUPED, OBSERVED
from springtide.laws.start.law import PREVIOUS, UNSEEN, carry, decide
from springtide.policy import Policy

ROUND, STEP = 1_767_312_000, 300
MSS = 1448
Rows = NDArray[np.void]
NONE = np.zeros(0, GROUPED)


def policy(**start: Any) -> Policy:
    return Policy.model_validate({"start": start})


def row(name: str = "p", **values: Any) -> Rows:
    """An OBSERVED row of a unit that nothing is known of but these."""
    seen = np.full(1, UNSEEN)
    seen["src_pop"], seen["destination"], seen["ip_version"] = b"ams", name.encode(), 4
    seen["mss"], seen["min_rtt_us"] = MSS, 100_000
    for key, value in values.items():
        seen[key] = value
    return seen


def proved(rate: float, name: str = "p", connections: int = 20, **values: Any) -> Rows:
    return row(
        name,
        connections=100,
        share_rate=rate,
        share_log2_var=0.1,
        share_connections=connections,
        path_rate=2 * rate,
        path_buckets=10,
        **values,
    )


def well(**values: Any) -> dict[str, Any]:
    """A trial's first flights without loss."""
    return {"flights_0": 200, "flights_1": 30, "t100_0_us": 300_000, "t100_1_us": 200_000} | values


@dataclass
class Loop:
    """Rounds one after the other."""

    policy: Policy
    groups: Rows = field(default_factory=lambda: NONE)
    now: int = ROUND
    last: Rows = field(default_factory=lambda: np.zeros(0, PREVIOUS))

    def round(self, *rows: Rows, frozen: tuple[str, ...] = ()) -> Rows:
        seen = np.concatenate(rows) if rows else np.zeros(0, OBSERVED)
        decided = decide(self.now, self.policy, seen, self.last, self.groups, frozen)
        self.last, self.now = carry(decided, self.now).table(), self.now + STEP
        return decided.table()

    def in_use(self, rate: float, name: str = "p") -> Rows:
        """Rounds until a proved rate is in use."""
        for _ in range(6):
            found = self.round(proved(rate, name, **well()))
        assert found["window"][0] > 0
        return found


def reason(decided: Rows, at: int = 0) -> Reason:
    return REASONS[int(decided["reason"][at])]


def test_the_first_value_is_given_on_trial_and_then_to_all() -> None:
    loop = Loop(policy())
    first = loop.round(proved(5e6))
    assert (reason(first), ACTIONS[first["action"][0]]) == (Reason.BELOW_DUTY_CYCLE, Action.NONE)
    tried = loop.round(proved(5e6))
    assert (reason(tried), ACTIONS[tried["action"][0]]) == (Reason.TRIAL_PROVED, Action.TRY)
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
    assert (reason(done), ACTIONS[done["action"][0]]) == (Reason.PROMOTED, Action.SET)
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


def test_a_collapsed_share_is_followed_in_the_same_round() -> None:
    loop = Loop(policy())
    loop.in_use(5e6)
    fallen = loop.round(proved(1.2e6))
    assert reason(fallen) is Reason.COLLAPSED
    assert fallen["connection_rate"][0] == pytest.approx(0.95 * 1.2e6, rel=1e-6)
    assert fallen["path_rate"][0] <= 0.95 * 2 * 5e6 * 0.25


def test_loss_cuts_what_is_in_use_at_once_and_random_loss_does_not() -> None:
    loop = Loop(policy())
    before = loop.in_use(5e6)
    # 0.06 % of segments: of 346 one in five flights loses something.
    fine = loop.round(proved(5e6, flights_0=400, lossy_0=75))
    assert fine["window"][0] == before["window"][0]
    cut = loop.round(proved(5e6, flights_0=400, lossy_0=300))
    assert reason(cut) is Reason.LOSS
    assert cut["connection_rate"][0] <= policy().start.cut * before["connection_rate"][0]
    assert cut["window"][0] < before["window"][0]


def test_harm_in_spite_of_a_cut_cuts_deeper() -> None:
    loop = Loop(policy())
    before = loop.in_use(5e6)["connection_rate"][0]
    harm: dict[str, Any] = {"flights_0": 200, "lossy_0": 150, "segments_0": 20_000, "resent_0": 6000}
    rates = [loop.round(row(connections=100, **harm))["connection_rate"][0] for _ in range(2)]
    cut = policy().start.cut
    assert rates[0] == pytest.approx(cut * before, rel=1e-5)
    assert rates[1] <= 0.6 * rates[0]


def test_harm_by_what_is_in_use_after_a_trial_failed_cuts_once() -> None:
    loop = Loop(policy())
    before = loop.in_use(5e6)["connection_rate"][0]
    assert loop.round(proved(8e6))["trial_window"][0] > 0
    assert reason(loop.round(proved(8e6, **well(lossy_1=25)))) is Reason.TRIAL_LOSS
    braked = loop.round(proved(8e6, braked=1))
    assert reason(braked) is Reason.BRAKED
    assert braked["connection_rate"][0] == pytest.approx(policy().start.cut * before, rel=1e-5)


@pytest.mark.parametrize(
    ("carried", "after"),
    # All of it, and nearly; a part that is worth it, less 5 %; what others were given already.
    [(1.05, 1.5), (0.96, 1.5), (0.8, 0.95 * 1.2), (0.7, 1.0), (0.2, 1.0)],
)
def test_of_a_step_what_the_path_carried_is_given_to_all(carried: float, after: float) -> None:
    """Whatever the times of flights that start with others now and then say."""
    loop = Loop(policy())
    before = loop.in_use(5e6)["connection_rate"][0]
    path: dict[str, Any] = {"rtt_p50_us": 110_000, "flights_0": 200, "segments_0": 60_000, "carried_0": 1.0}
    assert reason(loop.round(proved(5e5, **path))) is Reason.TRIAL_STEP
    same_times = path | {"flights_1": 30, "t100_0_us": 300_000, "t100_1_us": 300_000}
    found = loop.round(proved(5e5, **same_times, carried_1=carried))
    assert found["connection_rate"][0] == pytest.approx(after * before, rel=1e-5)
    assert reason(found) is (Reason.PROMOTED if after > 1 else Reason.TRIAL_NO_GAIN)


@pytest.mark.parametrize(("carried", "after"), [(1.0, 1.0), (0.85, 1.0), (0.7, 0.95 * 0.7), (0.3, 0.5)])
def test_what_the_path_does_not_carry_is_lowered(carried: float, after: float) -> None:
    loop = Loop(policy())
    before = loop.in_use(5e6)["connection_rate"][0]
    found = loop.round(proved(5e6, flights_0=200, segments_0=60_000, carried_0=carried))
    assert found["connection_rate"][0] == pytest.approx(after * before, rel=1e-5)
    assert (reason(found) is Reason.LOWERED) == (after < 1)
    # Of a few flights it says nothing.
    loop = Loop(policy())
    loop.in_use(5e6)
    assert loop.round(proved(5e6, flights_0=4, segments_0=1200, carried_0=carried))["connection_rate"][0] == before


def test_beyond_what_is_not_carried_nothing_is_tried() -> None:
    loop = Loop(policy())
    loop.in_use(5e6)
    path: dict[str, Any] = {"rtt_p50_us": 110_000, "flights_0": 200, "segments_0": 60_000}
    assert loop.round(row(connections=100, carried_0=0.8, **path))["trial_window"][0] == 0
    assert loop.round(row(connections=100, carried_0=1.0, **path))["trial_window"][0] > 0


def test_where_several_start_at_once_and_are_carried_the_paths_rate_is_stepped() -> None:
    loop = Loop(policy())
    before = loop.in_use(5e6)
    path: dict[str, Any] = {"rtt_p50_us": 110_000, "flights_0": 200, "segments_0": 60_000, "carried_0": 1.0}
    # Polls of so short lives show less than was delivered.
    seen = row(connections=100, path_rate=2e6, path_buckets=10, path_carried_0=1.0, **path)
    tried = loop.round(seen)
    assert tried["trial_path_rate"][0] == pytest.approx(1.5 * before["path_rate"][0], rel=1e-5)


@pytest.mark.parametrize("carried", ["carried_0", "path_carried_0", None])
def test_a_step_is_not_beyond_what_polls_showed_unless_first_flights_were_carried(carried: str | None) -> None:
    loop = Loop(policy())
    before = loop.in_use(5e6)["connection_rate"][0]
    path: dict[str, Any] = {"rtt_p50_us": 110_000, "flights_0": 200, "segments_0": 60_000}
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
    path: dict[str, Any] = {"rtt_p50_us": 110_000, "flights_0": 200, "segments_0": 60_000, "carried_0": 1.0}
    assert loop.round(row(connections=100, **path))["trial_connection_rate"][0] == pytest.approx(most, rel=0.01)


def test_what_all_at_once_are_given_is_lowered_and_raised_by_what_the_path_carried_of_it() -> None:
    loop = Loop(policy())
    before = loop.in_use(5e6)
    assert before["path_rate"][0] == pytest.approx(9.5e6, rel=1e-5)
    path: dict[str, Any] = {"rtt_p50_us": 110_000, "flights_0": 200, "segments_0": 60_000}
    found = loop.round(proved(5e6, carried_0=1.0, path_carried_0=0.7, **path))
    assert found["path_rate"][0] == pytest.approx(0.95 * 0.7 * 9.5e6, rel=1e-5)
    assert found["connection_rate"][0] == before["connection_rate"][0]
    assert reason(found) is Reason.LOWERED
    # What all of them were not carried together no single one gets either; where it had no more it says the same of it.
    loop = Loop(policy())
    loop.in_use(5e6)
    found = loop.round(proved(5e6, path_carried_0=0.4, **path))
    assert found["path_rate"][0] == pytest.approx(0.5 * 9.5e6, rel=1e-5)
    # Of a step each is given its own part.
    loop = Loop(policy())
    before = loop.in_use(5e6)
    loop.round(row(connections=100, path_rate=1e7, path_buckets=10, carried_0=1.0, path_carried_0=1.0, **path))
    assert loop.last["trial_path_rate"][0] == pytest.approx(1.5 * before["path_rate"][0], rel=1e-5)
    times = path | {"flights_1": 30, "t100_0_us": 300_000, "t100_1_us": 300_000}
    found = loop.round(row(connections=100, carried_1=1.0, path_carried_1=0.9, **times))
    assert found["connection_rate"][0] == pytest.approx(1.5 * before["connection_rate"][0], rel=1e-5)
    assert found["path_rate"][0] == pytest.approx(0.95 * 0.9 * 1.5 * before["path_rate"][0], rel=1e-5)


def test_a_lossy_path_is_judged_beside_the_default() -> None:
    """Four of five default starts lose something: that a trial's do is no harm of its own."""
    loop = Loop(policy())
    loop.round(proved(5e6))
    for _ in range(3):
        found = loop.round(proved(5e6, **well(lossy_0=160, lossy_1=24)))
    assert found["window"][0] > 0


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


def test_small_changes_are_not_published() -> None:
    loop = Loop(policy())
    before = loop.in_use(5e6)
    for rate in (5.4e6, 4.7e6, 5.2e6):
        found = loop.round(proved(rate, **well()))
        assert (found["connection_rate"][0], found["trial_window"][0]) == (before["connection_rate"][0], 0)


def test_without_evidence_the_default_returns_after_its_time() -> None:
    loop = Loop(policy(ttl_s=4 * STEP))
    loop.in_use(5e6)
    held = [loop.round(row()) for _ in range(3)]
    assert all(one["window"][0] == 346 for one in held)
    gone = loop.round(row())
    assert (reason(gone), gone["window"][0], ACTIONS[gone["action"][0]]) == (Reason.EXPIRED, 0, Action.WITHDRAW)


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
    path: dict[str, Any] = {"rtt_p50_us": 110_000, "flights_0": 200, "segments_0": 60_000, "t100_0_us": 300_000}
    sound = loop.round(proved(5e5, resent_0=300, lossy_0=10, **path))
    assert sound["connection_rate"][0] == before["connection_rate"][0]
    # And the next step is tried, as nothing has shown the limit.
    assert (reason(sound), sound["trial_step"][0]) == (Reason.TRIAL_STEP, 1)
    assert sound["trial_connection_rate"][0] == pytest.approx(1.5 * before["connection_rate"][0], rel=1e-6)


@pytest.mark.parametrize(
    "path",
    [
        # They lose; the queue is full; too few of them.
        {"rtt_p50_us": 110_000, "flights_0": 200, "segments_0": 60_000, "resent_0": 6000},
        {"rtt_p50_us": 250_000, "flights_0": 200, "segments_0": 60_000},
        {"rtt_p50_us": 110_000, "flights_0": 2, "segments_0": 600},
    ],
)
def test_first_flights_that_show_no_room_do_not_hold_a_collapsed_share(path: dict[str, Any]) -> None:
    loop = Loop(policy())
    loop.in_use(5e6)
    assert reason(loop.round(proved(5e5, **path))) is Reason.COLLAPSED


def test_where_single_rates_are_the_limit_nothing_beyond_is_tried() -> None:
    loop = Loop(policy())
    loop.in_use(5e6)
    path: dict[str, Any] = {"rtt_p50_us": 110_000, "flights_0": 200, "segments_0": 60_000, "t100_0_us": 300_000}
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
    # What met the path is no lower bound.
    loop = Loop(policy())
    for _ in range(2):
        found = loop.round(proved(1e6))
    assert found["trial_connection_rate"][0] == pytest.approx(0.95 * 1e6, rel=1e-5)


def test_small_objects_and_bulk_alone_change_nothing() -> None:
    """Nothing shows more than ten segments in a round trip; or nothing new starts that could judge a trial."""
    loop = Loop(policy())
    for _ in range(6):
        found = loop.round(row(connections=500, reached_rate=10 * MSS * 10, reached_connections=500, default_flights=0))
        assert (found["window"][0], found["trial_window"][0]) == (0, 0)
    loop = Loop(policy())
    for _ in range(20):
        found = loop.round(proved(5e6))
        assert found["window"][0] == 0
    assert reason(found) is Reason.ON_TRIAL


def test_few_connections_have_a_larger_share_on_trial() -> None:
    for connections, permille in ((4, 500), (100, 200), (10_000, 100)):
        loop = Loop(policy())
        loop.round(proved(5e6))
        seen = proved(5e6)
        seen["connections"] = connections
        assert loop.round(seen)["trial_permille"][0] == permille
        seen["connections"] = 50
        assert loop.round(seen)["trial_permille"][0] == permille


def test_a_few_segments_of_many_flights_are_no_harm() -> None:
    """Ten segments of each are never paced: where several start together, one of them may lose one or two."""
    loop = Loop(policy())
    loop.round(proved(5e6))
    loop.round(proved(5e6))
    flights = well(flights_1=40, lossy_1=30, segments_1=2800)
    assert loop.round(proved(5e6, **flights, resent_1=30))["window"][0] > 0
    loop = Loop(policy())
    loop.round(proved(5e6))
    loop.round(proved(5e6))
    assert reason(loop.round(proved(5e6, **flights, resent_1=300))) is Reason.TRIAL_LOSS


@pytest.mark.parametrize(("resent", "expected"), [(700, Reason.PROMOTED), (1100, Reason.TRIAL_LOSS)])
def test_a_trial_may_lose_as_much_as_the_default_and_no_more(resent: int, expected: Reason) -> None:
    """Every flight with the default overshoots a short queue: a quarter of its segments are sent again."""
    loop = Loop(policy())
    default: dict[str, Any] = {"flights_0": 40, "lossy_0": 40, "segments_0": 4000, "resent_0": 1000}
    loop.round(proved(5e6, **default))
    loop.round(proved(5e6, **default))
    trial: dict[str, Any] = {"flights_1": 40, "lossy_1": 40, "segments_1": 4000, "resent_1": resent}
    assert reason(loop.round(proved(5e6, **default | trial))) is expected


def test_a_quiet_time_as_long_as_the_hold_forgets_it() -> None:
    loop = Loop(policy(hold_s=2 * STEP))
    loop.round(proved(5e6))
    loop.round(proved(5e6))
    first = loop.round(proved(5e6, **well(lossy_1=25)))
    # What is tried in the hold and after it goes well.
    for _ in range(8):
        loop.round(proved(5e6, **well()))
    loop.round(proved(9e6, connections=100))
    loop.round(proved(9e6, connections=100))
    lost = loop.round(proved(9e6, connections=100, **well(lossy_1=25)))
    assert (reason(lost), lost["hold_s"][0]) == (Reason.TRIAL_LOSS, first["hold_s"][0])


def test_what_was_harm_on_a_worse_path_holds_nothing_on_a_better_one() -> None:
    """An episode takes two thirds of the path, and what is in use does harm; it ends before the hold does."""
    loop = Loop(policy(hold_s=50 * STEP))
    loop.in_use(5e6)
    harm = loop.round(proved(5e6 / 3, flights_0=200, lossy_0=150, segments_0=20_000, resent_0=6000))
    assert reason(harm) is Reason.LOSS
    assert harm["connection_rate"][0] <= 5e6 / 3
    tried = [loop.round(proved(5e6, flights_0=200)) for _ in range(3)][-1]
    assert tried["trial_connection_rate"][0] == pytest.approx(0.95 * 5e6, rel=0.1)
    # Where the path has stayed as it was, the hold does.
    loop = Loop(policy(hold_s=50 * STEP))
    loop.in_use(5e6)
    loop.round(proved(5e6, flights_0=200, lossy_0=150, segments_0=20_000, resent_0=6000))
    for _ in range(3):
        found = loop.round(proved(5e6, flights_0=200))
        assert max(found["trial_connection_rate"][0], found["connection_rate"][0]) <= 0.81 * 0.95 * 5e6


def test_a_share_that_doubled_is_tried_at_once() -> None:
    loop = Loop(policy())
    loop.in_use(2e6)
    found = loop.round(proved(8e6, flights_0=200))
    assert found["trial_connection_rate"][0] == pytest.approx(0.95 * 8e6, rel=1e-6)


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


def group(*names: str, of: str = "eu>us") -> Rows:
    found = np.zeros(len(names), GROUPED)
    found["src_pop"], found["ip_version"], found["group"] = b"ams", 4, of.encode()
    found["destination"] = [name.encode() for name in names]
    return found


def test_a_thin_unit_borrows_a_low_quantile_of_its_group_and_says_so() -> None:
    loop = Loop(policy(), group("a", "b", "c", "d", "thin"))
    rates = {"a": 2e6, "b": 4e6, "c": 6e6, "d": 8e6}
    for _ in range(2):
        found = loop.round(*(proved(rate, name) for name, rate in rates.items()), row("thin", connections=1))
    thin = found[found["destination"] == b"thin"]
    assert reason(thin) is Reason.TRIAL_BORROWED
    assert thin["trial_connection_rate"][0] <= 0.95 * 2e6 * 1.01
    assert (thin["group"][0], thin["group_units"][0]) == (b"eu>us", 4)
    # Two that know something are not enough to lend.
    loop = Loop(policy(), group("a", "b", "thin"))
    for _ in range(3):
        found = loop.round(proved(2e6, "a"), proved(4e6, "b"), row("thin", connections=1))
    assert found[found["destination"] == b"thin"]["trial_window"][0] == 0


def test_units_without_a_group_are_none_together() -> None:
    loop = Loop(policy())
    for _ in range(3):
        found = loop.round(*(proved(4e6, name) for name in "abcd"), row("thin", connections=1))
    assert set(found["group"].tolist()) == {b""}
    assert found[found["destination"] == b"thin"]["trial_window"][0] == 0


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
    assert REASONS[by_name["t1"]["reason"]] is Reason.PROMOTED_BORROWED


def test_little_evidence_is_drawn_to_the_group_but_never_raised() -> None:
    names = np.ones(4, np.int64)
    own, variance = np.array([20.0, 20.2, 19.8, 23.0]), np.array([0.01, 0.01, 0.01, 1.0])
    of = shrink.grouped(names, own, variance, np.ones(4, bool), 0.25)
    drawn, weight = shrink.shrunken(own, variance, of, 3)
    assert weight[3] < weight[0]
    assert 20.0 < drawn[3] < 22.0
    low = np.array([20.0, 20.2, 19.8, 18.0])
    drawn, _ = shrink.shrunken(low, variance, shrink.grouped(names, low, variance, np.ones(4, bool), 0.25), 3)
    assert (drawn <= low).all()


def test_an_override_precedes_all_and_leaves_nothing_unjudged_behind() -> None:
    word = {"src": "ams", "until": "2026-01-02T00:20:00Z", "reason": "planned"}
    law = Policy.model_validate({"start_overrides": [{"to": "p", "initcwnd": 50, "connection_rate": 1000000, **word}]})
    loop = Loop(law)
    found = [loop.round(proved(5e6)) for _ in range(3)]
    assert all(
        (reason(one), one["window"][0], one["connection_rate"][0]) == (Reason.OVERRIDE, 50, 1e6) for one in found
    )
    assert all(one["trial_window"][0] == 0 for one in found)
    # A window without a rate is paced as well; the initial window's overrides count for pairs.
    loop.policy = Policy.model_validate({"overrides": [{"dst": "p", "initcwnd": 69, **word}]})
    found = [loop.round(proved(5e6))]
    assert (found[0]["window"][0], found[0]["connection_rate"][0]) == (69, pytest.approx(0.95 * 69 * MSS * 10, abs=1))
    loop.policy = Policy()
    after = loop.round(proved(5e6))
    assert (after["window"][0], after["trial_window"][0]) == (0, 346)


def test_careful_takes_half_and_only_near_the_round_trip_of_then() -> None:
    plain, careful = Loop(policy()).in_use(5e6), Loop(policy(careful=True))
    half = careful.in_use(5e6)
    assert half["connection_rate"][0] == pytest.approx(plain["connection_rate"][0] / 2, rel=1e-6)
    assert half["window"][0] == plain["window"][0] // 2
    for rtt_us, stays in ((60_000, True), (900_000, True), (50_000, False)):
        loop = Loop(policy(careful=True))
        loop.in_use(5e6)
        found = loop.round(row(min_rtt_us=rtt_us))
        assert (found["window"][0] > 0) == stays, rtt_us
        assert stays or reason(found) is Reason.ROUND_TRIP_CHANGED


def test_what_is_frozen_stays_until_it_expires() -> None:
    loop = Loop(policy(ttl_s=3 * STEP))
    before = loop.in_use(5e6)
    for _ in range(2):
        found = loop.round(proved(1e5, flights_0=400, lossy_0=400, braked=9), frozen=("ams",))
        assert (found["window"][0], found["connection_rate"][0]) == (before["window"][0], before["connection_rate"][0])
        assert reason(found) is Reason.HELD_INCOMPLETE_INPUT
    assert loop.round(proved(5e6), frozen=("ams",))["window"][0] == 0


# What always holds


RATES = st.floats(1e3, 1e9) | st.sampled_from([0.0, float("nan"), float("inf")])
COUNTS = st.integers(0, 400)


@st.composite
def observed(draw: st.DrawFn) -> Rows:
    rows = []
    for name in draw(st.sets(st.sampled_from("abcd"), min_size=1)):
        one = row(name)
        for column in OBSERVED.names or ():
            kind = OBSERVED[column].kind
            if kind == "f":
                one[column] = draw(RATES)
            elif kind == "u" and column != "ip_version":
                one[column] = draw(COUNTS)
        one["mss"] = draw(st.sampled_from([1448.0, 1208.0, float("nan")]))
        one["min_rtt_us"] = draw(st.sampled_from([1e4, 1e5, 3e5, float("nan")]))
        rows.append(one)
    return np.concatenate(rows)


HISTORIES = st.lists(observed(), min_size=1, max_size=12)
GROUPS = group("a", "b", "c", "d")


@given(HISTORIES, st.booleans(), st.integers(10, 400))
@settings(max_examples=150, deadline=None)
def test_nothing_is_above_its_bounds_and_nothing_rises_unjudged(history: list[Rows], careful: bool, cmax: int) -> None:
    law = policy(careful=careful, cmax=cmax, min_connections=1, trial_flights=5)
    loop = Loop(law, GROUPS)
    before: dict[bytes, Any] = {}
    for seen in history:
        decided = loop.round(seen)
        for one in decided:
            last = before.get(bytes(one["destination"]))
            for kind in ("", "trial_"):
                assert one[f"{kind}window"] == 0 or 10 <= one[f"{kind}window"] <= cmax
                assert (one[f"{kind}window"] > 0) == (one[f"{kind}connection_rate"] > 0)
                assert one[f"{kind}path_rate"] >= one[f"{kind}connection_rate"] or one[f"{kind}path_rate"] > 0
                assert np.isfinite(one[f"{kind}connection_rate"])
                assert np.isfinite(one[f"{kind}path_rate"])
            for name in ("window", "connection_rate", "path_rate"):
                old = 0 if last is None else last[name]
                if one[name] > old:
                    assert last is not None
                    assert last["trial_permille"] > 0
                    assert one[name] <= last[f"trial_{name}"]
                    # It was judged: by its own flights, or the group's.
                    assert last["trial_borrowed"] or one["flights_1"] + last["trial_flights"] >= 3
        before = {bytes(one["destination"]): one.copy() for one in decided}


@given(HISTORIES, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_same_rows_whatever_their_order(history: list[Rows], random: Any) -> None:
    loop = Loop(policy(min_connections=1, trial_flights=5), GROUPS)
    for seen in history:
        last, now = loop.last.copy(), loop.now
        decided = loop.round(seen)
        mixed = [random.sample(range(len(rows)), len(rows)) for rows in (seen, last, GROUPS)]
        again = decide(now, loop.policy, seen[mixed[0]], last[mixed[1]], GROUPS[mixed[2]])
        assert same(decided, again)


@given(HISTORIES, st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_the_same_rows_however_many_are_decided_together(history: list[Rows], together: int) -> None:
    """Also where a group is larger, a unit has none, and where there is nothing but what the last round left."""
    groups = np.concatenate([group("a", "d"), group("b", of="eu>asia")])
    loop = Loop(policy(min_connections=1, trial_flights=5), groups)
    for seen in [*history, np.zeros(0, OBSERVED)]:
        last, now = loop.last.copy(), loop.now
        decided = loop.round(seen)
        with patch.object(law, "_TOGETHER", together):
            assert same(decided, decide(now, loop.policy, seen, last, groups).table())
            assert not len(decide(now, loop.policy, seen[:0], last[:0], groups[:0]))


@given(HISTORIES)
@settings(max_examples=60, deadline=None)
def test_frozen_keeps_what_is_given(history: list[Rows]) -> None:
    loop = Loop(policy(min_connections=1, trial_flights=5), GROUPS)
    for seen in history:
        loop.round(seen)
        last, now = loop.last.copy(), loop.now
        found = decide(now, loop.policy, seen, last, GROUPS, ("ams",))
        by_name = {bytes(one["destination"]): one for one in last}
        for one in found:
            old = by_name.get(bytes(one["destination"]))
            if old is None or now >= int(old["last_evidence"]) + loop.policy.start.ttl_s:
                assert one["window"] == 0
                continue
            for name in ("window", "connection_rate", "path_rate", "trial_window", "trial_permille", "share_log2"):
                assert one[name] == old[name] or (np.isnan(one[name]) and np.isnan(old[name]))

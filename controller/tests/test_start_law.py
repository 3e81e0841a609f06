"""The law of starts: what it gives, how it falls and comes back, what it borrows, and what precedes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from springtide import _core
from springtide.errors import InputError
from springtide.laws.start.law import STARTS
from springtide.policy import Policy, load_policy
from springtide.section import MAX_TTL_S

from testkit.start_law import MSS, STEP, Loop, Reason, group, policy, proved, reason, row, well


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


def test_a_flood_is_harm_where_random_loss_would_explain_that_each_flight_loses() -> None:
    """One flight of the default once lost something, and windows are large: of so many segments each may lose one."""
    loop = Loop(policy(cmax=400))
    for _ in range(6):
        found = loop.round(proved(9e6, **well()))
    assert found["window"][0] > 300
    loop.last["default_flights"], loop.last["default_lossy"], loop.last["default_resent"] = 18, 1, 61
    few = loop.round(row(connections=10, flights_0=9, lossy_0=9, segments_0=788, resent_0=12))
    assert few["window"][0] == found["window"][0]
    # A host of ten whose flights are all lost.
    one = loop.round(row(connections=10, flights_0=90, lossy_0=9, segments_0=7880, resent_0=1400))
    assert one["window"][0] == found["window"][0]
    flooded = loop.round(row(connections=10, flights_0=9, lossy_0=9, segments_0=788, resent_0=298))
    assert reason(flooded) is Reason.LOSS


def test_harm_by_what_is_in_use_after_a_trial_failed_cuts_once() -> None:
    loop = Loop(policy())
    before = loop.in_use(5e6)["connection_rate"][0]
    assert loop.round(proved(8e6))["trial_window"][0] > 0
    assert reason(loop.round(proved(8e6, **well(lossy_1=25)))) is Reason.TRIAL_LOSS
    braked = loop.round(proved(8e6, braked=1))
    assert reason(braked) is Reason.BRAKED
    assert braked["connection_rate"][0] == pytest.approx(policy().start.cut * before, rel=1e-5)


@pytest.mark.parametrize(("carried", "after"), [(1.0, 1.0), (0.85, 1.0), (0.7, 0.95 * 0.7), (0.3, 0.5)])
def test_what_the_path_does_not_carry_is_lowered(carried: float, after: float) -> None:
    loop = Loop(policy())
    before = loop.in_use(5e6)["connection_rate"][0]
    found = loop.round(proved(5e6, flights_0=200, segments_0=60_000, carried_0=carried))
    assert found["connection_rate"][0] == pytest.approx(after * before, rel=1e-5)
    assert (reason(found) is Reason.LOWERED) == (after < 1)
    # A few flights say nothing.
    loop = Loop(policy())
    loop.in_use(5e6)
    assert loop.round(proved(5e6, flights_0=2, segments_0=600, carried_0=carried))["connection_rate"][0] == before


def test_what_all_at_once_are_given_is_lowered_and_raised_by_what_the_path_carried_of_it() -> None:
    loop = Loop(policy())
    before = loop.in_use(5e6)
    assert before["path_rate"][0] == pytest.approx(9.5e6, rel=1e-5)
    path: dict[str, Any] = {"flights_0": 200, "segments_0": 60_000}
    found = loop.round(proved(5e6, carried_0=1.0, path_carried_0=0.7, **path))
    assert found["path_rate"][0] == pytest.approx(0.95 * 0.7 * 9.5e6, rel=1e-5)
    assert found["connection_rate"][0] == before["connection_rate"][0]
    assert reason(found) is Reason.LOWERED
    # No single one gets what all of them were not carried together; where it had no more it says the same of it.
    loop = Loop(policy())
    loop.in_use(5e6)
    found = loop.round(proved(5e6, path_carried_0=0.4, **path))
    assert found["path_rate"][0] == pytest.approx(0.5 * 9.5e6, rel=1e-5)
    # Nor where alone, on one of several edges, it was carried what that edge has of the path.
    loop = Loop(policy())
    loop.in_use(5e6)
    for left in (0.5, 0.25):
        found = loop.round(proved(5e6, carried_0=1.0, path_carried_0=0.4, **path))
        assert found["path_rate"][0] == pytest.approx(left * 9.5e6, rel=1e-5)
    assert found["connection_rate"][0] == pytest.approx(found["path_rate"][0], rel=1e-5)


def test_a_lossy_path_is_judged_beside_the_default() -> None:
    """Four of five default starts lose something: that a trial's do is no harm of its own."""
    loop = Loop(policy())
    loop.round(proved(5e6))
    for _ in range(3):
        found = loop.round(proved(5e6, **well(lossy_0=160, lossy_1=24)))
    assert found["window"][0] > 0


def test_what_the_path_carries_less_of_than_the_default_is_withdrawn() -> None:
    """A tenth of a second carries 1,448 bytes ten times by itself."""
    loop = Loop(policy())
    loop.in_use(5e6)
    path: dict[str, Any] = {"flights_0": 200, "segments_0": 60_000}
    rates = [loop.round(proved(5e6, path_carried_0=0.4, **path))["connection_rate"][0] for _ in range(8)]
    assert 0 in rates
    assert all(rate == 0 or rate * 0.1 >= 10 * MSS for rate in rates)


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
    assert (reason(gone), gone["window"][0], STARTS.actions[gone["action"][0]]) == (Reason.EXPIRED, 0, "withdraw")


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


@pytest.mark.parametrize("rounds", [4, 12, 40])
def test_a_trial_that_lasts_longer_than_the_hold_still_doubles_it(rounds: int) -> None:
    """Few connections' trials do."""
    loop = Loop(policy())
    holds = []
    for _ in range(4):
        while not loop.round(proved(5e6))["trial_permille"][0]:
            pass
        for _ in range(rounds):
            loop.round(proved(5e6))
        failed = loop.round(proved(5e6, **well(t100_1_us=600_000)))
        assert reason(failed) is Reason.TRIAL_SLOWER
        holds.append(int(failed["hold_s"][0]))
    assert holds == [900, 1800, 3600, 7200]


def test_a_quiet_day_forgets_a_hold() -> None:
    loop = Loop(policy(hold_s=2 * STEP))
    loop.round(proved(5e6))
    loop.round(proved(5e6))
    first = loop.round(proved(5e6, **well(lossy_1=25)))
    # The values that are tried in the hold and after it go well, for longer than a day.
    for _ in range(2 + MAX_TTL_S // STEP):
        loop.round(proved(5e6, **well()))
    loop.round(proved(9e6, connections=100))
    loop.round(proved(9e6, connections=100))
    lost = loop.round(proved(9e6, connections=100, **well(lossy_1=25)))
    assert (reason(lost), lost["hold_s"][0]) == (Reason.TRIAL_LOSS, first["hold_s"][0])


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


@pytest.mark.parametrize(
    ("to", "named", "versions"),
    [
        ("192.0.2.0/24", None, [4]),
        ("2001:db8:0:100::/56", None, [6]),
        ("192.0.2.0/24", 4, [4]),
        ("fra", None, [4, 6]),
        ("fra", 6, [6]),
    ],
)
def test_an_override_of_a_prefix_is_of_its_version(to: str, named: int | None, versions: list[int]) -> None:
    word = {"src": "ams", "to": to, "ip_version": named, "initcwnd": 50, "until": "2026-01-02T00:20:00Z", "reason": "x"}
    found = Loop(Policy.model_validate({"start_overrides": [word]})).round()
    assert [(one["destination"].decode(), one["ip_version"]) for one in found] == [(to, one) for one in versions]


def test_an_override_of_another_version_than_its_prefix_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "start_overrides: [{src: ams, to: 192.0.2.0/24, ip_version: 6, initcwnd: 50, "
        "until: '2026-01-02T00:20:00Z', reason: x}]\n"
    )
    with pytest.raises(InputError, match="ip_version: is 6"):
        load_policy(path)


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


def test_each_rule_stands_in_the_docs_with_its_reason_and_what_it_is_worth() -> None:
    page = (Path(__file__).parents[2] / "docs/explanation/rules.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|((?: [^|]+ \|){5})$", page, re.MULTILINE)
    assert [(name, why) for name, why, _ in rows] == _core.rules(), "run `python -m bench rules`"


def test_what_fell_three_times_within_the_hour_is_not_tried_before_its_penalty_decays() -> None:
    loop = Loop(policy())
    loop.in_use(8e6)
    for rate in (3.5e6, 1.6e6, 7e5):
        assert reason(loop.round(proved(rate))) is Reason.COLLAPSED
    held = [loop.round(proved(5e6)) for _ in range(3)]
    assert [(reason(one), one["trial_window"][0]) for one in held] == [(Reason.HELD_DAMPING, 0)] * 3
    tried = [loop.round(proved(5e6)) for _ in range(12)]
    assert any(reason(one) is Reason.TRIAL_PROVED for one in tried)


def test_harm_in_spite_of_a_cut_cuts_deeper() -> None:
    loop = Loop(policy())
    before = loop.in_use(5e6)["connection_rate"][0]
    harm: dict[str, Any] = {"flights_0": 200, "lossy_0": 150, "segments_0": 20_000, "resent_0": 6000}
    rates = [loop.round(row(connections=100, **harm))["connection_rate"][0] for _ in range(2)]
    cut = policy().start.cut
    assert rates[0] == pytest.approx(cut * before, rel=1e-5)
    assert rates[1] <= 0.6 * rates[0]


def test_harm_in_spite_of_a_cut_to_less_than_half_begins_anew_with_the_default_and_what_that_loses() -> None:
    loop = Loop(policy())
    before = loop.in_use(5e6)
    delivered: dict[str, Any] = {"path_rate": 0.3 * before["path_rate"][0], "path_buckets": 10}
    flood: dict[str, Any] = {"flights_0": 200, "lossy_0": 190, "segments_0": 20_000, "resent_0": 7000}
    cut = loop.round(row(connections=100, **delivered, **flood))
    assert cut["connection_rate"][0] == pytest.approx(0.95 * 0.3 * before["connection_rate"][0], rel=1e-3)
    harm: dict[str, Any] = {"flights_0": 200, "lossy_0": 150, "segments_0": 20_000, "resent_0": 1200}
    found = loop.round(row(connections=100, **harm))
    assert (found["window"][0], reason(found)) == (0, Reason.LOSS)
    # The path has become one on which the default loses as much: what is tried there is judged beside it.
    for _ in range(3):
        tried = loop.round(proved(1.2e6, **harm))
    assert tried["trial_connection_rate"][0] == pytest.approx(policy().start.cut * cut["connection_rate"][0], rel=0.01)
    lossy: dict[str, Any] = {
        "flights_1": 40,
        "lossy_1": 30,
        "segments_1": 4000,
        "resent_1": 230,
        "t100_0_us": 6e5,
        "t100_1_us": 2e5,
    }
    promoted = loop.round(proved(1.2e6, **harm, **lossy))
    assert (reason(promoted), promoted["window"][0] > 0) == (Reason.PROMOTED, True)
    same = loop.round(proved(1.2e6, **harm))
    assert same["connection_rate"][0] == promoted["connection_rate"][0] > 0


@pytest.mark.parametrize(("kind", "what"), [("carried_0", "connection_rate"), ("path_carried_0", "path_rate")])
def test_harm_leaves_what_the_path_carried_at_once(kind: str, what: str) -> None:
    """Far less rate and queue: halves would cost rounds of loss."""
    loop = Loop(policy())
    before = loop.in_use(5e6)
    harm: dict[str, Any] = {"flights_0": 200, "lossy_0": 180, "segments_0": 20_000, "resent_0": 6000, kind: 0.4}
    found = loop.round(row(connections=100, **harm))
    assert reason(found) is Reason.LOSS
    assert found[what][0] == pytest.approx(0.95 * 0.4 * before[what][0], rel=1e-3)
    assert 0 < found["connection_rate"][0] <= found["path_rate"][0]


def test_a_flood_leaves_what_all_together_were_delivered_meanwhile() -> None:
    """All flights lose something, so that none shows what was carried: polls do."""
    for delivered, after in ((0.4, 0.95 * 0.4), (0.02, 0.25), (3.0, policy().start.cut)):
        loop = Loop(policy())
        before = loop.in_use(5e6)
        seen: dict[str, Any] = {"path_rate": delivered * before["path_rate"][0], "path_buckets": 10}
        harm: dict[str, Any] = {"flights_0": 10, "lossy_0": 10, "segments_0": 1000, "resent_0": 380}
        found = loop.round(row(connections=10, **seen, **harm))
        assert reason(found) is Reason.LOSS
        assert found["connection_rate"][0] == pytest.approx(after * before["connection_rate"][0], rel=1e-3)


def test_what_was_harm_on_a_worse_path_holds_nothing_on_a_better_one() -> None:
    """An episode takes two thirds of the path, and what is in use does harm; it ends before the hold does."""
    loop = Loop(policy(hold_s=50 * STEP))
    loop.in_use(5e6)
    harm = loop.round(proved(5e6 / 3, flights_0=200, lossy_0=150, segments_0=20_000, resent_0=6000))
    assert reason(harm) is Reason.LOSS
    assert harm["connection_rate"][0] <= 5e6 / 3
    tried = [loop.round(proved(5e6, flights_0=200)) for _ in range(3)][-1]
    assert tried["trial_connection_rate"][0] == pytest.approx(0.95 * 5e6, rel=0.1)
    # The path has stayed as it was: the hold stays too.
    loop = Loop(policy(hold_s=50 * STEP))
    loop.in_use(5e6)
    loop.round(proved(5e6, flights_0=200, lossy_0=150, segments_0=20_000, resent_0=6000))
    for _ in range(3):
        found = loop.round(proved(5e6, flights_0=200))
        assert max(found["trial_connection_rate"][0], found["connection_rate"][0]) <= 0.81 * 0.95 * 5e6

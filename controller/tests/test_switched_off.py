"""Effects of a pair's turn to be off: on decisions, bundles, caps and the journal."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
import yaml
from springtide import instants
from springtide.bundles import caps
from springtide.bundles.model import Documents, fields_of, seal
from springtide.bundles.render import render as render_all
from springtide.fleet import Fleet
from springtide.jobs import publish as jobs
from springtide.laws import switchback
from springtide.laws.base import Contribution
from springtide.laws.entry import Part
from springtide.laws.initcwnd.decision import Action, Pair
from springtide.laws.initcwnd.explain import labelled
from springtide.laws.start import bundle as of_starts
from springtide.laws.switchback import DAY_S, Turn
from springtide.policy import Policy
from springtide.publication import journal
from springtide.publication.folder import PublishFolder

from testkit.decided import decision
from testkit.home import ROUND
from testkit.pairs import PairObservation, Previous, Reason, decide_pairs
from testkit.published import render

INTERVAL = 300
POPS = ("ams", "fra", "nyc", "sin")
PAIRS = list(permutations(POPS, 2))
SWITCHED = Policy.model_validate({"experiment": {"kind": "switchback"}})
TESTED = Policy.model_validate({"experiment": {"disable_every_days": 1}})
# The first test of its day, and a period in which some pairs change their turn.
TEST = ROUND // DAY_S * DAY_S + 3 * 3600
HOUR = ROUND // 3600 * 3600


def fleet() -> Fleet:
    """Four PoPs of two edges and five prefixes each."""
    pops = {
        name: {
            "prefixes": [f"10.{at}.{net}.0/24" for net in range(5)],
            "edges": {f"{name}-{n}": {"address": f"10.{at}.0.{n + 1}"} for n in range(2)},
        }
        for at, name in enumerate(POPS)
    }
    return Fleet.model_validate({"version": 1, "pops": pops})


def seen() -> list[PairObservation]:
    return [PairObservation(*pair, 4, 5, 5, 60.0, 60, 60, 0.0) for pair in PAIRS]


def used(value: int | None) -> dict[Pair, Previous]:
    return {(*pair, 4): Previous(60.0, HOUR - INTERVAL, value, measured_rounds=3) for pair in PAIRS}


def on(policy: Policy, moment: int) -> set[tuple[str, str]]:
    return {pair for pair in PAIRS if switchback.turn(policy.experiment, INTERVAL, *pair, moment).on}


@pytest.mark.parametrize("value", [None, 60])
def test_a_pair_that_is_off_gets_nothing_and_learns_all_the_same(value: int | None) -> None:
    plain = {d.pair[:2]: d for d in decide_pairs(HOUR, Policy(), seen(), used(value))}
    switched = {d.pair[:2]: d for d in decide_pairs(HOUR, SWITCHED, seen(), used(value))}
    is_on = on(SWITCHED, HOUR)
    assert 2 * len(is_on) == len(PAIRS)
    for pair, one in switched.items():
        assert one.smoothed_cwnd == plain[pair].smoothed_cwnd == 60.0
        if pair in is_on:
            assert (one.initcwnd, one.reason) == (60, plain[pair].reason)
        else:
            assert (one.initcwnd, one.reason) == (None, Reason.SWITCHBACK)
            assert one.action is (Action.WITHDRAW if value else Action.NONE)
            text = dict(labelled(one, SWITCHED))
            assert "turn to be off" in text["because"]
            following = instants.parse(text["would change"].removeprefix("the pair's next turn to be on, in round "))
            assert pair in on(SWITCHED, following)
            assert pair not in on(SWITCHED, following - INTERVAL)


def test_a_disable_test_takes_every_pair_but_an_override() -> None:
    until = instants.show(TEST + DAY_S)
    override = {"src": "ams", "dst": "fra", "initcwnd": 40, "until": until, "reason": "load balancer"}
    policy = Policy.model_validate({"experiment": {"disable_every_days": 1}, "overrides": [override]})
    decided = decide_pairs(TEST, policy, seen(), used(60))
    kept = [d for d in decided if d.initcwnd is not None]
    assert {(d.pair, d.reason) for d in kept} == {
        (("ams", "fra", 4), Reason.OVERRIDE),
        (("ams", "fra", 6), Reason.OVERRIDE),
    }
    assert {d.reason for d in decided if d.initcwnd is None} == {Reason.DISABLE_TEST}
    assert not any(d.reason == Reason.DISABLE_TEST for d in decide_pairs(TEST + 3600, policy, seen(), used(None)))


def published(policy: Policy, moment: int, pairs: set[tuple[str, str]], value: int = 40) -> Documents:
    decisions = [decision(*pair, 4, value, moment, moment) for pair in sorted(pairs)]
    return render(fleet(), policy, moment, decisions, moment).documents


def refused(policy: Policy, before: Documents, after: Documents, rested: Documents | None = None) -> list[str]:
    """`rested`: what there was before it was switched off in `before`."""
    found, there = caps.difference(before, after), caps.starts(before)
    resting = {value: start for value, start in caps.starts(rested or {}).items() if value not in there}
    designed = caps.by_design(found, before, after, caps.Turns(fleet(), policy), resting)
    return [one.field.removeprefix("cap ") for one in caps.problems("publish", found, policy.bundle, designed)]


def moments() -> tuple[int, int]:
    """Two rounds in a row between which at least a third of the pairs are switched off."""
    for moment in range(HOUR, HOUR + 30 * DAY_S, 3600):
        if len(on(SWITCHED, moment - INTERVAL) - on(SWITCHED, moment)) >= 4:
            return moment - INTERVAL, moment
    raise AssertionError("no such round")


def test_what_is_switched_off_by_design_passes_the_caps_and_nothing_else_does() -> None:
    earlier, later = moments()
    before, after = published(SWITCHED, earlier, on(SWITCHED, earlier)), on(SWITCHED, later)
    assert refused(SWITCHED, before, published(SWITCHED, later, after)) == []
    # The same bundles without the experiment's turns are a fault upstream.
    assert refused(Policy(), before, published(Policy(), later, after)) == ["max_changed_share", "max_withdrawn_share"]
    # One of two of those that stay on may not be lost.
    stay = sorted(on(SWITCHED, earlier) & after)
    lost = published(SWITCHED, later, after - set(stay[: len(stay) // 2 + 1]))
    assert "max_withdrawn_share" in refused(SWITCHED, before, lost)
    assert "max_withdrawn_share" in refused(SWITCHED, before, published(SWITCHED, later, set()))


def test_a_fault_that_turns_the_whole_fleet_off_is_no_design(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier, later = moments()
    before = published(SWITCHED, earlier, on(SWITCHED, earlier))
    monkeypatch.setattr(switchback, "turn", lambda *_: Turn("switchback", 1.0))
    assert refused(SWITCHED, before, published(SWITCHED, later, set())) == ["max_changed_share", "max_withdrawn_share"]


def test_a_disable_test_passes_the_caps_while_it_lasts_and_comes_back() -> None:
    everything, nothing = published(TESTED, TEST - INTERVAL, set(PAIRS)), published(TESTED, TEST, set())
    assert refused(TESTED, everything, nothing) == []
    assert refused(TESTED, nothing, published(TESTED, TEST + 3600, set(PAIRS)), everything) == []
    late = published(TESTED, TEST + 3600, set())
    assert refused(TESTED, everything, late) == ["max_changed_share", "max_withdrawn_share"]
    # A few that an override kept are not the base of the growth afterwards.
    few = published(TESTED, TEST + 3300, set(PAIRS[:2]))
    assert refused(TESTED, few, published(TESTED, TEST + 3600, set(PAIRS)), everything) == []
    assert refused(Policy(), few, published(Policy(), TEST + 3600, set(PAIRS))) == ["max_growth"]


def released(folder: PublishFolder, policy: Policy, moment: int, pairs: set[tuple[str, str]]) -> list[str]:
    """Caps that refuse a publication; where none does, the fleet has it then."""
    content = yaml.safe_dump(fleet().model_dump(mode="json")).encode()
    documents = published(policy, moment, pairs)
    refused = [one.field.removeprefix("cap ") for one in jobs.too_much(folder, documents, policy, fleet())]
    if not refused:
        path, _ = jobs.publish(folder, documents, None, policy, moment + 30, fleet=content)
        folder.point("current", path / "edges")
    return refused


def test_what_was_off_and_does_not_come_back_is_withdrawn(tmp_path: Path) -> None:
    """Otherwise a fault would take all of a fleet, half by half, as its pairs are switched."""
    folder = PublishFolder(tmp_path)
    for moment in range(HOUR, HOUR + 12 * 3600, 12 * INTERVAL):
        # As decided while pairs are off: what is learnt comes back.
        assert released(folder, SWITCHED, moment, on(SWITCHED, moment)) == []
        before = on(SWITCHED, moment)
        for later in (moment + 12 * INTERVAL, moment + 15 * INTERVAL):
            stays = on(SWITCHED, later) & before
            back = on(SWITCHED, later) - before
            seen_before = {pair for pair in back if any(pair in on(SWITCHED, at) for at in range(HOUR, moment, 3600))}
            if len(seen_before) > 0.3 * len(stays | seen_before):
                found = jobs.too_much(folder, published(SWITCHED, later, stays), SWITCHED, fleet())
                assert "cap max_withdrawn_share" in [one.field for one in found]


def test_what_a_disable_test_took_and_does_not_come_back_is_withdrawn(tmp_path: Path) -> None:
    folder = PublishFolder(tmp_path)
    assert released(folder, TESTED, TEST - INTERVAL, set(PAIRS)) == []
    for moment in range(TEST, TEST + 3600, 6 * INTERVAL):
        assert released(folder, TESTED, moment, set()) == []
    after = TEST + 3600
    assert released(folder, TESTED, after, set()) == ["max_changed_share", "max_withdrawn_share"]
    assert released(folder, TESTED, after + INTERVAL, set(PAIRS[:3])) == ["max_changed_share", "max_withdrawn_share"]
    assert released(folder, TESTED, after + 2 * INTERVAL, set(PAIRS[:-1])) == []


def test_what_comes_back_is_about_what_rested(tmp_path: Path) -> None:
    """Within a step of the law: it went on to learn."""
    folder = PublishFolder(tmp_path)
    assert released(folder, TESTED, TEST - INTERVAL, set(PAIRS)) == []
    assert released(folder, TESTED, TEST, set()) == []
    after = TEST + 3600
    for value, expected in ((400, ["max_changed_share"]), (10, ["max_changed_share"]), (50, [])):
        found = jobs.too_much(folder, published(TESTED, after, set(PAIRS), value), TESTED, fleet())
        assert [one.field.removeprefix("cap ") for one in found] == expected


def test_what_a_switchback_gives_back_is_judged_beside_what_stays(tmp_path: Path) -> None:
    folder, moment = PublishFolder(tmp_path), HOUR
    while not on(SWITCHED, moment) - on(SWITCHED, moment - 3600) or moment < HOUR + 8 * 3600:
        assert released(folder, SWITCHED, moment, on(SWITCHED, moment)) == []
        moment += 3600
    wild = Policy.model_validate({**SWITCHED.model_dump(), "bundle": {"max_changed_share": 0.01}})
    before = on(SWITCHED, moment - 3600)
    after = dict(published(SWITCHED, moment, on(SWITCHED, moment)))
    assert jobs.too_much(folder, after, wild, fleet()) == []
    for edge, document in published(SWITCHED, moment, on(SWITCHED, moment) - before, 400).items():
        kept = published(SWITCHED, moment, on(SWITCHED, moment) & before)[edge].bundle.entries
        routes = sorted([*kept, *document.bundle.entries], key=lambda one: one.prefix)
        after[edge] = seal({**fields_of(document.bundle), "entries": routes})
    assert [one.field for one in jobs.too_much(folder, after, wild, fleet())] == ["cap max_changed_share"]


def test_what_is_new_does_not_hide_in_what_comes_back(tmp_path: Path) -> None:
    """A client's prefix that nobody had is growth, when a test ends as at any time."""
    paced = Policy.model_validate({"experiment": {"disable_every_days": 1}, "enforce": {"by": "bpf"}})
    folder = PublishFolder(tmp_path)

    def of(moment: int, count: int) -> Documents:
        entries = [Part(prefix=f"192.0.{n}.0/24", initcwnd=60) for n in range(count)]
        given = [Contribution(dict.fromkeys(fleet().edges(), entries))]
        return render_all(fleet(), paced, moment, moment, given).documents

    for moment, count in ((TEST - INTERVAL, 20), (TEST, 0)):
        content = yaml.safe_dump(fleet().model_dump(mode="json")).encode()
        path, _ = jobs.publish(folder, of(moment, count), None, paced, moment + 30, fleet=content)
        folder.point("current", path / "edges")
    # In the middle of one too.
    for moment, count in ((TEST + 3600, 41), (TEST + INTERVAL, 21)):
        found = jobs.too_much(folder, of(moment, count), paced, fleet())
        assert [one.field for one in found] == ["cap max_growth"], moment
    assert jobs.too_much(folder, of(TEST + 3600, 40), paced, fleet()) == []


def test_an_override_that_stays_in_a_test_is_not_missing_after_it(tmp_path: Path) -> None:
    folder, kept = PublishFolder(tmp_path), set(PAIRS[:4])
    assert released(folder, TESTED, TEST - INTERVAL, set(PAIRS)) == []
    assert released(folder, TESTED, TEST, kept) == []
    strict = Policy.model_validate({**TESTED.model_dump(), "bundle": {"max_withdrawn_share": 0.0}})
    assert jobs.too_much(folder, published(TESTED, TEST + 3600, set(PAIRS)), strict, fleet()) == []


def test_a_disable_test_takes_client_prefixes_too() -> None:
    clients = [f"192.0.{n}.0/24" for n in range(40)]
    paced = Policy.model_validate({"experiment": {"disable_every_days": 1}, "enforce": {"by": "bpf"}})

    def of(moment: int, prefixes: list[str]) -> Documents:
        starts = [Part(prefix=one, initcwnd=60) for one in prefixes]
        entries = dict.fromkeys(fleet().edges(), starts)
        return render_all(fleet(), paced, moment, moment, [Contribution(entries)]).documents

    rested = of(TEST - INTERVAL, clients)
    assert refused(paced, rested, of(TEST, [])) == []
    assert refused(paced, of(TEST + 3300, clients[:20]), of(TEST + 3600, [*clients, "198.51.100.0/24"]), rested) == []
    before, after = of(HOUR, clients), of(HOUR + 3600, [])
    designed = caps.by_design(caps.difference(before, after), before, after, caps.Turns(fleet(), SWITCHED), {})
    assert designed.withdrawn == 0


def test_a_disable_test_is_one_event_at_its_begin_and_one_at_its_end(tmp_path: Path) -> None:
    folder = PublishFolder(tmp_path)
    content = yaml.safe_dump(fleet().model_dump(mode="json")).encode()
    for moment in range(TEST - INTERVAL, TEST + 3600 + 3 * INTERVAL, INTERVAL):
        pairs = set() if TEST <= moment < TEST + 3600 else set(PAIRS)
        jobs.publish(folder, published(TESTED, moment, pairs), None, TESTED, moment + 30, once=True, fleet=content)
    found = [event for event in journal.read(tmp_path)[0] if event.event == "disable"]
    assert [event.verdict for event in found] == ["begun", "ended"]
    assert found[0].details == {"from": instants.show(TEST), "until": instants.show(TEST + 3600)}


@pytest.mark.parametrize(
    ("destination", "overridden", "switched", "tested"),
    [("fra", False, True, True), ("192.0.2.0/24", False, False, True), ("fra", True, False, False)],
)
def test_starts_of_a_pair_that_is_off_are_left_out_of_bundles(
    destination: str, overridden: bool, switched: bool, tested: bool
) -> None:
    moment = next(at for at in range(HOUR, HOUR + DAY_S, 3600) if ("ams", "fra") not in on(SWITCHED, at))
    row = {
        "src_pop": "ams",
        "destination": destination,
        "ip_version": 4,
        "window": 80,
        "path_rate": 1e6,
        "connection_rate": 1e6,
        "trial_permille": 0,
        "overridden": overridden,
        "min_rtt_us": 0.0,
        "learnt_rtt_us": 0.0,
        "mss": 0.0,
        "default_flights": 0.0,
        "default_lossy": 0.0,
        "expires_at": TEST + 9 * DAY_S,
    }
    for experiment, at, is_off in (
        ({"kind": "switchback"}, moment, switched),
        ({"disable_every_days": 1}, TEST, tested),
        ({}, moment, False),
    ):
        policy = Policy.model_validate({"experiment": experiment, "enforce": {"by": "bpf"}})
        entries, left_out = of_starts.entries(fleet(), policy, at, [row], {}, at + 900)
        assert not left_out
        assert bool(entries["ams-0"]) is not is_off


@pytest.mark.parametrize(("trial", "expected"), [(0, {900, 500, 100}), (70, {70})])
def test_a_share_is_drawn_by_the_edge_and_waits_for_a_trial_of_the_law(trial: int, expected: set[int]) -> None:
    """A connection that is not treated starts as the kernel does: a trial without values."""
    row = {
        "src_pop": "ams",
        "destination": "fra",
        "ip_version": 4,
        "window": 80,
        "path_rate": 1e6,
        "connection_rate": 1e6,
        "trial_permille": trial,
        "trial_window": 90 * bool(trial),
        "trial_path_rate": 1e6,
        "trial_connection_rate": 1e6,
        "overridden": False,
        "min_rtt_us": 0.0,
        "learnt_rtt_us": 0.0,
        "mss": 0.0,
        "default_flights": 0.0,
        "default_lossy": 0.0,
        "expires_at": HOUR + DAY_S,
    }
    policy = Policy.model_validate({"experiment": {"kind": "share"}, "enforce": {"by": "bpf"}})
    found = set()
    for moment in range(HOUR, HOUR + 3 * 3600, 3600):
        for entry in of_starts.entries(fleet(), policy, moment, [row], {}, moment + 900)[0]["ams-0"]:
            assert entry.initcwnd == 80
            assert entry.trial is not None
            assert entry.trial.initcwnd == (90 if trial else None)
            found.add(entry.trial.permille)
    assert found == expected

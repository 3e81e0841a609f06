"""Limits of what one publication may change: caps, and what `springtide diff` shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from springtide import instants
from springtide.bundles import caps
from springtide.bundles.model import Document, Documents
from springtide.bundles.published import PublishedBundles
from springtide.laws.entry import Part
from springtide.laws.start.policy import StartPolicy
from springtide.policy import BundlePolicy
from springtide.publication.folder import PublishFolder

from testkit.home import ROUND, Home
from testkit.published import changed, clients_of, document

pytestmark = pytest.mark.usefixtures("clock")


def publish(folder: PublishFolder, documents: Documents) -> Path:
    return PublishedBundles(folder).publish(documents, None)


def fleet_of(count: int, value: int = 20) -> dict[str, Document]:
    return {"ams-1": document({f"10.{n // 250}.{n % 250}.0/24": value for n in range(count)})}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (fleet_of(100), fleet_of(100), []),
        (fleet_of(100), fleet_of(100, 21), ["max_changed_share"]),
        (fleet_of(100), fleet_of(65), ["max_withdrawn_share"]),
        (fleet_of(100), fleet_of(10), ["max_changed_share", "max_withdrawn_share"]),
        (fleet_of(100), fleet_of(201), ["max_growth"]),
        (fleet_of(100), {}, ["max_changed_share", "max_withdrawn_share"]),
        (fleet_of(19), fleet_of(400, 21), []),
    ],
)
def test_caps_hold_back_what_is_too_much_at_once(before: Documents, after: Documents, expected: list[str]) -> None:
    found = caps.problems("publish", caps.difference(before, after), BundlePolicy())
    assert [problem.field for problem in found] == [f"cap {name}" for name in expected]


OWN = Part(prefix="10.0.0.0/24", initcwnd=60, start_rate=2_000_000, connection_rate=1_000_000)


ON_TRIAL = Part(permille=100, initcwnd=60, start_rate=2_000_000, connection_rate=1_000_000)


HUGE = Part(permille=500, initcwnd=400, start_rate=1_000_000_000, connection_rate=1_000_000_000)


STEP = Part(permille=100, initcwnd=60, start_rate=3_000_000, connection_rate=1_500_000)


def paced(like: Part, count: int = 100) -> dict[str, Document]:
    """An edge that paces, with as many prefixes that start alike."""
    entries = [like.but(prefix=f"10.0.{n}.0/24") for n in range(count)]
    return {"ams-1": changed(document({}), enforce=Part(by="bpf", otherwise="default", live="leave"), entries=entries)}


def with_(entry: Part, **values: Any) -> Part:
    return entry.but(**values)


def times(factor: float, entry: Part = OWN) -> Part:
    rates = {name: int(getattr(entry, name) * factor) for name in ("start_rate", "connection_rate")}
    return with_(entry, **rates)


BARE = Part(prefix="10.0.0.0/24", trial=ON_TRIAL)


RECEIVES = Part(prefix="10.0.0.0/24", receive_window=45)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # Moves of the law by itself: a promotion, a step on trial, a trial that ends, and rates below its hysteresis.
        (BARE, OWN, []),
        (OWN, with_(OWN, trial=STEP), []),
        (with_(OWN, trial=STEP), OWN, []),
        (with_(OWN, trial=STEP), times(1.5), []),
        (OWN, times(1.2), []),
        (OWN, times(0.85), []),
        # Faults upstream.
        (OWN, times(10), ["100 of 100 routes are changed"]),
        (OWN, times(0.01), ["100 of 100 routes are changed"]),
        (OWN, with_(OWN, connection_rate=2_000_000), ["100 of 100 routes are changed"]),
        (OWN, with_(OWN, start_rate=20_000), ["100 of 100 routes are changed"]),
        (OWN, with_(OWN, initcwnd=61), ["100 of 100 routes are changed"]),
        (OWN, with_(OWN, trial=HUGE), ["100 of 100 routes and trials are changed"]),
        (OWN, with_(OWN, trial=Part(permille=500)), ["100 of 100 routes and trials are changed"]),
        (BARE, with_(BARE, trial=HUGE), ["100 of 100 routes and trials are changed"]),
        (BARE, with_(BARE, trial=ON_TRIAL.but(permille=500)), ["100 of 100 routes and trials"]),
        (BARE, times(10), ["100 of 100 routes and trials are changed"]),
        # Values that edges brake by, and that receivers announce.
        (with_(OWN, default_resent=7500), with_(OWN, default_resent=10_000), []),
        (with_(OWN, default_resent=7500), OWN, []),
        (OWN, with_(OWN, default_resent=200_000), ["100 of 100 routes and trials are changed"]),
        (RECEIVES, with_(OWN, receive_window=45), []),
        (OWN, with_(OWN, receive_window=100), []),
        (RECEIVES, with_(RECEIVES, receive_window=60), []),
        (RECEIVES, with_(RECEIVES, receive_window=1000), ["100 of 100 receive windows are changed"]),
        (with_(OWN, receive_window=1000), with_(OWN, receive_window=45), ["100 of 100 receive windows are changed"]),
        # Recovery from loss is no start: it may come for all, and go in an incident.
        (OWN, with_(OWN, copied_bytes=20_000, parity_every=5, handshake_timeout_ms=150), []),
        (with_(OWN, copied_bytes=20_000, handshake_timeout_ms=150), OWN, []),
        (OWN, BARE, ["100 of 100 routes are changed or withdrawn", "100 of 100 routes are withdrawn"]),
    ],
)
def test_caps_judge_everything_that_an_entry_carries(before: Part, after: Part, expected: list[str]) -> None:
    found = caps.problems("publish", caps.difference(paced(before), paced(after)), BundlePolicy())
    for problem, begin in zip(found, expected, strict=True):
        assert problem.message.startswith(begin)


@pytest.mark.parametrize(("before", "after"), [((), (("mark", 8),)), ((("mark", 8),), (("mark", 9),))])
def test_a_field_that_no_rule_names_counts_whenever_it_moves(before: Any, after: Any) -> None:
    old, new = (caps.Start(60, 2_000_000, 1_000_000, others=others) for others in (before, after))
    usual = caps.Usual.of(StartPolicy())
    assert usual.is_own_new(old, new)
    assert not usual.is_own_new(new, new)


def test_trials_are_part_of_a_fleets_growth_and_hide_no_loss_of_values() -> None:
    """A few of many trials that are promoted in one round, or all, are no growth; ten times as many entries are."""
    few = {"ams-1": paced(BARE)["ams-1"], "ams-2": paced(OWN, 20)["ams-1"]}
    all_in_use = {"ams-1": paced(OWN)["ams-1"], "ams-2": paced(OWN, 20)["ams-1"]}
    lost = {"ams-1": paced(BARE)["ams-1"], "ams-2": paced(OWN, 5)["ams-1"]}

    def fields(before: Documents, after: Documents) -> list[str]:
        found = caps.problems("publish", caps.difference(before, after), BundlePolicy())
        return [problem.field.removeprefix("cap ") for problem in found]

    assert fields(few, all_in_use) == []
    assert fields(few, lost) == ["max_changed_share", "max_withdrawn_share"]
    assert fields(paced(BARE, 20), paced(BARE, 200)) == ["max_growth"]


def test_a_share_that_the_experiment_leaves_untreated_is_no_change() -> None:
    found = caps.difference(paced(with_(OWN, trial=Part(permille=100))), paced(with_(OWN, trial=Part(permille=900))))
    usual = caps.Usual.of(StartPolicy(), untreated=True)
    assert list(caps.problems("publish", found, BundlePolicy(), usual=usual)) == []
    assert [one.field for one in caps.problems("publish", found, BundlePolicy())] == ["cap max_changed_share"]


@pytest.mark.parametrize(("permille", "fields"), [(200, []), (300, ["cap max_changed_share"])])
def test_a_fifth_that_the_law_keeps_on_the_default_is_no_change(permille: int, fields: list[str]) -> None:
    found = caps.difference(paced(OWN), paced(with_(OWN, trial=Part(permille=permille))))
    assert [one.field for one in caps.problems("publish", found, BundlePolicy())] == fields


def test_diff_shows_rates_and_trials(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = PublishFolder(home.path / "publish")
    where = ("--publish-dir", folder.path)
    folder.point("current", publish(folder, paced(OWN, 1)) / "edges")
    created = instants.show(ROUND + 60)
    new = with_(times(2), trial=STEP, default_resent=7500, receive_window=60)
    publish(folder, {"ams-1": changed(paced(new, 1)["ams-1"], created_at=created)})
    (change,) = home.json("diff", *where)["changes"]
    assert (change["before"], change["after"]) == (60, 60)
    assert [one["start_rate"] for one in change["starts"]] == [2_000_000, 4_000_000]
    assert change["starts"][1]["trial"]["connection_rate"] == 1_500_000
    monkeypatch.setenv("COLUMNS", "300")
    (row,) = (line for line in home.run("diff", *where).stdout.splitlines() if "10.0.0.0/24" in line)
    assert "60 at 1,000,000 B/s, 2,000,000 together " in row
    assert "60 at 2,000,000 B/s, 4,000,000 together, on trial 60 at" in row
    assert "for 10 %, the default sends 7.5 segments again, receives 60" in row


def acting(always: bool, count: int = 100) -> dict[str, Document]:
    given = Part(algorithm="bbr", from_bytes=100_000, **({"always": True} if always else {}))
    return paced(Part(prefix="10.0.0.0/24", congestion=given), count)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (clients_of(100), clients_of(50), []),
        (clients_of(100), clients_of(100) | {"ams-2": clients_of(1)["ams-2"]}, []),
        (clients_of(100), clients_of(400), []),
        (clients_of(100), clients_of(100, 7), ["200 of 200"]),
        (clients_of(100), clients_of(100, 1_000_000_000), ["200 of 200"]),
        (clients_of(100), clients_of(100, algorithm="cubic"), ["200 of 200"]),
        (clients_of(100), clients_of(49), ["102 of 200"]),
        (clients_of(100), fleet_of(3), ["200 of 200"]),
        # Whichever edge of a PoP it is.
        (clients_of(100), clients_of(98) | {"ams-1": clients_of(0)["ams-1"]}, ["102 of 200"]),
        (clients_of(100), clients_of(98) | {"ams-2": clients_of(0)["ams-2"]}, ["102 of 200"]),
        (clients_of(19), clients_of(0), []),
        (acting(False), acting(True), ["100 of 100"]),
        (acting(True), acting(True), []),
    ],
)
def test_a_fleet_leaves_bbr_in_parts(before: Documents, after: Documents, expected: list[str]) -> None:
    found = list(caps.congestion_problems("publish", before, after, BundlePolicy()))
    what = " edges' client prefixes leave BBR or have it otherwise"
    assert [problem.message.split(", over")[0] for problem in found] == [f"{count}{what}" for count in expected]


def test_diff_shows_whose_congestion_control_changes(home: Home) -> None:
    folder = PublishFolder(home.path / "publish")
    where = ("--publish-dir", folder.path)
    folder.point("current", publish(folder, clients_of(2)) / "edges")
    created = instants.show(ROUND + 60)
    publish(folder, {edge: changed(one, created_at=created) for edge, one in clients_of(1, 7).items()})
    assert home.json("diff", *where)["congestion"] == [
        {"edge": edge, "prefix": prefix, "before": "bbr from 100,000 B", "after": after}
        for edge in ("ams-1", "ams-2")
        for prefix, after in (("192.0.0.0/24", "bbr from 7 B"), ("192.0.1.0/24", None))
    ]
    assert "0 added, 2 changed, 2 withdrawn" in home.run("diff", *where).stdout


def test_diff_shows_how_connections_recover(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = PublishFolder(home.path / "publish")
    where = ("--publish-dir", folder.path)
    folder.point("current", publish(folder, paced(Part(prefix="10.0.0.0/24", handshake_timeout_ms=80), 1)) / "edges")
    new = Part(prefix="10.0.0.0/24", handshake_timeout_ms=90, copied_bytes=20_000, parity_every=5)
    publish(folder, {"ams-1": changed(paced(new, 1)["ams-1"], created_at=instants.show(ROUND + 60))})
    assert home.json("diff", *where)["recovery"] == [
        {
            "edge": "ams-1",
            "prefix": "10.0.0.0/24",
            "before": {"handshake_timeout_ms": 80, "copied_bytes": 0, "parity_every": 0},
            "after": {"handshake_timeout_ms": 90, "copied_bytes": 20_000, "parity_every": 5},
        }
    ]
    monkeypatch.setenv("COLUMNS", "300")
    said = home.run("diff", *where).stdout
    assert "Recovery from loss: 0 added, 1 changed, 0 withdrawn" in said
    assert "handshake again after 80 ms" in said
    assert "handshake again after 90 ms, 100,000 B with parity of 5 segments" in said

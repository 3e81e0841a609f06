"""The fate of a decision: decided, left out, pushed and in force are kept apart."""

from __future__ import annotations

from typing import Any

import pytest
from springtide import instants
from springtide.laws.standing import Held, of_events
from springtide.publication import journal
from springtide.publication.folder import PublishFolder
from springtide.publication.journal import Event

from testkit.home import ROUND, Home
from testkit.spool import record, write_spool
from testkit.traffic import MSS, Socket

NOW = ROUND + 400
EDGES = ["ams-1", "ams-2"]


def published(name: str, moment: int, **windows: Any) -> Event:
    details = {"windows": {"round": instants.show(moment), "expires_at": instants.show(moment + 900), **windows}}
    return Event("publish", publication=name, verdict="published", at_unix_s=moment + 5, details=details, who="ann")


def event(kind: str, name: str, verdict: str, at: int, *edges: str, **details: Any) -> Event:
    return Event(kind, publication=name, verdict=verdict, at_unix_s=at, edges=edges, details=details, who="ann")


FIRST = [
    published("a", ROUND),
    event("rollout", "a", "begun", ROUND + 10),
    event("wave", "a", "applied", ROUND + 20, *EDGES),
]
SECOND = [
    published("b", ROUND + 300),
    event("rollout", "b", "begun", ROUND + 310),
    event("wave", "b", "failed", ROUND + 320, *EDGES, changed=["ams-1"]),
]
BACK = event("rollback", "b", "partial", ROUND + 330, *EDGES, away=["ams-1"])


@pytest.mark.parametrize(
    ("events", "now", "expected", "rollout"),
    [
        ([], NOW, {}, ""),
        (FIRST[:1], NOW, {}, ""),
        (FIRST, NOW, {"ams-1": "a", "ams-2": "a"}, "begun"),
        (FIRST, ROUND + 899, {"ams-1": "a", "ams-2": "a"}, "begun"),
        (FIRST, ROUND + 900, {}, "begun"),
        (FIRST, ROUND + 19, {}, "begun"),
        ([*FIRST, event("withdraw", "", "partial", ROUND + 50, "ams-2")], NOW, {"ams-1": "a"}, "begun"),
        ([*FIRST, *SECOND], NOW, {"ams-1": "b", "ams-2": "a"}, "begun"),
        ([*FIRST, *SECOND, BACK], NOW, {"ams-1": "b", "ams-2": "a"}, "failed"),
        (
            [*FIRST, *SECOND, event("rollback", "b", "done", ROUND + 330, *EDGES)],
            NOW,
            dict.fromkeys(EDGES, "a"),
            "failed",
        ),
        (
            [*FIRST, *SECOND, event("rollback", "b", "partial", ROUND + 330, *EDGES, withdrawn=["ams-1"])],
            NOW,
            {"ams-2": "a"},
            "failed",
        ),
        # Pushed again after it was taken back.
        (
            [
                *FIRST,
                event("rollout", "a", "done", ROUND + 21),
                event("rollback", "a", "done", ROUND + 30, *EDGES),
                event("wave", "a", "applied", ROUND + 40, "ams-1"),
            ],
            NOW,
            {"ams-1": "a"},
            "taken back",
        ),
    ],
)
def test_what_is_in_force_on_each_edge(events: list[Event], now: int, expected: dict[str, str], rollout: str) -> None:
    for order in (events, events[::-1]):
        found = of_events(order, EDGES, now)
        held = {edge: one.publication.name for edge in EDGES if (one := found.in_force(edge)) is not None}
        assert (held, found.rollout) == (expected, rollout)


def test_edges_that_differ_are_named_and_others_are_not() -> None:
    def describe(edge: str, held: Held) -> str:
        return f"{held.publication.name} until {held.until - ROUND}"

    both = of_events(FIRST, EDGES, NOW)
    assert both.value(describe, "nothing") == "a until 900"
    apart = of_events([*FIRST, *SECOND, BACK], EDGES, NOW)
    assert apart.value(describe, "nothing") == "b until 1200 on ams-1; a until 900 on ams-2"
    late = of_events(FIRST, EDGES, ROUND + 1000)
    assert late.value(describe, "nothing") == "nothing: round 2026-01-02T03:00:00Z expired at 2026-01-02T03:15:00Z"
    gone = of_events([*FIRST, event("withdraw", "", "done", ROUND + 50, *EDGES)], EDGES, NOW)
    assert "was withdrawn at 2026-01-02T03:00:50Z" in gone.value(describe, "nothing")


def test_a_damaged_publication_counts_as_none() -> None:
    for windows in ({"round": "soon"}, {"round": 5, "expires_at": None}):
        broken = event("publish", "c", "published", ROUND + 60, windows=windows)
        assert of_events([*FIRST, broken], EDGES, NOW).newest == of_events(FIRST, EDGES, NOW).newest


@pytest.mark.usefixtures("clock")
def test_explain_follows_a_window_from_the_decision_to_its_end(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.policy.write_text("initcwnd: {duty_rounds: 1}\nholdout: {min_edges: 2, edge_share: 0.5}\n")
    sockets = [Socket("ams-1", n, "10.77.1.1", f"10.77.2.{n}", "ams") for n in range(1, 5)]
    samples = [s.at(ROUND - 290 + 50 * n, 100 + n, 40 * n * MSS) for s in sockets for n in range(6)]
    write_spool(home.spool, "a", [record(samples)])
    home.run("ingest", home.spool)

    def explained() -> tuple[str, str, str]:
        [one] = home.json("explain", "ams", "fra")["initcwnd"]["explanations"]
        return one["decided"], one["pushed"], one["in_force"]

    home.run("decide", "initcwnd")
    default = "the kernel's default of 10 segments"
    nowhere = f"{default}: no publication has reached its edges in the last two days"
    assert explained() == ("40 segments", "nothing: no round was published in the last two days", nowhere)

    made = home.json("publish")
    round_text = "round 2026-01-02T03:00:00Z, published at 2026-01-02T03:00:30Z; "
    assert explained() == ("40 segments", f"{round_text}not rolled out yet", nowhere)

    folder = PublishFolder(home.publish_dir)
    [held_out] = [
        name for name in ("ams-1", "ams-2") if not any(r.startswith("10.77.2") for r in _routes(folder, made, name))
    ]
    [other] = {"ams-1", "ams-2"} - {held_out}

    def note(kind: str, verdict: str, *edges: str) -> None:
        journal.append(folder.path, Event(kind, publication=made["publication"], verdict=verdict, edges=edges))

    note("rollout", "begun")
    note("wave", "applied", "ams-1", "ams-2")
    note("rollout", "done")
    _, pushed, in_force = explained()
    assert pushed == f"{round_text}rolled out"
    parts = set(in_force.split("; "))
    assert parts == {f"40 segments until 2026-01-02T03:15:00Z on {other}", f"{default} (held out) on {held_out}"}

    home.policy.write_text("mode: advise\ninitcwnd: {duty_rounds: 1}\nholdout: {min_edges: 2, edge_share: 0.5}\n")
    decided, pushed, _ = explained()
    assert decided == "new connections would start with 40 segments"
    assert pushed == f"{round_text}rolled out; now advice only (mode: advise): nothing is pushed"
    assert "would set" in home.run("explain", "ams", "fra").stdout

    monkeypatch.setattr(instants, "now", lambda: ROUND + 900)
    assert explained()[2] == f"{default}: round 2026-01-02T03:00:00Z expired at 2026-01-02T03:15:00Z"


def _routes(folder: PublishFolder, made: dict[str, Any], edge: str) -> list[str]:
    text = (folder.path / "rounds" / made["publication"] / "edges" / f"{edge}.json").read_text()
    return [part.split('"')[0] for part in text.split('"prefix":"')[1:]]

"""Clocks that are wrong: no round is decided by a host's samples of another time, and what the controller did under a
clock that was ahead stands in nothing's way once it is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from springtide import instants
from springtide.jobs import due as due_rounds
from springtide.policy import Policy
from springtide.publication import journal
from springtide.publication.folder import PublishFolder
from springtide.publication.journal import Event
from springtide.publication.ways import way_back

from testkit.home import ROUND, Home
from testkit.proto import Value
from testkit.spool import record, write_spool
from testkit.traffic import MSS, Socket

pytestmark = pytest.mark.usefixtures("clock")

INTERVAL, ROUNDS = 300, 3
POLICY = """
initcwnd: {duty_rounds: 1}
congestion: {window_rounds: 10, min_rounds: 3, benefit_rounds: 2, min_stay_s: 600, holdout_share: 0, low_share: 0.1}
"""


def sockets(host: str, window: int, slow: int) -> list[Socket]:
    """Three connections to another PoP, and three to each of twelve client prefixes, of which one is slow."""
    address = f"10.77.1.{host[-1]}"
    first = 1000 * int(host[-1])
    found = [Socket(host, first + n, address, f"10.77.2.{2 + n}", "ams", window) for n in range(3)]
    for prefix in range(12):
        rate = 10_000 if prefix == slow else 1_000_000 + prefix
        more: dict[str, Value] = {"delivery_rate": rate, "rtt": 80_000}
        found += [
            Socket(host, first + 10 * prefix + 20 + n, address, f"198.51.{prefix}.{n + 1}", "ams", more=more)
            for n in range(3)
        ]
    return found


def samples(host: str, age: int, window: int = 40, slow: int = 4, off_s: int = 0) -> list[dict[str, Value]]:
    """Samples that a host sends in a round `age` rounds ago, stamped `off_s` too late."""
    begin, number = ROUND - (age + 1) * INTERVAL + off_s, ROUNDS - age
    return [
        socket.at(begin + 10 + 50 * n, poll=6 * number + n, bytes_acked=(6 * number + n) * 1000 * MSS)
        for socket in sockets(host, window, slow)
        for n in range(6)
    ]


def feed(home: Home, name: str, rows: list[dict[str, Value]]) -> None:
    write_spool(home.spool, name, [record(rows)])
    home.run("ingest", home.spool)


def test_a_round_is_decided_without_a_host_whose_clock_is_an_hour_off(
    home: Home, tmp_path: Path, settled: None
) -> None:
    home.policy.write_text(POLICY)
    hosts = ("ams-1", "ams-2")
    feed(home, "before", [row for age in range(ROUNDS, 0, -1) for host in hosts for row in samples(host, age)])
    for age in range(ROUNDS, 0, -1):
        home.run("rollup", "--round", instants.show(ROUND - age * INTERVAL))
    for law in ("initcwnd", "congestion"):
        home.run("decide", law, "--round", instants.show(ROUND - INTERVAL))
    chosen = "select destination as prefix from path_decisions final where algorithm = 'bbr'"
    assert {row["prefix"] for row in home.query(chosen)} == {"198.51.4.0/24"}

    feed(home, "now", samples("ams-2", 0))
    without = {law: home.json("decide", law, "--dry-run", code=3)["decisions"] for law in ("initcwnd", "congestion")}
    # Its windows and its slow prefix are others than the PoP's: following them would show.
    for off_s in (3600, -3600):
        feed(home, f"off{off_s}", samples("ams-1", 0, window=95, slow=7, off_s=off_s))
        home.run("rollup", "--round", instants.show(ROUND))
        for law in ("initcwnd", "congestion"):
            gauges = tmp_path / f"{law}.prom"
            answer = home.json("decide", law, "--metrics", gauges, code=3)
            assert answer["decisions"] == without[law]
            assert answer["incomplete"] == {"ams": "1 of 2 hosts sent samples"}
            assert {row["reason"] for row in answer["decisions"]} == {"held_incomplete_input"}
            assert f'springtide_input_incomplete{{law="{law}",pop="ams"}} 1' in gauges.read_text().splitlines()
    [window] = home.query(
        f"select initcwnd from path_decisions final where part = 'initcwnd' and toUnixTimestamp(round) = {ROUND}"
    )
    assert window == {"initcwnd": 40}


DAY_S = 86_400


def act(home: Home, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round under a clock: rolled up, decided, published."""
    monkeypatch.setattr(instants, "now", lambda: at)
    moment = instants.show(instants.latest_round(at, INTERVAL))
    home.run("rollup", "--round", moment)
    home.run("decide", "initcwnd", "--round", moment)
    home.run("publish", "--publish-dir", home.publish_dir)


Steps = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def ahead_once(shared: Home) -> tuple[Home, Steps, Steps]:
    """A round rolled out in time, another one with samples, decided and rolled out a day ahead; what status shows with
    the clock right again, a round later, and without another round for an hour."""
    folder = PublishFolder(shared.publish_dir)
    hosts = ("ams-1", "ams-2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instants, "now", lambda: ROUND + 30)
        feed(shared, "now", [row for host in hosts for row in samples(host, 0)])
        feed(shared, "ahead", [row for host in hosts for row in samples(host, 0, window=60, off_s=DAY_S)])
        feed(shared, "next", [row for host in hosts for row in samples(host, -1)])
        for at in (ROUND + 90, ROUND + DAY_S + 90):
            act(shared, at, patch)
            candidate = folder.resolved("candidate")
            assert candidate is not None
            folder.point("current", candidate / "edges")
            kept = Event("rollout", verdict="done", who="ann", publication=candidate.name, at_unix_s=at + 5)
            journal.append(folder.path, kept)
        seen = []
        for at in (ROUND + INTERVAL + 90, ROUND + 12 * INTERVAL):
            patch.setattr(instants, "now", lambda at=at: at)
            answer = shared.json("status", "--publish-dir", folder.path, code=1)
            seen.append({one["what"]: one for one in answer["steps"]})
    return shared, seen[0], seen[1]


def test_a_clock_that_was_ahead_hides_no_dead_loop(ahead_once: tuple[Home, Steps, Steps]) -> None:
    _, found, later = ahead_once
    assert (found["rounds"]["state"], found["initcwnd"]["state"]) == ("ok", "ok")
    assert (found["rounds"]["at"], found["initcwnd"]["at"]) == (instants.show(ROUND), instants.show(ROUND))
    assert found["published"]["state"] == "broken"
    assert "in the future" in found["published"]["text"]
    assert found["last push"]["at"] == instants.show(ROUND + 95), "a later push must not be hidden for a day"
    assert (later["rounds"]["state"], later["initcwnd"]["state"]) == ("stale", "stale")


def test_after_a_clock_that_was_ahead_rounds_are_published_and_rolled_back(
    ahead_once: tuple[Home, Steps, Steps], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, *_ = ahead_once
    folder = PublishFolder(home.publish_dir)
    first = folder.rounds()[0]
    act(home, ROUND + INTERVAL + 90, monkeypatch)
    new = folder.resolved("candidate")
    assert new is not None
    assert new.name.startswith(instants.show(ROUND + INTERVAL))
    # A publication that the right clock refuses is nothing to go back to.
    assert folder_values(new / "back", "ams-1") == []
    assert way_back(new, folder.path, ["ams-1"], instants.now()) == new / "back"
    monkeypatch.setattr(instants, "now", lambda: ROUND + INTERVAL + 100)
    home.run("rollback", first, "--publish-dir", folder.path, "--reason", "a clock was ahead")
    again = folder.resolved("candidate")
    assert again is not None
    assert again.name.startswith(instants.show(ROUND) + "-")
    assert folder_values(again / "edges", "ams-1") == folder_values(folder.path / "rounds" / first / "edges", "ams-1")


def folder_values(part: Path, edge: str) -> list[dict[str, object]]:
    document = json.loads((part / f"{edge}.json").read_text())
    routes: list[dict[str, object]] = document["entries"]
    return routes


def test_a_round_that_was_rolled_up_before_its_time_is_rolled_up_and_decided_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = ("ams-1", "ams-2")
    feed(home, "before", [row for host in hosts for row in samples(host, 1)])
    home.run("rollup", "--round", instants.show(ROUND - INTERVAL))
    home.run("decide", "initcwnd", "--round", instants.show(ROUND - INTERVAL))
    feed(home, "early", samples("ams-1", 0)[:6])
    monkeypatch.setattr(instants, "now", lambda: ROUND + 90)  # five minutes ahead
    home.run("rollup", "--round", instants.show(ROUND))
    home.run("decide", "initcwnd", "--round", instants.show(ROUND), code=3)
    monkeypatch.setattr(instants, "now", lambda: ROUND - 200)
    home.run("rollup")
    feed(home, "in time", [row for host in hosts for row in samples(host, 0)])
    monkeypatch.setattr(instants, "now", lambda: ROUND + 100)
    [rolled] = home.json("rollup")["rounds"]
    assert rolled["round"] == instants.show(ROUND)
    store = home.open()
    assert due_rounds.undecided(store, Policy(), ROUND, anew=[ROUND]) == [ROUND]
    store.close()
    home.run("decide", "initcwnd", "--round", instants.show(ROUND))

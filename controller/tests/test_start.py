"""The law of starts through the command line: from samples and records to bundles, round by round."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from springtide import instants

from testkit.home import ROUND, Home
from testkit.proto import Value
from testkit.spool import record, write_spool
from testkit.traffic import Socket

INTERVAL, MSS, RTT_US = 300, 1448, 50_000
RATE = 2_500_000
NOW = [ROUND]
POLICY = """\
enforce: {by: bpf, record_permille: 1000}
enforce_overrides: [{pop: fra, by: routes, reason: it cannot pace}]
start: {duty_rounds: 2}
"""


@pytest.fixture
def fleet(home: Home) -> Home:
    home.policy.write_text(POLICY)
    return home


def bulk(moment: int, rate: int = RATE) -> list[dict[str, Value]]:
    """Long flows of both edges of ams to fra that the path limits, each at this rate."""
    found = []
    first = moment // INTERVAL % 1000 * 5 + 100
    for number in range(6):
        host = f"ams-{1 + number % 2}"
        socket = Socket(host, 1000 + number, f"10.77.1.{1 + number % 2}", "10.77.2.9", "ams", snd_cwnd=90)
        for poll in range(5):
            at = moment - INTERVAL + 20 + 60 * poll
            more: dict[str, Any] = {
                # Measured anew in each round: a rate that stays is an old one.
                "delivery_rate": rate + 1000 * number + poll + moment // INTERVAL % 100 * 10,
                "min_rtt": RTT_US,
                "rtt": RTT_US + 2000,
                "snd_ssthresh": 70,
                "unacked": 80,
                "data_segs_out": 100_000 + poll,
                "snd_wnd": 4_000_000,
                "total_retrans": 3,
            }
            acked = (moment - ROUND + 86_400) * rate // 100 + poll * 60 * rate // 100
            found.append(socket.at(at, first + poll, acked, **more))
    return found


def flights(
    moment: int, decided: int, arm: int, count: int, lossy: int, took_us: int, window: int
) -> list[dict[str, Value]]:
    """Records of connections that closed in the round and had started by these decisions with such a window."""
    found = []
    for number in range(count):
        cookie = 50_000 + (moment // INTERVAL % 1000) * 2000 + arm * 1000 + number
        host = f"ams-{1 + number % 2}"
        socket = Socket(host, cookie, f"10.77.1.{1 + number % 2}", "10.77.2.9", "ams")
        lost = 12 if number < lossy else 0
        seen: dict[str, Value] = {
            "min_rtt": RTT_US,
            "total_retrans": lost,
            "data_segs_out": 70 + lost,
            "started_round": decided,
            "started_window": window,
            "started_rate": int(0.95 * RATE) if window else 0,
            "started_arm": arm,
            "started_step": 0,
            "started_at_once": int(window > 0),
            "started_prefix_length": 24,
            "first_flight_retrans": lost,
            "acked_50k_time": took_us // 2,
            "acked_100k_time": took_us,
            "lived_time": took_us + RTT_US,
        }
        found.append(socket.first_flight(moment - 100, moment // INTERVAL % 1000 * 5 + 102, 100_001, **seen))
    return found


def decide(home: Home, moment: int, *samples: list[dict[str, Value]]) -> dict[str, Any]:
    """Ingests the round's samples and decides it once they have had their time; the unit's decision."""
    NOW[0] = moment + 90
    write_spool(home.spool, f"s{moment}", [record([one for part in samples for one in part])])
    home.run("ingest", home.spool)
    home.run("decide", "initcwnd", "--round", instants.show(moment))
    found = home.json("decide", "start", "--round", instants.show(moment))
    [unit] = [one for one in found["decisions"] if (one["src_pop"], one["destination"]) == ("ams", "fra")]
    unit_: dict[str, Any] = unit
    return unit_


def entries(home: Home, moment: int, edge: str) -> list[dict[str, Any]]:
    out = home.path / f"out{moment}"
    home.run("bundle", "--round", instants.show(moment), "--out", out)
    return [*home_json(out / f"{edge}.json").get("entries", [])]


def home_json(path: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def leaves(fleet: Home, moment: int) -> None:
    """A PoP that left the fleet need not send anything: the law's memory of it expires."""
    pops = yaml.safe_load(fleet.fleet.read_text())
    del pops["pops"]["ams"]
    fleet.fleet.write_text(yaml.safe_dump(pops))
    NOW[0] = moment + 60
    first = moment // INTERVAL % 1000 * 5 + 100
    socket = Socket("fra-1", 7, "10.77.2.1", "10.77.3.9", "fra", snd_cwnd=90)
    sent = [socket.at(moment - INTERVAL + 20 + 60 * poll, first + poll, 1_000_000 * (poll + 1)) for poll in range(5)]
    write_spool(fleet.spool, "last", [record(sent)])
    fleet.run("ingest", fleet.spool)
    assert fleet.json("decide", "start", "--round", instants.show(moment))["incomplete"] == {}


def test_a_rate_is_tried_on_a_share_given_to_all_taken_back_where_it_harms_and_left_with_its_pop(
    fleet: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = [ROUND + INTERVAL * number for number in range(6)]
    monkeypatch.setattr(instants, "now", lambda: NOW[0])
    first = decide(fleet, moments[0], bulk(moments[0]))
    assert (first["action"], first["reason"], first["window"]) == ("none", "below_duty_cycle", 0)
    assert entries(fleet, moments[0], "ams-1") == []

    tried = decide(fleet, moments[1], bulk(moments[1]))
    assert (tried["action"], tried["reason"], tried["window"]) == ("try", "trial_proved", 0)
    # A single connection's share for a round trip.
    assert tried["trial_window"] == pytest.approx(RATE * RTT_US / 1e6 / MSS, abs=2)
    assert 0.9 * RATE <= tried["trial_connection_rate"] <= RATE
    [entry] = entries(fleet, moments[1], "ams-1")
    assert entry.keys() == {"prefix", "trial"}
    assert (entry["prefix"], entry["trial"]["permille"]) == ("10.77.2.0/24", tried["trial_permille"])
    assert 100 <= tried["trial_permille"] <= 500
    assert entry["trial"]["initcwnd"] == tried["trial_window"]
    # Another PoP's edges go by routes, and carry no rate.
    assert home_json(fleet.path / f"out{moments[1]}" / "fra-1.json")["enforce"]["by"] == "routes"

    good = flights(moments[2], moments[1], 1, 40, 0, 90_000, tried["trial_window"])
    default = flights(moments[2], moments[1], 0, 300, 0, 260_000, 0)
    given = decide(fleet, moments[2], bulk(moments[2]), good, default)
    assert (given["action"], given["reason"]) == ("set", "promoted")
    assert (given["window"], given["connection_rate"]) == (tried["trial_window"], tried["trial_connection_rate"])
    # All six together were delivered six times as much; each edge has its half of it.
    parts = {edge: entries(fleet, moments[2], edge)[0] for edge in ("ams-1", "ams-2")}
    assert sum(one["start_rate"] for one in parts.values()) == pytest.approx(given["path_rate"], rel=1e-3)
    assert given["path_rate"] > 4 * given["connection_rate"]
    assert {one["connection_rate"] for one in parts.values()} == {int(given["connection_rate"])}
    assert all(one["initcwnd"] == given["window"] for one in parts.values())
    # Again, and nothing changes.
    again = fleet.json("decide", "start", "--round", instants.show(moments[2]))
    assert not again["written"]
    shown = fleet.run("explain", "ams", "fra", "--round", instants.show(moments[2])).stdout
    assert shown.startswith("start: ams to fra")
    assert "initcwnd: ams" not in shown, "no edge of ams has a route"
    assert f"decided       {given['window']} segments at" in shown
    assert "0 of 40 lost something" in shown
    # Not the path's rate, but what an edge enforces of it.
    (line,) = (line for line in shown.splitlines() if line.strip().startswith("by edges"))
    assert f"{8e-6 * parts['ams-1']['start_rate']:.3g} Mbit/s at once on ams-1" in line

    harm = flights(moments[3], moments[2], 0, 200, 150, 900_000, given["window"])
    cut = decide(fleet, moments[3], bulk(moments[3]), harm)
    assert (cut["reason"], cut["trial_permille"]) == ("loss", 0)
    assert cut["connection_rate"] <= 0.8 * given["connection_rate"]
    held = decide(fleet, moments[4], bulk(moments[4]))
    assert held["connection_rate"] <= cut["connection_rate"] + 1
    assert held["trial_connection_rate"] < given["connection_rate"]
    replayed = fleet.json("replay", "--from", instants.show(moments[0]), "--law", "start")
    assert [one["different"] for one in replayed["rounds"]] == [0] * len(replayed["rounds"])
    assert len(replayed["rounds"]) >= 4
    status = fleet.run("status", code=None).stdout
    # In the newest round nothing connected.
    assert "1 of 1 pairs and prefixes have first flights that started as decided; 0 show nothing" in status
    # The PoP is missed where it does not send, until it has left the fleet.
    leaves(fleet, moments[5])


def test_without_an_edge_that_paces_nothing_is_decided(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.policy.write_text("{}\n")
    monkeypatch.setattr(instants, "now", lambda: ROUND + 60)
    home.run("migrate")
    write_spool(home.spool, "s", [record(bulk(ROUND))])
    home.run("ingest", home.spool)
    home.run("decide", "initcwnd", "--round", instants.show(ROUND))
    found = home.json("decide", "start", "--round", instants.show(ROUND))
    assert found["decisions"] == []
    assert "start: ams" not in home.run("explain", "ams", "fra", "--round", instants.show(ROUND)).stdout

"""How soon a lost SYN or SYN-ACK is sent again: from records of handshakes to bundles, and back where it does harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from springtide import instants
from springtide.bundles.render import render
from springtide.fleet import load_fleet
from springtide.jobs.due import undecided
from springtide.laws.base import Contribution
from springtide.laws.entry import Part
from springtide.policy import Policy, load_policy

from testkit.home import FLEET, ROUND, Home
from testkit.proto import Value
from testkit.spool import record, write_spool
from testkit.traffic import Socket

POLICY = "initcwnd: {duty_rounds: 1}\nenforce: {by: bpf}\nrecovery: {handshake: true, window_rounds: 2}\n"
INTERVAL = 300
FRA, CLIENTS, FEW = "10.77.2.9", "203.0.113.7", "198.51.100.7"
NUMBER = iter(range(1, 1_000_000))


def handshakes(
    moment: int, host: str, peer: str, rtts_ms: list[float], timeout_ms: int = 0, again: int = 0
) -> list[dict[str, Value]]:
    """Records of the round that ends at `moment`; `again` of these handshakes were sent again."""
    found = []
    for number, rtt_ms in enumerate(rtts_ms):
        one = Socket(host, next(NUMBER), f"10.77.1.{host[-1]}", peer, "ams", state="TCP_STATE_UNSPECIFIED")
        row = one.at(moment - 100, moment // INTERVAL, 5000)
        seen: dict[str, Value] = {
            "kind": "SAMPLE_KIND_FIRST_FLIGHT",
            "total_retrans": 0,
            "data_segs_out": 4,
            "started_round": moment - INTERVAL,
            "started_window": 0,
            "started_rate": 0,
            "started_arm": 0,
            "started_step": 0,
            "started_prefix_length": 24,
            "handshake_rtt": round(1000 * rtt_ms),
            "handshake_timeout_ms": timeout_ms,
            "handshake_retrans": int(number < again),
            "lived_time": 90_000,
        }
        kept = ("time_unix_us", "host", "pop", "boot_id", "netns", "poll_sequence", "cookie", "state", "family")
        ends = ("src_ip", "src_port", "dst_ip", "dst_port", "bytes_acked", "min_rtt")
        found.append({name: row[name] for name in (*kept, *ends)} | seen)
    return found


def decided(home: Home, moment: int, rows: list[dict[str, Value]]) -> dict[str, tuple[str, int]]:
    """Reason and timeout by destination, of a round that showed these, and a poll of each host."""
    polls = [
        Socket(host, 900_000, f"10.77.1.{host[-1]}", FRA, "ams").at(moment - 30, moment // INTERVAL, 5000)
        for host in ("ams-1", "ams-2")
    ]
    write_spool(home.spool, str(moment), [record(polls + rows)])
    home.run("ingest", home.spool)
    at = ("--round", instants.show(moment))
    home.run("rollup", *at)
    first = home.json("decide", "recovery", *at)
    assert first["written"] == len(first["decisions"])
    assert home.json("decide", "recovery", *at)["written"] == 0
    return {row["destination"]: (row["reason"], row["handshake_timeout_ms"]) for row in first["decisions"]}


def timeouts(home: Home, moment: int) -> dict[str, dict[str, int]]:
    """By edge, what its bundle has."""
    out = home.path / f"bundles-{moment}"
    home.run("decide", "initcwnd", "--round", instants.show(moment))
    home.run("bundle", "--round", instants.show(moment), "--out", out)
    documents = {path.stem: json.loads(path.read_bytes()) for path in Path(out).glob("*.json")}
    return {
        edge: {one["prefix"]: one["handshake_timeout_ms"] for one in document["entries"]}
        for edge, document in documents.items()
    }


def test_paths_get_the_timeout_that_their_handshakes_ask_for_and_lose_it_where_it_is_in_vain(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.policy.write_text(POLICY)
    now = [ROUND + 90]
    monkeypatch.setattr(instants, "now", lambda: now[0])
    first = [
        # The slower edge of two counts, and of 99 % of its handshakes the slowest.
        *handshakes(ROUND, "ams-1", FRA, [100.0] * 60),
        *handshakes(ROUND, "ams-2", FRA, [120.0] * 60),
        *handshakes(ROUND, "ams-1", CLIENTS, [*[20.0] * 148, 30.0, 900.0]),
        *handshakes(ROUND, "ams-1", FEW, [20.0] * 99),
    ]
    assert decided(home, ROUND, first) == {"fra": ("learnt", 180), "203.0.113.0/24": ("learnt", 50)}
    of_ams = {"10.77.2.0/24": 180, "203.0.113.0/24": 50}
    assert timeouts(home, ROUND) == {"ams-1": of_ams, "ams-2": of_ams, "fra-1": {}, "nyc-1": {}}
    said = home.run("explain", "ams", "fra", "--round", instants.show(ROUND)).stdout
    assert "a lost SYN or SYN-ACK is sent again after 180 ms" in said
    assert "120 handshakes, of which 99 % took up to 120 ms" in said

    # Losses hit both arms alike: one handshake in ten. A quarter more, with the path's own timeout, is in vain.
    second, now[0] = ROUND + INTERVAL, now[0] + INTERVAL
    rows = [
        *handshakes(second, "ams-1", FRA, [100.0] * 900, 180, again=90),
        *handshakes(second, "ams-1", FRA, [100.0] * 100, again=10),
        *handshakes(second, "ams-1", CLIENTS, [20.0] * 900, 50, again=315),
        *handshakes(second, "ams-1", CLIENTS, [20.0] * 100, again=10),
    ]
    assert decided(home, second, rows) == {"fra": ("held_hysteresis", 180), "203.0.113.0/24": ("spurious", 0)}
    assert timeouts(home, second)["ams-1"] == {"10.77.2.0/24": 180}
    of_clients = home.json("explain", "ams", "203.0.113.7", "--round", instants.show(second))["recovery"]["decisions"]
    assert [(one["treated_resent"], one["control_resent"]) for one in of_clients] == [(315, 10)]

    # For as long as a bundle lives the one is held and the other stays; then both are gone.
    for later, wanted in (
        (1, {"fra": ("held_hysteresis", 180), "203.0.113.0/24": ("held_spurious", 0)}),
        (2, {"fra": ("held_thin_evidence", 180), "203.0.113.0/24": ("held_spurious", 0)}),
        (4, {"fra": ("expired", 0), "203.0.113.0/24": ("thin_evidence", 0)}),
    ):
        third = second + later * INTERVAL
        now[0] = third + 90
        assert decided(home, third, handshakes(third, "ams-1", FEW, [20.0])) == wanted
    span = ("--from", instants.show(ROUND), "--to", instants.show(third))
    [replayed] = home.json("replay", "--law", "recovery", *span)["summary"]
    assert (replayed["values_at_the_end"], replayed["values_at_the_end_recorded"]) == (0, 0)


@pytest.mark.parametrize("section", ["", "recovery: {handshake: false}", "recovery: {handshake: true}"])
def test_nothing_is_decided_where_it_is_off_or_no_edge_runs_the_program(
    home: Home, section: str, settled: None
) -> None:
    by = "routes" if "true" in section else "bpf"
    home.policy.write_text(f"initcwnd: {{duty_rounds: 1}}\nenforce: {{by: {by}}}\n{section}\n")
    assert decided(home, ROUND, handshakes(ROUND, "ams-1", FRA, [100.0] * 200)) == {}
    found: dict[str, Any] = timeouts(home, ROUND)
    assert not any(found.values())


def test_one_that_is_turned_off_makes_no_round_due_and_nothing_late(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.policy.write_text(POLICY)
    monkeypatch.setattr(instants, "now", lambda: ROUND + 90)
    assert decided(home, ROUND, handshakes(ROUND, "ams-1", FRA, [100.0] * 200)) == {"fra": ("learnt", 150)}
    home.policy.write_text(POLICY.replace("handshake: true", "handshake: false"))
    second = ROUND + 2 * INTERVAL
    monkeypatch.setattr(instants, "now", lambda: second + 90)
    assert decided(home, second, handshakes(second, "ams-1", FRA, [100.0] * 200)) == {}
    assert not any(timeouts(home, second).values())
    store = home.open()
    assert undecided(store, load_policy(home.policy), second) == []
    store.close()
    [step] = [one for one in home.json("status", code=1)["steps"] if one["what"] == "recovery"]
    assert (step["state"], step["fix"]) == ("note", "")


def test_what_one_host_invents_changes_little_where_three_are(home: Home, settled: None) -> None:
    home.policy.write_text(POLICY)
    others = [
        one
        for host in ("ams-1", "ams-2")
        for one in [
            *handshakes(ROUND, host, CLIENTS, [20.0] * 900, 50, again=9),
            *handshakes(ROUND, host, CLIENTS, [20.0] * 100, again=1),
        ]
    ]
    invented = handshakes(ROUND, "ams-3", CLIENTS, [4_294_967.0] * 5000, 50, again=5000)
    home.fleet.write_text(FLEET.replace("      ams-2:", "      ams-3: {address: 10.77.1.3}\n      ams-2:"))
    found = decided(home, ROUND, [*others, *invented])
    assert found == {"203.0.113.0/24": ("learnt", 50)}
    [row] = home.query(
        "select treated, treated_resent, control, control_resent from path_decisions where part = 'recovery'"
    )
    assert tuple(int(value) for value in row.values()) == (1800, 18, 200, 2)


def test_control_is_of_the_same_bundles_and_the_newest_timeout(home: Home, settled: None) -> None:
    home.policy.write_text(POLICY)
    rows = [
        # Before anything was given, nothing was lost; a shorter timeout did harm; then as much is lost with both.
        *handshakes(ROUND, "ams-1", CLIENTS, [20.0] * 3000),
        *handshakes(ROUND, "ams-1", CLIENTS, [20.0] * 900, 50, again=500),
        *handshakes(ROUND, "ams-1", CLIENTS, [20.0] * 900, 60, again=90),
        *handshakes(ROUND, "ams-1", CLIENTS, [20.0] * 100, again=10),
    ]
    for at, row in enumerate(rows):
        row["started_round"] = ROUND - (900 if at < 3000 else 600 if at < 3900 else 300)
        row["time_unix_us"] = int(row["time_unix_us"]) + 1_000_000 * (at // 1000)
    decided(home, ROUND, rows)
    counts = "treated_ms, treated, treated_resent, control, control_resent"
    [row] = home.query(f"select {counts} from path_decisions where part = 'recovery'")
    assert tuple(int(value) for value in row.values()) == (60, 900, 90, 100, 10)


@pytest.mark.parametrize("bound", [{"max_routes": 100}, {"max_bytes": 12_000}])
def test_a_bundle_that_is_full_keeps_what_gains_most_of_both_laws(home: Home, bound: dict[str, int]) -> None:
    prefixes = [f"198.51.{number}.0/24" for number in range(200)]
    values = {"initcwnd": 120, "start_rate": 8_000_000, "connection_rate": 2_000_000}
    starts = [Part(prefix=prefix, **values) for prefix in prefixes]
    timeouts = [Part(prefix=prefix, handshake_timeout_ms=150) for prefix in prefixes]
    policy = Policy.model_validate({"enforce": {"by": "bpf"}, "bundle": bound})
    given = [Contribution({"ams-1": part}, "bpf") for part in (starts, timeouts)]
    rendered = render(load_fleet(home.fleet), policy, ROUND, ROUND, given)
    content = rendered.documents["ams-1"].content
    entries = json.loads(content)["entries"]
    windows = [one["prefix"] for one in entries if "initcwnd" in one]
    assert len(windows) <= policy.bundle.max_routes
    assert policy.bundle.max_bytes - 400 < len(content) or len(windows) == policy.bundle.max_routes
    assert len(content) <= policy.bundle.max_bytes
    # The prefixes are as well as they come: those that gain most are first.
    assert set(windows) == set(prefixes[: len(windows)])

"""How soon a lost SYN or SYN-ACK is sent again: from records of handshakes to bundles, and back where it does harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from springtide import instants

from testkit.home import ROUND, Home
from testkit.proto import Value
from testkit.spool import record, write_spool
from testkit.traffic import Socket

POLICY = "initcwnd: {duty_rounds: 1}\nenforce: {by: bpf}\nrecovery: {handshake: true, window_rounds: 2, hold_s: 600}\n"
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

    # What is lost is lost with both timeouts; a quarter more with the path's own is in vain.
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

    # Without evidence it stays for an hour, and what was in vain is held for ten minutes.
    third, now[0] = second + 3 * INTERVAL, now[0] + 3 * INTERVAL
    assert decided(home, third, handshakes(third, "ams-1", FEW, [20.0])) == {
        "fra": ("held_thin_evidence", 180),
        "203.0.113.0/24": ("thin_evidence", 0),
    }
    span = ("--from", instants.show(ROUND), "--to", instants.show(third))
    [replayed] = home.json("replay", "--law", "recovery", *span)["summary"]
    assert (replayed["values_at_the_end"], replayed["values_at_the_end_recorded"]) == (1, 1)


@pytest.mark.parametrize("section", ["", "recovery: {handshake: false}", "recovery: {handshake: true}"])
def test_nothing_is_decided_where_it_is_off_or_no_edge_runs_the_program(
    home: Home, section: str, settled: None
) -> None:
    by = "routes" if "true" in section else "bpf"
    home.policy.write_text(f"initcwnd: {{duty_rounds: 1}}\nenforce: {{by: {by}}}\n{section}\n")
    assert decided(home, ROUND, handshakes(ROUND, "ams-1", FRA, [100.0] * 200)) == {}
    found: dict[str, Any] = timeouts(home, ROUND)
    assert not any(found.values())

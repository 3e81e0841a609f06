"""Counts are compared with what the emulator carried; and the emulator's truth is what a path can carry."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from lab import flows
from lab.lab import Lab
from lab.topology import Topology
from lab.truth import compare
from lab.truth.compare import Connection


def record(most: int, total: int, lost: int = 0, end: int = 40) -> str:
    ends = {"src": "10.0.0.1:80", "dst": "10.0.0.2:5000"}
    trips = {"round_trip_bytes": total, "round_trip_bytes_squared": most * total // 2}
    counts = {"most_bytes": most, "bytes": total, "lost_segments": lost}
    return json.dumps({**ends, "interval_end_s": end, **trips, **counts})


def test_records_of_one_flow_and_interval_are_taken_together() -> None:
    found = flows.gather([record(3, 5, 1), record(2, 7, 1), record(9, 9, 0, end=60)])
    assert [(one.most_bytes, one.bytes, one.lost_segments) for one in found] == [(3, 12, 2), (9, 9, 0)]


def row(**changed: Any) -> dict[str, Any]:
    ends = {"src_ip": "::ffff:10.0.0.1", "src_port": 80, "dst_ip": "::ffff:10.0.0.2", "dst_port": 5000}
    return {
        **ends,
        "round": 40,
        "src_pop": "a",
        "dst_pop": "b",
        "snd_cwnd": 90,
        "snd_mss": 1000,
        "counted": 60,
        **changed,
    }


def test_a_connection_is_matched_by_its_ends_and_its_round() -> None:
    # The first is of the round before, and the second not late; each one's mean is half of its most.
    seconds = {20: 90_000, 21: 70_000, 36: 10_000, 37: 30_000, 38: 20_000, 39: 10_000, 40: 30_000}
    carried = flows.gather([record(most, 900_000, end=end) for end, most in seconds.items()])
    found = compare.match([row()], carried, {40: "bulk"}, 20)
    assert found == [Connection("bulk", 40, "a", "b", 90, 60, mean=10.0, most=30.0)]
    assert compare.match([row(counted=0)], carried, {40: "bulk"}, 20)[0].counted is None
    for other in (row(dst_port=5001), row(round=60)):
        assert compare.match([other], carried, {40: "bulk", 60: "bulk"}, 20) == []


def test_the_error_is_of_those_that_counted() -> None:
    found = [Connection("small", 40, "a", "b", 90, counted, 40.0, 50.0) for counted in (20.0, 44.0, 80.0, None)]
    assert compare.judge(found) == {
        **{"connections": 4, "counted": 3, "error": 0.5, "error_of_mean": 0.5, "error_of_most": 0.6},
        **{"least_of_mean": 0.5, "most_of_most": 1.6},
    }
    assert compare.grouped(found)[0]["counted_p50"] == 44
    assert compare.judge(found[3:])["error"] is None


@pytest.mark.parametrize(("address", "found"), [("::ffff:10.0.0.1", "10.0.0.1:80"), ("fd77:1::1", "[fd77:1::1]:80")])
def test_an_endpoint_is_written_as_the_emulator_does(address: str, found: str) -> None:
    assert compare.endpoint(address, 80) == found


@pytest.mark.root
def test_a_round_trip_carries_what_the_rate_allows_and_less_after_a_change(topology: Topology) -> None:
    """5 Mbit/s for 20 ms are 12,500 bytes, which the most of a flow cannot exceed by more than a packet."""
    pair = ("nyc", "ams")
    with Lab.up(topology, f"f{os.getpid()}", flows_interval_s=1) as lab:
        assert all(probe.ok for probe in lab.probe(3, [100_000], [pair]))
        time.sleep(1)
        data = topology.model_dump(mode="json", exclude_none=True)
        for path in data["paths"]:
            if (path["src"], path["dst"]) == pair:
                path["rate_mbit"] = 1
        lab.reshape(Topology.model_validate(data, strict=False))
        # The interval that saw both rates ends before what follows begins.
        time.sleep(1.5)
        changed = int(time.time())
        assert all(probe.ok for probe in lab.probe(1, [10_000], [pair]))
        seen = [one for one in lab.flows() if one.src.endswith(":80")]
        drops = {(path["src"], path["dst"]): path["queue_drops"] for path in lab.wan_counters()["paths"]}
    early = [one.most_bytes for one in seen if one.interval_end_s <= changed]
    late = [one.most_bytes for one in seen if one.interval_end_s > changed]
    print(early, late, drops[pair])
    assert 8_000 < max(early) <= 12_500 + 1_500
    assert 0 < max(late) <= 2_500 + 1_500
    assert sum(one.bytes for one in seen) >= 310_000  # the objects, and their headers

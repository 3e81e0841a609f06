"""Probes: files of lines into the store, bad lines beside good ones; percentiles by group against plain arithmetic."""

from __future__ import annotations

import json
import random
import statistics
from pathlib import Path
from typing import Any

import pytest

from testkit.home import ROUND, Home

pytestmark = pytest.mark.usefixtures("clock")


def line(n: int = 0, **changed: Any) -> str:
    """One probe; a value of None leaves the key out."""
    given: dict[str, Any] = {
        "time": ROUND - 40_000 + 300.0 * n,
        "host": "ams-1",
        "server": "10.77.3.1",
        "bytes": 100_000,
        "result": "ok",
        "connect_us": 80_000,
        "first_byte_us": 160_500,
        "total_us": 250_000 + n,
        "window": 10,
    }
    return json.dumps({key: value for key, value in {**given, **changed}.items() if value is not None}) + "\n"


def write(home: Home, lines: list[str], name: str = "probes-1.jsonl") -> Path:
    path = home.path / name
    path.write_text("".join(lines))
    return path


def test_a_probe_is_stored_with_the_pops_of_the_fleet(home: Home) -> None:
    failed = line(1, result="timeout", first_byte_us=None, total_us=None, window=None, server="fd77:2::1", bytes=50_000)
    assert home.json("ingest-probes", write(home, [line(pop="mars", server_pop="venus"), failed]))["rows"] == 2
    rows = home.query(
        "select host, pop, server_pop, ip_version, bytes, result, connect_us, first_byte_us, total_us, start_window "
        "from probes final order by time_unix_us"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("ams-1", "ams", "nyc", 4, 100_000, "ok", 80_000, 160_500, 250_000, 10),
        ("ams-1", "ams", "fra", 6, 50_000, "timeout", 80_000, None, None, None),
    ]


BAD = {
    "not json": ("not json\n", "is not a JSON object"),
    "of nobody": (line(host="mars-1"), "host: is not an edge of fleet.yaml"),
    "of no host": (line(host=7), "host: is not a text"),
    "another size": (line(bytes=20_000), "bytes: 20000 is not one of 10000, 50000, 100000"),
    "a large size": (line(bytes=10**12), "bytes: 1000000000000 is not a number from 0 to 100000"),
    "another result": (line(result="fine"), "result: is not one of"),
    "a name": (line(server="ams-2.example"), "server: is not an IP address"),
    "a link's own": (line(server="fe80::1%1"), "server: is an address of one link only"),
    "negative": (line(connect_us=-1), "connect_us: -1 is not a number from 0"),
    "an hour": (line(total_us=3_600_000_000), "total_us: 3600000000 is not a number from 0 to 6e+07"),
    "backwards": (line(total_us=160_000), "total_us: is before"),
    "a byte before the connection": (line(first_byte_us=70_000), "first_byte_us: is before"),
    "ok without its end": (line(total_us=None), "total_us: is missing, though the result is ok"),
    "a window of none": (line(window="10"), "window: '10' is not a number"),
    "an old one": (line(time=ROUND - 91 * 86_400), "time: is too far from now"),
    "one to come": (line(time=ROUND + 2 * 86_400), "time: is too far from now"),
    "no time": (line(time=float("nan")), "time: nan is not a number"),
    "long": (line(more="x" * 70_000), "is longer than 65536 bytes"),
}


def test_a_bad_line_is_kept_and_named_and_costs_no_other(home: Home) -> None:
    lines = [one for n, (bad, _) in enumerate(BAD.values()) for one in (line(n), bad)]
    path = write(home, lines)
    errors = home.refused("ingest-probes", path)
    assert len(errors) == len(BAD)
    for n, (error, (_, message)) in enumerate(zip(errors, BAD.values(), strict=True)):
        assert f"{path}:{2 * n + 2}: line: {message}" in error
    assert path.with_name("probes-1.jsonl.rejected").read_text() == "".join(bad for bad, _ in BAD.values())
    assert home.query("select count() as n from probes final") == [{"n": len(BAD)}]


def test_a_host_weighs_no_more_by_writing_more(home: Home) -> None:
    """In one five minutes the newest of a PoP and a size counts, in whatever order and how often files are loaded."""
    start = ROUND - 3000
    flood = [line(time=start + n / 10, total_us=1_000_000 + n, server=f"10.77.3.{n % 250 + 1}") for n in range(2000)]
    others = [line(time=start, bytes=10_000), line(time=start, host="ams-2"), line(time=start, server="10.77.2.1")]
    found: list[list[dict[str, Any]]] = []
    for order in (flood, flood[::-1]):
        home.json("ingest-probes", write(home, [*order, *others], f"probes-{len(found)}.jsonl"))
        found.append(home.query("select host, server_pop, bytes, total_us from probes final order by all"))
    assert [tuple(row.values()) for row in found[0]] == [
        ("ams-1", "fra", 100_000, 250_000),
        ("ams-1", "nyc", 10_000, 250_000),
        ("ams-1", "nyc", 100_000, 1_001_999),
        ("ams-2", "nyc", 100_000, 250_000),
    ]
    assert found[1] == found[0]


def test_the_questions_percentiles_are_those_of_plain_arithmetic(home: Home) -> None:
    """Pairs by the median time to connect: a lost SYN moves no pair into another group."""
    chance = random.Random(5)
    lines, times = [], []
    for n in range(101):
        # A third of the handshakes to nyc lost a segment and took a second longer.
        connect = 80_000 + 1_000_000 * (n % 3 == 0)
        total = connect + chance.randrange(100_000, 400_000)
        failed = n % 10 == 9
        if failed:
            lines.append(line(n, connect_us=connect, first_byte_us=None, total_us=None, result="closed"))
        else:
            lines.append(line(n, connect_us=connect, first_byte_us=connect + 50_000, total_us=total))
            times.append(total / 1000)
        lines.append(line(n, server="10.77.2.1", connect_us=50_000, first_byte_us=60_000, total_us=70_000, window=40))
    # Far away, and a PoP that nobody can reach.
    lines.append(line(3, host="fra-1", connect_us=150_001, first_byte_us=200_000, total_us=300_000, window=None))
    gone = {"connect_us": None, "first_byte_us": None, "total_us": None, "window": None}
    lines.append(line(4, host="fra-1", server="10.77.1.1", result="unreachable", **gone))
    # A server of no PoP is shown nowhere.
    lines.append(line(5, server="192.0.2.1"))
    home.json("ingest-probes", write(home, lines))
    rows = {row["rtt_group"]: row for row in home.json("sql", "probe-times")}
    assert list(rows) == ["1: up to 50 ms", "2: 50-100 ms", "4: over 150 ms", "no connection"]
    medium = rows["2: 50-100 ms"]
    cuts = statistics.quantiles(times, n=20, method="inclusive")
    expected = {f"p{level}_ms": cuts[level // 5 - 1] for level in (5, 25, 50, 75, 95)}
    assert {name: medium[name] for name in expected} == {
        name: pytest.approx(value, abs=0.051) for name, value in expected.items()
    }
    counts = ("kb", "started", "pair_count", "probe_count", "failed_percent")
    assert [medium[name] for name in counts] == [100, "with 10", 1, 101, pytest.approx(100 * 10 / 101, abs=0.005)]
    assert [rows["1: up to 50 ms"][name] for name in (*counts, "p95_ms")] == [100, "with more", 1, 101, 0, 70]
    assert rows["4: over 150 ms"]["started"] == "unknown"
    assert rows["no connection"]["failed_percent"] == 100
    assert rows["no connection"]["p50_ms"] is None
    assert {row["rtt_group"] for row in home.json("sql", "probe-times", "--set", "src=fra")} == {"1: up to 50 ms"}
    assert {row["rtt_group"] for row in home.json("sql", "probe-times", "--set", "dst=ams")} == {
        "1: up to 50 ms",
        "2: 50-100 ms",
    }

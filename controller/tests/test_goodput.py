"""Access logs to goodput: each request once, bad lines beside good ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from springtide import instants

from testkit.home import ROUND, Home

pytestmark = pytest.mark.usefixtures("clock")


def line(n: int, **changed: Any) -> str:
    given = {
        "time": ROUND - 200 + n / 1000,
        "host": "ams-1",
        "request_id": f"{n:032x}",
        "client": "192.0.2.7",
        "server": "10.77.1.1",
        "method": "GET",
        "status": 200,
        "bytes": 125_000,
        "request_time": (n + 1) / 10,
    }
    return json.dumps({**given, **changed}) + "\n"


def write(home: Home, name: str, lines: list[str]) -> Path:
    path = home.path / name
    path.write_text("".join(lines))
    return path


def test_goodput_counts_each_request_once(home: Home) -> None:
    lines = [line(n) for n in range(10)] + [line(20, bytes=500), line(21, status=404), line(22, client="2001:db8::1")]
    # Not answered in full, and answered in full.
    lines += [line(24, completion=""), line(25, completion="OK", bytes=500, client="198.51.100.7")]
    # In nobody's network.
    lines.append(line(23, client="unix:", server="unix:/run/nginx.sock"))
    path = write(home, "access.json", lines)
    again = write(home, "again.json", lines[5:] + lines[:3])
    assert home.json("ingest-logs", path)["rows"] == 16
    home.run("ingest-logs", path, again)
    home.run("rollup", "--round", instants.show(ROUND))
    rows = home.query(
        "select pop, prefix, from_kb, requests, goodput_p10_mbit_per_s, goodput_mbit_per_s from goodput "
        "order by prefix, from_kb"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("ams", "192.0.2.0/24", 0, 1, 0.001904, 0.001904),
        # 125 KB in 0.1 to 1 s.
        ("ams", "192.0.2.0/24", 100, 10, 1, 1.666664),
        ("ams", "198.51.100.0/24", 0, 1, 0.001536, 0.001536),
        ("ams", "2001:db8::/56", 100, 1, 0.434776, 0.434776),
    ]


def test_milliseconds_are_milliseconds(home: Home) -> None:
    """As HAProxy writes them, which as seconds would be a thousand times too long."""
    in_ms = [line(n, request_time_ms=n * 100).replace('"request_time":', '"elapsed":') for n in range(3)]
    path = write(home, "access.json", [*in_ms, line(3, request_time=0), line(4, request_time=2.0, request_time_ms=7)])
    assert home.json("ingest-logs", path)["rows"] == 5
    rows = home.query("select duration_us from http_requests order by request_id")
    assert [row["duration_us"] for row in rows] == [0, 100_000, 200_000, 0, 2_000_000]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("not json\n", "is not a JSON object"),
        ("[1]\n", "is not a JSON object"),
        (line(1, client="nobody"), "client: is not an IP address"),
        (line(1, request_id="xyz"), "request_id: is not 32 hexadecimal digits"),
        (line(1, status="200"), "status: is not a whole number from 0 to 999"),
        (line(1, bytes=-1), "bytes: is not a whole number"),
        (line(1, request_time=float("nan")), "is not a JSON object"),
        (line(1, request_time=454), "request_time: is a whole number, so not seconds"),
        (line(1).replace("request_time", "elapsed"), "request_time: is not a number"),
        (
            line(1, request_time_ms=1).replace('request_time"', 'elapsed"').replace(": 1}", ": 0.5}"),
            "request_time_ms: is",
        ),
        (line(1, request_time_ms=-1).replace('request_time"', 'elapsed"'), "request_time_ms: is not a whole number"),
    ],
)
def test_a_bad_line_is_kept_and_named_and_costs_no_other(home: Home, bad: str, message: str) -> None:
    path = write(home, "access.json", [line(1), bad, line(2)])
    [error] = home.refused("ingest-logs", path)
    assert f"{path}:2: line: {message}" in error
    assert path.with_name("access.json.rejected").read_text() == bad
    assert home.query("select uniqExact(request_id) as n from http_requests") == [{"n": 2}]

"""Probes between PoPs into the table of that name: one JSON object a line, as docs/reference/probes.md gives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from springtide.fleet import Fleet
from springtide.observe import json_lines
from springtide.observe.enrich import publish_fleet
from springtide.observe.json_lines import Summary, address, ingest_lines, number, text
from springtide.store import Row, Store

SIZES = (10_000, 50_000, 100_000)
RESULTS = ("ok", "unreachable", "timeout", "closed", "answer")
# As what comes by Kafka: edges keep files of ten days, and a host whose clock is wrong is not to fill a month that is
# still to come.
DAYS_BEFORE, DAYS_AFTER = 90, 1
# A fetch ends after 20 seconds; more is not a measurement.
MAX_US = 60_000_000


def ingest_probes(store: Store, fleet: Fleet, paths: Sequence[Path]) -> Summary:
    """Load every line of `paths`, as `ingest_lines` does."""
    publish_fleet(store, fleet)
    edges = fleet.edges()

    def judge(lines: Sequence[bytes], now_s: float) -> list[Row | str]:
        return [_judged(edges, line, now_s) for line in lines]

    return ingest_lines(store, "probes", paths, judge)


def _judged(edges: Mapping[str, str], line: bytes, now_s: float) -> Row | str:
    try:
        return parse(edges, line, now_s)
    except ValueError as error:
        return str(error)


def parse(edges: Mapping[str, str], line: bytes, now_s: float) -> Row:
    """One line as a row of probes, read at `now_s`, `edges` being each edge's PoP; ValueError has what is wrong."""
    row = dict(_columns(edges, json_lines.given(line)))
    age_s = now_s - float(str(row["time_unix_us"])) / 1_000_000
    if not -DAYS_AFTER * 86_400 <= age_s <= DAYS_BEFORE * 86_400:
        raise ValueError("time: is too far from now")
    return row


def _columns(edges: Mapping[str, str], given: dict[str, object]) -> Iterator[tuple[str, object]]:
    yield "time_unix_us", round(number(given, "time", 4e9) * 1_000_000)
    host = text(given, "host")
    if host not in edges:
        raise ValueError("host: is not an edge of fleet.yaml")
    yield "host", host
    yield "pop", edges[host]
    server = address(given, "server")
    yield "server_ip", str(server)
    yield "ip_version", 6 if server.ipv4_mapped is None else 4
    size = number(given, "bytes", max(SIZES))
    if size not in SIZES:
        raise ValueError(f"bytes: {size:g} is not one of {', '.join(map(str, SIZES))}")
    yield "bytes", int(size)
    result = text(given, "result")
    if result not in RESULTS:
        raise ValueError(f"result: is not one of {', '.join(RESULTS)}")
    yield "result", result
    # Each time is there if the fetch came so far, and not less than the one before it.
    least = 0
    for name in ("connect_us", "first_byte_us", "total_us"):
        value = int(number(given, name, MAX_US)) if name in given else None
        if value is None and result == "ok":
            raise ValueError(f"{name}: is missing, though the result is ok")
        if value is not None and value < least:
            raise ValueError(f"{name}: is before the time of what comes before it")
        least = least if value is None else value
        yield name, value
    yield "start_window", int(number(given, "window", 65_535)) if "window" in given else None

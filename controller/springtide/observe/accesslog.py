"""Access logs into http_requests: one JSON object a line, as docs/reference/access-log.md gives it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from springtide.fleet import Fleet
from springtide.observe import json_lines
from springtide.observe.enrich import publish_fleet
from springtide.observe.json_lines import Summary, address, ingest_lines, number, text
from springtide.observe.samples import FILE_DAYS
from springtide.store import Row, Store


def ingest_logs(store: Store, fleet: Fleet, paths: Sequence[Path]) -> Summary:
    """Load every line of `paths`, as `ingest_lines` does."""
    publish_fleet(store, fleet)
    return ingest_lines(store, "http_requests", paths, parse)


def parse(line: bytes, now_s: float) -> Row:
    """One line as a row of http_requests, read at `now_s`; ValueError has what is wrong with it."""
    row = dict(_columns(json_lines.given(line)))
    # A day is a partition: a log with every possible day would take hours, and a folder for each.
    if abs(float(str(row["time_unix_us"])) / 1_000_000 - now_s) > FILE_DAYS * 86_400:
        raise ValueError("time: is too far from now")
    return row


def _columns(given: dict[str, object]) -> Iterator[tuple[str, object]]:
    yield "time_unix_us", round(number(given, "time", 4e9) * 1_000_000)
    yield "host", text(given, "host")
    request_id = text(given, "request_id")
    if not re.fullmatch("[0-9a-fA-F]{32}", request_id):
        raise ValueError("request_id: is not 32 hexadecimal digits")
    yield "request_id", str(int(request_id, 16))
    for name, column in (("client", "client_ip"), ("server", "server_ip")):
        yield column, str(address(given, name))
    yield "method", text(given, "method")
    yield "status", int(number(given, "status", 999))
    yield "bytes", int(number(given, "bytes", 2**63))
    yield "duration_us", round(number(given, "request_time", 1e9) * 1_000_000)

"""Access logs into http_requests: one JSON object a line, as docs/reference/access-log.md gives it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from springtide.errors import Problem
from springtide.fleet import Fleet
from springtide.observe.enrich import publish_fleet
from springtide.store import Row, Store

BATCH_LINES = 50_000
# A log whose every line is wrong is one fault, not a million lines on a terminal.
SHOWN_PROBLEMS = 20
MAX_LINE_BYTES = 65_536


@dataclass
class Summary:
    """What one run read. A request that was read before counts again here, and once in the table."""

    files: int = 0
    rows: int = 0
    rejected_lines: int = 0
    problems: list[Problem] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "problems": [str(problem) for problem in self.problems]}


def ingest_logs(store: Store, fleet: Fleet, paths: Sequence[Path]) -> Summary:
    """Load every line of `paths`. Lines that are none are counted, named and kept in FILE.rejected beside the file."""
    publish_fleet(store, fleet)
    summary = Summary()
    for path in paths:
        batch: list[Row] = []
        rejected: list[bytes] = []
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    batch.append(parse(line))
                except ValueError as error:
                    rejected.append(line)
                    if len(summary.problems) < SHOWN_PROBLEMS:
                        fix = f"it is kept in {path}.rejected"
                        summary.problems.append(Problem(f"{path}:{number}", "line", str(error), fix))
                if len(batch) >= BATCH_LINES:
                    store.insert("http_requests", batch)
                    summary.rows += len(batch)
                    batch = []
        store.insert("http_requests", batch)
        if rejected:
            path.with_name(path.name + ".rejected").write_bytes(b"".join(rejected))
        summary.files += 1
        summary.rows += len(batch)
        summary.rejected_lines += len(rejected)
    return summary


def parse(line: bytes) -> Row:
    """One line as a row of http_requests; ValueError says what is wrong with it."""
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"is longer than {MAX_LINE_BYTES} bytes")
    try:
        given = json.loads(line)
    except ValueError:
        given = None
    if isinstance(given, dict):
        return dict(_columns(given))
    raise ValueError("is not a JSON object")


def _columns(given: dict[str, object]) -> Iterator[tuple[str, object]]:
    yield "time_unix_us", round(_number(given, "time", 4e9) * 1_000_000)
    yield "host", _text(given, "host")
    request_id = _text(given, "request_id")
    if not re.fullmatch("[0-9a-fA-F]{32}", request_id):
        raise ValueError("request_id: is not 32 hexadecimal digits")
    yield "request_id", str(int(request_id, 16))
    for name, column in (("client", "client_ip"), ("server", "server_ip")):
        try:
            address = ip_address(_text(given, name))
        except ValueError:
            raise ValueError(f"{name}: is not an IP address") from None
        yield column, str(address if isinstance(address, IPv6Address) else IPv6Address(f"::ffff:{address}"))
    yield "method", _text(given, "method")
    yield "status", int(_number(given, "status", 999))
    yield "bytes", int(_number(given, "bytes", 2**63))
    yield "duration_us", round(_number(given, "request_time", 1e9) * 1_000_000)


def _number(given: dict[str, object], name: str, most: float) -> float:
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError(f"{name}: {value!r} is not a number from 0 to {most:g}")
    return value


def _text(given: dict[str, object], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= 255:
        raise ValueError(f"{name}: is not a text of 1 to 255 characters")
    return value

"""Access logs into http_requests: one JSON object a line, as docs/reference/access-log.md gives it.

The engine judges a line and makes its row, by the same expressions for files and for a topic.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

from springtide.fleet import Fleet
from springtide.observe.enrich import publish_fleet
from springtide.observe.json_lines import MAX_LINE_BYTES, Summary, ingest_lines
from springtide.observe.samples import FILE_DAYS
from springtide.store import Row, Store

# nginx writes a status that it does not know as 000, and 009 of HTTP/0.9, which are no numbers in JSON.
CLEANED = r"""replaceRegexpOne(line, '("status":)0{1,2}([0-9])', '\\1\\2')"""

# A client over a UNIX socket has no address.
_ADDRESS = (
    "isIPv4String(JSONExtractString(line, '{0}')) or isIPv6String(JSONExtractString(line, '{0}')) "
    "or startsWith(JSONExtractString(line, '{0}'), 'unix:')"
)

_REQUEST_ID = "JSONExtractString(line, 'request_id')"

# As nginx itself says where the client left before the answer began.
_STATUS = (
    "if(JSONHas(line, 'completion') and JSONExtractString(line, 'completion') != 'OK' "
    "and JSONExtractUInt(line, 'status') = 200, 499, JSONExtractUInt(line, 'status'))"
)

# HAProxy and others write whole milliseconds: as seconds they would be a thousand times too long.
_IN_MS = "(not JSONHas(line, 'request_time') and JSONHas(line, 'request_time_ms'))"

# The largest double in microseconds would be infinite, and no integer: as it is judged, no second is beyond these.
_MICROSECONDS = "round(least(greatest(JSONExtractFloat(line, '{}'), 0), 4000000000) * 1000000)"

_DURATION_US = (
    f"if({_IN_MS}, JSONExtractUInt(line, 'request_time_ms') * 1000, toUInt64({_MICROSECONDS.format('request_time')}))"
)

# Columns of http_requests, of a line that has no problem; no expression can fail on another.
VALUES = {
    "time_unix_us": f"toInt64({_MICROSECONDS.format('time')})",
    "host": "JSONExtractString(line, 'host')",
    "request_id": f"reinterpretAsUInt128(reverse(unhex({_REQUEST_ID})))",
    "client_ip": "toIPv6OrDefault(JSONExtractString(line, 'client'))",
    "server_ip": "toIPv6OrDefault(JSONExtractString(line, 'server'))",
    "method": "JSONExtractString(line, 'method')",
    "status": f"toUInt16({_STATUS})",
    "bytes": "JSONExtractUInt(line, 'bytes')",
    "duration_us": _DURATION_US,
}


def problem(now: str, before_s: int, after_s: int) -> str:
    """An expression over `line`: what is wrong with it, or nothing. `now` is one too, in seconds since 1970."""
    span = f"{now} - {before_s} and {now} + {after_s}"
    faults = {
        f"length(line) > {MAX_LINE_BYTES}": f"is longer than {MAX_LINE_BYTES} bytes",
        "JSONType(line) != 'Object'": "is not a JSON object",
        _no_number("time", 4_000_000_000): "time: is not a number from 0 to 4e+09",
        f"not JSONExtractFloat(line, 'time') between {span}": "time: is too far from now",
        _no_text("host", 1): "host: is not a text of 1 to 255 characters",
        f"not match({_REQUEST_ID}, '^[0-9a-fA-F]{{32}}$')": "request_id: is not 32 hexadecimal digits",
        f"not ({_ADDRESS.format('client')})": "client: is not an IP address",
        f"not ({_ADDRESS.format('server')})": "server: is not an IP address",
        # Empty of a request that could not be parsed.
        _no_text("method", 0): "method: is not a text of 0 to 255 characters",
        _no_count("status", 999): "status: is not a whole number from 0 to 999",
        _no_count("bytes", 2**63): "bytes: is not a whole number from 0 to 9.22337e+18",
        f"{_IN_MS} and ({_no_count('request_time_ms', 10**12)})": (
            "request_time_ms: is not a whole number from 0 to 1e+12"
        ),
        f"not {_IN_MS} and ({_no_number('request_time', 1_000_000_000)})": (
            "request_time: is not a number from 0 to 1e+09"
        ),
        # nginx writes 2.000 of two seconds.
        "JSONType(line, 'request_time') != 'Double' and JSONExtractFloat(line, 'request_time') > 0": (
            "request_time: is a whole number, so not seconds as nginx writes them; name milliseconds request_time_ms"
        ),
    }
    return "multiIf(" + ", ".join(f"{fault}, '{text}'" for fault, text in faults.items()) + ", '')"


def _no_number(name: str, most: int) -> str:
    kind = f"JSONType(line, '{name}') not in ('Int64', 'UInt64', 'Double')"
    return f"{kind} or not JSONExtractFloat(line, '{name}') between 0 and {most}"


def _no_count(name: str, most: int) -> str:
    kind = f"JSONType(line, '{name}') not in ('Int64', 'UInt64')"
    return f"{kind} or JSONExtractInt(line, '{name}') < 0 or JSONExtractUInt(line, '{name}') > {most}"


def _no_text(name: str, least: int) -> str:
    length = f"lengthUTF8(JSONExtractString(line, '{name}'))"
    return f"JSONType(line, '{name}') != 'String' or not {length} between {least} and 255"


def ingest_logs(store: Store, fleet: Fleet, paths: Sequence[Path]) -> Summary:
    """Load every line of `paths`, as `ingest_lines` does."""
    publish_fleet(store, fleet)

    def judge(lines: Sequence[bytes], now_s: float) -> list[Row | str]:
        return judged(store, lines, now_s)

    return ingest_lines(store, "http_requests", paths, judge)


def judged(store: Store, lines: Sequence[bytes], now_s: float) -> list[Row | str]:
    """Each line as a row of http_requests, read at `now_s`, or as what is wrong with it."""
    # A day is a partition: a log with every possible day would take hours, and a folder for each.
    fault = problem("{now:Float64}", FILE_DAYS * 86_400, FILE_DAYS * 86_400)
    values = ", ".join(f"{value} as {name}" for name, value in VALUES.items())
    given = "select arrayJoin(splitByChar(',', {lines:String})) as encoded"
    # Any bytes, which the engine itself may find not to be text.
    cleaned = f"select {CLEANED} as line from (select base64Decode(encoded) as line from ({given}))"
    rows = store.query(
        f"select {fault} as problem, {values} from ({cleaned})",
        {"lines": ",".join(b64encode(line).decode() for line in lines), "now": now_s},
    )
    return [str(row["problem"]) or {name: row[name] for name in VALUES} for row in rows]

"""Values of the native protocol as the JSON values that chDB returns, and back: the same result on both engines."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from typing import Any
from uuid import UUID


def to_json(value: Any, kind: str) -> Any:
    """A value that the driver read from a column of type `kind`, as JSONEachRow would print it."""
    kind = _bare(kind)
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return _float(value, kind)
        case bytes():
            return value.decode(errors="replace")
        case datetime():
            return _instant(value, kind)
        case IPv6Address() if value.ipv4_mapped is not None:
            return f"::ffff:{value.ipv4_mapped}"
        case date() | IPv4Address() | IPv6Address() | UUID():
            return str(value)
        case Decimal():
            return float(value)
        case list():
            element = kind[len("Array(") : -1] if kind.startswith("Array(") else ""
            return [to_json(item, element) for item in value]
        case tuple():
            return [to_json(item, "") for item in value]
        case dict():
            return {key: to_json(item, "") for key, item in value.items()}
        case _:
            return str(value)


def from_json(value: Any, kind: str) -> Any:
    """A row's JSON value as the driver writes it to a column of type `kind`; raises ValueError if it does not fit."""
    kind = _bare(kind)
    if isinstance(value, list) and kind.startswith("Array("):
        return [from_json(item, kind[len("Array(") : -1]) for item in value]
    if isinstance(value, str) and kind.startswith("DateTime"):
        moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
        # A column without a zone of its own has the server's; every column of Springtide has UTC.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None and "'UTC'" in kind else moment
    if isinstance(value, str) and kind.startswith("Date"):
        return date.fromisoformat(value)
    if isinstance(value, int) and kind.startswith("Float"):
        return float(value)
    return value


def _bare(kind: str) -> str:
    for wrapper in ("LowCardinality(", "Nullable("):
        if kind.startswith(wrapper):
            kind = kind[len(wrapper) : -1]
    return kind


def _float(value: float, kind: str) -> float | None:
    if not math.isfinite(value):
        return None
    if kind != "Float32":
        return value
    # The shortest decimal that is still this single-precision number, as the engine prints it.
    for digits in range(1, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value


def _instant(value: datetime, kind: str) -> str:
    text = value.strftime("%Y-%m-%d %H:%M:%S")
    if not kind.startswith("DateTime64("):
        return text
    digits = int(kind[len("DateTime64(")])
    return f"{text}.{value.microsecond * 1000:09}"[: len(text) + 1 + digits] if digits else text

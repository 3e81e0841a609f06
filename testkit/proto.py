"""Protobuf's wire format for the flat TcpSample, written from the .proto text and not from what reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path

PROTO = Path(__file__).resolve().parents[1] / "proto" / "springtide" / "v1" / "tcp_sample.proto"

Value = str | int | bool | bytes


@dataclass(frozen=True)
class Field:
    name: str
    type: str
    number: int
    optional: bool


def _fields() -> dict[str, Field]:
    text = PROTO.read_text()
    message = text[text.index("message TcpSample") : text.index("message Envelope")]
    found = re.finditer(r"^  (optional )?(\w+) (\w+) = (\d+);", message, re.MULTILINE)
    return {match[3]: Field(match[3], match[2], int(match[4]), bool(match[1])) for match in found}


def _enums() -> dict[str, dict[str, int]]:
    text = PROTO.read_text()
    bodies = re.finditer(r"^enum (\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    return {
        match[1]: {n: int(v) for n, v in re.findall(r"^  (\w+) = (\d+);", match[2], re.MULTILINE)} for match in bodies
    }


FIELDS = _fields()
ENUMS = _enums()


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def address(text: str) -> bytes:
    """16 bytes in network order, IPv4 mapped."""
    parsed = ip_address(text)
    return parsed.packed if isinstance(parsed, IPv6Address) else IPv6Address(f"::ffff:{text}").packed


def row(values: Mapping[str, Value]) -> bytes:
    """One serialized TcpSample; addresses may be text, enum values their names."""
    out = bytearray()
    for name, value in values.items():
        field = FIELDS[name]
        if field.type == "bytes" and isinstance(value, str):
            value = address(value)
        if field.type in ENUMS and isinstance(value, str):
            value = ENUMS[field.type][value]
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            out += varint(field.number << 3 | 2) + varint(len(value)) + value
        else:
            out += varint(field.number << 3) + varint(int(value))
    return bytes(out)


def message(rows: Iterable[bytes]) -> bytes:
    """Rows as an Envelope behind its length."""
    body = b"".join(b"\x0a" + varint(len(item)) + item for item in rows)
    return varint(len(body)) + body

"""Spool files: checksummed records of samples, as a collector seals them.

A record is a 20-byte header and a payload, integers little-endian: "STB1"; codec (0 none, 1 zstd); three zero bytes;
u32 row count; u32 payload length; u32 CRC-32 over header bytes 4..16 and the payload. The payload, once decompressed,
is the length of an Envelope as a varint, then the Envelope.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

MARKER = b"STB1"
HEADER = struct.Struct("<4sB3sIII")
MAX_PAYLOAD = 16 << 20
MAX_MESSAGE = 64 << 20

DIGEST_BYTES = 16


class BadRecordError(Exception):
    """Bytes that are not what the format says; the message is the reason, in a few words."""


@dataclass(frozen=True)
class Record:
    """A record whose checksum holds. `digest` names its bytes, wherever they lie."""

    file: str
    position: int
    codec: int
    rows: int
    payload: bytes
    digest: str

    @property
    def size(self) -> int:
        return HEADER.size + len(self.payload)

    def raw(self) -> bytes:
        """The record as it lay in the file."""
        fields = struct.pack("<B3sII", self.codec, bytes(3), self.rows, len(self.payload))
        return MARKER + fields + struct.pack("<I", zlib.crc32(self.payload, zlib.crc32(fields))) + self.payload

    def envelope(self) -> bytes:
        """The serialized Envelope; raises BadRecordError when the payload does not hold one of `rows` rows."""
        message = _decompress(self.payload) if self.codec == 1 else self.payload
        length, start = _varint(message, 0)
        if len(message) - start != length:
            raise BadRecordError(f"message of {len(message) - start} bytes where its length says {length}")
        body = message[start:]
        rows = _count_rows(body)
        if rows != self.rows:
            raise BadRecordError(f"{rows} rows where the header says {self.rows}")
        return body


@dataclass(frozen=True)
class Damage:
    """Bytes that belong to no good record. `digest` names them with their place: damage repeats, records do not."""

    file: str
    position: int
    data: bytes
    reason: str
    digest: str


def read_spool(path: Path) -> Iterator[Record | Damage]:
    """All of a sealed file, in order: every byte is in exactly one of what this yields."""
    if path.stat().st_size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        position = 0
        while position < len(data):
            try:
                record = _record(path.name, data, position)
            except BadRecordError as error:
                end = _next_good(path.name, data, position + 1)
                bad = data[position:end]
                place = hashlib.blake2b(f"{path.name}:{position}:".encode(), digest_size=DIGEST_BYTES)
                place.update(bad)
                yield Damage(path.name, position, bad, str(error), place.hexdigest())
                position = end
            else:
                yield record
                position += record.size


def _record(name: str, data: mmap.mmap, position: int) -> Record:
    left = len(data) - position
    head = data[position : position + HEADER.size]
    if head[: len(MARKER)] != MARKER[: len(head)]:
        raise BadRecordError("no record begins here")
    if left < HEADER.size:
        raise BadRecordError(f"truncated: {left} bytes of a {HEADER.size}-byte header")
    _, codec, zeros, rows, length, checksum = HEADER.unpack(head)
    if codec not in (0, 1) or zeros != bytes(3):
        raise BadRecordError("unknown codec or header")
    if length > MAX_PAYLOAD:
        raise BadRecordError(f"payload of {length} bytes is over the limit of {MAX_PAYLOAD}")
    if left < HEADER.size + length:
        raise BadRecordError(f"truncated: {left - HEADER.size} of {length} payload bytes")
    payload = data[position + HEADER.size : position + HEADER.size + length]
    if zlib.crc32(payload, zlib.crc32(head[4:16])) != checksum:
        raise BadRecordError("checksum does not match")
    digest = hashlib.blake2b(head, digest_size=DIGEST_BYTES)
    digest.update(payload)
    return Record(name, position, codec, rows, payload, digest.hexdigest())


def _next_good(name: str, data: mmap.mmap, start: int) -> int:
    """Where the next record begins whose checksum holds, or the end."""
    position = data.find(MARKER, start)
    while position != -1:
        try:
            _record(name, data, position)
        except BadRecordError:
            position = data.find(MARKER, position + 1)
        else:
            return position
    return len(data)


def _decompress(payload: bytes) -> bytes:
    """Bounded whatever the frame claims: a few bytes of zstd can stand for gigabytes."""
    try:
        with zstandard.ZstdDecompressor(max_window_size=MAX_MESSAGE).stream_reader(payload) as reader:
            message = reader.read(MAX_MESSAGE + 1)
    except zstandard.ZstdError as error:
        raise BadRecordError(f"zstd: {error}") from error
    if len(message) > MAX_MESSAGE:
        raise BadRecordError(f"message is over the limit of {MAX_MESSAGE} bytes")
    return message


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A base-128 varint and the position after it."""
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise BadRecordError("a varint that does not end")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


# Bytes of a field's value by protobuf wire type, where they are fixed.
_FIXED = {1: 8, 5: 4}
_LENGTH_DELIMITED = 2


def _count_rows(body: bytes) -> int:
    """Rows in an Envelope, having seen that its fields tile it: otherwise one record's bytes could run into the next's
    when many are loaded as one. Fields that a newer collector added are passed over."""
    position = rows = 0
    while position < len(body):
        tag, position = _varint(body, position)
        wire = tag & 7
        if wire == _LENGTH_DELIMITED:
            length, position = _varint(body, position)
            position += length
            rows += tag >> 3 == 1
        elif wire in _FIXED:
            position += _FIXED[wire]
        elif wire == 0:
            _, position = _varint(body, position)
        else:
            raise BadRecordError(f"a field of wire type {wire}")
    if position != len(body):
        raise BadRecordError("a row that runs past the end of its message")
    return rows

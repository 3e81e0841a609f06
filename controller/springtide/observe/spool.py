"""Spool files: checksummed records of samples, as a collector seals them.

A record is a 20-byte header and a payload, integers little-endian: "STB1"; codec (0 none, 1 zstd); three zero bytes;
u32 row count; u32 payload length; u32 CRC-32 over header bytes 4..16 and the payload. The payload, once decompressed,
is the length of an Envelope as a varint, then the Envelope.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import zstandard
from numpy.typing import NDArray

from springtide.observe.checksums import Prefixes, shifted
from springtide.observe.folder import Bytes

MARKER = b"STB1"
HEADER = struct.Struct("<4sB3sIII")
MAX_PAYLOAD = 16 << 20
MAX_MESSAGE = 64 << 20

DIGEST_BYTES = 16
WRONG_CHECKSUM = "checksum does not match"
# Searched for records at a time.
SEARCH_BYTES = 1 << 20


Positions = NDArray[np.int64]


class BadRecordError(Exception):
    """Bytes that do not follow the format; the message is the reason, in a few words."""


@dataclass(frozen=True)
class Record:
    """A record whose checksum holds. `digest` identifies its bytes, wherever they are stored."""

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
        """The record's bytes in the file."""
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
    """Bytes that belong to no good record. `digest` covers their position too: the same damage can occur twice, the
    same record cannot."""

    file: str
    position: int
    data: bytes
    reason: str
    digest: str


def read_spool(name: str, fd: int) -> Iterator[Record | Damage]:
    """All of an open file, in order: every byte is in exactly one of what this yields. Raises OSError.

    Time grows with the file's length, whatever is in it: once there is damage, all that looks like a record is checked
    together.
    """
    data = Bytes(fd)
    position = 0
    whole: Positions | None = None
    while position < data.size:
        try:
            record = _record(name, data, position, whole)
        except BadRecordError as error:
            if whole is None:
                whole = _whole_records(data, position + 1)
            later = whole[np.searchsorted(whole, position, side="right") :]
            end = int(later[0]) if len(later) else data.size
            for start in range(position, end, MAX_PAYLOAD):
                bad = data.read(start, min(MAX_PAYLOAD, end - start))
                place = hashlib.blake2b(os.fsencode(f"{name}:{start}:"), digest_size=DIGEST_BYTES)
                place.update(bad)
                yield Damage(name, start, bad, str(error), place.hexdigest())
            position = end
        else:
            yield record
            position += record.size


def _header(data: Bytes, position: int) -> bytes:
    """The header of what may be a record: all is right but perhaps the checksum."""
    left = data.size - position
    head = data.read(position, HEADER.size)
    if head[: len(MARKER)] != MARKER[: len(head)]:
        raise BadRecordError("no record begins here")
    if left < HEADER.size:
        raise BadRecordError(f"truncated: {left} bytes of a {HEADER.size}-byte header")
    _, codec, zeros, _, length, _ = HEADER.unpack(head)
    if codec not in (0, 1) or zeros != bytes(3):
        raise BadRecordError("unknown codec or header")
    if length > MAX_PAYLOAD:
        raise BadRecordError(f"payload of {length} bytes is over the limit of {MAX_PAYLOAD}")
    if left < HEADER.size + length:
        raise BadRecordError(f"truncated: {left - HEADER.size} of {length} payload bytes")
    return head


def _record(name: str, data: Bytes, position: int, whole: Positions | None) -> Record:
    """With `whole`, which are known to be right, no payload of another is read."""
    head = _header(data, position)
    if whole is not None and position not in whole[np.searchsorted(whole, position) :][:1]:
        raise BadRecordError(WRONG_CHECKSUM)
    _, codec, _, rows, length, checksum = HEADER.unpack(head)
    payload = data.read(position + HEADER.size, length)
    if zlib.crc32(payload, zlib.crc32(head[4:16])) != checksum:
        raise BadRecordError(WRONG_CHECKSUM)
    digest = hashlib.blake2b(head, digest_size=DIGEST_BYTES)
    digest.update(payload)
    return Record(name, position, codec, rows, payload, digest.hexdigest())


def _whole_records(data: Bytes, start: int) -> Positions:
    """Where, from `start` on, everything begins whose header and checksum are right."""
    prefixes = Prefixes(data, start)
    found = [np.empty(0, np.int64)]
    for block in range(start, data.size, SEARCH_BYTES):
        # A marker that begins in this block may end in the next one.
        window = data.read(block, SEARCH_BYTES + len(MARKER) - 1)
        heads, places = [], []
        at = window.find(MARKER)
        while at != -1:
            try:
                heads.append(_header(data, block + at))
                places.append(block + at)
            except BadRecordError:
                pass
            at = window.find(MARKER, at + 1)
        found.append(_sound(prefixes, places, heads))
    return np.concatenate(found)


def _sound(prefixes: Prefixes, places: list[int], heads: list[bytes]) -> Positions:
    """Those of `places` whose checksum matches header and payload."""
    if not places:
        return np.empty(0, np.int64)
    starts = [place + HEADER.size for place in places]
    fields = [HEADER.unpack(head) for head in heads]
    lengths = [length for *_, length, _ in fields]
    before = [zlib.crc32(head[4:16]) ^ prefixes.until(start) for head, start in zip(heads, starts, strict=True)]
    after = [prefixes.until(start + length) for start, length in zip(starts, lengths, strict=True)]
    checksums = np.array([checksum for *_, checksum in fields], np.uint32)
    found = shifted(np.array(before, np.uint32), np.array(lengths, np.int64)) ^ np.array(after, np.uint32)
    sound: Positions = np.array(places, np.int64)[found == checksums]
    return sound


def _decompress(payload: bytes) -> bytes:
    """Bounded whatever the frame claims: a few bytes of zstd can expand to gigabytes."""
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
# The tag of a row in an Envelope.
_ROW = 1 << 3 | _LENGTH_DELIMITED


def _count_rows(body: bytes) -> int:
    """Rows in an Envelope, having seen that its fields tile it: otherwise one record's bytes could run into the next's
    when many are loaded as one. Fields that a newer collector added are passed over."""
    position = rows = 0
    end = len(body)
    while position < end:
        # A row of 128 to 16,383 bytes, as nearly all are, without the two calls that a row took: in half the time.
        if body[position] == _ROW and position + 2 < end and body[position + 1] > 0x7F and body[position + 2] < 0x80:
            position += 3 + (body[position + 1] & 0x7F | body[position + 2] << 7)
            rows += 1
            continue
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
    if position != end:
        raise BadRecordError("a row that runs past the end of its message")
    return rows

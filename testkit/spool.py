"""Spool files as the collector's file sink seals them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import zstandard

from testkit.proto import Value, message, row


def frame(payload: bytes, rows: int, codec: int = 1) -> bytes:
    """A record around any payload, with a checksum that holds."""
    head = struct.pack("<B3sII", codec, bytes(3), rows, len(payload))
    return b"STB1" + head + struct.pack("<I", zlib.crc32(head + payload)) + payload


def record(samples: Sequence[Mapping[str, Value]], codec: int = 1) -> bytes:
    plain = message(row(sample) for sample in samples)
    payload = zstandard.ZstdCompressor(level=1).compress(plain) if codec else plain
    return frame(payload, len(samples), codec)


def write_spool(folder: Path, name: str, records: Sequence[bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.spool"
    path.write_bytes(b"".join(records))
    return path

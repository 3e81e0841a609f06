"""CRC-32 of many stretches of one file, overlapping as they may, in time that grows with the file.

A file may hold as many headers as fit, each claiming all that follows it: to read what each claims takes the square of
the file's length. CRC-32 is linear: that of a stretch follows from those of what lies before its start and before its
end, crc(a b) = shift(crc(a), length of b) ^ crc(b), as in zlib's crc32_combine.
"""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

from springtide.observe.folder import Bytes

# CRCs from the beginning are known at every so many bytes.
STEP = 512
_BLOCK = 1 << 20

Words = NDArray[np.uint32]


class Prefixes:
    """CRC-32 of all that lies between `start` and any later position."""

    def __init__(self, data: Bytes, start: int) -> None:
        self._data = data
        self._start = start
        known = [0]
        for block in range(start, data.size, _BLOCK):
            piece = memoryview(data.read(block, _BLOCK))
            for at in range(0, len(piece), STEP):
                known.append(zlib.crc32(piece[at : at + STEP], known[-1]))
        self._known = np.array(known, np.uint32)

    def until(self, position: int) -> int:
        steps = (position - self._start) // STEP
        begin = self._start + steps * STEP
        return zlib.crc32(self._data.read(begin, position - begin), int(self._known[steps]))


def shifted(crcs: Words, lengths: NDArray[np.int64]) -> Words:
    """Each CRC as it becomes when so many bytes, all zero, follow."""
    result = crcs.copy()
    for bit, columns in enumerate(_operators()):
        chosen = (lengths >> bit) & 1 == 1
        if chosen.any():
            result[chosen] = _applied(columns, result[chosen])
    return result


def _applied(columns: Words, words: Words) -> Words:
    result: Words = np.zeros_like(words)
    for bit in range(32):
        result ^= columns[bit] * ((words >> np.uint32(bit)) & np.uint32(1))
    return result


@cache
def _operators() -> list[Words]:
    """For 1, 2, 4, ... zero bytes: what becomes of each bit. 32 of them reach any length below 4 GiB."""
    one = np.array([_zero_byte(1 << bit) for bit in range(32)], np.uint32)
    found = [one]
    while len(found) < 32:
        found.append(_applied(found[-1], found[-1]))
    return found


def _zero_byte(register: int) -> int:
    for _ in range(8):
        register = register >> 1 ^ (0xEDB88320 if register & 1 else 0)
    return register

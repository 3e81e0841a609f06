"""Columns as the engine's binary forms, without an object for each row: rows to read, columns to write."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.errors import StoreError

# Masked values are null.
Columns = Mapping[str, NDArray[Any]]


# Rows that the engine is given at once.
_BLOCK_ROWS = 65_536


@contextmanager
def binary_source(columns: Columns) -> Iterator[tuple[str, str]]:
    """What to select and the table function to select it from, while the context lasts.

    A file in memory is removed even if this process is killed.
    """
    structure, select = [], []
    for name, column in columns.items():
        kind = _type(column.dtype)
        structure.append((name, f"Nullable({kind})" if isinstance(column, np.ma.MaskedArray) else kind))
        select.append(f"toStringCutToZero({name})" if column.dtype.kind == "S" else name)
    fd = os.memfd_create("springtide-columns", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            for at in range(0, len(next(iter(columns.values()))), _BLOCK_ROWS):
                file.writelines(_block(columns, structure, slice(at, at + _BLOCK_ROWS)))
        listed = ", ".join(f"{name} {kind}" for name, kind in structure)
        yield ", ".join(select), f"file('/proc/self/fd/{fd}', 'Native', '{listed}')"
    finally:
        os.close(fd)


def _block(columns: Columns, structure: Sequence[tuple[str, str]], rows: slice) -> Iterator[bytes]:
    """Some rows in the engine's Native format: column by column, which it parses faster than rows."""
    yield _number(len(structure)) + _number(len(next(iter(columns.values()))[rows]))
    for name, kind in structure:
        yield b"".join(_number(len(text)) + text for text in (name.encode(), kind.encode()))
        column = columns[name][rows]
        if isinstance(column, np.ma.MaskedArray):
            yield np.ma.getmaskarray(column).tobytes()
        yield np.ma.getdata(column).tobytes()


def _number(value: int) -> bytes:
    """A number in base 128, the lowest digits first."""
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def head_of(raw: bytes) -> tuple[list[tuple[str, str]], int]:
    """The columns' names and types of RowBinaryWithNamesAndTypes, and where its rows begin."""
    count, at = _varint(raw, 0)
    texts = []
    for _ in range(2 * count):
        length, at = _varint(raw, at)
        texts.append(raw[at : at + length].decode(errors="replace"))
        at += length
    return list(zip(texts[:count], texts[count:], strict=True)), at


def require_columns(url: str, found: Sequence[tuple[str, str]], dtype: np.dtype[Any]) -> None:
    """Raises StoreError unless the columns, as (name, type), are those of `dtype`, in any order: bytes of another type
    would be read as other values."""
    names, wanted = [name for name, _ in found], dtype.names or ()
    if sorted(names) != sorted(wanted):
        lacks, more = sorted({*wanted} - {*names}), sorted({*names} - {*wanted})
        raise StoreError(f"store {url}: a statement lacks the columns {lacks} and has {more}; upgrade springtide")
    for name, kind in found:
        bare = kind.removeprefix("LowCardinality(").removesuffix(")") if kind.startswith("LowCardinality(") else kind
        if bare != _type(dtype[name]):
            message = f"a statement's column {name} is of type {kind}, not {_type(dtype[name])}"
            raise StoreError(f"store {url}: {message}; upgrade springtide")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """A number in base 128, the lowest digits first, and where it ends."""
    value = shift = 0
    while True:
        value |= (raw[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if raw[at - 1] < 0x80:
            return value, at


def _type(dtype: np.dtype[Any]) -> str:
    if dtype.kind == "S":
        return f"FixedString({dtype.itemsize})"
    if dtype.kind == "b":
        return "UInt8"
    return {"u": "UInt", "i": "Int", "f": "Float"}[dtype.kind] + str(8 * dtype.itemsize)

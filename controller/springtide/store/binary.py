"""Columns as the engine's binary forms, without an object for each row: to read and to write."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fcntl import F_SETPIPE_SZ, fcntl
from functools import cache
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.errors import StoreError
from springtide.frame import Coded, Frame, fits

# Masked values are null.
Columns = Mapping[str, NDArray[Any] | Coded]


# Rows that the engine is given at once: smaller blocks it gathers, which copies them.
_BLOCK_ROWS = 1_048_576
# The most that a pipe of anyone may hold: each of the two threads runs longer before it waits for the other.
_PIPE_BYTES = 1 << 20
# A flag of LowCardinality: a block brings the texts that its numbers are of.
_HAS_TEXTS = 1 << 9


@contextmanager
def binary_source(columns: Columns) -> Iterator[tuple[str, str]]:
    """Gives what to select and the table function to select it from, once, while the context lasts.

    A pipe: nothing is written anywhere before the engine reads it, which it does without Python's lock.
    """
    structure, select = [], []
    for name, column in columns.items():
        if isinstance(column, Coded):
            structure.append((name, "LowCardinality(String)"))
            select.append(name)
            continue
        kind = _type(column.dtype)
        structure.append((name, f"Nullable({kind})" if isinstance(column, np.ma.MaskedArray) else kind))
        select.append(f"toStringCutToZero({name})" if column.dtype.kind == "S" else name)
    reader, writer = os.pipe()
    failed: list[Exception] = []
    thread = Thread(target=_write, args=(writer, columns, structure, failed))
    thread.start()
    try:
        listed = ", ".join(f"{name} {kind}" for name, kind in structure)
        yield ", ".join(select), f"file('/proc/self/fd/{reader}', 'Native', '{listed}')"
    finally:
        # Closing a pipe that nobody reads ends the thread.
        os.close(reader)
        thread.join()
        if failed:
            # The engine may have read what came before it as if that were all.
            raise failed[0]


def _write(fd: int, columns: Columns, structure: Sequence[tuple[str, str]], failed: list[Exception]) -> None:
    try:
        with suppress(BrokenPipeError), open(fd, "wb") as file:
            with suppress(OSError):
                fcntl(fd, F_SETPIPE_SZ, _PIPE_BYTES)
            for at in range(0, len(next(iter(columns.values()))), _BLOCK_ROWS):
                file.writelines(_block(columns, structure, slice(at, at + _BLOCK_ROWS)))
    except Exception as error:
        failed.append(error)


def _block(columns: Columns, structure: Sequence[tuple[str, str]], rows: slice) -> Iterator[bytes | memoryview]:
    """Some rows in the engine's Native format: column by column, which it parses faster than rows."""
    count = len(range(*rows.indices(len(next(iter(columns.values()))))))
    yield _number(len(structure)) + _number(count)
    for name, kind in structure:
        yield _listed([name.encode(), kind.encode()])
        whole = columns[name]
        if isinstance(whole, Coded):
            numbers = np.ascontiguousarray(whole.numbers[rows])
            # The form's version, what is in it, and how wide numbers are.
            head = (1, _HAS_TEXTS | numbers.itemsize.bit_length() - 1, len(whole.texts))
            yield np.array(head, "<u8").tobytes() + _listed(whole.texts.tolist()) + np.uint64(count).tobytes()
            yield numbers.data
            continue
        column = whole[rows]
        if isinstance(column, np.ma.MaskedArray):
            yield np.ascontiguousarray(np.ma.getmaskarray(column)).data
        yield np.ascontiguousarray(np.ma.getdata(column)).data


def _listed(texts: Iterable[bytes]) -> bytes:
    return b"".join(_number(len(text)) + text for text in texts)


def _number(value: int) -> bytes:
    """A number in base 128, the lowest digits first."""
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def read_blocks(url: str, raws: Iterable[memoryview], dtype: np.dtype[np.void], expected: int = 0) -> Frame:
    """Rows of `dtype` from blocks in the engine's Native format, which it writes faster than rows. Raises StoreError
    for other columns. For as many rows as are `expected` memory is taken once.

    A block may end before the next one begins: the engine then uses its memory again. What is used for the first time
    costs more than to copy it."""
    names = dtype.names or ()
    rows: dict[str, NDArray[Any]] = {}
    known: dict[str, dict[bytes, int]] = {}
    count = room = 0
    for raw in raws:
        at = 0
        while at < len(raw):
            columns, at = _read_block(url, raw, at, dtype)
            if not columns:
                continue
            more = count + len(columns[names[0]])
            if more > room:
                room = max(expected, more if not count else 2 * more)
                for name, column in columns.items():
                    longer = np.empty(room, np.uint32 if isinstance(column, Coded) else column.dtype)
                    longer[:count] = rows.get(name, longer)[:count]
                    rows[name] = longer
            for name, column in columns.items():
                if isinstance(column, Coded):
                    of_name = known.setdefault(name, {})
                    numbers = [of_name.setdefault(text, len(of_name)) for text in column.texts.tolist()]
                    column = np.array(numbers, np.uint32)[column.numbers]
                rows[name][count:more] = column
            count = more
    if not rows:
        return Frame.empty(0, dtype)
    shown = {name: column[:count] for name, column in rows.items()}
    coded = {name: Coded(np.array(list(of), dtype[name]), shown[name]) for name, of in known.items()}
    return Frame(dtype, {**shown, **coded})


def _read_block(
    url: str, raw: memoryview, at: int, dtype: np.dtype[np.void]
) -> tuple[dict[str, NDArray[Any] | Coded], int]:
    """A block's columns, none where it has no rows, and where it ends."""
    count, at = _varint(raw, at)
    rows, at = _varint(raw, at)
    head: list[tuple[str, str]] = []
    columns: dict[str, NDArray[Any] | Coded] = {}
    for _ in range(count):
        name, at = _text(raw, at)
        kind, at = _text(raw, at)
        head.append((name, kind))
        form = _dtype(kind)
        if form is None:
            # The columns that follow cannot be found.
            break
        if rows:
            columns[name], at = (_numbered if kind != _bare(kind) else _plain)(raw, at, form, rows)
    require_columns(url, head, dtype)
    return columns, at


def _plain(raw: memoryview, at: int, form: np.dtype[Any], rows: int) -> tuple[NDArray[Any], int]:
    """A column's values, and where they end."""
    return np.frombuffer(raw, form, rows, at), at + rows * form.itemsize


def _numbered(raw: memoryview, at: int, form: np.dtype[Any], rows: int) -> tuple[Coded, int]:
    """The same of LowCardinality: a version, the width of the numbers, the different values, each row's number."""
    _, flags, count = np.frombuffer(raw, "<u8", 3, at).tolist()
    values, at = _plain(raw, at + 24, form, count)
    numbers, at = _plain(raw, at + 8, np.dtype(f"<u{1 << (flags & 0xFF)}"), rows)
    return Coded(values, numbers), at


def require_columns(url: str, found: Sequence[tuple[str, str]], dtype: np.dtype[Any]) -> None:
    """Raises StoreError unless the columns, as (name, type), are those of `dtype`, in any order: bytes of another type
    would be read as other values."""
    names, wanted = [name for name, _ in found], dtype.names or ()
    for name, kind in found:
        form = _dtype(kind)
        narrower = form is not None and name in wanted and fits(form, dtype[name])
        if name in wanted and _bare(kind) != _type(dtype[name]) and not narrower:
            message = f"a statement's column {name} is of type {kind}, not {_type(dtype[name])}"
            raise StoreError(f"store {url}: {message}; upgrade springtide")
    if sorted(names) != sorted(wanted):
        lacks, more = sorted({*wanted} - {*names}), sorted({*names} - {*wanted})
        raise StoreError(f"store {url}: a statement lacks the columns {lacks} and has {more}; upgrade springtide")


def _text(raw: memoryview, at: int) -> tuple[str, int]:
    length, at = _varint(raw, at)
    return bytes(raw[at : at + length]).decode(errors="replace"), at + length


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    """A number in base 128, the lowest digits first, and where it ends."""
    value = shift = 0
    while True:
        value |= (raw[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if raw[at - 1] < 0x80:
            return value, at


def _bare(kind: str) -> str:
    return kind.removeprefix("LowCardinality(").removesuffix(")") if kind.startswith("LowCardinality(") else kind


@cache
def _dtype(kind: str) -> np.dtype[Any] | None:
    """The form of a type of fixed width; None for others."""
    found = re.fullmatch(r"(UInt|Int|Float)(8|16|32|64)|FixedString\((\d+)\)", _bare(kind))
    if found is None:
        return None
    return np.dtype(f"S{found[3]}" if found[3] else f"<{found[1][0].lower()}{int(found[2]) // 8}")


@cache
def _type(dtype: np.dtype[Any]) -> str:
    if dtype.kind == "S":
        return f"FixedString({dtype.itemsize})"
    if dtype.kind == "b":
        return "UInt8"
    return {"u": "UInt", "i": "Int", "f": "Float"}[dtype.kind] + str(8 * dtype.itemsize)

"""Files of one JSON object a line into a table: what is wrong is counted, named and kept aside."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import BinaryIO

from springtide import instants
from springtide.errors import Problem
from springtide.observe.folder import shown
from springtide.observe.rejected_lines import PIECE_BYTES, Rejected
from springtide.store import Row, Store

BATCH_LINES = 50_000
BATCH_BYTES = 16 << 20
# A log whose every line is wrong is one fault, not a million lines on a terminal.
SHOWN_PROBLEMS = 20
MAX_LINE_BYTES = 65_536


@dataclass(frozen=True)
class _Line:
    """`text` is without the line's end, and only the beginning of one that is too long."""

    number: int
    position: int
    length: int
    text: bytes


@dataclass
class Summary:
    """Counts of one run. A line that was read before counts again here, and once in the table."""

    files: int = 0
    rows: int = 0
    rejected_lines: int = 0
    # Paths given that are not a readable file.
    unreadable_files: int = 0
    # Lines that are bad and could not be kept aside.
    unkept_lines: int = 0
    problems: list[Problem] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "problems": [str(problem) for problem in self.problems]}


# Each line, without its end, as a row or as what is wrong with it, read at that time (seconds since the epoch).
Judge = Callable[[Sequence[bytes], float], Sequence[Row | str]]


def ingest_lines(store: Store, table: str, paths: Sequence[Path], judge: Judge) -> Summary:
    """Load every line of `paths` that is not empty. Invalid lines are counted, reported and kept in FILE.rejected
    next to the file; unreadable files are counted and reported."""
    summary = Summary()
    for path in paths:
        try:
            file = _opened(path)
        except OSError as error:
            summary.unreadable_files += 1
            fix = "make it readable; the others are loaded"
            summary.problems.append(Problem(shown(str(path)), "file", f"cannot be read: {error.strerror}", fix))
            continue
        with file:
            try:
                _load(store, table, path, file, judge, summary)
            except OSError as error:
                summary.unreadable_files += 1
                fix = "the lines before are loaded: run again once it can be read"
                summary.problems.append(Problem(shown(str(path)), "file", f"cannot be read on: {error.strerror}", fix))
            else:
                summary.files += 1
    return summary


def _opened(path: Path) -> BinaryIO:
    """A regular file: a pipe that nobody writes to would block."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    raise OSError(errno.EINVAL, "is not a regular file", str(path))


def _load(store: Store, table: str, path: Path, file: BinaryIO, judge: Judge, summary: Summary) -> None:
    now_s = instants.now()
    with Rejected(path) as rejected:
        for batch in _batches(file):
            rows: list[Row] = []
            for line, found in zip(batch, judge([line.text for line in batch], now_s), strict=True):
                if isinstance(found, str):
                    _reject(path, file, line, found, rejected, summary)
                else:
                    rows.append(found)
            store.insert(table, rows)
            summary.rows += len(rows)


def _reject(path: Path, file: BinaryIO, line: _Line, reason: str, rejected: Rejected, summary: Summary) -> None:
    summary.rejected_lines += 1
    fault = rejected.keep(file.fileno(), line.position, line.length)
    summary.unkept_lines += fault is not None
    if len(summary.problems) < SHOWN_PROBLEMS:
        place = shown(f"{path}.rejected")
        fix = f"it is kept in {place}" if fault is None else f"it cannot be kept in {place}: {fault}"
        summary.problems.append(Problem(shown(f"{path}:{line.number}"), "line", reason, fix))


def _batches(file: BinaryIO) -> Iterator[list[_Line]]:
    """Lines that are judged and inserted together."""
    batch: list[_Line] = []
    size = position = 0
    for number, (text, length) in enumerate(_lines(file), start=1):
        line = _Line(number, position, length, text.removesuffix(b"\n"))
        position += length
        if not line.text:
            continue
        batch.append(line)
        size += len(text)
        if len(batch) >= BATCH_LINES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Each line, or the beginning of one that is too long, and its length."""
    while line := file.readline(MAX_LINE_BYTES + 1):
        length = len(line)
        piece = line
        while not piece.endswith(b"\n") and (piece := file.readline(PIECE_BYTES)):
            length += len(piece)
        yield line, length


def given(line: bytes) -> dict[str, object]:
    """The line's object, its values not looked at. Raises ValueError."""
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"is longer than {MAX_LINE_BYTES} bytes")
    try:
        # UTF-8 only: by default json accepts other encodings, and halves of surrogate pairs.
        found = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    raise ValueError("is not a JSON object")


def address(given: dict[str, object], name: str) -> IPv6Address:
    """An address that is valid on any link, IPv4 mapped."""
    try:
        found = ip_address(text(given, name))
    except ValueError:
        raise ValueError(f"{name}: is not an IP address") from None
    if isinstance(found, IPv6Address) and found.scope_id is not None:
        raise ValueError(f"{name}: is an address of one link only")
    return found if isinstance(found, IPv6Address) else IPv6Address(f"::ffff:{found}")


def number(given: dict[str, object], name: str, most: float) -> float:
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError(f"{name}: {repr(value)[:40]} is not a number from 0 to {most:g}")
    return value


def text(given: dict[str, object], name: str) -> str:
    value = given.get(name)
    # JSON may escape half of a character, which is not text in any encoding.
    if not isinstance(value, str) or not 0 < len(value) <= 255 or any("\ud800" <= one <= "\udfff" for one in value):
        raise ValueError(f"{name}: is not a text of 1 to 255 characters")
    return value

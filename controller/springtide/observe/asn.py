"""Autonomous systems by the prefixes that they originate, known to the engine as a longest-prefix-match dictionary."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

from springtide.errors import InputError, Problem
from springtide.store import Store

COLUMNS = ["prefix", "asn", "name"]
_MAX_PROBLEMS = 20


@dataclass(frozen=True)
class Origin:
    """One line of the table. Numbers have 32 bits (RFC 6793)."""

    prefix: str
    asn: int
    name: str


def read_origins(path: Path) -> list[Origin]:
    """The lines of a CSV file whose header is `prefix,asn,name`, each prefix once.

    Raises InputError with the first bad lines: half a table would silently give wrong answers.
    """
    problems: list[Problem] = []
    found: dict[str, Origin] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for line, row in _rows(path, file):
                try:
                    origin = _origin(row)
                except ValueError as error:
                    problems.append(Problem(str(path), f"line {line}", str(error), "correct it; nothing was loaded"))
                    continue
                if origin.prefix in found:
                    what = f"{origin.prefix} is listed twice"
                    problems.append(Problem(str(path), f"line {line}", what, "keep one; nothing was loaded"))
                found[origin.prefix] = origin
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError([Problem(str(path), "file", f"cannot be read: {error}", "make it CSV in UTF-8")]) from error
    if problems:
        more = len(problems) - _MAX_PROBLEMS
        if more > 0:
            problems = problems[:_MAX_PROBLEMS]
            problems.append(Problem(str(path), "file", f"{more} more lines are bad", "correct them"))
        raise InputError(problems)
    return list(found.values())


def publish_origins(store: Store, origins: list[Origin]) -> None:
    """Make the dictionary contain exactly `origins`."""
    store.execute("truncate table asn_prefixes")
    store.insert("asn_prefixes", [vars(origin) for origin in origins])
    store.execute("system reload dictionary asns")


def _rows(path: Path, file: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(file)
    head = next(reader, [])
    if head != COLUMNS:
        what = f"the first line is {','.join(head)!r}"
        raise InputError([Problem(str(path), "line 1", what, f"begin with {','.join(COLUMNS)}")])
    for row in reader:
        yield reader.line_num, row


def _origin(row: list[str]) -> Origin:
    if len(row) != len(COLUMNS):
        raise ValueError(f"{len(row)} fields instead of {len(COLUMNS)}")
    number = int(row[1]) if row[1].isascii() and row[1].isdigit() else -1
    if not 0 < number < 1 << 32:
        raise ValueError(f"{row[1]!r} is not an AS number (1 to 4294967295)")
    return Origin(str(ip_network(row[0])), number, row[2])

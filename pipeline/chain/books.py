"""Where every sample went: polled = delivered + dropped by cause + lost. Pure arithmetic on identities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from testkit.witness import Identity

# What names a sample: its host, and its identity there.
Name = tuple[str, Identity]
# The socket of a host: its host and cookie.
Socket = tuple[str, int]

# Closes that the kernel announced while the killed collector had them only in memory, or was away.
KILLED = "collector_killed"


@dataclass(frozen=True)
class Books:
    """In samples. `polled` is what the kernel gave: recorded by a collector, or announced to the witness while the
    collector was dead; `delivered` what the store has, each once; `duplicates_counted` further copies of the same
    sample in Kafka; `lost` what is missing without a cause."""

    polled: int
    delivered: int
    duplicates_counted: int
    dropped: dict[str, int]
    lost: int

    def balanced(self) -> bool:
        """Nothing is missing, and nothing was dropped twice (`lost` below 0)."""
        return self.lost == 0


def balance(
    recorded: Set[Name], sent: Iterable[Name], stored: Set[Name], dropped: Mapping[str, int], unrecorded: int
) -> Books:
    """The books of samples that collectors `recorded` beside the chain, that were `sent` through Kafka (each copy) and
    that are `stored`. `dropped` is what the collectors' own books say by cause, `unrecorded` the closes of `KILLED`."""
    copies = list(sent)
    distinct = set(copies)
    causes = {cause: rows for cause, rows in dropped.items() if rows}
    missing = (recorded | distinct) - stored
    if unrecorded:
        causes[KILLED] = causes.get(KILLED, 0) + unrecorded
    return Books(
        polled=len(recorded | distinct | stored) + unrecorded,
        delivered=len(stored),
        duplicates_counted=len(copies) - len(distinct),
        dropped=causes,
        lost=len(missing) - sum(dropped.values()),
    )


def invented(recorded: Set[Name], sent: Iterable[Name], stored: Set[Name]) -> Set[Name]:
    """What the store has although no collector recorded or sent it."""
    return stored - recorded - set(sent)


def unrecorded(announced: Set[Socket], names: Set[Name]) -> Set[Socket]:
    """The announced closes of which no sample is."""
    return announced - {(host, identity.cookie) for host, identity in names if identity.kind == "CLOSE"}


def dropped(counters: Iterable[Mapping[str, Any]], sink: str) -> dict[str, int]:
    """What the collectors' own books (`--stats`) say that the sink will never get, by cause."""
    causes: dict[str, int] = {}
    for each in counters:
        for cause, rows in each["sinks"][sink]["rows_dropped"].items():
            causes[cause] = causes.get(cause, 0) + rows
    return causes

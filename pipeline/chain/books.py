"""Where every sample went: polled = delivered + dropped by cause + lost. Pure arithmetic on identities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from pipeline.chain.witness import Given
from testkit.witness import Identity

# Name of a sample in Kafka and in the store: its host, and its identity there.
Name = tuple[str, Identity]
# Facts that the kernel knows of a sample: host, cookie, kind. One socket has one for each poll, and one close.
Polled = tuple[str, int, str]

# Samples that a collector had in memory when it was killed: rows wait there for a second at most (LONGEST_IN_BATCH of
# collector/src/read/poller/wait.rs), and another second is for a busy machine.
KILLED = "collector_killed"
IN_MEMORY_S = 2.0


@dataclass(frozen=True)
class Books:
    """In samples. `polled` is what the kernel gave collectors; `delivered` what the store has of it, each once;
    `duplicates_counted` further copies of the same sample in Kafka; `lost` what is missing without a cause."""

    polled: int
    delivered: int
    duplicates_counted: int
    dropped: dict[str, int]
    lost: int

    def balanced(self) -> bool:
        """Nothing is missing, and nothing was dropped twice (`lost` below 0)."""
        return self.lost == 0 and self.polled == self.delivered + sum(self.dropped.values())


def polled_of(host: str, given: Iterable[Given]) -> tuple[Counter[Polled], Counter[Polled]]:
    """Samples that a host's kernel gave, and those of them that a killed collector may have had in memory only.

    A socket that a walk gives twice is one sample.
    """
    messages = list(given)
    closes = [each for each in messages if not each.walk]
    polls = {(each.thread, each.walk, each.cookie): each for each in messages if each.walk}
    once = [*closes, *polls.values()]
    young = [each for each in once if each.age_s is not None and each.age_s <= IN_MEMORY_S]
    every, in_memory = (Counter((host, each.cookie, each.kind) for each in some) for some in (once, young))
    return every, in_memory


def balance(
    polled: Counter[Polled],
    in_memory: Counter[Polled],
    sent: Iterable[Name],
    stored: Set[Name],
    dropped: Mapping[str, int],
) -> Books:
    """The books of samples that were `polled`, `sent` through Kafka (each copy) and `stored`.

    `in_memory` is the part of `polled` that a kill may have taken; `dropped` is what the collectors' own books say.
    """
    copies = list(sent)
    missing = polled - counted(stored)
    taken = (missing & in_memory).total()
    causes = {cause: rows for cause, rows in dropped.items() if rows} | ({KILLED: taken} if taken else {})
    return Books(
        polled=polled.total(),
        delivered=(polled & counted(stored)).total(),
        duplicates_counted=len(copies) - len(set(copies)),
        dropped=causes,
        lost=missing.total() - sum(causes.values()),
    )


def counted(names: Set[Name]) -> Counter[Polled]:
    """As the kernel would have given them."""
    return Counter((host, identity.cookie, identity.kind) for host, identity in names)


def invented(polled: Counter[Polled], stored: Set[Name]) -> int:
    """Samples in the store that no kernel gave."""
    return (counted(stored) - polled).total()


def dropped(counters: Iterable[Mapping[str, Any]], sink: str) -> dict[str, int]:
    """Rows that the sink will never get, by cause, as the collectors' own books (`--stats`) have them."""
    causes: dict[str, int] = {}
    for each in counters:
        for cause, rows in each["sinks"][sink]["rows_dropped"].items():
            causes[cause] = causes.get(cause, 0) + rows
    return causes

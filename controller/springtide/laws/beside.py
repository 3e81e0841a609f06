"""What a treatment is good for where each path leaves a part of its connections as they were, by chance: connections
of one path and hour with each other. No experiment is needed for that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from springtide.laws.base import BenefitLine
from springtide.laws.effect import grouped
from springtide.laws.paired import contrasts, middle
from springtide.store import Row

METHOD = "untreated share"
# Hours of a day differ by themselves.
_BLOCK_S = 3600


def lines(law: str, outcome: str, rows: Iterable[Row]) -> list[BenefitLine]:
    """Pure. Of all paths, and of each PoP's: one difference a path and hour. Rows have round_s, started_s (the bundle's
    round), pop, destination, ip_version, treated, timed (connections) and log2_time_sum of these."""
    differences = list(_differences(rows))
    groups = [("all", "all", differences)] if differences else []
    groups += [("PoP", pop, own) for pop, own in grouped(differences, lambda one: one[0])]
    return [
        BenefitLine(law, outcome, by, group, middle([one for _, one in own], log2=True), method=METHOD)
        for by, group, own in groups
    ]


def _differences(rows: Iterable[Row]) -> Iterator[tuple[str, float]]:
    """PoP and difference."""

    def block(row: Row) -> tuple[str, str, int, int]:
        return row["pop"], row["destination"], row["ip_version"], row["round_s"] // _BLOCK_S

    for key, own in groupby(sorted((row for row in rows if row["timed"]), key=block), block):
        cells = (
            (key, (row["round_s"], row["started_s"]), bool(row["treated"]), row["log2_time_sum"] / row["timed"], count)
            for row in own
            if (count := float(row["timed"]))
        )
        for one in contrasts(cells):
            yield key[0], one

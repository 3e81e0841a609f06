"""Busy time and retransmissions of the same pair while it has a window and while it has none: what a switchback and a
disable test have in common."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from springtide.laws.base import BenefitLine
from springtide.laws.effect import Effect
from springtide.laws.paired import contrasts, middle
from springtide.store import Row

CELL = ("src_pop", "dst_pop", "ip_version", "size_class_bytes")
# Sums of rows of round_outcomes, by CELL and whatever makes the sides.
SUMS = """
    sumIf(connections, busy_p50_us > 0) as timed,
    sumIf(round_outcomes.connections * log2(assumeNotNull(busy_p50_us)), busy_p50_us > 0) as log2_busy_sum,
    sum(bytes_sent) as bytes_sent,
    sum(bytes_retransmitted) as bytes_retransmitted
"""


@dataclass(frozen=True)
class Side:
    """A row of CELL and SUMS, what it is compared within, and whether the pair was on."""

    row: Row
    block: object
    on: bool


def couple(row: Row) -> tuple[str, ...]:
    """A pair and its way back are switched together: they are of one block."""
    return tuple(sorted((row["src_pop"], row["dst_pop"])))


def times(by: str, group: str, sides: Collection[Side], method: str) -> BenefitLine:
    """Busy time of what pairs closed, on against off: negative is faster."""
    effect = _effect(sides, "log2_busy_sum", "timed", log2=True)
    return BenefitLine("initcwnd", "busy time", by, group, effect, method=method)


def resent(by: str, group: str, sides: Collection[Side], method: str) -> BenefitLine:
    """The part of the bytes that was sent again, on less off, in points."""
    effect = _effect(sides, "bytes_retransmitted", "bytes_sent", log2=False)
    return BenefitLine("initcwnd", "bytes sent again", by, group, effect, "decided, points", method)


def _effect(sides: Collection[Side], total: str, weight: str, *, log2: bool) -> Effect:
    cells = (
        (
            side.block,
            tuple(side.row[name] for name in CELL),
            side.on,
            side.row[total] / side.row[weight],
            float(side.row[weight]),
        )
        for side in sides
        if side.row[weight]
    )
    return middle(contrasts(cells), log2=log2)

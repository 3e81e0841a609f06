"""Measurements of the bench of starts on a path: cells, the order of their groups, and their results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import median, quantiles
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.start_paths import WAYS, Path

# Repeats of one connection alone in a pass; a cell of several at once has as many by itself.
ALONE = 4
# A cell that no sender could do in this time is left out: megabytes over a cellular link.
LONGEST_MS = 4000
# And one whose slowest way would take longer than this, by what smaller objects took: a policer without a queue.
LONGEST_GROUP_S = 10.0
# Beside a bulk flow, these only: a pass would take twice as long.
BESIDE_BULK = (1, 10)
ASKED_SIZE = 100_000
# Bounds for a way: share of its segments that it sends again more than the default, and its p95 over the default's.
MORE_AGAIN, LATER = 0.002, 1.05
# Draws of a bootstrap, whose lower end is the 2.5th percentile.
DRAWS, LOWER_END = 500, 0.025


@dataclass(frozen=True)
class Cell:
    """`at_once` connections in all, from so many edges."""

    size: int
    at_once: int
    edges: int = 1
    bulk: bool = False


@dataclass(frozen=True)
class Group:
    """Connections that open together; each carries an object of `before` bytes first, if that is not 0."""

    cell: Cell
    way: str
    family: int
    before: int = 0


@dataclass
class Result:
    """One path, cell and way: times in ms, and segments of all connections together; the same by group. A group's
    connections opened together, so they are not independent."""

    ms: list[float] = field(default_factory=list)
    segments: int = 0
    resent: int = 0
    errors: list[str] = field(default_factory=list)
    groups: list[Result] = field(default_factory=list)

    def begin(self) -> list[Result]:
        """The results that a new group counts for."""
        self.groups.append(Result())
        return [self, self.groups[-1]]

    def halves(self) -> list[Result]:
        """Every other group together, and the others."""
        return [summed(self.groups[at::2]) for at in (0, 1)]

    def p50(self) -> float:
        return median(self.ms)

    def p95(self) -> float:
        return quantiles(self.ms, n=20, method="inclusive")[18] if len(self.ms) > 1 else self.ms[0]

    def resent_share(self) -> float:
        return self.resent / max(1, self.segments)

    def sends_more_again(self, than: Result) -> bool:
        """By more than is asked for."""
        return self.resent_share() - than.resent_share() > MORE_AGAIN

    def is_later(self, than: Result) -> bool:
        return self.p95() > LATER * than.p95()

    def clearly(self, than: Result) -> tuple[bool, bool]:
        """Whether it sends more again, and is later, also at the lower end of the interval (95 %, bootstrap over the
        groups of both): what one group of few did is no more than that."""
        # One group says nothing of how much they differ.
        if min(sum(bool(group.ms) for group in one.groups) for one in (self, than)) < 2:
            return False, False
        ours, theirs = _drawn(self, 0), _drawn(than, 1)
        more, later = np.quantile(ours[0] - theirs[0], LOWER_END), np.quantile(ours[1] / theirs[1], LOWER_END)
        return bool(more > MORE_AGAIN), bool(later > LATER)


def summed(results: Sequence[Result]) -> Result:
    """Several as one."""
    return Result(
        [ms for one in results for ms in one.ms],
        sum(one.segments for one in results),
        sum(one.resent for one in results),
    )


def _drawn(result: Result, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The share sent again, and the p95, of as many of its groups drawn anew, DRAWS times."""
    groups_ = [one for one in result.groups if one.ms]
    chances = np.full(len(groups_), 1 / len(groups_))
    # Times that each is drawn.
    drawn = np.random.default_rng(seed).multinomial(len(groups_), chances, DRAWS)
    resent, segments = (np.array([getattr(one, name) for one in groups_]) for name in ("resent", "segments"))
    times, group = np.array([(ms, at) for at, one in enumerate(groups_) for ms in one.ms]).T
    order = np.argsort(times)
    until = np.cumsum(drawn[:, group[order].astype(int)], axis=1)
    late = times[order][np.argmax(until >= 0.95 * until[:, -1:], axis=1)]
    return drawn @ resent / np.maximum(drawn @ segments, 1), late


Results = defaultdict[tuple[str, Cell, str], Result]


def cells(path: Path, sizes: Sequence[int], at_once: Sequence[int], edges: int, bulk: bool) -> list[Cell]:
    """Few at once first: the program remembers the most at once for ten seconds, and divides the rate by it."""
    counts = [count for count in at_once if count >= edges and (not bulk or count in BESIDE_BULK)]
    if edges > 1:
        counts = [count for count in counts if count > 1]
    found = [Cell(size, count, edges, bulk) for count, size in product(counts, sizes)]
    return [cell for cell in found if path.limit_ms(cell.size, cell.at_once) <= LONGEST_MS]


def groups(cell: Cell, number: int) -> Iterator[Group]:
    """A cell in a pass. Ways take turns, and begin by turns; families change with each turn."""
    for repeat in range(ALONE if cell.at_once == 1 else 1):
        for at in range(len(WAYS)):
            yield Group(cell, WAYS[(number + repeat + at) % len(WAYS)], 6 if (number + repeat) % 2 else 4)


@dataclass
class Slowest:
    """The longest that groups of a path took, by the number at once: of which size, and seconds."""

    took: dict[int, tuple[int, float]] = field(default_factory=dict)

    def note(self, cell: Cell, seconds: float) -> None:
        self.took[cell.at_once] = max(self.took.get(cell.at_once, (0, 0.0)), (cell.size, seconds))

    def allows(self, cell: Cell) -> bool:
        """Whether a cell ends in time, if a group takes as long for each byte as a smaller one did."""
        size, seconds = self.took.get(cell.at_once, (cell.size, 0.0))
        return seconds * max(1.0, cell.size / size) <= LONGEST_GROUP_S


def row(path: Path, cell: Cell, ways: dict[str, Result]) -> dict[str, Any]:
    """One of `paths` of the result."""
    limit_ms = path.limit_ms(cell.size, cell.at_once)
    times = {f"{way}_ms": round(found.p50(), 1) for way, found in ways.items()}
    late = {f"{way}_p95_ms": round(found.p95(), 1) for way, found in ways.items()}
    again = {f"retransmit_{way}": round(found.resent_share(), 5) for way, found in ways.items()}
    more, later = ways["springtide"].clearly(ways["default"])
    return {
        "name": path.name,
        "rtt_ms": path.rtt_ms,
        "rate_mbit": path.rate_mbit,
        "queue_packets": path.queue,
        "size_bytes": cell.size,
        "at_once": cell.at_once,
        "edges": cell.edges,
        "bulk": cell.bulk,
        **times,
        "limit_ms": round(limit_ms, 1),
        "ratio_limit": round(ways["springtide"].p50() / limit_ms, 4),
        **late,
        **again,
        "clear_retransmit_rise": more,
        "clear_p95_rise": later,
        "connections": min(len(found.ms) for found in ways.values()),
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over all rows: the three that are asked for, and p95. A path's limit is without what else is on it."""
    asked = [one for one in rows if one["size_bytes"] == ASKED_SIZE and not one["bulk"]] or list(rows)
    ratios = [one["ratio_limit"] for one in asked]
    worst = max(asked, key=lambda one: one["ratio_limit"])
    rises = [one["retransmit_springtide"] - one["retransmit_default"] for one in rows]
    return {
        "worst_ratio_limit_100k": max(ratios),
        "worst_ratio_limit_100k_at": _named(worst),
        "worst_retransmit_rise": round(max(rises), 5),
        "worst_retransmit_rise_at": _named(rows[rises.index(max(rises))]),
        "median_ratio_limit_100k": round(median(ratios), 4),
        "worst_p95_per_default": round(max(one["springtide_p95_ms"] / one["default_p95_ms"] for one in rows), 4),
    }


def rises(results: Results) -> dict[tuple[str, str], int]:
    """By name and way, in how many cells it sends more again than the default, or its p95 is later, and clearly so; by
    halves, a half of its groups over a half of the default's: the default's other half says how many are chance."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for (name, cell, way), result in results.items():
        default = results[name, cell, "default"] if (name, cell, "default") in results else Result()
        if not (result.ms and default.ms):
            continue
        if way != "default":
            found["retransmit_rises", way] += result.sends_more_again(default)
            found["p95_rises", way] += result.is_later(default)
            more, later = result.clearly(default)
            found["clear_retransmit_rises", way] += more
            found["clear_p95_rises", way] += later
        halves = [one.halves() for one in (default, result)]
        if all(one.ms for two in halves for one in two):
            ours, theirs = halves[1][1], halves[0][0]
            found["cells_in_halves", way] += 1
            found["retransmit_rises_in_halves", way] += ours.sends_more_again(theirs)
            found["p95_rises_in_halves", way] += ours.is_later(theirs)
    return found


def pooled(results: Results) -> Results:
    """Cells of all sizes and edges together, by path, number at once and way; times as multiples of the cell's median
    by default. A cell's dozen connections leave it to chance; these have some hundred."""
    found: Results = defaultdict(Result)
    for (name, cell, way), result in results.items():
        default = results[name, cell, "default"] if (name, cell, "default") in results else Result()
        if not (result.ms and default.ms):
            continue
        into = found[name, Cell(0, cell.at_once, 0, cell.bulk), way]
        for group in result.groups:
            for one in into.begin():
                one.ms += [ms / default.p50() for ms in group.ms]
                one.segments, one.resent = one.segments + group.segments, one.resent + group.resent
    return found


def pooled_rows(pools: Results) -> list[dict[str, Any]]:
    """`pools` of the result: shares sent again, and p95 over the default's."""
    rows = []
    for (name, cell, way), default in pools.items():
        ours = pools[name, cell, "springtide"] if (name, cell, "springtide") in pools else Result()
        if way == "default" and ours.ms:
            more, later = ours.clearly(default)
            rows.append(
                {
                    "name": name,
                    "at_once": cell.at_once,
                    "bulk": cell.bulk,
                    "retransmit_default": round(default.resent_share(), 5),
                    "retransmit_springtide": round(ours.resent_share(), 5),
                    "p95_per_default": round(ours.p95() / default.p95(), 4),
                    "clear_retransmit_rise": more,
                    "clear_p95_rise": later,
                    "connections": min(len(default.ms), len(ours.ms)),
                }
            )
    return rows


def _named(one: dict[str, Any]) -> str:
    bulk = ", bulk" if one["bulk"] else ""
    return f"{one['name']}, {one['size_bytes']} B, {one['at_once']} from {one['edges']}{bulk}"

"""Neighbours: the time of untreated connections on a bottleneck while others start at the proved rate.

Fresh connections of 100 kB arrive at random over three narrow paths, at half of their capacity. The untreated come from
the default's edge, the treated from Springtide's. A share of treated connections stays for a period; the shares take
turns, in an order that is drawn anew in each cycle, and have the same arrivals. Periods without and with all treated
are a switchback. A period begins when the last connection of the one before has ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from bench.start_cells import Result
from bench.start_paths import SERVER, Path, edge_of
from evidence.claims import Claim, Measured
from evidence.part import Figure, Floats, intervals
from lab.clients import run_probes
from lab.lab import Lab
from lab.traffic import Planned

NARROW = ("twelve", "twenty", "bloat")
UNTREATED, TREATED = "default", "springtide"
SHARES = NONE, *SOME, ALL = 0, 10, 50, 90, 100
SIZE, CAPACITY = 100_000, 0.5
CYCLES, PERIOD_S, TIMEOUT_S = 3, 3.0, 30.0
ONE_EDGE = (
    "Treated connections of a path share one edge and its program; several hosts would divide the rate by rounds."
)
# No page claims these.
PLACE = ("ours", "our own bound")

CLAIMS = (
    *(
        Claim(
            *(f"neighbours-{share}", *PLACE, f"Untreated beside {share} % treated over beside none, 100 kB", 1, "most"),
            *("times", 0.05, ONE_EDGE),
        )
        for share in SOME
    ),
    Claim("neighbours-tail", *PLACE, "The same, p95 beside 50 %", 1, "most", "times", 0.05, ONE_EDGE),
    Claim("switchback", *PLACE, "All treated over none treated, 100 kB", 1, "most", "times", 0, ONE_EDGE),
    Claim(
        *(
            "switchback-half",
            *PLACE,
            "Treated over untreated beside them, over the switchback's",
            1,
            "same",
            "times",
            0.1,
        ),
        why="Above one, a comparison side by side shows less than treating all does, and below one more.",
    ),
)


@dataclass
class Seen:
    """By share, path and way; segments of all paths together are at the path ''."""

    results: defaultdict[tuple[int, str, str], Result] = field(default_factory=lambda: defaultdict(Result))
    failed: int = 0


def arrivals(path: Path, share: int, cycle: int) -> Iterator[Planned]:
    """A period's connections over a path. The times are those of every share."""
    times, kinds = Random(f"{path.name} {cycle}"), Random(f"{path.name} {cycle} {share}")
    per_s = CAPACITY * path.rate_mbit * 125_000 / SIZE
    at = times.expovariate(per_s)
    while at < PERIOD_S:
        way = TREATED if 100 * kinds.random() < share else UNTREATED
        yield Planned(SERVER, path.name, edge_of(way, 0), path.edge(), SIZE, at)
        at += times.expovariate(per_s)


def run(lab: Lab, paths: Sequence[Path]) -> Seen:
    """All cycles."""
    seen = Seen()
    for cycle in range(CYCLES):
        for share in Random(cycle).sample(SHARES, len(SHARES)):
            planned = [one for path in paths if path.name in NARROW for one in arrivals(path, share, cycle)]
            before = lab.counters()
            for probe in run_probes(lab.popen, lab.topology, planned, TIMEOUT_S):
                way = TREATED if probe.src_edge == edge_of(TREATED, 0) else UNTREATED
                if probe.transfer_ms is None:
                    seen.failed += 1
                else:
                    seen.results[share, probe.dst, way].ms.append(probe.transfer_ms)
            after = lab.counters()
            for way in (UNTREATED, TREATED):
                spent = after[edge_of(way, 0)] - before[edge_of(way, 0)]
                both = seen.results[share, "", way]
                both.segments += spent.out_segs + spent.retrans_segs
                both.resent += spent.retrans_segs
    return seen


def claims_of(seen: Seen) -> dict[str, Measured]:
    """Means over the paths of each path's ratio. Drawn anew are connections."""
    keys = [key for key, found in seen.results.items() if found.ms]
    names = [name for name in NARROW if {(NONE, name, UNTREATED), (ALL, name, TREATED)} <= {*keys}]

    none, treated = (NONE, UNTREATED), (ALL, TREATED)

    def statistics(*samples: Floats) -> dict[str, float]:
        by = dict(zip(keys, samples, strict=True))

        def over(one: tuple[int, str], other: tuple[int, str], level: float = 0.5) -> float:
            pairs = [(by[one[0], name, one[1]], by[other[0], name, other[1]]) for name in names]
            return float(np.mean([np.quantile(mine, level) / np.quantile(theirs, level) for mine, theirs in pairs]))

        half = over((50, TREATED), (50, UNTREATED))
        switched = over(treated, none)
        return {f"neighbours-{share}": over((share, UNTREATED), none) for share in SOME} | {
            "neighbours-tail": over((50, UNTREATED), none, 0.95),
            "switchback": switched,
            "switchback-half": half / switched,
        }

    compared = {f"neighbours-{share}": ((share, UNTREATED), none) for share in SOME} | {
        "neighbours-tail": ((50, UNTREATED), none),
        "switchback": (treated, none),
        "switchback-half": ((50, TREATED), (50, UNTREATED), treated, none),
    }
    found = intervals(statistics, *(seen.results[key].ms for key in keys))
    return {
        claim: replace(
            one, n=sum(len(seen.results[share, name, way].ms) for share, way in compared[claim] for name in names)
        )
        for claim, one in found.items()
    }


def figure(seen: Seen) -> Figure:
    rows = []
    for share in SHARES:
        for way, name in ((UNTREATED, "untreated"), (TREATED, "treated")):
            found = [seen.results[share, path, way] for path in NARROW]
            if all(one.ms for one in found):
                cells = [f"{one.p50():.0f} / {one.p95():.0f}" for one in found]
                again = 100 * seen.results[share, "", way].resent_share()
                rows.append([f"{share} %", name, *cells, f"{again:.1f}", str(sum(len(one.ms) for one in found))])
    return Figure(
        *("ours", "ours-neighbours", "Treated and untreated connections on one bottleneck"),
        f"p50 / p95 of 100 kB in ms, and the per cent of segments sent again over all three paths. Connections arrive"
        f" at random, at {100 * CAPACITY:.0f} % of a path's capacity. Each share has {CYCLES} periods of {PERIOD_S:.0f}"
        f" s, in turns. {seen.failed} connections failed. Connections of a period are not independent, so that the"
        " intervals are rather narrow.",
        ["treated", "connections", *NARROW, "sent again", "n"],
        rows,
    )

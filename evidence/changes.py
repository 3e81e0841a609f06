"""Changes: of routes and entries while paths stay as they are, and the minute after paths have got worse.

Riptide renews its routes every second, as published, and ours its entries every round. Then every other path has half
of its capacity, and the rest lose 2 %. Riptide's connections go on: their windows are what it averages. Springtide
decides nothing in this minute, as its rounds are of five: what acts is the brake of its edge. Left out are the policer
and the cellular path, which are worse than that before.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from bench.start_cells import Cell, Result, Results, summed
from bench.start_paths import Path
from evidence.claims import Claim, Measured
from evidence.fetching import Fetcher, turns
from evidence.pages import number
from evidence.part import Figure, Floats, interval, intervals
from evidence.riptide import Riptide, addresses
from lab.lab import Lab

AS_BEFORE = ("policer", "mexico")
LOSS = 0.02
HALVED, LOSSY = "half", "lossy"
WAYS = DEFAULT, RIPTIDE, OURS = "default", "riptide", "springtide"
SMALL, LARGE = Cell(100_000, 1), Cell(500_000, 1)
CELLS = (SMALL, SMALL, SMALL, LARGE)
MINUTE_S = 60.0
# A fleet's, of five minutes.
ROUNDS_PER_HOUR = 12
RENEWED = "Riptide renews a route every second, ours an entry every five minutes: the lab's rounds count as such."
SENT = "An object that fits into the window has left before the first loss is known, and no round of ours has passed."
BRAKE = "Ours goes on at twice the path's rate. The brake asks for 20 connections of an entry; most had fewer."
FOLLOWS = "Riptide's windows follow the path within seconds, and ours wait for a round."

# No page claims these.
OWN = "our own bound"


def _claims(kind: str, what: str) -> tuple[Claim, ...]:
    again, one = "sent again more than the default", "100 kB over the default"
    ours = ("ours", OWN)
    brake = BRAKE if kind == HALVED else SENT
    return (
        Claim(f"{kind}-riptide", "paper", "section IV-B", f"{what}: Riptide's {one}", 1, "most", "times"),
        Claim(f"{kind}-riptide-resent", "paper", "section IV-B", f"{what}: Riptide {again}", 0, "most", "points", 0.5),
        Claim(f"{kind}-ours", *ours, f"{what}: {one}", 1, "most", "times", 0, SENT),
        Claim(f"{kind}-ours-resent", *ours, f"{what}: {again}", 0, "most", "points", 0.5, brake),
        Claim(f"{kind}-ours-goodput", *ours, f"{what}: goodput over the default", 1, "least", "times", 0.05, SENT),
        Claim(f"{kind}-ours-riptide", *ours, f"{what}: 100 kB over Riptide", 1, "most", "times", 0, FOLLOWS),
    )


CLAIMS = (
    Claim("changes-less", "ours", OWN, "Changes a path and hour over Riptide's", None, "most", "times", 1, RENEWED),
    *_claims(HALVED, "Capacity halves"),
    *_claims(LOSSY, "2 % get lost"),
)


def kind_of(path: Path, paths: Sequence[Path]) -> str:
    """Half, lossy, or nothing where a path stays as it is."""
    able = [one.name for one in paths if one.name not in AS_BEFORE]
    return (HALVED, LOSSY)[able.index(path.name) % 2] if path.name in able else ""


def worse(paths: Sequence[Path]) -> list[Path]:
    """The paths as they are afterwards."""
    how: Mapping[str, Any] = {HALVED: lambda path: replace(path, rate_mbit=path.rate_mbit / 2)}
    how = {**how, LOSSY: lambda path: replace(path, loss=LOSS), "": lambda path: path}
    return [how[kind_of(path, paths)](path) for path in paths]


@dataclass
class Counted:
    """`ours`: each round's entries by prefix. `riptide`: the host of each change, in `seconds` of traffic."""

    ours: list[Mapping[str, Mapping[str, Any]]] = field(default_factory=list)
    riptide: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def note(self, riptide: Riptide, since: float) -> None:
        """Takes Riptide's changes since then."""
        self.riptide = [host for at, host in list(riptide.changes) if at >= since]
        self.seconds = time.monotonic() - since

    def per_hour(self, prefixes: Sequence[str], hosts: Sequence[str]) -> tuple[float, float]:
        """Changes of Riptide's routes and of our entries to a path, both families together."""
        pairs = list(zip(self.ours, self.ours[1:], strict=False))
        ours = sum(before.get(prefix) != after.get(prefix) for before, after in pairs for prefix in prefixes)
        theirs = sum(host in hosts for host in self.riptide)
        return theirs * 3600 / max(1.0, self.seconds), ours * ROUNDS_PER_HOUR / max(1, len(pairs))


@dataclass(frozen=True)
class Seen:
    """`kinds`: path -> what became of it. `before`, `after`: path -> Riptide's changes an hour and ours, before and in
    the minute after."""

    kinds: Mapping[str, str]
    results: Results
    before: Mapping[str, tuple[float, float]]
    after: Mapping[str, float]

    def names(self, kind: str) -> list[str]:
        """Paths of a kind on which every way came to the end of both sizes."""
        return [
            name
            for name, one in self.kinds.items()
            if one == kind and all(self.results[name, cell, way].ms for cell in CELLS for way in WAYS)
        ]


def minute(lab: Lab, fetcher: Fetcher, paths: Sequence[Path], riptide: Riptide, counted: Counted) -> Seen:
    """The minute after the paths have changed."""
    since = time.monotonic()
    plan = turns(WAYS, CELLS)
    results = fetcher.run(lambda _: plan, since + MINUTE_S)
    later = Counted()
    later.note(riptide, since)
    to = {
        path.name: (path.prefixes(), [f"{one}/{one.max_prefixlen}" for one in addresses(lab, path)]) for path in paths
    }
    return Seen(
        {path.name: kind_of(path, paths) for path in paths},
        results,
        {name: counted.per_hour(*found) for name, found in to.items()},
        {name: later.per_hour(*found)[0] for name, found in to.items()},
    )


def goodput(large: Result) -> float:
    """Mbit/s of large objects, by the sum of their times."""
    return LARGE.size * 8 / 1000 * len(large.ms) / sum(large.ms)


def claims_of(seen: Seen) -> dict[str, Measured]:
    """The minute of both kinds, and changes of both as a ratio, of which paths are drawn anew."""
    theirs, ours = np.array([*seen.before.values()]).T
    places = np.arange(len(ours), dtype=float)
    less = interval(lambda at: ours[at.astype(int)].sum() / max(1.0, theirs[at.astype(int)].sum()), places)
    return minute_claims(seen, HALVED) | minute_claims(seen, LOSSY) | {"changes-less": less}


def minute_claims(seen: Seen, kind: str) -> dict[str, Measured]:
    """Medians over a kind's paths of each path's ratio; shares sent again are means over them. Drawn anew are
    connections."""
    names = seen.names(kind)
    if not names:
        return {}
    keys = [(name, cell, way) for name in names for cell in (SMALL, LARGE) for way in WAYS]
    groups = [[one for one in seen.results[key].groups if one.ms] for key in keys]

    def statistics(*chosen: Floats) -> dict[str, float]:
        by = {key: summed([own[int(at)] for at in some]) for key, own, some in zip(keys, groups, chosen, strict=True)}

        def over(way: str, other: str) -> float:
            return median(by[name, SMALL, way].p50() / by[name, SMALL, other].p50() for name in names)

        def again(way: str) -> float:
            return float(np.mean([summed([by[one, SMALL, way], by[one, LARGE, way]]).resent_share() for one in names]))

        good = [goodput(by[name, LARGE, OURS]) / goodput(by[name, LARGE, DEFAULT]) for name in names]
        return {
            f"{kind}-riptide": over(RIPTIDE, DEFAULT),
            f"{kind}-riptide-resent": 100 * (again(RIPTIDE) - again(DEFAULT)),
            f"{kind}-ours": over(OURS, DEFAULT),
            f"{kind}-ours-resent": 100 * (again(OURS) - again(DEFAULT)),
            f"{kind}-ours-goodput": median(good),
            f"{kind}-ours-riptide": over(OURS, RIPTIDE),
        }

    return intervals(statistics, *(np.arange(len(own), dtype=float) for own in groups))


def figures(seen: Seen) -> list[Figure]:
    return [count_figure(seen), minute_figure(seen)]


def count_figure(seen: Seen) -> Figure:
    rows = [
        [name, *(number(one) for one in seen.before[name]), f"{number(seen.after[name])}{f' ({kind})' if kind else ''}"]
        for name, kind in seen.kinds.items()
    ]
    return Figure(
        *("ours", "ours-changes", "Changes of a path and hour"),
        "Riptide's routes whose window became another, both families, while connections carry 20 % of a path's rate:"
        " in a round of the lab, and in the minute after the path has changed, if it has. Ours are entries of a bundle"
        f" that became others from one round of learning to the next, at a fleet's {ROUNDS_PER_HOUR} rounds an hour."
        " They hold the climb from nothing, so a path that is known changes less.",
        ["path", "Riptide", "Springtide", "Riptide, the minute after"],
        rows,
    )


def minute_figure(seen: Seen) -> Figure:
    rows = []
    for name, kind in seen.kinds.items():
        for way in WAYS if kind else ():
            small, large = (seen.results[name, cell, way] for cell in (SMALL, LARGE))
            if small.ms and large.ms:
                share = 100 * summed([small, large]).resent_share()
                cells = [number(small.p50()), number(small.p95()), number(goodput(large)), f"{share:.1f}"]
                rows.append([f"{name} ({kind})", way, *cells, f"{len(small.ms)} + {len(large.ms)}"])
    return Figure(
        *("ours", "ours-minute", "The minute after a path has got worse"),
        f"Capacity has halved (`{HALVED}`), or {100 * LOSS:g} % get lost (`{LOSSY}`). Times of 100 kB alone in ms,"
        f" goodput of {LARGE.size // 1000} kB in Mbit/s, and the per cent of segments sent again by both. Riptide's"
        " routes are renewed each second; Springtide's values are those from before, under its edge's brake.",
        ["path", "way", "p50", "p95", "goodput", "sent again", "n"],
        rows,
    )

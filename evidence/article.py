"""Selective BBR: objects to ten client prefixes by CUBIC, by BBR, and by BBR where it helps from 100 kB on.

Two of the prefixes lose 2 and 3 % of their packets; the rest are clean, some of them near. A first pass by CUBIC finds
the lowest fifth by rate, as the article's controller does over hours; these get the bundle's entry. Then the ways take
turns on every path. One more learns for each remote by itself, as bpftune does on a host: it tries both algorithms, and
uses the one with the higher rate for all of the remote's connections. `bench calm-prefixes` simulates how calm the
choice is over days.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path as File
from random import Random
from statistics import mean, median
from typing import Any, cast

import numpy as np

from bench.calm import prefixes
from bench.runner import Run, progress
from bench.start_cells import Cell, Group, Result, Results
from bench.start_paths import Path, edge_of
from bench.start_ways import apply
from evidence.claims import Claim, Measured
from evidence.fetching import Fetcher, turns, up, use
from evidence.pages import number
from evidence.part import Figure, Floats, Found, Part, intervals
from evidence.plots import LINES, drawn, legend
from lab.lab import Lab

PATHS = (
    Path("near1", 100, 8, 300, 1),
    Path("near2", 100, 15, 300, 2),
    Path("near3", 50, 20, 200, 3),
    Path("town1", 50, 30, 200, 4),
    Path("town2", 40, 40, 200, 5),
    Path("land1", 50, 60, 300, 6),
    Path("land2", 30, 70, 200, 7),
    Path("far", 40, 90, 300, 8),
    Path("poor1", 20, 60, 100, 9, loss=0.02),
    Path("poor2", 12, 80, 80, 10, loss=0.03),
)
NEAR = [path.name for path in PATHS if path.rtt_ms <= 20]
CUBIC, BBR, OURS, LEARNT = "cubic", "bbr", "selective", "learnt"
WAYS = (CUBIC, BBR, OURS, LEARNT)
# The share of connections with which a remote's learner tries any algorithm (epsilon-greedy).
TRIES = 0.1
SMALL, LARGE = 50_000, 1_000_000
FROM_BYTES = 100_000
LOWEST = 0.2
# A cycle has four turns of all ways and sizes on each path; a quick run has a half of one.
CYCLES = 3
PREFIXES, QUICK_PREFIXES = (4_000, 3.0), (600, 1.0)
EMULATED = "Two of ten of our prefixes are poor, and more so than a fifth of a CDN's clients are."
LEARNER = ("article", "beside bpftune's idea")
LEARNS = f"Learning costs a connection by each algorithm, and of the rest one in {round(1 / TRIES)} tries anew."
FROM_100 = f"Ours begins by CUBIC and acts from {FROM_BYTES // 1000} kB on, so that small objects keep what they had."

CLAIMS = (
    Claim("bbr-p10", "article", "figure 4", "p10 of rates, selective over CUBIC", 2, "least", "times", why=EMULATED),
    Claim("bbr-p5", "article", "figure 3", "p5 of rates, selective over CUBIC", None, "least", "times", 1, EMULATED),
    Claim("bbr-goodput", "article", "figure 5", "Gain of p10 of goodput, all objects", 12, "least", "%", 0, EMULATED),
    Claim("bbr-small", "article", "introduction", "Gain of BBR for 50 kB, poor prefixes", 0, "most", "%", 5, EMULATED),
    Claim(
        "ours-small", "article", "introduction", "Change of 50 kB by selective BBR, poor", 0, "same", "%", 5, EMULATED
    ),
    Claim("bbr-near", "article", "introduction", "BBR over CUBIC, near and clean, 1 MB", 1, "most", "times"),
    Claim("ours-near", "article", "introduction", "Selective over CUBIC, near and clean", 1, "same", "times", 0.02),
    Claim(
        "bbr-everywhere",
        "article",
        "introduction",
        "p50 of rates, selective over BBR",
        1,
        "least",
        "times",
        0.02,
    ),
    Claim("learnt-p10", *LEARNER, "p10 of rates, learnt for each remote over CUBIC", None, "least", "times", 1, LEARNS),
    Claim("learnt-best", *LEARNER, "Rate over the better of both, learnt", None, "least", "times", 0.9, LEARNS),
    Claim("ours-best", *LEARNER, "Rate over the better of both, selective", None, "least", "times", 0.9, FROM_100),
    Claim("ours-learnt", *LEARNER, "p10 of rates, selective over learnt", None, "least", "times", 1, FROM_100),
    Claim("ours-learnt-p50", *LEARNER, "p50 of rates, selective over learnt", None, "least", "times", 1, LEARNS),
    Claim("bbr-new", "article", "figure 2", "New prefixes a round, of those chosen", None, "most", "%", 5),
)


def rates(results: Results, size: int, way: str, names: Sequence[str]) -> list[list[float]]:
    """Mbit/s of each object, by path."""
    return [[size * 8 / ms / 1000 for ms in results[name, Cell(size, 1), way].ms] for name in names]


def lowest(results: Results) -> list[Path]:
    """The fifth of the prefixes with the lowest rates by CUBIC."""
    slow = sorted(PATHS, key=lambda path: median(rates(results, LARGE, CUBIC, [path.name])[0]))
    return slow[: round(LOWEST * len(PATHS))]


class Learner:
    """Learns one path's algorithm by the rates of its own large objects, whatever the size that comes next."""

    def __init__(self, lab: Lab, path: Path) -> None:
        self._lab, self._path, self._chance = lab, path, Random(path.name)
        self.rates: dict[str, list[float]] = {CUBIC: [], BBR: []}

    def choose(self) -> str:
        """Tries each once, then mostly takes the one with the higher mean rate."""
        untried = [name for name, found in self.rates.items() if not found]
        if untried or self._chance.random() < TRIES:
            return self._chance.choice(untried or [*self.rates])
        return max(self.rates, key=lambda name: mean(self.rates[name]))

    def plan(self, groups: Sequence[Group], results: Results) -> Iterator[Group]:
        """The groups, before each of which the edge has the algorithm."""
        for group in groups:
            if group.way != LEARNT:
                yield group
                continue
            chosen = self.choose()
            use(self._lab, LEARNT, chosen, self._path)
            yield group
            if group.cell.size == LARGE:
                self.rates[chosen] += [LARGE * 8 / ms / 1000 for ms in self._newest(results).ms]

    def _newest(self, results: Results) -> Result:
        return results[self._path.name, Cell(LARGE, 1), LEARNT].groups[-1]


def entries(chosen: Sequence[Path]) -> list[dict[str, Any]]:
    """Entries of a bundle, in its order."""
    congestion = {"algorithm": "bbr", "from_bytes": FROM_BYTES}
    ordered = sorted(chosen, key=lambda path: path.number)
    return [{"prefix": path.prefixes()[at], "congestion": congestion} for at in (0, 1) for path in ordered]


def run(quick: bool) -> tuple[list[Path], Results]:
    """The prefixes that were chosen, and what every way did afterwards."""
    with tempfile.TemporaryDirectory(prefix="springtide-evidence-") as directory, up("bbr", PATHS, WAYS, [OURS]) as lab:
        use(lab, BBR, BBR)
        fetcher = Fetcher(lab, PATHS, WAYS)
        chosen = lowest(fetcher.run(lambda _: turns([CUBIC], [Cell(LARGE, 1)])[: 1 if quick else None]))
        progress(f"  lowest fifth: {', '.join(path.name for path in chosen)}")
        apply(lab, edge_of(OURS, 0), entries(chosen), File(directory), 300)
        plan = turns(WAYS, [Cell(SMALL, 1), Cell(LARGE, 1)])
        plan = plan[: len(plan) // 2] if quick else plan * CYCLES
        results = Results(Result)
        return chosen, fetcher.run(lambda path: Learner(lab, path).plan(plan, results), results=results)


def claims_of(chosen: Sequence[Path], results: Results) -> dict[str, Measured]:
    """Every path weighs as much as another: all were fetched from as often."""
    poor = [path.name for path in chosen]
    keys = [(size, way, path.name) for size in (SMALL, LARGE) for way in WAYS for path in PATHS]
    samples = [rates(results, size, way, [name])[0] for size, way, name in keys]

    def statistics(*values: Floats) -> dict[str, float]:
        by = dict(zip(keys, values, strict=True))

        def over(sizes: Sequence[int], way: str, names: Sequence[str], level: float) -> float:
            return float(np.quantile(np.concatenate([by[size, way, name] for size in sizes for name in names]), level))

        def times(sizes: Sequence[int], way: str, other: str, names: Sequence[str], level: float) -> float:
            return over(sizes, way, names, level) / over(sizes, other, names, level)

        def best(way: str, name: str) -> float:
            return float(by[LARGE, way, name].mean() / max(by[LARGE, one, name].mean() for one in (CUBIC, BBR)))

        every = [path.name for path in PATHS]
        return {
            "bbr-p10": times([LARGE], OURS, CUBIC, every, 0.1),
            "bbr-p5": times([LARGE], OURS, CUBIC, every, 0.05),
            "bbr-goodput": 100 * (times([SMALL, LARGE], OURS, CUBIC, every, 0.1) - 1),
            "bbr-small": 100 * (times([SMALL], BBR, CUBIC, poor, 0.5) - 1),
            "ours-small": 100 * (times([SMALL], OURS, CUBIC, poor, 0.5) - 1),
            "bbr-near": float(np.mean([times([LARGE], BBR, CUBIC, [name], 0.5) for name in NEAR])),
            "ours-near": float(np.mean([times([LARGE], OURS, CUBIC, [name], 0.5) for name in NEAR])),
            "bbr-everywhere": times([LARGE], OURS, BBR, every, 0.5),
            "learnt-p10": times([LARGE], LEARNT, CUBIC, every, 0.1),
            "learnt-best": float(np.mean([best(LEARNT, name) for name in every])),
            "ours-best": float(np.mean([best(OURS, name) for name in every])),
            "ours-learnt": times([LARGE], OURS, LEARNT, every, 0.1),
            "ours-learnt-p50": times([LARGE], OURS, LEARNT, every, 0.5),
        }

    return intervals(statistics, *samples)


def calm(quick: bool) -> dict[str, Measured]:
    """New prefixes a round, of a simulation of the law."""
    count, days = QUICK_PREFIXES if quick else PREFIXES
    with tempfile.TemporaryDirectory(prefix="springtide-evidence-") as directory:
        run_ = Run({"prefixes": count, "days": days, "seed": 1}, 1, File(directory) / "calm.json")
        prefixes.measure(run_)
    ours = {one["name"]: one["median"] for one in run_.figures if one["labels"] == {"controller": "springtide"}}
    if "new_share_of_selected" not in ours:
        return {}
    share = 100 * float(ours["new_share_of_selected"])
    return {"bbr-new": Measured(share, share, share, count)}


def figure(chosen: Sequence[Path], results: Results) -> Figure:
    rows = []
    for path in PATHS:
        for size in (SMALL, LARGE):
            found = [rates(results, size, way, [path.name])[0] for way in WAYS]
            shown = f"{path.rate_mbit:g} Mbit/s, {path.rtt_ms:g} ms, {100 * cast(float, path.loss):g} %"
            name = f"{path.name}{' (chosen)' if path in chosen else ''}: {shown}"
            cells = [number(median(one)) for one in found]
            rows.append([name, f"{size // 1000} kB", *cells, str(min(len(one) for one in found))])
    every = [path.name for path in PATHS]
    plotted = {way: np.concatenate(rates(results, LARGE, way, every)) for way in WAYS}
    return Figure(
        *("article", "article-rates", "Rates by CUBIC, BBR, selective BBR and a learner (figures 3 to 5)"),
        "Medians of size over time from the request to the last byte, in Mbit/s; one object at a time, ways in turns."
        f" Selective BBR acts from {FROM_BYTES // 1000} kB on. `learnt` chooses for each prefix by the rates that it"
        f" saw, from nothing, and tries anew in {100 * TRIES:g} %. The plot has {LARGE // 1000} kB over all prefixes.",
        ["prefix: rate, round trip, loss", "object", *WAYS, "n"],
        rows,
        partial(_plot, plotted),
    )


def _plot(plotted: dict[str, Floats], path: File) -> None:
    with drawn(2.9, path) as picture:
        axes = picture.subplots()
        for (way, found), line in zip(plotted.items(), LINES, strict=False):
            axes.ecdf(found, label=way, **line)
        axes.set(xlabel="Mbit/s", ylabel="share of objects", xscale="log")
        axes.xaxis.set_major_formatter("{x:g}")
        legend(picture, axes)


def measure(quick: bool) -> Found:
    chosen, results = run(quick)
    return Found(claims_of(chosen, results) | calm(quick), [figure(chosen, results)])


PART = Part(
    "article", "CUBIC, BBR, selective BBR and a learner over ten prefixes", CLAIMS, measure, (300, 65), root=True
)

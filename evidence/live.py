"""Riptide as published over a fleet's paths: windows by cmax, and what probes of 10, 50 and 100 kB take.

One server PoP has an edge for each cmax, one without Riptide, and one that serves probes only. Twelve clients lie 15 to
280 ms away, three in each of the paper's groups, over 200 Mbit/s; a third of the paths loses 0.06 % of its packets, and
a third 0.02 %. Clients keep connections that request objects of the paper's sizes, and end after three answers on
average; so many windows are young. Probes go by the default and by Riptide in turns: over fresh connections, and over
idle ones that have carried one object of these sizes, since the paper's reused idle ones (section IV-A). Two edges more
have BBR as their algorithm (`evidence.bbr`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path as File
from random import Random
from typing import Any

import numpy as np

from bench.start_cells import Cell, Group, Results
from bench.start_paths import Path, edge_of
from evidence import bbr
from evidence.claims import Claim, Measured
from evidence.fetching import Fetcher, up, use
from evidence.pages import number
from evidence.part import Figure, Floats, Found, Part, intervals
from evidence.plots import LINES, drawn, legend
from evidence.riptide import Riptide
from lab import nginx, sizes
from lab.clients import Load
from lab.lab import Lab

# The paper's groups: below 50, 100 and 150 ms, and above.
GROUPS_MS = {"below 50 ms": (15, 30, 45), "to 100 ms": (60, 80, 95), "to 150 ms": (110, 130, 145)}
GROUPS_MS |= {"above 150 ms": (170, 220, 280)}
LOSSES = (0.0, 0.0006, 0.0002)
RATE_MBIT, QUEUE = 200, 2_700
CMAX = (50, 100, 150, 200, 250)
DEFAULT, QUIET = "default", "quiet"
CHOSEN = "riptide100"
MOST = {DEFAULT: 0, QUIET: 100} | {f"riptide{most}": most for most in CMAX}
# With BBR as the host's algorithm: at the default, and by Riptide. These fetch probes of 100 kB only.
EDGES = MOST | dict(zip(bbr.WAYS, (0, 100), strict=True))
# A client has a connection of each family to an edge: its requests a second, and how likely it ends after an answer.
REQUESTS_PER_S, ENDS = 0.5, 1 / 3
# Full and quick.
LEARN_S, FRESH_S, REUSED_S = (12.0, 8.0), (35.0, 10.0), (85.0, 20.0)
# More turns than there is time for.
TURNS = 200
LEVELS = list(range(5, 100, 5))
PERCENTILES = np.array(LEVELS)
FASTER, SAME = 0.05, 0.05
YOUNG = "Windows follow the traffic: ours is drawn from the paper's sizes, and theirs is not published."
REUSED = "Both reuse idle connections, but how many theirs did, and of which windows, is not published."
SLOWEST = "Our slowest probe is a cold one, and our paths hardly lose; theirs met loss and failures."
FRESH_ONLY = "Only fresh connections count here; the paper's probes reused idle ones, which gain less."
GROWN = "Slow start lets a window grow to twice what is in flight: probes of 70 segments leave up to 140."

CLAIMS = (
    Claim("fig10-median-50", "paper", "figure 10", "Larger median window with cmax 50", 100, "least", "%", why=YOUNG),
    Claim("abstract-200", "paper", "section I", "Larger median window with cmax 100", 200, "least", "%", why=YOUNG),
    Claim("fig10-p10", "paper", "figure 10", "p10 of windows, cmax 250 over cmax 50", 1, "same", "times", 0.2),
    Claim("fig10-knee", "paper", "figure 10", "Part of cmax 250's rise that 100 gives", None, "least", "%", 50, YOUNG),
    Claim(
        "blog-median-50",
        "blog",
        "figure of windows",
        "Larger median window with a maximum of 50",
        100,
        "least",
        "%",
        why=YOUNG,
    ),
    Claim("fig11-busy", "paper", "figure 11", "Connections at a window of 100, busy", 44, "least", "%", why=YOUNG),
    Claim("fig11-quiet", "paper", "figure 11", "Connections below 100, probes only", 99, "least", "%", why=GROWN),
    Claim("fig11-quiet-median", "paper", "figure 11", "Median window, probes only", 75, "same", "", 15, GROWN),
    Claim("fig12-10k", "paper", "figure 12", "Change of 10 kB at the median", 0, "same", "%", 2),
    Claim("fig13-50k", "paper", "figure 13", "Part of 50 kB that gets faster", 30, "least", "%", why=REUSED),
    Claim("fig14-100k", "paper", "figure 14", "Part of 100 kB that gets faster", 78, "least", "%", why=REUSED),
    Claim("slide36-faster", "slides", "slide 36", "Part of 100 kB that gets faster", 80, "least", "%", why=REUSED),
    Claim("fig15-50k", "paper", "figure 15", "Largest gain of a percentile, 50 kB", 21, "least", "%", why=REUSED),
    Claim("fig15-low", "paper", "figure 15", "Mean gain from p5 to p50, 50 kB", 0, "same", "%", 5, REUSED),
    Claim(
        "fig14-fresh", "paper", "figure 14", "The same over fresh connections only", 78, "least", "%", why=FRESH_ONLY
    ),
    Claim("fig16-100k", "paper", "figure 16", "Largest gain of a percentile, 100 kB", 25, "least", "%", why=REUSED),
    Claim(
        "slide39-upper", "slides", "slide 39", "Gain above the median less below", None, "least", "points", 0, REUSED
    ),
    Claim("abstract-tail", "paper", "abstract", "Gain at p95, 100 kB", 30, "least", "%", why=REUSED),
    Claim("intro-p50-p75", "paper", "section I", "Gain at p50 and p75, 100 kB", 30, "least", "%", 2, REUSED),
    Claim(
        "edge-fastest", "paper", "section IV-D", "Paths whose fastest 100 kB change by 5 %", 100, "same", "%", 0, REUSED
    ),
    Claim("edge-slowest", "paper", "section IV-D", "Paths whose slowest change by 6 %", 50, "same", "%", 25, SLOWEST),
    Claim(
        "blog-200ms",
        "blog",
        "last figure",
        "Sooner at the median, 100 kB above 150 ms",
        200,
        "least",
        "ms",
        10,
        FRESH_ONLY,
    ),
)


@dataclass(frozen=True)
class Seen:
    """Windows of connections by way, and probes by path, size and way."""

    windows: Mapping[str, Sequence[int]]
    fresh: Results
    reused: Results
    paths: Sequence[Path]

    def ms(self, path: Path, size: int, way: str, *, fresh: bool = False) -> list[float]:
        return (self.fresh if fresh else self.reused)[path.name, Cell(size, 1), way].ms

    def hundred(self, path: Path, way: str, fresh: bool) -> list[float]:
        return self.ms(path, bbr.SIZE, way, fresh=fresh)


def paths() -> list[Path]:
    rtts = [(rtt_ms, loss) for group in GROUPS_MS.values() for rtt_ms, loss in zip(group, LOSSES, strict=True)]
    return [Path(f"r{rtt}", RATE_MBIT, rtt, QUEUE, at, loss=loss) for at, (rtt, loss) in enumerate(rtts, 1)]


def plan(path: Path, *, fresh: bool) -> list[Group]:
    """Probes of each size by both ways in turns, which find connections of the same history."""
    chance, found = Random(path.name), list[Group]()
    for turn in range(TURNS):
        for size in sizes.PROBES:
            ways = [DEFAULT, CHOSEN, *(bbr.WAYS if size == bbr.SIZE else ())]
            if turn % 2:
                ways.reverse()
            before = 0 if fresh else chance.choice(sizes.KINDS["mixed"])
            found += [Group(Cell(size, 1), way, 6 if turn // 2 % 2 else 4, before) for way in ways]
    return found


def task(lab: Lab, path: Path, seconds: float) -> list[dict[str, Any]]:
    """The loads of one client: the paper's sizes to the busy edges, and probes to the quiet one."""
    common = {"task": "load", "seconds": seconds, "pauses": True}

    def to(way: str, per_s: float) -> list[dict[str, Any]]:
        common = {"port": nginx.PORT, "requests_per_s": per_s, "ends": ENDS}
        return [{**common, "address": str(address)} for address in lab.topology.edge(edge_of(way, 0)).addresses]

    busy = [one for way in EDGES if way != QUIET for one in to(way, REQUESTS_PER_S)]
    return [
        {**common, "seed": path.name, "sizes": sizes.KINDS["mixed"], "connections": busy},
        {**common, "seed": f"{path.name} probes", "sizes": sizes.PROBES, "connections": to(QUIET, REQUESTS_PER_S)},
    ]


@contextmanager
def loaded(lab: Lab, over: Sequence[Path], seconds: float) -> Iterator[None]:
    """The clients' connections, for the whole of a run."""
    loads = []
    try:
        for at in (0, 1):
            directory = lab.directory / f"load{at}"
            directory.mkdir()
            loads.append(
                Load(lab.popen, {path.edge(): task(lab, path, seconds)[at] for path in over}, directory, seconds)
            )
        yield
    finally:
        for load in loads:
            load.stop()


def run(quick: bool) -> Seen:
    over = paths()
    learn_s, fresh_s, reused_s = LEARN_S[quick], FRESH_S[quick], REUSED_S[quick]
    edges = {edge_of(way, 0): most for way, most in EDGES.items()}
    with ExitStack() as stack:
        lab = stack.enter_context(up("live", over, list(EDGES)))
        for way in bbr.WAYS:
            use(lab, way, "bbr")
        more = {edge_of(way, 0): ["congctl", "bbr"] for way in bbr.WAYS}
        riptide = stack.enter_context(Riptide(lab, over, edges, more=more))
        stack.enter_context(loaded(lab, over, learn_s + fresh_s + reused_s + 60))
        time.sleep(learn_s)
        riptide.seen.clear()
        fetcher = Fetcher(lab, over, list(EDGES))
        fresh = fetcher.run(partial(plan, fresh=True), time.monotonic() + fresh_s)
        reused = fetcher.run(partial(plan, fresh=False), time.monotonic() + reused_s)
        seen = {way: list(riptide.seen[edge_of(way, 0)]) for way in MOST}
    return Seen(seen, fresh, reused, over)


def window_claims(windows: Mapping[str, Sequence[int]]) -> dict[str, Measured]:
    """Figures 10 and 11."""
    ways = list(MOST)

    def statistics(*samples: Floats) -> dict[str, float]:
        by = dict(zip(ways, samples, strict=True))
        middle = {way: float(np.median(sample)) for way, sample in by.items()}
        low = {way: float(np.quantile(sample, 0.1)) for way, sample in by.items()}
        rise = max(middle["riptide250"] - middle[DEFAULT], 1e-9)
        larger = 100 * (middle["riptide50"] / middle[DEFAULT] - 1)
        return {
            "fig10-median-50": larger,
            "blog-median-50": larger,
            "abstract-200": 100 * (middle[CHOSEN] / middle[DEFAULT] - 1),
            "fig10-p10": low["riptide250"] / low["riptide50"],
            "fig10-knee": 100 * (middle[CHOSEN] - middle[DEFAULT]) / rise,
            "fig11-busy": 100 * float(np.mean(by[CHOSEN] >= 100)),
            "fig11-quiet": 100 * float(np.mean(by[QUIET] < 100)),
            "fig11-quiet-median": middle[QUIET],
        }

    return intervals(statistics, *(windows[way] for way in ways))


def gains(default: Floats, riptide: Floats, percentiles: Any = PERCENTILES) -> Floats:
    """Per cent of time that is saved, by percentile."""
    before, after = np.percentile(default, percentiles), np.percentile(riptide, percentiles)
    found: Floats = 100 * (before - after) / before
    return found


def probe_claims(seen: Seen) -> dict[str, Measured]:
    """Figures 12 to 16 and section IV-D: averaged over the paths, as the paper does."""
    count = len(seen.paths)
    samples = [seen.ms(path, size, way) for size in sizes.PROBES for way in (DEFAULT, CHOSEN) for path in seen.paths]
    far = [at for at, path in enumerate(seen.paths) if path.rtt_ms > 150]

    def statistics(*drawn_: Floats) -> dict[str, float]:
        parts = [drawn_[at : at + count] for at in range(0, len(drawn_), count)]
        pairs = {size: list(zip(*parts[2 * at : 2 * at + 2], strict=True)) for at, size in enumerate(sizes.PROBES)}
        by = {size: np.array([gains(*pair) for pair in of_size]) for size, of_size in pairs.items()}
        mean = {size: of_paths.mean(axis=0) for size, of_paths in by.items()}
        faster = {size: 100 * float(np.mean(of_paths > 100 * FASTER)) for size, of_paths in by.items()}
        low, middle = mean[50_000][PERCENTILES <= 50], LEVELS.index(50)
        hundred = mean[100_000]
        ends = np.array(
            [[1 - after.min() / before.min(), 1 - after.max() / before.max()] for before, after in pairs[100_000]]
        )
        return {
            "fig12-10k": float(mean[10_000][middle]),
            "fig13-50k": faster[50_000],
            "fig14-100k": faster[100_000],
            "slide36-faster": faster[100_000],
            "fig15-50k": float(mean[50_000].max()),
            "fig15-low": float(low.mean()),
            "fig16-100k": float(hundred.max()),
            "slide39-upper": float(hundred[middle + 1 :].mean() - hundred[:middle].mean()),
            "abstract-tail": float(hundred[LEVELS.index(95)]),
            "intro-p50-p75": float(hundred[[middle, LEVELS.index(75)]].mean()),
            "edge-fastest": 100 * float(np.mean(abs(ends[:, 0]) <= SAME)),
            "edge-slowest": 100 * float(np.mean(abs(ends[:, 1]) <= 0.06)),
        }

    def fresh_ones(*drawn_: Floats) -> dict[str, float]:
        pairs = list(zip(drawn_[:count], drawn_[count:], strict=True))
        saved = [np.median(pairs[at][0]) - np.median(pairs[at][1]) for at in far]
        faster = np.mean([gains(*pair) > 100 * FASTER for pair in pairs])
        return {"blog-200ms": float(np.mean(saved)), "fig14-fresh": 100 * float(faster)}

    hundred_kb = [seen.ms(path, 100_000, way, fresh=True) for way in (DEFAULT, CHOSEN) for path in seen.paths]
    return intervals(statistics, *samples) | intervals(fresh_ones, *hundred_kb)


def figures(seen: Seen) -> list[Figure]:
    groups = {name: [path for path in seen.paths if path.rtt_ms in rtts] for name, rtts in GROUPS_MS.items()}
    return [window_figure(seen.windows), times_figure(seen), gain_figure(seen), bbr.figure(seen.hundred, groups)]


def window_figure(windows: Mapping[str, Sequence[int]]) -> Figure:
    levels = (10, 25, 50, 75, 90)
    rows = [
        [way, str(len(found)), *(f"{one:.0f}" for one in np.percentile(found, levels))]
        for way, found in windows.items()
    ]
    return Figure(
        *("paper", "paper-figure-10", "Windows of connections by cmax (figures 10 and 11)"),
        f"Windows of all established connections, every 3 s, in segments. {len(paths())} paths of {RATE_MBIT} Mbit/s;"
        " connections end after three answers on average. `quiet` serves"
        " probes only. A connection counts in each sample, so these intervals are narrow.",
        ["way", "n", *(f"p{level}" for level in levels)],
        rows,
        partial(_windows, dict(windows)),
    )


def times_figure(seen: Seen) -> Figure:
    rows = []
    for name, rtts in GROUPS_MS.items():
        own = [path for path in seen.paths if path.rtt_ms in rtts]
        for size, fresh in product(sizes.PROBES, (True, False)):
            ways = [
                np.concatenate([seen.ms(path, size, way, fresh=fresh) for path in own]) for way in (DEFAULT, CHOSEN)
            ]
            cells = [number(float(np.percentile(one, level))) for level in (50, 90) for one in ways]
            kind = f"{size // 1000} kB, {'fresh' if fresh else 'reused'}"
            rows.append([name, kind, *cells, str(min(len(one) for one in ways))])
    return Figure(
        *("paper", "paper-figure-14", "Completion of probes by round trip (figures 12 to 14)"),
        "From the request to the last byte, in ms. Reused connections have carried one object. The plot has 100 kB over"
        " reused ones, all paths.",
        ["group", "object", "p50 default", "p50 Riptide", "p90 default", "p90 Riptide", "n"],
        rows,
        partial(
            _times, [np.concatenate([seen.ms(one, 100_000, way) for one in seen.paths]) for way in (DEFAULT, CHOSEN)]
        ),
    )


def gain_figure(seen: Seen) -> Figure:
    by = {
        size: np.mean(
            [gains(*(np.array(seen.ms(path, size, way)) for way in (DEFAULT, CHOSEN))) for path in seen.paths], 0
        )
        for size in sizes.PROBES
    }
    rows = [[f"p{level}", *(f"{by[size][at]:.1f}" for size in sizes.PROBES)] for at, level in enumerate(PERCENTILES)]
    return Figure(
        *("paper", "paper-figure-16", "Gain by percentile (figures 15 and 16)"),
        "Per cent of the default's time that Riptide with cmax 100 saves over reused connections, as a mean of paths.",
        ["percentile", "10 kB", "50 kB", "100 kB"],
        rows,
        partial(_gain, by),
    )


def _windows(windows: Mapping[str, Sequence[int]], path: File) -> None:
    with drawn(3.2, path) as figure:
        axes = figure.subplots()
        for (way, found), line in zip(windows.items(), LINES, strict=False):
            axes.ecdf(found, label=way, **line)
        axes.set(xlabel="window, segments", ylabel="share of connections", xlim=(0, 300))
        legend(figure, axes)


def _times(ways: Sequence[Floats], path: File) -> None:
    with drawn(2.9, path) as figure:
        axes = figure.subplots()
        for name, found, line in zip(("default", "Riptide"), ways, LINES, strict=False):
            axes.ecdf(found, label=name, **line)
        axes.set(xlabel="100 kB take, ms", ylabel="share of probes", xlim=(0, None))
        legend(figure, axes)


def _gain(by: Mapping[int, Floats], path: File) -> None:
    with drawn(2.9, path) as figure:
        axes = figure.subplots()
        for (size, found), line in zip(by.items(), LINES, strict=False):
            axes.plot(PERCENTILES, found, label=f"{size // 1000} kB", **line)
        axes.set(xlabel="percentile", ylabel="% of time saved")
        legend(figure, axes)


def measure(quick: bool) -> Found:
    seen = run(quick)
    default = bbr.claims_of(seen.hundred, seen.paths)
    return Found(window_claims(seen.windows) | probe_claims(seen) | default, figures(seen))


PART = Part(
    "live",
    "Riptide as published: windows by cmax, and probes, also with BBR as the default",
    (*CLAIMS, *bbr.CLAIMS),
    measure,
    (160, 60),
    root=True,
)

"""The paper's model against the kernel: the same sizes, windows and round trips, as fresh connections in the lab.

Windows are set by routes. Paths have a round trip and no rate that matters, no loss and no jitter, as in the model. The
kernel's CUBIC does what the model leaves out: delayed acknowledgements, and HyStart, which leaves slow start early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path as File
from statistics import median
from typing import Any

import numpy as np

from bench.start_cells import Cell, Group
from bench.start_paths import SEGMENT
from evidence.claims import Claim, Measured
from evidence.fetching import Fetcher, clear, set_windows, up
from evidence.model import WINDOWS, trips
from evidence.pages import number
from evidence.part import Figure, Found, Part, interval
from evidence.plots import LINES, drawn, legend

SIZES = (5_000, 10_000, 14_000, 16_000, 35_000, 50_000, 75_000, 100_000, 140_000, 200_000, 350_000, 600_000, 1_000_000)
RTTS_MS, QUICK_RTTS_MS = (20, 60, 125, 200, 300), (20, 60, 125, 200)
REPEATS = 3
PROBE = 100_000

CLAIMS = (
    Claim(
        *("kernel-error", "paper", "section II-B", "The model's time against the kernel's, median error", None, "most"),
        *("%", 5),
        why="The kernel pays what the model leaves out: the processor, and packets' way through the emulator.",
    ),
    Claim(
        *(
            "kernel-trips",
            "paper",
            "section II-B",
            "Points where the kernel takes the model's round trips",
            None,
            "least",
        ),
        *("%", 95),
        why="HyStart leaves slow start early where a burst's acknowledgements come late.",
    ),
    Claim("kernel-100k", "paper", "figure 6", "100 kB: round trips that a window of 100 saves", 2, "same", "", 0.1),
    Claim("blog-16k-kernel", "blog", "The Problem", "16 kB take two round trips with a window of 10", 2, "least"),
)


@dataclass(frozen=True)
class Point:
    """One size, round trip and window: the median time that was measured, the model's round trips, and how many."""

    size: int
    rtt_ms: float
    window: int
    ms: float
    model: int
    n: int

    @property
    def trips(self) -> float:
        """Round trips that were measured."""
        return self.ms / self.rtt_ms

    @property
    def error(self) -> float:
        """Time over the model's, less one."""
        return self.trips / self.model - 1


def points(quick: bool) -> list[Point]:
    """Every point over a path of its own round trip and window, so that no point waits for another's."""
    rtts = QUICK_RTTS_MS if quick else RTTS_MS
    pairs = list(product(rtts, WINDOWS))
    paths = {pair: clear(f"r{pair[0]}w{pair[1]}", pair[0], at) for at, pair in enumerate(pairs, 1)}
    ways = {f"w{window}": window for window in WINDOWS}
    plans = {
        path.name: [Group(Cell(size, 1), f"w{window}", family=4) for size in SIZES] * (1 if quick else REPEATS)
        for (_, window), path in paths.items()
    }
    with up("model", list(paths.values()), list(ways)) as lab:
        set_windows(lab, ways)
        found = Fetcher(lab, list(paths.values()), list(ways)).run(lambda path: plans[path.name])
    return [
        Point(size, rtt_ms, window, median(times.ms), int(trips(size, window, SEGMENT)), len(times.ms))
        for (rtt_ms, window), path in paths.items()
        for size in SIZES
        if (times := found[path.name, Cell(size, 1), f"w{window}"]).ms
    ]


def measured(found: Sequence[Point]) -> dict[str, Measured]:
    errors = [100 * abs(one.error) for one in found]
    right = [100.0 * (round(one.trips) == one.model) for one in found]
    by = {(one.size, one.rtt_ms, one.window): one.trips for one in found}
    rtts = sorted({one.rtt_ms for one in found})
    saved = [by[PROBE, rtt_ms, 10] - by[PROBE, rtt_ms, 100] for rtt_ms in rtts]
    beyond = [by[16_000, rtt_ms, 10] for rtt_ms in rtts]
    return {
        "kernel-error": interval(np.median, errors),
        "kernel-trips": interval(np.mean, right),
        "kernel-100k": interval(np.median, saved),
        "blog-16k-kernel": interval(np.median, beyond),
    }


def figure(found: Sequence[Point]) -> Figure:
    """The error by round trip and window, and every point beside the model."""
    rows = []
    for rtt_ms, window in product(sorted({one.rtt_ms for one in found}), WINDOWS):
        own = [one for one in found if (one.rtt_ms, one.window) == (rtt_ms, window)]
        errors = [100 * abs(one.error) for one in own]
        worst = max(own, key=lambda one: abs(one.error))
        rows.append(
            [
                *(f"{rtt_ms:g} ms", str(window), str(len(own)), number(median(errors)), number(max(errors))),
                f"{worst.size // 1000} kB: {worst.trips:.2f} for {worst.model}",
                str(sum(round(one.trips) == one.model for one in own)),
            ]
        )
    repeats = max(one.n for one in found)
    return Figure(
        *("paper", "paper-kernel", "The model against the kernel"),
        f"{len(found)} points of size, round trip and window, each the median of {repeats}. CUBIC, windows by routes,"
        f" one connection after another over IPv4; segments carry {SEGMENT} bytes.",
        ["round trip", "window", "points", "median error, %", "worst, %", "worst point", "as the model"],
        rows,
        partial(_plot, list(found)),
    )


def _plot(found: Sequence[Point], path: File) -> None:
    with drawn(3.4, path) as picture:
        axes = picture.subplots()
        for window, line, marker in zip(WINDOWS, LINES, "o^sD", strict=False):
            own = [one for one in found if one.window == window]
            style: dict[str, Any] = {"color": line["color"], "marker": marker, "fillstyle": "none", "markersize": 4}
            axes.plot([one.model for one in own], [one.trips for one in own], label=str(window), linestyle="", **style)
        end = max(one.model for one in found) + 0.5
        axes.plot([0.5, end], [0.5, end], color="#777777", linewidth=0.8)
        axes.set(xlabel="round trips in the model", ylabel="round trips in the kernel")
        legend(picture, axes)


def measure(quick: bool) -> Found:
    found = points(quick)
    return Found(measured(found), [figure(found)])


PART = Part("kernel", "the model's round trips against the kernel's, in the lab", CLAIMS, measure, (75, 20), root=True)

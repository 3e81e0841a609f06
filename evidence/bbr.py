"""BBR as the algorithm of hosts in the lab of `live`: probes of 100 kB at its default, and by Riptide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path as File

import numpy as np

from bench.start_paths import Path
from evidence.claims import Claim, Measured
from evidence.pages import number
from evidence.part import Figure, Floats, intervals
from evidence.plots import LINES, drawn, legend

SIZE = 100_000
WAYS = DEFAULT, RIPTIDE = "bbr", "bbr100"
# All four, as the page names them.
NAMES = {"default": "CUBIC", "riptide100": "CUBIC, Riptide", DEFAULT: "BBR", RIPTIDE: "BBR, Riptide"}
PACED = (
    "BBR paces the larger window too, so that 100 kB by Riptide take longer than over CUBIC, which sends it at once."
)

CLAIMS = (
    Claim(
        *("bbr-default", "article", "introduction", "Gain of BBR as the default, 100 kB, fresh", 0, "most", "%", 5),
        why="BBR paces its first flights, so that 100 kB take about a round trip more than by CUBIC.",
    ),
    Claim("bbr-riptide", "paper", "section I", "Gain by Riptide over BBR, 100 kB, fresh", None, "least", "%", 5, PACED),
    Claim("bbr-cubic", "paper", "section I", "The same over CUBIC", None, "least", "%", 5),
)
# A path, a way, and whether over fresh connections -> times in ms.
Times = Callable[[Path, str, bool], list[float]]


def claims_of(times: Times, paths: Sequence[Path]) -> dict[str, Measured]:
    """Means over the paths of what each path's median gains."""
    keys = list(product([path.name for path in paths], NAMES))
    samples = [times(path, way, True) for path, way in product(paths, NAMES)]

    def statistics(*drawn_: Floats) -> dict[str, float]:
        middle = {key: float(np.median(one)) for key, one in zip(keys, drawn_, strict=True)}

        def gain(way: str, other: str) -> float:
            return 100 * float(np.mean([1 - middle[path.name, way] / middle[path.name, other] for path in paths]))

        return {
            "bbr-default": gain(DEFAULT, "default"),
            "bbr-riptide": gain(RIPTIDE, DEFAULT),
            "bbr-cubic": gain("riptide100", "default"),
        }

    return intervals(statistics, *samples)


def figure(times: Times, groups: Mapping[str, Sequence[Path]]) -> Figure:
    """Times by group of round trips."""
    rows, fresh_p50 = [], {way: list[float]() for way in NAMES}
    for (name, own), fresh in product(groups.items(), (True, False)):
        found = {way: np.concatenate([times(path, way, fresh) for path in own]) for way in NAMES}
        cells = [" / ".join(number(float(one)) for one in np.percentile(found[way], (50, 90))) for way in NAMES]
        rows.append([name, "fresh" if fresh else "reused", *cells, str(min(len(one) for one in found.values()))])
        if fresh:
            for way, one in found.items():
                fresh_p50[way].append(float(np.median(one)))
    return Figure(
        *("paper", "paper-bbr", "100 kB with BBR as the default, by round trip"),
        "p50 / p90 from the request to the last byte, in ms. The algorithm is that of all connections of a host, and"
        " Riptide has a cmax of 100. The plot has p50 of fresh connections.",
        ["group", "100 kB", *NAMES.values(), "n"],
        rows,
        partial(_plot, [*groups], fresh_p50),
    )


def _plot(groups: Sequence[str], middle: Mapping[str, Sequence[float]], place: File) -> None:
    with drawn(2.9, place) as picture:
        axes = picture.subplots()
        for (way, found), line, marker in zip(middle.items(), LINES, "o^sD", strict=False):
            axes.plot(range(len(groups)), found, marker=marker, fillstyle="none", label=NAMES[way], **line)
        axes.set(ylabel="100 kB take, ms", ylim=(0, None), xticks=range(len(groups)), xticklabels=groups)
        legend(picture, axes)

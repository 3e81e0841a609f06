"""Measures a web page's load time in a browser over paths that lose packets: `bench page`, in the form of claims.

Chromium loads a page of 0.8 MB, over two dozen connections, as the kernel recovers and as bundles say, in turns. Two
paths with round trips of 50 and 100 ms are measured side by side; each loses 2 % at random in both directions.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path as File

import numpy as np

from bench.page import OURS, STATISTICS, Loads, visit
from bench.page_site import write
from bench.recovery import give
from bench.recovery_paths import Path, all_paths, topology
from bench.runner import BenchError, Run
from evidence.claims import Claim, Measured
from evidence.pages import number
from evidence.part import Figure, Floats, Found, Part, intervals
from lab.lab import Lab
from testkit.devtools import CHROMIUM, Silent

LOSS = "2"
# Round trips in ms, and loads of each way.
FULL, QUICK = ((50, 100), 30), ((50,), 4)
DEFAULT, BOTH = OURS
THEIRS = "Theirs is Corrective for one news site; ours are timeouts and copies, for a page of 31 objects."

CLAIMS = (
    Claim(
        "page-tail", "gentle", "slide 28", "Less p95 of a page's load at 2 % loss, `both`", 20, "least", "%", 0, THEIRS
    ),
    Claim("page-mean", "gentle", "our own bound", "Less mean of a page's load, `both`", None, "least", "%", 0, THEIRS),
)

Results = Mapping[int, Mapping[str, Loads]]


def run(quick: bool) -> Results:
    """Loads by round trip and way. Raises BenchError where there is no browser, or it falls silent."""
    if not CHROMIUM.exists():
        raise BenchError("there is no Chromium: run `tools/setup --dev`")
    rtts_ms, turns = QUICK if quick else FULL
    paths = [path for path in all_paths(rtts_ms, (LOSS,)) if not path.only]
    with (
        tempfile.TemporaryDirectory(prefix="springtide-evidence-") as temporary,
        Lab.up(topology(paths), f"ev-page-{os.getpid()}") as lab,
    ):
        # nginx's worker reads them without root's rights.
        File(temporary).chmod(0o755)
        give(lab, paths, File(temporary))
        pages = File(temporary) / "pages"
        write(pages)

        def load(path: Path) -> Mapping[str, Loads]:
            return visit(lab, path, Run({}, turns, File(temporary)), pages, File(temporary))

        try:
            with ThreadPoolExecutor(len(paths)) as pool:
                return {path.rtt_ms: found for path, found in zip(paths, pool.map(load, paths), strict=True)}
        except Silent as silent:
            raise BenchError(str(silent)) from silent


def claims_of(results: Results) -> dict[str, Measured]:
    """Means over the round trips of what `both` saves."""

    def statistics(*samples: Floats) -> dict[str, float]:
        pairs = list(zip(samples[::2], samples[1::2], strict=True))

        def less(name: str) -> float:
            what = STATISTICS[name]
            return 100 * float(np.mean([1 - what(ours) / what(default) for default, ours in pairs]))

        return {"page-tail": less("p95"), "page-mean": less("mean")}

    return intervals(statistics, *(found[way].ms for found in results.values() for way in (DEFAULT, BOTH)))


def figure(results: Results) -> Figure:
    rows = []
    for rtt_ms, found in results.items():
        for way, loads in found.items():
            resent = sum(one.retrans_segs for one in loads.server)
            share = resent / (resent + sum(one.out_segs for one in loads.server))
            times = [number(float(what(loads.ms))) for what in STATISTICS.values()]
            rows.append([f"{rtt_ms} ms", way, *times, f"{100 * share:.2f}", str(len(loads.ms))])
    return Figure(
        *("gentle", "gentle-page", "A page in a browser"),
        "Load time of a page of 0.8 MB in 31 objects by Chromium, in ms: from the start of the navigation to the end of"
        " the load event. Each load is with nothing cached and no connection open. 100 Mbit/s, CUBIC, 2 % lost at"
        " random in both directions, the ways in turns.",
        ["round trip", "way", *STATISTICS, "sent again, %", "n"],
        rows,
    )


def measure(quick: bool) -> Found:
    results = run(quick)
    return Found(claims_of(results), [figure(results)])


PART = Part("page", "a web page in a browser over paths that lose packets", CLAIMS, measure, (130, 30), root=True)

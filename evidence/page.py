"""Measures a web page's load time in a browser over a path that loses packets: `bench page`, in the form of claims.

Chromium loads a page of 0.8 MB, over two dozen connections, as the kernel recovers and as bundles say, in turns. The
path has a round trip of 100 ms and loses 2 % at random in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as File

from bench.page import OURS, RTT_MS, STATISTICS, Loads, over
from bench.runner import Run
from evidence.claims import Claim, Measured
from evidence.pages import number
from evidence.part import Figure, Floats, Found, Part, intervals

LOSS = "2"
# Loads of each way.
FULL, QUICK = 25, 4
DEFAULT, BOTH = OURS
THEIRS = "Theirs is Corrective for one news site; ours are timeouts and copies, for a page of 31 objects."

CLAIMS = (
    Claim(
        "page-tail", "gentle", "slide 28", "Less p95 of a page's load at 2 % loss, `both`", 20, "least", "%", 0, THEIRS
    ),
    Claim("page-mean", "gentle", "our own bound", "Less mean of a page's load, `both`", None, "least", "%", 0, THEIRS),
)


def claims_of(found: Mapping[str, Loads]) -> dict[str, Measured]:
    """The per cent of a load's time that `both` saves."""

    def statistics(default: Floats, ours: Floats) -> dict[str, float]:
        less = {name: 100 * float(1 - what(ours) / what(default)) for name, what in STATISTICS.items()}
        return {"page-tail": less["p95"], "page-mean": less["mean"]}

    return intervals(statistics, found[DEFAULT].ms, found[BOTH].ms)


def figure(found: Mapping[str, Loads]) -> Figure:
    rows = []
    for way, loads in found.items():
        resent = sum(one.retrans_segs for one in loads.server)
        share = resent / (resent + sum(one.out_segs for one in loads.server))
        times = [number(float(what(loads.ms))) for what in STATISTICS.values()]
        rows.append([way, *times, f"{100 * share:.2f}", str(len(loads.ms))])
    return Figure(
        *("gentle", "gentle-page", "A page in a browser"),
        "Load time of a page of 0.8 MB in 31 objects by Chromium, in ms: from the start of the navigation to the end of"
        f" the load event. Each load is with nothing cached and no connection open. {RTT_MS} ms, 100 Mbit/s, CUBIC, 2 %"
        " lost at random in both directions, the ways in turns.",
        ["way", *STATISTICS, "sent again, %", "n"],
        rows,
    )


def measure(quick: bool) -> Found:
    found = over([LOSS], Run({}, QUICK if quick else FULL, File()))[LOSS]
    return Found(claims_of(found), [figure(found)])


PART = Part("page", "a web page in a browser over a path that loses packets", CLAIMS, measure, (125, 30), root=True)

"""Measures what loss costs and recovery by bundles saves: the cells of `bench recovery`, in the form of claims.

Fresh connections over a round trip of 50 ms and 100 Mbit/s lose packets in both directions, at random or in bursts of
four, as the kernel recovers and as bundles say, at the same time. `both` is what a server has towards clients of
others, beside a timeout at both ends (the source's public network); `more` copies 31 kB at both ends (its private
network, Proactive); in `parity` both ends send parity of five segments (Corrective).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path as File

import numpy as np

from bench.recovery import Results, Seen, copied, give, transfers
from bench.recovery_paths import WAYS, all_paths, topology
from bench.runner import Run, progress
from evidence.claims import Claim, Measured
from evidence.pages import number
from evidence.part import Figure, Floats, Found, Part, intervals
from evidence.plots import LINES, drawn, legend
from lab.lab import Lab

RTT_MS, CONTROL = 50, "cubic"
SMALL, LARGE = 10_000, 100_000
# Per cent of packets: with a half, as many transfers lose something as in the source; with two, enough of them do.
NONE, SOME, MUCH, BURSTS = "0", "0.5", "2", "bursts"


@dataclass(frozen=True)
class Sizes:
    losses: Sequence[str]
    objects: Sequence[int]
    count: int
    seconds: float


FULL = Sizes((NONE, SOME, MUCH, BURSTS), (SMALL, LARGE), 600, 80.0)
QUICK = Sizes((NONE, MUCH), (SMALL,), 160, 12.0)
BESIDE = "The source decodes in TCP, which costs processor time; our service stands beside it."
PROBED = "The kernel's tail loss probe spares timeouts; a lost SYN or SYN-ACK always waits for one."
RARE = "Six transfers in a hundred lose something here; the saving is bounded by what they cost."
CAUSE = "The kernel's own tail loss probe, which came of this work, is in both sides of ours."
TIMEOUT = "The sooner timeout of the handshake brings it: copies alone, right behind their packets, save nothing here."
IN_VAIN = "Copies prevent losses, but the kernel sends more again in vain where acknowledgements are lost."

CLAIMS = (
    Claim("lossy-share", "gentle", "slide 6", "Transfers that lose something, 0.5 % loss", 6, "same", "%", 2),
    Claim("lossy-cost", "gentle", "slide 6", "Time of lossy transfers over the others'", 5, "least", "times", 0, CAUSE),
    Claim(
        "lossy-timeouts", "gentle", "slide 7", "Lossy transfers that waited for a timeout", 77, "most", "%", 0, PROBED
    ),
    Claim("lossy-single", "gentle", "slide 8", "Lossy transfers that lost one segment", 35, "least", "%"),
    Claim("mean-2", "gentle", "slide 23", "Less mean time at 2 % loss, 10 kB, `more`", 23, "least", "%", 0, CAUSE),
    Claim("p99-2", "gentle", "slide 23", "Less p99 at 2 % loss, 10 kB, `more`", 47, "least", "%", 0, CAUSE),
    Claim("mean-2-both", "gentle", "slide 23", "Less mean time at 2 % loss, 10 kB, `both`", 23, "least", "%", 0, CAUSE),
    Claim("p99-2-both", "gentle", "slide 23", "Less p99 at 2 % loss, 10 kB, `both`", 47, "least", "%", 0, CAUSE),
    Claim("mean-half", "gentle", "slide 2", "Less mean time at 0.5 % loss, 10 kB, `more`", 23, "least", "%", 0, RARE),
    Claim("p99-half", "gentle", "slide 2", "Less p99 at 0.5 % loss, 10 kB, `more`", 50, "least", "%", 0, CAUSE),
    Claim(
        "retransmit-more",
        "gentle",
        "slide 23",
        "Sent again with copies over default",
        0.09,
        "most",
        "times",
        0,
        IN_VAIN,
    ),
    Claim("copies-cost", "gentle", "slide 24", "Bytes sent twice of 100 kB, `both`", 100, "most", "%"),
    Claim("corrective-tail", "gentle", "slide 28", "Less p95 with parity at 2 % loss", 20, "least", "%"),
    Claim("corrective-clean", "gentle", "slide 28", "Slower with parity without loss", 0, "least", "%", 0, BESIDE),
    *(
        Claim(
            name,
            "gentle",
            "our own bound",
            f"Less {what} in bursts of loss, 10 kB, `{way}`",
            None,
            "least",
            "%",
            0,
            TIMEOUT,
        )
        for name, what, way in (
            ("mean-bursts", "mean time", "both"),
            ("p99-bursts", "p99", "more"),
            ("corrective-bursts", "p99", "parity"),
        )
    ),
    Claim("ours-clean", "gentle", "slide 28", "Slower with `both` without loss", 0, "most", "%", 1),
)


def run(sizes: Sizes) -> tuple[Results, Mapping[int, float]]:
    """Connections by loss, size and way, and the part of 100 kB that `both` sends twice."""
    paths = all_paths((RTT_MS,), sizes.losses)
    results: Results = {}
    twice: dict[int, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="springtide-evidence-") as temporary,
        Lab.up(topology(paths), f"ev-rec-{os.getpid()}") as lab,
        ExitStack() as stack,
    ):
        give(lab, paths, File(temporary), stack)
        for size in sizes.objects:
            progress(f"  {size // 1000} kB")
            before = copied(lab, File(temporary))["both"]
            named = {"count": sizes.count, "seconds": sizes.seconds, "answers": 1, "answer_bytes": 0}
            found = transfers(lab, paths, size, CONTROL, Run(named, 1, File(temporary)), File(temporary))
            results |= found
            asked = sum(seen.asked for cell, seen in found.items() if cell[-1] == "both")
            twice[size] = 100 * (copied(lab, File(temporary))["both"] - before) / asked
    return results, twice


def lossy(seen: Seen) -> Floats:
    """Marks connections of which either end sent anything again."""
    return np.array(
        [float(any(one)) for one in zip(seen.again, seen.syn, seen.synack, strict=True)],
    )


def less(name: str, default: Seen, ours: Seen, quantile: float | None = None) -> dict[str, Measured]:
    """Per cent of the mean, or of a quantile, that ours saves."""

    def statistics(theirs: Floats, own: Floats) -> dict[str, float]:
        values = [one.mean() if quantile is None else np.quantile(one, quantile) for one in (theirs, own)]
        return {name: 100 * float(1 - values[1] / values[0])}

    return intervals(statistics, default.ms, ours.ms)


def cost(default: Seen) -> dict[str, Measured]:
    """Costs of loss by default. Pairs are drawn together: whether a connection lost something, and its time."""
    ms, lost = np.array(default.ms), lossy(default)
    late = np.array([float(any(one)) for one in zip(default.timeouts, default.syn, default.synack, strict=True)])
    single = np.array([float(again == 1) for again in default.again])

    def statistics(places: Floats) -> dict[str, float]:
        at = places.astype(int)
        own = lost[at] > 0
        if own.all() or not own.any():
            return dict.fromkeys(("lossy-cost", "lossy-timeouts", "lossy-single"), np.nan) | {
                "lossy-share": 100 * float(own.mean())
            }
        resent = np.array(default.again)[at] > 0
        return {
            "lossy-share": 100 * float(own.mean()),
            "lossy-timeouts": 100 * float(late[at][own].mean()),
            "lossy-cost": float(ms[at][own].mean() / ms[at][~own].mean()),
            "lossy-single": 100 * float(single[at][resent].mean()) if resent.any() else np.nan,
        }

    return intervals(statistics, np.arange(len(ms), dtype=float))


def claims_of(results: Results, twice: Mapping[int, float]) -> dict[str, Measured]:
    def seen(loss: str, size: int, way: str) -> Seen:
        return results[RTT_MS, loss, size, CONTROL, way]

    losses = {cell[1] for cell in results}
    much, clean = (partial(seen, loss, SMALL) for loss in (MUCH, NONE))
    found = less("mean-2", much("default"), much("more")) | less("p99-2", much("default"), much("more"), 0.99)
    found |= less("mean-2-both", much("default"), much("both"))
    found |= less("p99-2-both", much("default"), much("both"), 0.99)
    found |= less("corrective-tail", much("default"), much("parity"), 0.95)
    for name, way in (("corrective-clean", "parity"), ("ours-clean", "both")):
        [faster] = less(name, clean("default"), clean(way)).values()
        found[name] = Measured(-faster.ours, -faster.high, -faster.low, faster.n)
    measured = cost(much("default"))
    if SOME in losses:
        some = partial(seen, SOME, SMALL)
        measured = cost(some("default"))
        found["lossy-share"] = measured["lossy-share"]
        found |= less("mean-half", some("default"), some("more"))
        found |= less("p99-half", some("default"), some("more"), 0.99)
    if BURSTS in losses:
        bursts = partial(seen, BURSTS, SMALL)
        found |= less("mean-bursts", bursts("default"), bursts("both"))
        found |= less("p99-bursts", bursts("default"), bursts("more"), 0.99)
        found |= less("corrective-bursts", bursts("default"), bursts("parity"), 0.99)
    found |= {name: measured[name] for name in ("lossy-cost", "lossy-timeouts", "lossy-single") if name in measured}
    found |= retransmitted(much("default"), much("more"))
    if LARGE in twice:
        found["copies-cost"] = Measured(twice[LARGE], twice[LARGE], twice[LARGE], len(seen(MUCH, LARGE, "both").ms))
    return found


def retransmitted(default: Seen, ours: Seen) -> dict[str, Measured]:
    """Segments that the server sent again on a connection, ours over the default's."""

    def statistics(theirs: Floats, own: Floats) -> dict[str, float]:
        return {"retransmit-more": float(own.mean() / theirs.mean()) if theirs.any() else np.nan}

    return intervals(statistics, [float(one) for one in default.again], [float(one) for one in ours.again])


def figure(results: Results) -> Figure:
    rows = []
    for (_, loss, size, _, way), seen in results.items():
        default = results[RTT_MS, loss, size, CONTROL, "default"]
        quantiles = [float(one) for one in np.quantile(seen.ms, (0.5, 0.95, 0.99))]
        mean, than = float(np.mean(seen.ms)), 100 * (1 - float(np.mean(seen.ms)) / float(np.mean(default.ms)))
        times = [number(one) for one in (mean, *quantiles)]
        again = [f"{100 * float(lossy(seen).mean()):.1f}", f"{100 * seen.resent / seen.segments:.2f}"]
        what = f"{loss if loss == BURSTS else f'{loss} %'}, {size // 1000} kB"
        rows.append([what, way, *times, f"{than:.1f}", *again, str(len(seen.ms))])
    plotted = {way: results[RTT_MS, MUCH, SMALL, CONTROL, way].ms for way in WAYS}
    return Figure(
        *("gentle", "gentle-recovery", "Recovery from loss"),
        "From connect to the last byte, in ms; 50 ms and 100 Mbit/s, CUBIC, loss at random or in bursts of four in both"
        " directions (2 % in all), all ways at the same time. The plot has 10 kB at 2 % loss.",
        ["loss, object", "way", "mean", "p50", "p95", "p99", "less, %", "lossy, %", "sent again, %", "n"],
        rows,
        partial(_plot, plotted),
    )


def _plot(plotted: Mapping[str, Sequence[float]], path: File) -> None:
    with drawn(3.2, path) as picture:
        axes = picture.subplots()
        for (way, ms), line in zip(plotted.items(), LINES, strict=False):
            ordered = np.sort(ms)
            axes.plot(ordered, 1 - (np.arange(len(ordered)) + 0.5) / len(ordered), label=way, **line)
        axes.set(xlabel="connect to the last byte, ms", ylabel="share that takes longer", xscale="log", yscale="log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        legend(picture, axes)


def measure(quick: bool) -> Found:
    results, twice = run(QUICK if quick else FULL)
    return Found(claims_of(results, twice), [figure(results)])


PART = Part("recovery", "what loss costs, and recovery by bundles", CLAIMS, measure, (180, 25), root=True)

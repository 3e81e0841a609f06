"""Ways to start over paths that others measured, and over paths that hurt: the default, static windows, Riptide, ours.

The paths are those of `bench start`; four are emulators that others calibrated on real ones. Springtide decides by what
its edges saw, in rounds of the product's command lines: one edge enforces by routes, one at the proved rate. Riptide is
as published. Connections of 20 % of each path's rate let Riptide and the routes learn, and stand idle afterwards. Then
fresh connections fetch 100 kB, all ways in turns on every path: alone, and four at once. At the end connections arrive
at random, a share of them treated (`evidence.neighbours`), and then paths get worse (`evidence.changes`).
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path as File
from statistics import median
from typing import Any

import numpy as np

from bench.runner import BenchError, progress
from bench.start_cells import Cell, Result, Results, summed
from bench.start_closed import Closed
from bench.start_loop import QUIET_S, learn, load_task, turns_of
from bench.start_paths import PATHS, Path, edge_of
from bench.start_ways import LIVES_S, Given
from evidence import changes, neighbours
from evidence.claims import Claim, Measured
from evidence.fetching import Fetcher, set_windows, shaped, turns, up
from evidence.part import Figure, Floats, Found, Part, intervals
from evidence.plots import LINES, drawn, legend
from evidence.riptide import Riptide
from lab.clients import Load
from lab.errors import LabError
from lab.lab import Lab

STATIC = {"static50": 50, "static100": 100}
OURS = "springtide"
WAYS = ("default", *STATIC, "riptide", "routes", OURS)
NAMES = {"default": "default", "static50": "window 50", "static100": "window 100", "riptide": "Riptide"}
NAMES |= {"routes": "routes", OURS: "Springtide"}
TICKS = (1, 2, 3, 5, 10, 20, 50)
LOADED = ("riptide", "routes")
SIZE, TOGETHER = 100_000, 4
# Rounds in which connections that stay have something to learn from.
LOADED_ROUNDS = 2


@dataclass(frozen=True)
class Sizes:
    """`rounds` 0: nothing decides; the program has what the law would have to find out, and no edge learns routes."""

    paths: Sequence[str]
    rounds: int
    load_s: float
    cell_s: float

    @property
    def ways(self) -> list[str]:
        return [way for way in WAYS if self.rounds or way != "routes"]


FULL = Sizes([path.name for path in PATHS], 11, 0, 50)
QUICK = Sizes(["fifty", "korea", "india", "twenty"], 0, 10, 13)
SHORT = "Most of these paths have queues shorter than a burst; the paper's links are well provisioned."
LEARNT = "A quick run gives the values that the law would have to find out."

CLAIMS = (
    Claim(
        "ours-limit",
        "ours",
        "README",
        "At the proved rate over the limit, 100 kB alone",
        1.05,
        "most",
        "times",
        0.1,
        LEARNT,
    ),
    Claim(
        "ours-default",
        "ours",
        "README",
        "At the proved rate over the default, alone",
        0.33,
        "most",
        "times",
        0.05,
        LEARNT,
    ),
    Claim(
        "ours-default-4",
        "ours",
        "start.md",
        "At the proved rate over the default, four at once",
        0.44,
        "most",
        "times",
        0.1,
        LEARNT,
    ),
    Claim("ours-resent", "ours", "start.md", "Sent again more than the default, alone", 0, "most", "points", 0.5),
    Claim("ours-riptide", "ours", "start.md", "At the proved rate over Riptide, alone", 1, "most", "times"),
    Claim("ours-riptide-4", "ours", "start.md", "At the proved rate over Riptide, four at once", 1, "most", "times"),
    Claim(
        *("routes-resent", "ours", "our own bound", "By routes: sent again more than Riptide, alone"),
        *(0, "most", "points"),
    ),
    Claim("riptide-default", "ours", "README", "Riptide over the default, alone", 0.57, "most", "times", 0.1),
    Claim(
        "riptide-tail",
        "paper",
        "section IV-B",
        "Riptide's p95 over the default's, alone",
        1,
        "most",
        "times",
        why=SHORT,
    ),
    Claim(
        "riptide-loss",
        "paper",
        "section IV-B",
        "Riptide: sent again more than the default, alone",
        0,
        "most",
        "points",
        0.5,
        SHORT,
    ),
    Claim(
        "static-loss",
        "slides",
        "slide 21",
        "A window of 100 everywhere: sent again more",
        0,
        "least",
        "points",
        0,
        SHORT,
    ),
    Claim("static-loss-4", "blog", "Possible Solutions", "The same in a wave of four", 0, "least", "points", 0, SHORT),
)


def loads(lab: Lab, paths: Sequence[Path], ways: Sequence[str]) -> tuple[Load, list[subprocess.Popen[bytes]]]:
    """Connections to the edges that learn from them, and their clients."""
    clients: list[subprocess.Popen[bytes]] = []

    def popen(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        clients.append(lab.popen(*arguments, **options))
        return clients[-1]

    edges = [edge_of(way, 0) for way in LOADED if way in ways]
    tasks = {path.edge(): load_task(lab, path, edges, "mixed", LIVES_S) for path in paths}
    return Load(popen, tasks, lab.directory, LIVES_S), clients


@contextmanager
def learnt(
    lab: Lab, paths: Sequence[Path], sizes: Sizes, fetcher: Fetcher, directory: File
) -> Iterator[tuple[Riptide, changes.Counted, Sequence[subprocess.Popen[bytes]]]]:
    """Everything has learnt, and Riptide's connections stand idle. Riptide, the changes of both meanwhile, and these
    connections' clients."""
    with ExitStack() as stack:
        closed = Closed(directory, sizes.rounds, [edge_of(way, 0) for way in (OURS, "routes")])
        if sizes.rounds:
            stack.enter_context(closed.running(lab))
        riptide = stack.enter_context(Riptide(lab, paths, {edge_of("riptide", 0): 100}))
        load, clients = loads(lab, paths, sizes.ways)
        stack.callback(end, load)
        shapes = {client: turns_of() for client in fetcher.clients}
        counted = changes.Counted()
        for number in range(sizes.rounds):
            since = time.monotonic()
            closed.one_round(lab, partial(learn, shapes, 1))
            counted.ours.append({str(one["prefix"]): one for one in closed.entries[edge_of(OURS, 0)]})
            progress(f"  round {number + 1} of {sizes.rounds}")
            if number + 1 == LOADED_ROUNDS:
                counted.note(riptide, since)
                stand(clients)
        if not sizes.rounds:
            Given(directory)(lab, paths, 1, lambda seconds: None)
            time.sleep(sizes.load_s)
        stand(clients)
        stack.callback(stand, clients, signal.SIGCONT)
        yield riptide, counted, clients


def end(load: Load) -> None:
    """Ends the clients. What was measured stands where one failed: its connections only stood idle."""
    try:
        load.stop()
    except LabError as error:
        progress(str(error))


def stand(clients: Sequence[subprocess.Popen[bytes]], number: signal.Signals = signal.SIGSTOP) -> None:
    """A client that is stopped asks for nothing more, and its connections stay; by SIGCONT it goes on."""
    for client in clients:
        client.send_signal(number)


def run(sizes: Sizes) -> tuple[Sequence[Path], Results, tuple[changes.Seen, neighbours.Seen] | None]:
    """All paths side by side, alone first: the program remembers the most at once for ten seconds."""
    paths = [path for path in PATHS if path.name in sizes.paths]
    with (
        tempfile.TemporaryDirectory(prefix="springtide-evidence-") as directory,
        up("paths", paths, sizes.ways, [OURS]) as lab,
    ):
        set_windows(lab, STATIC)
        fetcher = Fetcher(lab, paths, sizes.ways)
        results: Results = Results(Result)
        seen = None
        with learnt(lab, paths, sizes, fetcher, File(directory)) as (riptide, counted, clients):
            time.sleep(QUIET_S)
            for count in (1, TOGETHER):
                plans = dict.fromkeys(paths, turns(sizes.ways, [Cell(SIZE, count)]))
                results |= fetcher.run(plans.__getitem__, time.monotonic() + sizes.cell_s)
            if sizes.rounds:
                beside = neighbours.run(lab, paths)
                stand(clients, signal.SIGCONT)
                lab.reshape(shaped(changes.worse(paths), sizes.ways, [OURS]))
                seen = changes.minute(lab, fetcher, paths, riptide, counted), beside
        return paths, results, seen


def claims_of(paths: Sequence[Path], results: Results, ways: Sequence[str]) -> dict[str, Measured]:
    """Medians over the paths of each path's ratio; shares sent again are means over the paths. Drawn anew are groups of
    connections that opened together."""
    whole = complete(paths, results, ways)
    if not whole:
        raise BenchError("no path came to the end of its cells; the machine is too slow for this many")
    keys = [(path, count, way) for path in whole for count in (1, TOGETHER) for way in ways]
    groups = [[one for one in results[path.name, Cell(SIZE, count), way].groups if one.ms] for path, count, way in keys]
    places = [np.arange(len(found), dtype=float) for found in groups]

    def statistics(*chosen: Floats) -> dict[str, float]:
        by = {
            key: summed([found[int(at)] for at in drawn_])
            for key, found, drawn_ in zip(keys, groups, chosen, strict=True)
        }

        def over(what: Callable[[Result], float], way: str, other: str, count: int) -> float:
            return median(what(by[path, count, way]) / what(by[path, count, other]) for path in whole)

        def again(way: str, other: str, count: int) -> float:
            return 100 * float(
                np.mean([by[p, count, way].resent_share() - by[p, count, other].resent_share() for p in whole])
            )

        routes = {"routes-resent": again("routes", "riptide", 1)} if "routes" in ways else {}
        return routes | {
            "ours-limit": median(by[path, 1, "springtide"].p50() / path.limit_ms(SIZE) for path in whole),
            "ours-default": over(Result.p50, "springtide", "default", 1),
            "ours-default-4": over(Result.p50, "springtide", "default", TOGETHER),
            "ours-resent": again("springtide", "default", 1),
            "ours-riptide": over(Result.p50, "springtide", "riptide", 1),
            "ours-riptide-4": over(Result.p50, "springtide", "riptide", TOGETHER),
            "riptide-default": over(Result.p50, "riptide", "default", 1),
            "riptide-tail": over(Result.p95, "riptide", "default", 1),
            "riptide-loss": again("riptide", "default", 1),
            "static-loss": again("static100", "default", 1),
            "static-loss-4": again("static100", "default", TOGETHER),
        }

    found = intervals(statistics, *places)
    n = sum(len(result.ms) for result in results.values())
    return {name: Measured(one.ours, one.low, one.high, n) for name, one in found.items()}


def complete(paths: Sequence[Path], results: Results, ways: Sequence[str]) -> list[Path]:
    """The paths on which every way came to the end of every cell."""
    cells = [(Cell(SIZE, count), way) for count in (1, TOGETHER) for way in ways]
    return [path for path in paths if all(results[path.name, cell, way].ms for cell, way in cells)]


def figure(paths: Sequence[Path], results: Results, ways: Sequence[str]) -> Figure:
    """Every cell, also where ours loses."""
    given = "" if "routes" in ways else " In this quick run the rate was given, and is 0.95 of the path's."
    rows = []
    for path in paths:
        for count in (1, TOGETHER):
            found = [results[path.name, Cell(SIZE, count), way] for way in ways]
            cells = [f"{one.p50():.0f} ({100 * one.resent_share():.1f})" if one.ms else "" for one in found]
            rows.append([path.name, str(count), *cells, f"{path.limit_ms(SIZE, count):.0f}", str(len(found[0].ms))])
    return Figure(
        *("ours", "ours-paths", f"100 kB over {len(paths)} paths"),
        "Medians from the request to the last byte, in ms; in brackets the per cent of segments sent again. `routes`"
        " and `springtide` are ours, by routes and at the proved rate; the limit is a round trip and size / rate."
        f" [`bench start`](../explanation/start.md#what-it-does-over-emulated-paths) has the same paths.{given}",
        ["path", "at once", *ways, "limit", "n"],
        rows,
        partial(_plot, complete(paths, results, ways), results, ways),
    )


def _plot(paths: Sequence[Path], results: Results, ways: Sequence[str], place: File) -> None:
    with drawn(5.0, place) as picture:
        axes = picture.subplots()
        for way, line, marker in zip(ways, LINES, "o^sDvP", strict=False):
            ratios = [results[path.name, Cell(SIZE, 1), way].p50() / path.limit_ms(SIZE) for path in paths]
            style = {"color": line["color"], "linestyle": "", "fillstyle": "full" if way == OURS else "none"}
            axes.plot(ratios, range(len(paths)), marker=marker, label=NAMES[way], **style)
        axes.axvline(1, color="#777777", linewidth=0.8)
        axes.set(
            xlabel="100 kB take, times the limit (log)",
            xscale="log",
            xlim=(0.8, None),
            xticks=TICKS,
            xticklabels=TICKS,
            yticks=range(len(paths)),
            yticklabels=[f"{one.rate_mbit:.0f} Mbit/s, {one.rtt_ms:.0f} ms: {one.name}" for one in paths],
        )
        axes.xaxis.minorticks_off()
        legend(picture, axes)


def measure(quick: bool) -> Found:
    sizes = QUICK if quick else FULL
    paths, results, seen = run(sizes)
    found = Found(claims_of(paths, results, sizes.ways), [figure(paths, results, sizes.ways)])
    if seen:
        changed, beside = seen
        found.measured |= changes.claims_of(changed) | neighbours.claims_of(beside)
        found.figures += [*changes.figures(changed), neighbours.figure(beside)]
    return found


PART = Part(
    "paths",
    "default, static windows, Riptide and ours over twelve paths, and as these get worse",
    (*CLAIMS, *changes.CLAIMS, *neighbours.CLAIMS),
    measure,
    (650, 60),
    root=True,
)

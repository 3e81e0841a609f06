"""Fresh connections at the kernel's default, by Riptide as published, and as Springtide starts them, beside the limit.

Twelve emulated paths, both families; objects of 10 kB to 1 MB; alone, and several at once from one edge and from two
edges of the PoP, without and with a bulk flow (CUBIC) on the path. The ways take turns on each path and share nothing
but it: each has two edges to itself. Springtide's decide by what they have seen, in rounds of the product's command
lines; with --given, they have the path's rate x 0.95 divided among the edges, and the window that it fills in a round
trip. The limit is a round trip, and the time that the link takes for all.
Retransmissions are shares of the segments that were sent.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path as File
from typing import Any

from bench.runner import Bench, BenchError, Run, progress
from bench.start_cells import (
    LONGEST_MS,
    Cell,
    Group,
    Result,
    Results,
    Slowest,
    cells,
    groups,
    pooled,
    pooled_rows,
    rises,
    row,
    summary,
)
from bench.start_clients import Client, Senders
from bench.start_closed import Closed
from bench.start_paths import BULK, EDGES, PATHS, WAYS, Path, edge_of, topology
from bench.start_ways import Given, Riptide, Springtide
from lab import nginx, sizes
from lab.clients import Load
from lab.errors import LabError
from lab.lab import Lab

# The program's memory of the most at once; a pass begins anew with one.
QUIET_S = 11.0
# The part of a path's rate that Riptide's connections take while it learns: they meet the path now and then.
LOAD_SHARE = 0.2
CONNECTIONS = 4


def load_task(lab: Lab, path: Path, servers: Sequence[str], kind: str, seconds: float) -> dict[str, Any]:
    """The task of lab.client: connections to the servers' nginx that stay open."""
    found = sizes.KINDS[kind]  # type: ignore[index]
    connections = 1 if kind == "bulk" else CONNECTIONS
    per_s = LOAD_SHARE * path.rate_mbit * 125_000 * len(found) / sum(found) / connections / len(servers)
    return {
        "task": "load",
        "seed": f"{path.name}-{kind}",
        "seconds": seconds,
        "sizes": found,
        "pauses": kind != "bulk",
        "connections": [
            {"address": str(lab.topology.edge(server).addresses[family]), "port": nginx.PORT, "requests_per_s": per_s}
            for server in servers
            for family in ((0,) if kind == "bulk" else (0, 1))
            for _ in range(connections)
        ],
    }


@contextmanager
def standing(lab: Lab, paths: Sequence[Path], learn_s: float) -> Iterator[None]:
    """Connections that have learnt their windows for a while, and then stand idle: Riptide averages them."""
    servers = [edge_of("riptide", number) for number in range(EDGES)]
    tasks = {path.edge(): load_task(lab, path, servers, "mixed", 7200) for path in paths}
    clients: list[subprocess.Popen[bytes]] = []

    def popen(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        clients.append(lab.popen(*arguments, **options))
        return clients[-1]

    load = Load(popen, tasks, lab.directory, 7200)
    time.sleep(learn_s)
    # A client that is stopped asks for nothing more, and its connections stay.
    for client in clients:
        client.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for client in clients:
            client.send_signal(signal.SIGCONT)
        try:
            load.stop()
        except LabError as error:
            # The measurements stand: these connections only stood idle.
            progress(str(error))


@contextmanager
def bulk_flows(lab: Lab, paths: Sequence[Path]) -> Iterator[None]:
    """One CUBIC flow without end on each path, from an edge that no way has."""
    load = Load(
        lab.popen, {path.edge(): load_task(lab, path, [BULK], "bulk", 7200) for path in paths}, lab.directory, 7200
    )
    # Out of slow start on the longest path.
    time.sleep(3)
    try:
        yield
    finally:
        load.stop()


def passes(client: Client, chosen: Sequence[Cell], count: int, until: float, results: Results) -> int:
    """So many passes over the cells; after `until` (time.monotonic) no cell begins again. How many were begun."""
    slowest = Slowest()
    for number in range(count):
        if number and time.monotonic() > until:
            return number
        if number:
            time.sleep(QUIET_S)
        for cell in chosen:
            if slowest.allows(cell) and not (number and time.monotonic() > until):
                for group in groups(cell, number):
                    begin = time.monotonic()
                    client.run(group, results)
                    slowest.note(cell, time.monotonic() - begin)
    return count


def learn(turns: Mapping[Client, Iterator[tuple[int, int, int]]], edges: int, seconds: float) -> None:
    """Traffic of Springtide's edges over all paths for so long: fresh connections of every size, alone and several at
    once, as in the cells. The first flights of large objects meet the path. `turns` go on from round to round: a path
    on which a few megabytes take one would see nothing else."""
    until = time.monotonic() + seconds
    nowhere: Results = defaultdict(Result)

    def fetch(client: Client) -> None:
        for number, size, count in turns[client]:
            if client.path.limit_ms(size, count) <= LONGEST_MS / 2:
                # Alone from one edge, then from the other.
                shift = number // 4 % edges
                # Both families fetch every size.
                family = 6 if (number + number // 4) % 2 else 4
                client.run(Group(Cell(size, count, edges), "springtide", family), nowhere, shift)
            if time.monotonic() > until:
                return

    with ThreadPoolExecutor(len(turns)) as pool:
        for one in [pool.submit(fetch, client) for client in turns]:
            one.result()


def turns_of() -> Iterator[tuple[int, int, int]]:
    """The number of a group, its objects' size, and how many connections."""
    shapes = cycle((size, count) for count in (1, 4, 1, 10) for size in (100_000, 10_000, 1_000_000, 50_000))
    for number, (size, count) in enumerate(shapes):
        yield number, size, count


def measure_paths(run: Run, lab: Lab, paths: Sequence[Path], springtide: Springtide, results: Results) -> None:
    """Every cell of paths that are measured side by side."""
    sizes_, at_once = run.sizes["object_bytes"], run.sizes["at_once"]
    senders = Senders(lab)
    clients = [Client(lab, path, senders) for path in paths]
    with springtide.running(lab), Riptide(lab, paths), standing(lab, paths, run.sizes["learn_seconds"]):
        for edges, bulk in ((1, False), (1, True), (2, False)):
            progress(f"{', '.join(path.name for path in paths)}: {edges} edges{', bulk' if bulk else ''}")
            with ExitStack() as stack, ThreadPoolExecutor(len(paths)) as pool:
                if bulk:
                    stack.enter_context(bulk_flows(lab, paths))
                springtide(lab, paths, edges, partial(learn, {client: turns_of() for client in clients}, edges))
                # The program's memory of before is not of these cells.
                time.sleep(QUIET_S)
                until = time.monotonic() + run.sizes["phase_seconds"]
                running = [
                    pool.submit(
                        passes,
                        client,
                        cells(client.path, sizes_, at_once, edges, bulk),
                        run.sizes["passes"],
                        until,
                        results,
                    )
                    for client in clients
                ]
                done = [one.result() for one in running]
            progress(f"passes: {done}")


def rows_of(results: Results, paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Cells that every way came to the end of, in the paths' order. Raises BenchError where too much failed."""
    by_path = {path.name: path for path in paths}
    found: defaultdict[tuple[str, Cell], dict[str, Result]] = defaultdict(dict)
    for (name, cell, way), result in results.items():
        found[name, cell][way] = result
    errors = [error for result in results.values() for error in result.errors]
    total = sum(len(result.ms) for result in results.values()) + len(errors)
    if len(errors) > total / 100:
        raise BenchError(f"{len(errors)} of {total} transfers failed: {errors[0]}")
    whole = [
        (key, ways) for key, ways in found.items() if len(ways) == len(WAYS) and all(one.ms for one in ways.values())
    ]
    return [row(by_path[name], cell, ways) for (name, cell), ways in whole]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The cells of 100 kB, for people."""
    lines = [
        "100 kB: p50 / p95 in ms (share of segments sent again)",
        "",
        "| path | at once | default | riptide | springtide | limit | p50 / limit | n |",
        "|---|---|---|---|---|---:|---:|---:|",
    ]
    for one in rows:
        if one["size_bytes"] != 100_000:
            continue
        ways = [f"{one[f'{way}_ms']:.0f} / {one[f'{way}_p95_ms']:.0f} ({one[f'retransmit_{way}']:.2%})" for way in WAYS]
        what = f"{one['at_once']} from {one['edges']}{', bulk' if one['bulk'] else ''}"
        cells_ = [one["name"], what, *ways, f"{one['limit_ms']:.0f}", f"{one['ratio_limit']:.3f}"]
        lines.append(f"| {' | '.join(cells_)} | {one['connections']} |")
    return "\n".join(lines)


def measure(run: Run) -> None:
    paths = PATHS[: run.sizes["paths"]]
    results: Results = defaultdict(Result)
    directory = File(tempfile.mkdtemp(prefix="springtide-bench-"))
    try:
        for at in range(0, len(paths), run.sizes["side_by_side"]):
            some = paths[at : at + run.sizes["side_by_side"]]
            with Lab.up(topology(some), f"bench-start-{os.getpid()}"[:31]) as lab:
                way = Given(directory) if run.sizes["given"] else Closed(directory, run.sizes["rounds"])
                measure_paths(run, lab, some, way, results)
            shutil.rmtree(directory)
            directory.mkdir()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    rows = rows_of(results, paths)
    found = summary(rows)
    pools = pooled(results)
    run.more.update(paths=rows, pools=pooled_rows(pools), **found)
    run.note(table(rows))
    failed = sum(len(result.errors) for result in results.values())
    run.figure("failed_transfers", failed)
    run.figure("cells", len(rows))
    run.figure("ratio_limit_100k", [one["ratio_limit"] for one in rows if one["size_bytes"] == 100_000])
    for (name, of), count in sorted(rises(results).items()):
        run.figure(name, count, way=of)
    for (name, of), count in sorted(rises(pools).items()):
        run.figure(f"pooled_{name}", count, way=of)
    run.figure("pools", len(run.more["pools"]))
    for name in ("worst_ratio_limit_100k", "median_ratio_limit_100k", "worst_retransmit_rise", "worst_p95_per_default"):
        run.figure(name, found[name])


BENCH = Bench(
    name="start",
    summary="fresh connections at the default, by Riptide and by Springtide beside the limit, over twelve paths",
    measure=measure,
    sizes={
        "paths": (len(PATHS), 2),
        "side_by_side": (12, 2),
        "object_bytes": ((10_000, 50_000, 100_000, 1_000_000), (100_000,)),
        "at_once": ((1, 4, 10, 20), (1, 4)),
        "passes": (5, 1),
        "phase_seconds": (90, 20),
        "learn_seconds": (25.0, 12.0),
        "given": (False, True),
        "rounds": (11, 1),
    },
    seconds=1200,
    turns=None,
    root=True,
)

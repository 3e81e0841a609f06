"""Fresh connections at the kernel's default, by Riptide as published, and as Springtide starts them, beside the limit.

Twelve emulated paths, both families; objects of 10 kB to 1 MB; alone, and several at once from one edge and from two
edges of the PoP, without and with a bulk flow (CUBIC) on the path. The ways take turns on each path and share nothing
but it: each has two edges to itself. Springtide's have given values: the path's rate x 0.95 divided among the edges,
and the window that it fills in a round trip. The limit is a round trip, and the time that the link takes for all.
Retransmissions are shares of the segments that were sent.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path as File
from typing import Any

from bench.runner import Bench, BenchError, Run, progress
from bench.start_cells import Cell, Group, Result, Results, cells, groups, row, summary
from bench.start_paths import BULK, EDGES, PATHS, WAYS, Path, edge_of, topology
from bench.start_ways import Given, Riptide, Springtide
from lab import host, nginx, sizes
from lab.clients import Load, pipe
from lab.lab import Lab
from testkit.starts import TRANSFERS

PORT = 5000
TIMEOUT_S = 30.0
# The program's memory of the most at once; a pass begins anew with one.
QUIET_S = 11.0
LEAST_GAP_S = 0.1
# Of a path, what Riptide's connections take while it learns: they meet the path now and then.
LOAD_SHARE = 0.2
CONNECTIONS = 4


class Senders:
    """A sender on each server edge, and what it says of each connection, in the order of their ends."""

    def __init__(self, lab: Lab) -> None:
        self._said: defaultdict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
        self._lock = threading.Lock()
        for way in WAYS:
            for edge in (edge_of(way, number) for number in range(EDGES)):
                addresses = [str(address) for address in lab.topology.edge(edge).addresses]
                task = json.dumps({"listen": addresses, "port": PORT})
                process = lab.popen(edge, [sys.executable, str(TRANSFERS), "send", task], stdout=subprocess.PIPE)
                lines = pipe(process.stdout)
                if lines.readline() != b"ready\n":
                    raise BenchError(f"{edge}: the sender did not start")
                threading.Thread(target=self._listen, args=(edge, lines), daemon=True).start()

    def _listen(self, edge: str, lines: Any) -> None:
        for line in lines:
            said = json.loads(line)
            with self._lock:
                self._said[edge, said["peer"][0], said["peer"][1]].append(said)

    def take(self, edge: str, address: str, port: int) -> dict[str, Any]:
        """What is said of the next connection of this edge to this peer; nothing, where that is not known in time."""
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            with self._lock:
                if said := self._said[edge, address, port]:
                    return said.pop(0)
            time.sleep(0.005)
        return {}


class Client:
    """What fetches behind a path, one group after another."""

    def __init__(self, lab: Lab, path: Path, senders: Senders) -> None:
        self._lab, self.path, self._senders = lab, path, senders
        environment = os.environ | {"PYTHONPATH": str(host.REPOSITORY)}
        command = [sys.executable, "-S", "-m", "lab.fetches"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = lab.popen(path.edge(), command, env=environment, **pipes)
        self._number = 0

    def run(self, group: Group, results: Results) -> None:
        """A group to its end. Raises BenchError when the client has ended."""
        index = group.family == 6
        edges = [edge_of(group.way, at % group.cell.edges) for at in range(group.cell.at_once)]
        to = [[str(self._lab.topology.edge(edge).addresses[index]), PORT] for edge in edges]
        self._number += 1
        task = {"id": self._number, "size": group.cell.size, "to": to, "timeout_s": TIMEOUT_S}
        asks = pipe(self._process.stdin)
        asks.write(json.dumps(task).encode() + b"\n")
        asks.flush()
        line = pipe(self._process.stdout).readline()
        if not line:
            raise BenchError(f"{self.path.name}: the client has ended; see its namespace's log")
        mine = str(self._lab.topology.edge(self.path.edge()).addresses[index])
        found = results[self.path.name, group.cell, group.way]
        for edge, transfer in zip(edges, json.loads(line)["transfers"], strict=True):
            said = self._senders.take(edge, mine, transfer["port"]) if transfer["port"] else {}
            found.segments += said.get("segments", 0)
            found.resent += said.get("resent", 0)
            if "ms" in transfer:
                found.ms.append(transfer["ms"])
            else:
                found.errors.append(transfer["error"])
        time.sleep(max(LEAST_GAP_S, self.path.rtt_ms / 1000))


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
        load.stop()


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
    """So many passes over the cells, no further one begins after `until` (time.monotonic); how many were done."""
    for number in range(count):
        if number and time.monotonic() > until:
            return number
        if number:
            time.sleep(QUIET_S)
        for group in groups(chosen, number):
            client.run(group, results)
    return count


def measure_paths(run: Run, lab: Lab, paths: Sequence[Path], springtide: Springtide, results: Results) -> None:
    """Every cell of paths that are measured side by side."""
    sizes_, at_once = run.sizes["object_bytes"], run.sizes["at_once"]
    senders = Senders(lab)
    clients = [Client(lab, path, senders) for path in paths]
    with Riptide(lab, paths, PORT), standing(lab, paths, run.sizes["learn_seconds"]):
        for edges, bulk in ((1, False), (1, True), (2, False)):
            progress(f"{', '.join(path.name for path in paths)}: {edges} edges{', bulk' if bulk else ''}")
            springtide(lab, paths, edges)
            until = time.monotonic() + run.sizes["phase_seconds"]
            with ExitStack() as stack, ThreadPoolExecutor(len(paths)) as pool:
                if bulk:
                    stack.enter_context(bulk_flows(lab, paths))
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


def measure(run: Run, springtide: Callable[[File], Springtide] = Given) -> None:
    paths = PATHS[: run.sizes["paths"]]
    results: Results = defaultdict(Result)
    directory = File(tempfile.mkdtemp(prefix="springtide-bench-"))
    try:
        for at in range(0, len(paths), run.sizes["side_by_side"]):
            some = paths[at : at + run.sizes["side_by_side"]]
            with Lab.up(topology(some), f"bench-start-{os.getpid()}"[:31]) as lab:
                measure_paths(run, lab, some, springtide(directory), results)
            shutil.rmtree(directory)
            directory.mkdir()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    rows = rows_of(results, paths)
    found = summary(rows)
    run.more.update(paths=rows, **found)
    run.note(table(rows))
    failed = sum(len(result.errors) for result in results.values())
    run.figure("failed_transfers", failed)
    run.figure("cells", len(rows))
    run.figure("ratio_limit_100k", [one["ratio_limit"] for one in rows if one["size_bytes"] == 100_000])
    for name in ("worst_ratio_limit_100k", "median_ratio_limit_100k", "worst_retransmit_rise", "worst_p95_per_default"):
        run.figure(name, found[name])


BENCH = Bench(
    name="start",
    summary="fresh connections at the default, by Riptide and by Springtide beside the limit, over twelve paths",
    measure=measure,
    sizes={
        "paths": (len(PATHS), 2),
        "side_by_side": (6, 2),
        "object_bytes": ((10_000, 50_000, 100_000, 1_000_000), (100_000,)),
        "at_once": ((1, 4, 10, 20), (1, 4)),
        "passes": (5, 1),
        "phase_seconds": (240, 20),
        "learn_seconds": (25.0, 12.0),
    },
    seconds=1700,
    turns=None,
    root=True,
)

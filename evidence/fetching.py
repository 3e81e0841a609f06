"""Fresh connections in the lab: a server PoP with an edge for each way of starting, and clients behind paths."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle

from bench.runner import BenchError
from bench.start_cells import Cell, Group, Result, Results
from bench.start_clients import Client, Senders
from bench.start_paths import SERVER, Path, edge_of, topology
from lab.lab import Lab
from lab.topology import Topology, gateway
from lab.wan_config import TUN

# As good as none: a megabyte takes 0.8 ms.
NO_RATE_MBIT = 10_000.0


def clear(name: str, rtt_ms: float, number: int) -> Path:
    """A path with a round trip and nothing else."""
    return Path(name, NO_RATE_MBIT, rtt_ms, None, number)


@contextmanager
def up(name: str, paths: Sequence[Path], ways: Sequence[str], bpf: Sequence[str] = ()) -> Iterator[Lab]:
    """A lab with one edge of the server for each way; those in `bpf` enforce by the program."""
    with Lab.up(shaped(paths, ways, bpf), f"ev-{name}-{os.getpid()}"[:31]) as lab:
        yield lab


def shaped(paths: Sequence[Path], ways: Sequence[str], bpf: Sequence[str] = ()) -> Topology:
    """The topology of `up`."""
    return topology(paths, [edge_of(way, 0) for way in ways], [edge_of(way, 0) for way in bpf])


def set_windows(lab: Lab, windows: Mapping[str, int]) -> None:
    """Gives every new connection of a way this initial window, by the edge's default routes."""
    for way, window in windows.items():
        for home in lab.topology.pops[SERVER].prefixes:
            words = f"-{home.version} route replace default via {gateway(home)} dev {TUN} initcwnd {window}"
            lab.exec(edge_of(way, 0), ["ip", *words.split()])


def use(lab: Lab, way: str, algorithm: str, path: Path | None = None) -> None:
    """The algorithm of all connections of a way's edge, or of those to a path, by its routes."""
    lines = []
    for at, home in enumerate(lab.topology.pops[SERVER].prefixes):
        to = path.prefixes()[at] if path else "default"
        lines.append(f"-{home.version} route replace {to} via {gateway(home)} dev {TUN} congctl {algorithm}")
    for line in lines:
        lab.exec(edge_of(way, 0), ["ip", *line.split()])


class Fetcher:
    """A sender on the edge of each way, and a client behind each path, for as long as the lab is up."""

    def __init__(self, lab: Lab, paths: Sequence[Path], ways: Sequence[str]) -> None:
        senders = Senders(lab, [edge_of(way, 0) for way in ways])
        self.clients = [Client(lab, path, senders) for path in paths]

    def run(
        self, plan: Callable[[Path], Iterable[Group]], until: float = 0.0, results: Results | None = None
    ) -> Results:
        """Fetches one group after another over each path, all paths side by side. With `until` (time.monotonic) the
        plans begin anew until then. A plan that goes by what came before reads `results`, to which all is added.
        Raises BenchError where one in a hundred failed."""
        results = defaultdict(Result) if results is None else results

        def run(client: Client) -> None:
            groups = plan(client.path)
            for group in cycle(groups) if until else groups:
                if until and time.monotonic() > until:
                    return
                client.run(group, results)

        with ThreadPoolExecutor(len(self.clients)) as pool:
            for one in [pool.submit(run, client) for client in self.clients]:
                one.result()
        errors = [error for result in results.values() for error in result.errors]
        if len(errors) > sum(len(result.ms) for result in results.values()) / 100:
            raise BenchError(f"{len(errors)} transfers failed: {errors[0]}")
        return results


def turns(ways: Sequence[str], cells: Sequence[Cell]) -> list[Group]:
    """Every way once a cell, each first in turn (A B C, B C A, ...), families by turns."""
    found = []
    for turn in range(len(ways) * (1 + len(ways) % 2)):
        order = [*ways[turn % len(ways) :], *ways[: turn % len(ways)]]
        found += [Group(cell, way, 6 if turn % 2 else 4) for cell in cells for way in order]
    return found

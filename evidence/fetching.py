"""Fresh connections in the lab: a server PoP with an edge for each way of starting, and clients behind paths."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle

from bench.runner import BenchError
from bench.start_cells import Group, Result, Results
from bench.start_clients import Client, Senders
from bench.start_paths import SERVER, Path, edge_of, topology
from lab.lab import Lab
from lab.topology import gateway
from lab.wan_config import TUN

# As good as none: a megabyte takes 0.8 ms.
NO_RATE_MBIT = 10_000.0


def clear(name: str, rtt_ms: float, number: int) -> Path:
    """A path with a round trip and nothing else."""
    return Path(name, NO_RATE_MBIT, rtt_ms, None, number)


@contextmanager
def up(name: str, paths: Sequence[Path], ways: Sequence[str], bpf: Sequence[str] = ()) -> Iterator[Lab]:
    """A lab with one edge of the server for each way; those in `bpf` enforce by the program."""
    edges, programs = [edge_of(way, 0) for way in ways], [edge_of(way, 0) for way in bpf]
    with Lab.up(topology(paths, edges, programs), f"ev-{name}-{os.getpid()}"[:31]) as lab:
        yield lab


def set_windows(lab: Lab, windows: Mapping[str, int]) -> None:
    """Gives every new connection of a way this initial window, by the edge's default routes."""
    for way, window in windows.items():
        for home in lab.topology.pops[SERVER].prefixes:
            words = f"-{home.version} route replace default via {gateway(home)} dev {TUN} initcwnd {window}"
            lab.exec(edge_of(way, 0), ["ip", *words.split()])


def fetch(lab: Lab, plans: Mapping[Path, Sequence[Group]], until: float = 0.0) -> Results:
    """Fetches one group after another over each path, all paths side by side. With `until` (time.monotonic) the plans
    begin anew until then. Raises BenchError where one in a hundred failed."""
    ways = sorted({group.way for plan in plans.values() for group in plan})
    senders = Senders(lab, [edge_of(way, 0) for way in ways])
    clients = {path: Client(lab, path, senders) for path in plans}
    results: Results = defaultdict(Result)

    def run(path: Path) -> None:
        for group in cycle(plans[path]) if until else plans[path]:
            if until and time.monotonic() > until:
                return
            clients[path].run(group, results)

    with ThreadPoolExecutor(len(plans)) as pool:
        for one in [pool.submit(run, path) for path in plans]:
            one.result()
    errors = [error for result in results.values() for error in result.errors]
    if len(errors) > sum(len(result.ms) for result in results.values()) / 100:
        raise BenchError(f"{len(errors)} transfers failed: {errors[0]}")
    return results

"""Makes the edges of each way start connections: Riptide's routes, given values by the edge's program."""

from __future__ import annotations

import json
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from ipaddress import ip_address, ip_network
from pathlib import Path as File
from statistics import mean
from typing import Any, Protocol, Self

from bench.start_paths import EDGES, SERVER, Path, edge_of
from lab.demo.edges import edge_command
from lab.lab import Lab
from lab.topology import gateway
from lab.wan_config import TUN
from testkit.edge import enforcement, instant, sealed

# The part of the path's rate that is given; the rest is for acknowledgements, headers and other traffic.
SHARE = 0.95
ROUND_S = 10.0
# The paper's bounds (Riptide, Table I).
LEAST, MOST = 10, 100
# Longer than any run.
LIVES_S = 7200
SHOW = ["ss", "-tinHO", "state", "established"]
_WINDOW = re.compile(r"\bcwnd:(\d+)")

# Edge -> the entries of its bundle.
Entries = Mapping[str, Sequence[Mapping[str, Any]]]


class Springtide(Protocol):
    """Makes the edges of `springtide` start connections over these paths; called before the cells of each number of
    edges, while what runs beside them is running. `learn` is traffic of so many seconds that can be learnt from."""

    def running(self, lab: Lab) -> AbstractContextManager[None]: ...

    def __call__(self, lab: Lab, paths: Sequence[Path], edges: int, learn: Callable[[float], None]) -> None: ...


class Given:
    """Values that the law would have to find: the path's rate x 0.95, divided among the edges that start, and the
    window that it fills in a round trip."""

    def __init__(self, directory: File) -> None:
        self._directory = directory
        self._round = int(time.time()) // 300 * 300

    def running(self, lab: Lab) -> AbstractContextManager[None]:
        """Nothing needs to."""
        return nullcontext()

    def __call__(self, lab: Lab, paths: Sequence[Path], edges: int, learn: Callable[[float], None]) -> None:
        self._round += 1
        for edge, entries in given(paths, edges).items():
            apply(lab, edge, entries, self._directory, self._round)


def given(paths: Sequence[Path], edges: int) -> Entries:
    """An entry each for IPv4 and IPv6 of a path, in a bundle's order."""
    found: list[dict[str, Any]] = [
        {"prefix": prefix, "initcwnd": path.window(), "start_rate": int(path.rate_mbit * SHARE * 125_000 / edges)}
        for path in paths
        for prefix in path.prefixes()
    ]
    found.sort(key=lambda one: (ip_network(one["prefix"]).version, int(ip_network(one["prefix"])[0])))
    return {edge_of("springtide", number): found for number in range(edges)}


def apply(
    lab: Lab, edge: str, entries: Sequence[Mapping[str, Any]], directory: File, round_s: int, **enforce: Any
) -> None:
    """By `springtide-edge` on the edge. Raises CommandError."""
    now = int(time.time())
    pop = lab.topology.edges()[edge]
    first = {"schema_version": 1, "edge": edge, "pop": pop, "round": instant(round_s), "policy_version": "0" * 12}
    times = {"created_at": instant(now), "expires_at": instant(now + LIVES_S)}
    bundle = sealed({**first, **times, "enforce": enforcement("bpf", **enforce), "entries": list(entries)})
    file = directory / f"{edge}.json"
    file.write_text(json.dumps(bundle))
    edge_command(lab, edge, directory / edge, "apply", str(file), "--unsigned")


class Agents(ABC):
    """Hosts that decide by themselves, round after round. A context manager: rounds go on in a thread until its end."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._rounds, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join(30)

    def _rounds(self) -> None:
        while not self._over.wait(self._interval_s):
            self.one_round()

    @abstractmethod
    def one_round(self) -> None:
        """All hosts, once."""


class Riptide(Agents):
    """As published: each round every host averages the windows of all its connections to a destination, and that is the
    route's initial window. No history, no guard."""

    def __init__(self, lab: Lab, paths: Sequence[Path]) -> None:
        super().__init__(ROUND_S)
        self._lab, self._paths = lab, paths
        self.windows: dict[tuple[str, str], int] = {}

    def one_round(self) -> None:
        for number in range(EDGES):
            self._round(edge_of("riptide", number))

    def _round(self, edge: str) -> None:
        shown = self._lab.exec(edge, SHOW, check=False).stdout
        lines = []
        for prefix, window in means(shown, [prefix for path in self._paths for prefix in path.prefixes()]).items():
            version = ip_network(prefix).version
            home = next(one for one in self._lab.topology.pops[SERVER].prefixes if one.version == version)
            lines.append(f"route replace {prefix} via {gateway(home)} dev {TUN} initcwnd {window}\n")
            self.windows[edge, prefix] = window
        self._lab.exec(edge, ["ip", "-batch", "-"], input="".join(lines), check=False)


def means(shown: str, prefixes: Sequence[str]) -> dict[str, int]:
    """Prefix -> the mean of its connections' windows, within the paper's bounds."""
    found = windows_of(shown, prefixes)
    return {prefix: min(MOST, max(LEAST, round(mean(windows)))) for prefix, windows in found.items()}


def windows_of(shown: str, prefixes: Sequence[str]) -> Mapping[str, list[int]]:
    """Prefix -> its connections' windows in the output of SHOW."""
    networks = [ip_network(prefix) for prefix in prefixes]
    windows: defaultdict[str, list[int]] = defaultdict(list)
    for line in shown.splitlines():
        found = _WINDOW.search(line)
        if found is None:
            continue
        peer = ip_address(line.split()[3].rpartition(":")[0].strip("[]").removeprefix("::ffff:"))
        for network in networks:
            if peer in network:
                windows[str(network)].append(int(found[1]))
    return windows

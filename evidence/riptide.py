"""Riptide as published (Riptide III-B, Algorithm 1): each host by itself, every second, for each other host.

The mean of the windows of all connections to a host, smoothed with its history, within cmin and cmax, becomes the
initial window of a /32 or /128 route. A value that is not renewed goes after 90 s. The weight of history is not
published: ours is a half.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from statistics import mean
from types import MappingProxyType

from bench.start_paths import SERVER, Path
from bench.start_ways import LEAST, SHOW, Agents, windows_of
from lab.lab import Lab
from lab.topology import Address, gateway
from lab.wan_config import TUN

INTERVAL_S, TTL_S, ALPHA = 1.0, 90.0, 0.5


class Riptide(Agents):
    """Rounds on the server's edges. `most`: edge -> cmax, 0 where an edge only shows its windows.
    `seen`: edge -> the windows that every `sample_s` seconds showed. `changes`: when, and to which host, a route got
    another window, came or went. `more`: edge -> the rest of its routes' options."""

    def __init__(
        self,
        lab: Lab,
        paths: Sequence[Path],
        most: Mapping[str, int],
        sample_s: float = 3.0,
        more: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        super().__init__(INTERVAL_S)
        self._lab, self._most, self._sample_s, self._more = lab, most, sample_s, more
        self._hosts = [f"{address}/{address.max_prefixlen}" for one in paths for address in addresses(lab, one)]
        self._history: dict[tuple[str, str], tuple[float, float]] = {}
        self._sampled = time.monotonic()
        self.seen: defaultdict[str, list[int]] = defaultdict(list)
        self.changes: list[tuple[float, str]] = []

    def window(self, edge: str, host: str) -> int | None:
        """Window of new connections of an edge to a host; None for the default."""
        value, _ = self._history.get((edge, host), (0.0, 0.0))
        return round(min(self._most[edge], max(LEAST, value))) if value else None

    def one_round(self) -> None:
        now = time.monotonic()
        samples = now - self._sampled >= self._sample_s
        for edge in self._most:
            windows = windows_of(self._lab.exec(edge, SHOW, check=False).stdout, self._hosts)
            if samples:
                self.seen[edge] += [window for found in windows.values() for window in found]
            if self._most[edge]:
                self._round(edge, windows, now)
        self._sampled = now if samples else self._sampled

    def _round(self, edge: str, windows: Mapping[str, Sequence[int]], now: float) -> None:
        lines = []
        for host, found in windows.items():
            was = self.window(edge, host)
            before, _ = self._history.get((edge, host), (mean(found), now))
            self._history[edge, host] = (ALPHA * before + (1 - ALPHA) * mean(found), now + TTL_S)
            more = ["initcwnd", str(self.window(edge, host)), *self._more.get(edge, ())]
            lines.append(" ".join(["route replace", self._route(host), *more]))
            if self.window(edge, host) != was:
                self.changes.append((now, host))
        for (owner, host), (_, until) in list(self._history.items()):
            if owner == edge and until < now:
                del self._history[owner, host]
                lines.append(f"route del {self._route(host)}")
                self.changes.append((now, host))
        if lines:
            self._lab.exec(edge, ["ip", "-batch", "-"], input="\n".join(lines) + "\n", check=False)

    def _route(self, host: str) -> str:
        version = ip_address(host.partition("/")[0]).version
        home = next(one for one in self._lab.topology.pops[SERVER].prefixes if one.version == version)
        return f"{host} via {gateway(home)} dev {TUN} proto static"


def addresses(lab: Lab, path: Path) -> Sequence[Address]:
    """Addresses of the client behind a path."""
    return lab.topology.edge(path.edge()).addresses

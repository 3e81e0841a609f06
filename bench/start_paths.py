"""The paths of the bench of starts, and the lab with one server PoP in front of them.

Every way of starting has two edges of the server PoP to itself, so that ways take turns on one link without anything
being changed between them: what one has learnt, or remembers, is not the other's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from lab.topology import Topology

SEGMENT = 1448
SERVER, BULK = "srv", "bulk-1"
WAYS = ("default", "riptide", "springtide")
EDGES = 2
# Most that the law gives, and more than 100 kB.
MOST_WINDOW = 400
SEED = 16


@dataclass(frozen=True)
class Path:
    """Rate in Mbit/s, round trip in ms, queue in packets (None is deep)."""

    name: str
    rate_mbit: float
    rtt_ms: float
    queue: int | None
    number: int
    loss: float | tuple[float, float] = 0.0
    poisson: bool = False

    def limit_ms(self, size: int, together: int = 1) -> float:
        """The least time of any sender: a round trip, and the time that the link takes for all of them."""
        return self.rtt_ms + together * size * 8 / self.rate_mbit / 1000

    def window(self) -> int:
        """The rate for a round trip, in segments."""
        return min(MOST_WINDOW, max(10, math.ceil(self.rate_mbit * self.rtt_ms * 125 / SEGMENT)))

    def prefixes(self) -> tuple[str, str]:
        return f"10.72.{self.number}.0/24", f"fd72:{self.number}::/48"

    def edge(self) -> str:
        return f"{self.name}-1"

    def shape(self) -> dict[str, Any]:
        """The path from the server, as a topology has it."""
        found: dict[str, Any] = {"src": SERVER, "dst": self.name, "rate_mbit": self.rate_mbit, "poisson": self.poisson}
        if isinstance(self.loss, tuple):
            found["loss"] = {"enter_bad": self.loss[0], "leave_bad": self.loss[1]}
        elif self.loss:
            found["loss"] = self.loss
        return found | {"queue_packets": self.queue or 20_000}


# The first five were measured before; the next four are emulators that others calibrated on real paths
# (StanfordSNR/observatory, src/scripts/experiments.yml), whose delays are one-way.
PATHS = (
    Path("fifty", 50, 102, 41, 1),
    Path("policer", 60, 20, 1, 2),
    Path("korea", 77.72, 102, 94, 3, loss=0.0006),
    Path("mexico", 2.64, 176, 130, 4, poisson=True),
    Path("twenty", 20, 150, 20, 5),
    Path("india", 100.42, 54, 173, 6),
    Path("twelve", 12, 54, 10, 7),
    Path("bursts", 40, 80, 100, 8, loss=(0.0005, 0.2)),
    Path("seventy", 77, 102, 97, 9),
    Path("bloat", 20, 90, 333, 10),
    Path("deep", 200, 150, None, 11),
    Path("clean", 300, 30, None, 12),
)


def edge_of(way: str, number: int) -> str:
    """The server's edge of a way, counted from 0."""
    return f"{way}-{number + 1}"


def edges() -> list[str]:
    """All edges of the server PoP."""
    return [*(edge_of(way, number) for way in WAYS for number in range(EDGES)), BULK]


PACED = [edge_of("springtide", number) for number in range(EDGES)]


def topology(
    paths: Sequence[Path],
    server: Sequence[str] = (),
    bpf: Sequence[str] = PACED,
) -> Topology:
    """The server PoP, with `edges()` where no `server` edges are named, and a client behind each path; both families.
    `bpf`: the server's edges that enforce by the program."""
    pops: dict[str, Any] = {SERVER: _pop(0, server or edges())}
    for edge in bpf:
        pops[SERVER]["edges"][edge]["enforce"] = "bpf"
    pops |= {path.name: _pop(path.number, [path.edge()]) for path in paths}
    text = {
        "name": "starts",
        "seed": SEED,
        "pops": pops,
        "rtt_ms": {SERVER: {path.name: path.rtt_ms for path in paths}},
        "default_rtt_ms": 50,
        "paths": [path.shape() for path in paths],
    }
    return Topology.model_validate(text, strict=False)


def _pop(number: int, names: Sequence[str]) -> dict[str, Any]:
    prefixes = [f"10.72.{number}.0/24", f"fd72:{number}::/48"]
    edges = {
        name: {"addresses": [str(ip_network(prefix)[at]) for prefix in prefixes]} for at, name in enumerate(names, 1)
    }
    return {"prefixes": prefixes, "edges": edges}

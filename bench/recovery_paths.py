"""Paths that lose packets, and what the bundles of each way say of them (bench/recovery.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from itertools import product
from typing import Any

from bench.start_paths import SERVER
from lab.topology import Topology

RATE_MBIT, QUEUE = 100, 20_000
# Timeouts as the law gives them: a multiple of the round trip, in steps of milliseconds, and the least.
MARGIN, STEP_MS, LEAST_MS = 1.5, 10, 50
# Way -> the server's edge and the client's, by what their entries have.
WAYS = {
    "default": ("plain", "plain"),
    "handshake": ("handshake", "handshake"),
    "copies": ("copies", "plain"),
    "both": ("both", "handshake"),
    "more": ("more", "more"),
    "parity": ("parity", "parity"),
}
# Kind of an edge -> bytes that its entries have copied, or five times as many with parity.
COPIED_BYTES = {"copies": 20_000, "both": 20_000, "more": 31_000, "parity": 20_000}
PARITY_EVERY = 5
KINDS = ("handshake", *COPIED_BYTES)
# Two packets in a hundred, four at a time.
BURSTS = {"enter_bad": 0.005, "leave_bad": 0.25}
FULL = {"rate_mbit": 20, "queue_packets": 20}
SEED = 21


@dataclass(frozen=True)
class Path:
    """`loss`: per cent, "bursts" or "full"; `only`: the way that has it for itself."""

    rtt_ms: int
    loss: str
    number: int
    only: str = ""

    @property
    def name(self) -> str:
        return f"rtt{self.rtt_ms}-loss{self.loss}{self.only}".replace(".", "-")

    @property
    def ways(self) -> list[str]:
        return [self.only] if self.only else list(WAYS)

    def timeout_ms(self) -> int:
        return max(LEAST_MS, math.ceil(MARGIN * self.rtt_ms / STEP_MS) * STEP_MS)

    def entry(self, number: int, kind: str) -> dict[str, Any]:
        """For the PoP of this number at the path's other end."""
        copies = {"copied_bytes": COPIED_BYTES[kind]} if kind in COPIED_BYTES else {}
        timeout = {} if kind == "copies" else {"handshake_timeout_ms": self.timeout_ms()}
        parity = {"parity_every": PARITY_EVERY} if kind == "parity" else {}
        return {"prefix": prefix(number), **copies, **timeout, **parity}

    def shape(self) -> dict[str, Any]:
        if self.loss == "full":
            return FULL
        wide = {"rate_mbit": RATE_MBIT, "queue_packets": QUEUE}
        return {**wide, "loss": BURSTS if self.loss == "bursts" else float(self.loss) / 100}


def all_paths(rtts_ms: Sequence[int], losses: Sequence[str]) -> list[Path]:
    made = [
        (rtt_ms, loss, only) for rtt_ms, loss in product(rtts_ms, losses) for only in (WAYS if loss == "full" else [""])
    ]
    return [Path(rtt_ms, loss, number, only) for number, (rtt_ms, loss, only) in enumerate(made, 1)]


def prefix(number: int) -> str:
    return f"10.74.{number}.0/24"


def edge_of(name: str, kind: str) -> str:
    return f"{name}-{kind}"


def pop(number: int, name: str, kinds: Sequence[str]) -> dict[str, Any]:
    """A PoP with an edge of each kind; all but the plain one have the program."""
    network = ip_network(prefix(number))
    edges: dict[str, Any] = {
        edge_of(name, kind): {"addresses": [str(network[at])], **({} if kind == "plain" else {"enforce": "bpf"})}
        for at, kind in enumerate(kinds, 1)
    }
    return {"prefixes": [str(network)], "edges": edges}


def topology(paths: Sequence[Path]) -> Topology:
    """The server's PoP, and a client's behind each path."""
    pops = {
        path.name: pop(path.number, path.name, sorted({WAYS[way][1] for way in path.ways}, reverse=True))
        for path in paths
    }
    ends = [(path, pair) for path in paths for pair in ((SERVER, path.name), (path.name, SERVER))]
    text = {
        "name": "recovery",
        "seed": SEED,
        "pops": {SERVER: pop(0, SERVER, ["plain", *KINDS]), **pops},
        "rtt_ms": {SERVER: {path.name: path.rtt_ms for path in paths}},
        "default_rtt_ms": 50,
        "paths": [{"src": src, "dst": dst, **path.shape()} for path, (src, dst) in ends],
    }
    return Topology.model_validate(text, strict=False)

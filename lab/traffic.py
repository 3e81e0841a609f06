"""Tasks for the clients, from a topology: which edge requests from which, and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from lab import nginx, sizes
from lab.topology import Kind, Pair, Topology


@dataclass(frozen=True)
class Probe:
    """One fetch over a fresh connection. `src` is the PoP that served it (its initial window counts), `dst` the
    client's.

    `rtt_ms` is the nominal round trip; `connect_ms` the handshake, `transfer_ms` from the request to the last byte,
    both None when they did not happen; `error` is why a probe is not `ok`.
    """

    src: str
    dst: str
    src_edge: str
    dst_edge: str
    size_bytes: int
    rtt_ms: float
    connect_ms: float | None
    transfer_ms: float | None
    ok: bool
    error: str | None


@dataclass(frozen=True)
class Planned:
    """A probe to come: `at_s` after the start."""

    src: str
    dst: str
    src_edge: str
    dst_edge: str
    size_bytes: int
    at_s: float


def plan_probes(
    topology: Topology, pairs: Sequence[Pair], probe_sizes: Sequence[int], count: int, spacing_s: float
) -> list[Planned]:
    """`count` probes of each size for each ordered pair, the pairs at the same time.

    Probes of a pair start `spacing_s` apart and the sizes take turns, so that a slow minute meets all of them; the
    pairs are offset within the spacing, so that they do not all burst at once. Edges of a PoP take turns.
    """
    planned = []
    for place, (src, dst) in enumerate(pairs):
        hosts = list(product(topology.pops[src].edges, topology.pops[dst].edges))
        offset_s = spacing_s * place / len(pairs)
        for turn in range(count):
            src_edge, dst_edge = hosts[turn % len(hosts)]
            for index, size in enumerate(probe_sizes):
                at_s = offset_s + spacing_s * (turn * len(probe_sizes) + index)
                planned.append(Planned(src, dst, src_edge, dst_edge, size, at_s))
    return planned


def probe_tasks(topology: Topology, planned: Sequence[Planned], timeout_s: float) -> dict[str, dict[str, Any]]:
    """For each requesting edge the task of `lab.client`; a probe's id is its place in `planned`."""
    probes: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for place, probe in enumerate(planned):
        probes[probe.dst_edge].append(
            {
                "id": place,
                "at_s": probe.at_s,
                "address": str(topology.address(probe.src_edge)),
                "port": nginx.PORT,
                "size": probe.size_bytes,
            }
        )
    return {edge: {"task": "probe", "timeout_s": timeout_s, "probes": listed} for edge, listed in probes.items()}


def load_tasks(topology: Topology, seconds: float, kind: Kind | None = None) -> dict[str, dict[str, Any]]:
    """For each requesting edge the task of `lab.client`: connections to every edge of the PoPs that serve its PoP.

    The traffic is of the topology's kind unless one is named.
    """
    kind = kind or topology.traffic.kind
    pace = sizes.SMALL_PACE if kind == "small" else 1
    targets: defaultdict[str, list[str]] = defaultdict(list)
    for src, dst in topology.busy_pairs():
        for src_edge, dst_edge in product(topology.pops[src].edges, topology.pops[dst].edges):
            targets[dst_edge] += [src_edge] * topology.traffic.connections
    return {
        edge: {
            "task": "load",
            "seed": f"{topology.seed}-{edge}",
            "seconds": seconds,
            "sizes": sizes.KINDS[kind],
            "pauses": kind != "bulk",
            "connections": [
                {
                    "address": str(topology.address(src_edge)),
                    "port": nginx.PORT,
                    "requests_per_s": pace * topology.traffic.requests_per_s,
                }
                for src_edge in src_edges
            ],
        }
        for edge, src_edges in targets.items()
    }

"""The emulator's configuration file, from a topology."""

from __future__ import annotations

from typing import Any

from lab.topology import GilbertElliott, Shape, Topology

# The device's name inside every namespace.
TUN = "wan0"


def namespace(lab: str, edge: str) -> str:
    """The namespace of an edge."""
    return f"st-{lab}-{edge}"


def render(topology: Topology, lab: str) -> dict[str, Any]:
    """springtide-wan's JSON: nodes, every directed path, and the one inside a PoP."""
    nodes = [
        {
            "name": edge,
            "netns": namespace(lab, edge),
            "tun": TUN,
            "pop": pop,
            "addresses": [str(address) for address in topology.edge(edge).addresses],
        }
        for edge, pop in topology.edges().items()
    ]
    paths = [
        {"src": src, "dst": dst, "shape": _shape(topology.delay_ms(src, dst), topology.shape(src, dst))}
        for src, dst in topology.pairs()
    ]
    # A PoP's own network is taken as clean and fast: only its delay is emulated.
    intra = _shape(topology.intra_rtt_ms / 2, Shape())
    return {"seed": topology.seed, "nodes": nodes, "intra": intra, "paths": paths}


def _shape(delay_ms: float, shape: Shape) -> dict[str, Any]:
    rendered: dict[str, Any] = {
        "delay_ms": delay_ms,
        "jitter_ms": shape.jitter_ms,
        # The queue is the one or the other.
        "queue_bytes": shape.queue_bytes if shape.queue_packets is None else 1 << 30,
        "duplicate": shape.duplicate,
    }
    if shape.rate_mbit is not None:
        rendered["rate_mbit"] = shape.rate_mbit
    if shape.poisson:
        rendered["poisson"] = True
    if shape.queue_packets is not None:
        rendered["queue_packets"] = shape.queue_packets
    if shape.policer is not None:
        rendered["policer"] = shape.policer.model_dump()
    if isinstance(shape.loss, GilbertElliott):
        rendered["loss"] = {"gilbert_elliott": shape.loss.model_dump()}
    elif shape.loss > 0:
        rendered["loss"] = {"bernoulli": shape.loss}
    return rendered

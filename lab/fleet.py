"""fleet.yaml, as Springtide reads it, from a topology."""

from __future__ import annotations

from typing import Any

from lab.topology import Topology


def fleet(topology: Topology) -> dict[str, Any]:
    """The content of fleet.yaml: every PoP with its region, prefixes and edges."""
    return {
        "version": 1,
        "pops": {
            name: {
                "region": pop.region,
                "prefixes": [str(prefix) for prefix in pop.prefixes],
                "edges": {edge: {"address": str(about.addresses[0])} for edge, about in pop.edges.items()},
            }
            for name, pop in topology.pops.items()
        },
    }

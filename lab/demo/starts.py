"""Edges of a lab that enforce by eBPF: what the policy says of them, which laws decide for them, and what their bundles
then start connections with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

from lab.topology import Topology

LAW = "start"
# Rounds of deciding and pushing: the second decision sees what the first one's windows did. Where edges pace it sees a
# share of the first one's starts, and the third what all of them did.
ROUNDS, PACED_ROUNDS = 2, 3
# Twenty seconds hold less evidence than five minutes, and a demo has few rounds: steps double, as slow start does.
START_POLICY: dict[str, Any] = {
    "duty_rounds": 1,
    "min_connections": 2,
    "trial_flights": 10,
    "trial_permille": 500,
    "step": 2.0,
    "hold_s": 60,
}
# As many rounds as by default.
DAMPING = {"half_life_s": 120, "max_suppress_s": 240}


@dataclass(frozen=True)
class Start:
    """Values of an edge's bundle for connections to a prefix; None is the kernel's default. Rates in bytes/s."""

    initcwnd: int | None = None
    start_rate: int | None = None
    connection_rate: int | None = None


def edges(topology: Topology) -> list[str]:
    """Those that enforce by eBPF."""
    return [edge for edge in topology.edges() if topology.enforced_by(edge) == "bpf"]


def rounds_of(topology: Topology) -> int:
    """Number of rounds of a demo where nobody gives one."""
    return PACED_ROUNDS if edges(topology) else ROUNDS


def laws(topology: Topology) -> list[str]:
    """The laws that decide on windows and rates, in their order."""
    return ["initcwnd", *([LAW] if edges(topology) else [])]


def decision(row: Mapping[str, Any]) -> dict[str, Any]:
    """A decision of the law of starts with the names that one of initial windows has."""
    return {
        "src_pop": row["src_pop"],
        "dst_pop": row["destination"],
        "ip_version": row["ip_version"],
        "initcwnd": row["window"] or None,
        "connections_earned": row.get("connections", 0),
        "reason": row["reason"],
    }


def merged(
    topology: Topology, windows: Iterable[dict[str, Any]], starting: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Each pair's decision that its source's first edge enforces."""
    paced = {name for name, pop in topology.pops.items() if topology.enforced_by(next(iter(pop.edges))) == "bpf"}
    mine = [one for one in starting if one["src_pop"] in paced and one["dst_pop"] in topology.pops]
    found = {(one["src_pop"], one["dst_pop"], one["ip_version"]) for one in mine}
    rest = [one for one in windows if (one["src_pop"], one["dst_pop"], one["ip_version"]) not in found]
    return [*mine, *rest]


def policy(topology: Topology) -> dict[str, Any]:
    """The sections of policy.yaml for edges that enforce by eBPF: how, and the law's pace."""
    chosen = edges(topology)
    if not chosen:
        return {}
    # A record of every connection: a lab has few.
    enforce: dict[str, Any] = {"record_permille": 1000, "max_trial_permille": START_POLICY["trial_permille"]}
    # A lab compares before and after.
    more: dict[str, Any] = {LAW: START_POLICY, "damping": DAMPING, "holdout": {"connection_permille": 0}}
    if len(chosen) == len(topology.edges()):
        enforce["by"] = "bpf"
    else:
        more["enforce_overrides"] = [{"edges": chosen, "by": "bpf", "reason": "the topology's enforce"}]
    return {"enforce": enforce, **more}


def published(files: Iterable[Path]) -> dict[str, list[Mapping[str, Any]]]:
    """The entries of each edge's bundle; edges by routes are left out."""
    bundles = [json.loads(file.read_text()) for file in files]
    return {one["edge"]: one["entries"] for one in bundles if one["enforce"]["by"] == "bpf"}


def start_of(entries: Iterable[Mapping[str, Any]], address: str) -> Start:
    """Start values of connections to an address: the longest match counts, and inherits nothing."""
    wanted = ip_address(address)
    matching = [one for one in entries if wanted in ip_network(one["prefix"])]
    found = max(matching, key=lambda one: ip_network(one["prefix"]).prefixlen, default={})
    return Start(found.get("initcwnd"), found.get("start_rate"), found.get("connection_rate"))

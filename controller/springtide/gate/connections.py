"""Reads a gate's input from the store: new connections of a rollout's edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import Any

from springtide.gate.judge import Destination, Inputs, Kind, Tally
from springtide.policy import GatePolicy
from springtide.store import Store
from springtide.store.files import sql

# Polls from this long before the first window show which connections existed already: the collector's longest time
# between two records of a socket is shorter (`--full-interval`).
_LOOK_BACK_S = 600

FRESHNESS = """
select host, max(time_unix_us) as newest
from tcp_samples
where time_unix_us >= {oldest:Int64} and time_unix_us < {until:Int64} and host in {hosts:Array(String)}
group by host
"""


def read(
    store: Store,
    policy: GatePolicy,
    targets: Mapping[str, Sequence[tuple[Destination, bool]]],
    changed: Sequence[str],
    begun_unix_s: float,
    since_unix_s: float,
    until_unix_s: float,
    wave: int,
    look: int,
) -> Inputs:
    """New connections since the wave, and of gate.before_s before the rollout begun. Raises StoreError."""
    before = begun_unix_s - policy.before_s
    moments = {
        "oldest": int((before - _LOOK_BACK_S) * 1e6),
        "before": int(before * 1e6),
        "begun": int(begun_unix_s * 1e6),
        "since": int(since_unix_s * 1e6),
        "until": int(until_unix_s * 1e6),
        "horizon_us": int(min(policy.watched_s, until_unix_s - since_unix_s) * 1e6),
    }
    rows = store.query(
        sql("gate/connections"),
        {**moments, **_parameters(targets), "lossy": policy.lossy_share, "rtt_ratio": policy.max_rtt_ratio},
    )
    tallies: dict[tuple[Kind, bool], dict[str, dict[str, Tally]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        counts = {name: row[name] for name in Tally.__dataclass_fields__}
        tallies[Kind(row["kind"]), bool(row["is_changed"])][row["host"]][row["side"]] = Tally(**counts)
    newest = {
        row["host"]: until_unix_s - row["newest"] / 1e6
        for row in store.query(
            FRESHNESS, {"oldest": moments["since"], "until": moments["until"], "hosts": list(changed)}
        )
    }
    return Inputs(dict(tallies), {edge: newest.get(edge) for edge in changed}, wave, look)


def _parameters(targets: Mapping[str, Sequence[tuple[Destination, bool]]]) -> dict[str, Any]:
    """Edges that have the same destinations share one set of them: a PoP's, mostly."""
    sets: dict[tuple[tuple[Destination, bool], ...], int] = {}
    classes: dict[tuple[Kind, bool, int, int], int] = {}
    hosts = {host: sets.setdefault(tuple(found), len(sets) + 1) for host, found in sorted(targets.items()) if found}
    rows = []
    for found, number in sets.items():
        for one, is_changed in found:
            network = ip_network(one.network)
            mapped = network.version == 4
            address = f"::ffff:{network.network_address}" if mapped else str(network.network_address)
            which = classes.setdefault((one.kind, is_changed, one.flight, one.young), len(classes) + 1)
            rows.append((number, address, network.prefixlen + 96 * mapped, which))
    return {
        "hosts": list(hosts),
        "sets": list(hosts.values()),
        "net_sets": [row[0] for row in rows],
        "nets": [row[1] for row in rows],
        "lens": [row[2] for row in rows],
        "net_classes": [row[3] for row in rows],
        "lengths": sorted({row[2] for row in rows}, reverse=True),
        "class_kinds": [kind for kind, _, _, _ in classes],
        "class_changed": [int(is_changed) for _, is_changed, _, _ in classes],
        "class_flights": [flight for _, _, flight, _ in classes],
        "class_young": [young for _, _, _, young in classes],
    }

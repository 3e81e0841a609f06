"""A round's evidence of each unit, and the group that the unit belongs to."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from springtide.frame import Frame
from springtide.laws.columns import Table, located
from springtide.laws.start.gain import Floats
from springtide.laws.start.groups import PLACE
from springtide.laws.start.policy import StartPolicy
from springtide.laws.step import forms
from springtide.laws.units import UNIT_KEY, keys, width
from springtide.store import Param, Store
from springtide.store.files import sql

# Columns that a round shows of a unit: core/src/step/start/evidence.rs.
SEEN = forms("start", "seen")
# The same with its unit, and whose estimates it may borrow (groups.py).
OBSERVED = np.dtype([*UNIT_KEY, *SEEN, ("group", "S64")])
# The same before groups are known. `listed`: whether it is decided on by what the round shows of it.
SHOWN = np.dtype(
    [*((name, OBSERVED[name]) for name in OBSERVED.names or () if name != "group"), *PLACE, ("listed", "u1")]
)
# A unit's group. Units without a row have none.
GROUPED = np.dtype([*UNIT_KEY, ("group", "S64")])

_CONNECTIONS = np.dtype([*UNIT_KEY, ("edge", "S64"), ("starts", "<f8")])
# Each edge's part of a unit's path rate, by source PoP, destination and IP version. They may add up to more than 1
# (bounded_parts).
Parts = Mapping[tuple[str, str, int], Mapping[str, float]]
# The largest part of one of three edges or more: it may have invented what begins there.
_MOST = 0.5


def observe(store: Store, round_unix_s: int, law: StartPolicy) -> Frame:
    """The round's evidence as SHOWN rows, sorted by unit. Listed are every pair of PoPs, and of each PoP at most
    law.max_prefixes client prefixes, those in use or with most to gain. First flights are those that started with what
    the last decisions before the round gave. Raises StoreError."""
    places = {
        "round_s": round_unix_s,
        "max_prefixes": law.max_prefixes,
        "half_prefixes": (law.max_prefixes + 1) // 2,
    }
    # Asked for first: most rounds have none that is crowded, and the engine then looks for no places.
    pops = store.query(sql("start/crowded"), places)
    crowded = [row["src_pop"] for row in pops if row["is_crowded"]]
    quantiles = {"share_quantile": law.share_quantile, "path_quantile": law.path_quantile}
    units = sum(int(row["units"]) for row in pops)
    longest = max((int(row["longest"]) for row in pops), default=0)
    parameters: dict[str, Param] = {**places, **quantiles, "crowded": crowded, "width": width(longest)}
    return store.frame(sql("start/evidence"), SHOWN, parameters, units)


def edge_parts(store: Store, round_unix_s: int, since_unix_s: int, units: Frame) -> Parts:
    """Each edge's part of the path's rate of these units: by the connections that began there in the rounds since <
    round <= until. Every edge that the fleet has in the unit's PoP has one. Raises StoreError."""
    started = store.columns(
        """
        select
            toFixedString(begun.src_pop, 64) as src_pop,
            toFixedString(begun.destination, 64) as destination,
            begun.ip_version as ip_version,
            toFixedString(begun.host, 64) as edge,
            -- As many as no edge has begun: their sums stay exact.
            toFloat64(least(sum(toUInt128(begun.starts)), 1000000000000)) as starts
        from round_path_starts as begun
        inner join fleet_edges on begun.host = fleet_edges.edge and begun.src_pop = fleet_edges.pop
        where
            begun.round > fromUnixTimestamp({since_s:UInt32})
            and begun.round <= fromUnixTimestamp({round_s:UInt32})
            and length(begun.src_pop) <= 63
            and length(begun.destination) <= 63
        group by begun.src_pop, begun.destination, begun.ip_version, begun.host
        """,
        _CONNECTIONS,
        {"round_s": round_unix_s, "since_s": since_unix_s},
    )
    of_pops: dict[bytes, list[bytes]] = {}
    for row in store.query("select edge, pop from fleet_edges order by pop, edge"):
        of_pops.setdefault(row["pop"].encode(), []).append(row["edge"].encode())
    wanted = units[np.argsort(keys(units), kind="stable")]
    found: dict[tuple[str, str, int], dict[str, float]] = {}
    for pop, edges in of_pops.items():
        own, names = wanted[wanted["src_pop"] == pop], [edge.decode() for edge in edges]
        parts = bounded_parts(_starts(edges, started[started["src_pop"] == pop], own)).tolist()
        for to, version, part in zip(own["destination"].tolist(), own["ip_version"].tolist(), parts, strict=True):
            found[pop.decode(), to.decode(), version] = dict(zip(names, part, strict=True))
    return found


def _starts(edges: list[bytes], started: Table, units: Frame) -> Floats:
    """Connections that began, by (unit, edge)."""
    counts = np.zeros((len(units), len(edges)))
    own_keys, unit_keys = keys(started), keys(units)
    for at, edge in enumerate(edges):
        of_edge = started["edge"] == edge
        rows = located(own_keys[of_edge], unit_keys)
        counts[rows >= 0, at] = started["starts"][of_edge][rows[rows >= 0]]
    return counts


def bounded_parts(starts: Floats) -> Floats:
    """Parts by (unit, edge) in proportion to what began there. Pure.

    None is below half of an equal part: what begins there next must not wait. That is not taken from the others, who
    would leave it unused: all parts together are less than one and a half. With three or more none is above a half.
    Where nothing began all are equal.
    """
    count = starts.shape[1]
    total = starts.sum(axis=1, keepdims=True)
    part = np.maximum(np.where(total > 0, starts / np.where(total > 0, total, 1.0), 1.0 / count), 1.0 / (2 * count))
    if count >= 3:
        high = part > _MOST
        others = np.where(high, 0.0, part)
        scale = np.maximum((1.0 - _MOST) / np.maximum(others.sum(axis=1, keepdims=True), 1e-12), 1.0)
        part = np.where(high.any(axis=1, keepdims=True), np.where(high, _MOST, others * scale), part)
    bounded: Floats = part
    return bounded

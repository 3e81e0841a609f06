"""Connections by whose they were (tenant) and where they went (autonomous system), from `round_slices`.

Started connections began with other values than the kernel's default, the others with those. They are compared within a
cell: the same round, PoP, destination PoP, IP version, tenant and system. A cell's difference is that of the mean
logarithms of its times, and weighs n1 n2 / (n1 + n2), the inverse of its variance where connections vary alike. The
interval is the percentile bootstrap's over rounds: connections of one round meet the same paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from springtide.laws.effect import LEVEL, RESAMPLES, SPAN, Effect, grouped
from springtide.store import Row, Store

# Systems with most connections; all tenants, of which a fleet has at most 64, and those of nobody.
MOST_SYSTEMS = 20
MOST_TENANTS = 65
# Fewest connections on a side, as many as prefixes; and rounds: fewer, drawn anew, are always the same few.
MINIMUM = 20
LEAST_ROUNDS = 5

# `name` is what rows are grouped by, `among` the rows that count.
_SLICES = """
with cells as (
    select
        round, {name} as name, pop, dst_pop, ip_version, tenant, dst_asn,
        sum(connections) as all_connections,
        sumIf(connections, started) as started_connections,
        sumIf(bytes_sent, started) as started_sent,
        sumIf(bytes_sent, not started) as default_sent,
        sumIf(bytes_retransmitted, started) as started_again,
        sumIf(bytes_retransmitted, not started) as default_again,
        sumIf(timed_connections, started) as started_timed,
        sumIf(timed_connections, not started) as default_timed,
        sumIf(busy_log2_thousandths, started) / 1000 as started_log2,
        sumIf(busy_log2_thousandths, not started) / 1000 as default_log2,
        if(
            started_timed > 0 and default_timed > 0,
            started_timed * default_timed / (started_timed + default_timed), 0
        ) as cell_weight,
        if(cell_weight > 0, started_log2 / started_timed - default_log2 / default_timed, 0) as cell_log2
    from round_slices
    where {span} and {among}
    group by round, name, pop, dst_pop, ip_version, tenant, dst_asn
)
select
    name, toUnixTimestamp(round) as round_s,
    sum(all_connections) as connections, sum(started_connections) as started,
    sum(cells.started_sent) as started_sent, sum(cells.default_sent) as default_sent,
    sum(cells.started_again) as started_again, sum(cells.default_again) as default_again,
    sum(cells.started_timed) as started_timed, sum(cells.default_timed) as default_timed,
    sum(cells.started_log2) as started_log2, sum(cells.default_log2) as default_log2,
    sum(cell_weight) as weight, sum(cell_weight * cell_log2) as weighted_log2
from cells
where name in (
    select largest.name from cells as largest
    group by largest.name order by sum(largest.all_connections) desc, largest.name limit {{most:UInt32}}
)
group by name, round_s
order by name, round_s
"""
TENANTS = _SLICES.format(span=SPAN, name="toString(tenant)", among="true")
SYSTEMS = _SLICES.format(span=SPAN, name="toString(dst_asn)", among="dst_pop = ''")

HEAD = (
    "by",
    "group",
    "connections",
    "started",
    "100 kB, default",
    "100 kB, started",
    "difference",
    "interval",
    "resent, default",
    "resent, started",
)


@dataclass(frozen=True)
class Slice:
    """Closed connections of a tenant, or to clients of a system, that delivered something.

    `started`: the share that began with other values than the kernel's default. Times: geometric means of the time with
    data outstanding of those that delivered 100 to 300 kB, ms; in `effect` treated and held out are how many those are.
    `resent`: of the bytes sent. None is unknown.
    """

    by: str
    group: str
    connections: int
    started: float
    default_ms: float | None
    started_ms: float | None
    effect: Effect
    default_resent: float | None
    started_resent: float | None

    def as_dict(self) -> dict[str, Any]:
        effect = self.effect
        return {
            "group": self.group,
            "connections": self.connections,
            "started_share": self.started,
            "default_100k_ms": self.default_ms,
            "started_100k_ms": self.started_ms,
            "default_100k_connections": effect.held_out,
            "started_100k_connections": effect.treated,
            "difference": effect.effect,
            "low": effect.low,
            "high": effect.high,
            "default_resent_share": self.default_resent,
            "started_resent_share": self.started_resent,
        }

    def cells(self) -> tuple[str, ...]:
        """As HEAD names them."""
        effect = self.effect
        known = effect.effect is not None and effect.low is not None and effect.high is not None
        return (
            self.by,
            self.group,
            f"{self.connections:,}",
            f"{self.started:.1%}",
            _ms(self.default_ms),
            _ms(self.started_ms),
            f"{effect.effect:+.1%}" if known else "too few",
            f"{effect.low:+.1%} to {effect.high:+.1%}" if known else "",
            _share(self.default_resent),
            _share(self.started_resent),
        )


def tenants(store: Store, span: Mapping[str, int]) -> list[Slice]:
    """By name, those of nobody last; empty where no connection had a tenant. Raises StoreError."""
    found = _read(store, TENANTS, span, MOST_TENANTS)
    names = sorted(found, key=lambda name: (name == "", name))
    return [of(found[name], "tenant", name or "none") for name in names] if names != [""] else []


def systems(store: Store, span: Mapping[str, int]) -> list[Slice]:
    """Clients' systems, those with most connections first; empty where no system is known. Raises StoreError."""
    found = _read(store, SYSTEMS, span, MOST_SYSTEMS)
    if set(found) <= {"0"}:
        return []
    rows = store.query("select toString(asn) as asn, any(name) as name from asn_prefixes group by asn")
    called = {row["asn"]: f"AS{row['asn']} {row['name']}".rstrip() for row in rows} | {"0": "unknown"}
    made = [of(rows, "AS", called.get(asn, f"AS{asn}")) for asn, rows in found.items()]
    return sorted(made, key=lambda one: (-one.connections, one.group))


def of(rows: Sequence[Row], by: str, group: str) -> Slice:
    """The slice of one group's rows, one a round, as the query gives them. Pure."""

    def total(name: str) -> float:
        return float(sum(row[name] for row in rows))

    def mean_ms(side: str) -> float | None:
        timed = total(f"{side}_timed")
        return float(2 ** (total(f"{side}_log2") / timed)) / 1000 if timed else None

    def resent(side: str) -> float | None:
        sent = total(f"{side}_sent")
        return total(f"{side}_again") / sent if sent else None

    return Slice(
        by,
        group,
        int(total("connections")),
        total("started") / max(total("connections"), 1),
        mean_ms("default"),
        mean_ms("started"),
        _effect(rows),
        resent("default"),
        resent("started"),
    )


def _effect(rows: Sequence[Row], seed: int = 0) -> Effect:
    ours, theirs = (int(sum(row[f"{side}_timed"] for row in rows)) for side in ("started", "default"))
    compared = [row for row in rows if row["weight"] > 0]
    if len(compared) < LEAST_ROUNDS or min(ours, theirs) < MINIMUM:
        return Effect(ours, theirs)
    sums = np.array([[row["weighted_log2"], row["weight"]] for row in compared], float)
    count = len(sums)
    times = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    drawn = times @ sums
    middle = sums[:, 0].sum() / sums[:, 1].sum()
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    shares = (float(2.0**log2 - 1) for log2 in (middle, low, high))
    return Effect(ours, theirs, *shares)


def _read(store: Store, sql: str, span: Mapping[str, int], most: int) -> dict[str, list[Row]]:
    return dict(grouped(store.query(sql, {**span, "most": most}), lambda row: str(row["name"])))


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f} ms"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"

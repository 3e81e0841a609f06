"""The benefit of initial windows: busy time of connections between PoPs, treated edges against held-out ones."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from springtide.laws.effect import SPAN, BenefitLine, by_size, difference, grouped
from springtide.store import Row

# A PoP has so few edges held out that only the fleet together has many: by edges the least is lower than by prefixes.
MINIMUM_EDGES = 10

BUSY = f"""
select
    host, src_pop, dst_pop, ip_version, size_class_bytes, sum(round_outcomes.connections) as connections,
    sum(round_outcomes.connections * log2(assumeNotNull(busy_p50_us))) / connections as log2_busy
from round_outcomes
where {SPAN} and dst_pop != '' and busy_p50_us > 0
    and ({{seen:UInt8}} = 0 or (round, host, dst_pop, ip_version) in (
        select round, host, dst_pop, ip_version from round_treatments
        where {SPAN}
        group by round, host, dst_pop, ip_version
        having countIf(seen = 'same') > 0 and countIf(seen = 'differs') = 0
    ))
group by host, src_pop, dst_pop, ip_version, size_class_bytes
order by host, src_pop, dst_pop, ip_version, size_class_bytes
"""


def edge_lines(rows: list[Row], held_out: Iterable[str], quantile: float) -> list[BenefitLine]:
    """Busy time of connections between PoPs by size: rows with host, src_pop, dst_pop, ip_version, size_class_bytes,
    connections, log2_busy. Negative is faster.

    An edge is one unit: its number is the mean over its destinations, by connections, of how much it differs from the
    median of its PoP's treated edges.
    """
    held = frozenset(held_out)
    lines = []
    for size, own in by_size(rows, lambda row: row["size_class_bytes"]):
        lines.append(_edge_line(own, held, "object size", size, quantile))
    for pop, own in grouped(rows, lambda row: str(row["src_pop"])):
        lines.append(_edge_line(own, held, "PoP", pop, quantile))
    lines.append(_edge_line(rows, held, "all", "all", quantile))
    return lines


def _edge_line(rows: list[Row], held: frozenset[str], by: str, group: str, quantile: float) -> BenefitLine:
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}

    def cell(row: Row) -> str:
        return "{src_pop} {dst_pop} {ip_version} {size_class_bytes}".format(**row)

    for _, same in grouped(rows, cell):
        treated = [row["log2_busy"] for row in same if row["host"] not in held]
        # A group that only one side has cannot be compared.
        if not treated or len(treated) == len(same):
            continue
        middle = float(np.median(treated))
        for row in same:
            host, weight = row["host"], float(row["connections"])
            sums[host] = sums.get(host, 0.0) + weight * (row["log2_busy"] - middle)
            weights[host] = weights.get(host, 0.0) + weight
    hosts = sorted(sums)
    effect = difference(
        [sums[host] / weights[host] for host in hosts],
        [host not in held for host in hosts],
        quantile=quantile,
        minimum=MINIMUM_EDGES,
    )
    return BenefitLine("initcwnd", "busy time", by, group, effect)

"""What the decisions are good for: treated against held-out, by group, from the round tables of a span of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from springtide.decide.benefit import Effect, difference
from springtide.decide.holdout import held_out_edges
from springtide.fleet import Fleet
from springtide.policy import Policy
from springtide.store import Row, Store

# The least microseconds of each group of round-trip times.
RTT_GROUPS = (0, 25_000, 75_000, 150_000, 300_000)
# A PoP has so few edges held out that only the fleet together has many: by edges the least is lower than by prefixes.
MINIMUM_EDGES = 10


@dataclass(frozen=True)
class Line:
    """One row of the report: of which law, by what, which group."""

    law: str
    outcome: str
    by: str
    group: str
    effect: Effect
    # decided: every unit as it was decided, whatever its sockets show (intention to treat). seen: only units whose
    # sockets show what was decided for them.
    units: str = "decided"


@dataclass(frozen=True)
class Report:
    """Benefits, and the article's figures: one value a round (None where it cannot be told)."""

    since: int
    until: int
    lines: list[Line]
    # Round, prefixes that use BBR, held out, new in the round.
    chosen: list[Row]
    # Round, and the 5th and 10th percentile over prefixes of their median delivery rates, treated and held out.
    low_rates: list[Row]
    # Round, 10th percentile of goodput of objects beyond congestion.min_object_bytes, treated and held out.
    goodput: list[Row]


def make(store: Store, fleet: Fleet, policy: Policy, since_unix_s: int, until_unix_s: int, quantile: float) -> Report:
    """The rounds with since < round <= until.

    Each difference twice. Over what was decided: a hash chose the sides, so that nothing but the treatment differs;
    where edges did not apply it the difference shrinks towards none. Over what sockets show: the effect of the
    treatment itself, but whatever kept some units from it may be what makes them slow or fast.
    """
    span = {"since": max(0, since_unix_s), "until": until_unix_s}
    prefixes = store.query(_GROWTH, {**span, "stay": policy.congestion.benefit_rounds * policy.round.interval_s})
    sizes = store.query(_GOODPUT_BY_SIZE, span)
    edges = store.query(_BUSY, {**span, "seen": 0})
    held_out = held_out_edges(fleet, policy.holdout)
    # In at least half of the rounds that show anything, they went as decided.
    used = {(row["pop"], row["client_prefix"]) for row in store.query(_USED, span)}

    def seen(rows: list[Row]) -> list[Row]:
        return [row for row in rows if (row["pop"], row["client_prefix"]) in used]

    decided = [
        *growth_lines(prefixes, quantile),
        *size_lines(sizes, quantile),
        *edge_lines(edges, held_out, quantile),
    ]
    as_seen = [
        *growth_lines(seen(prefixes), quantile),
        *size_lines(seen(sizes), quantile),
        *edge_lines(store.query(_BUSY, {**span, "seen": 1}), held_out, quantile),
    ]
    return Report(
        since_unix_s,
        until_unix_s,
        [*decided, *(replace(line, units="seen") for line in as_seen)],
        store.query(_CHOSEN, span),
        store.query(_LOW_RATES, span),
        store.query(_GOODPUT_BY_ROUND, {**span, "least": policy.congestion.min_object_bytes}),
    )


def growth_lines(rows: list[Row], quantile: float) -> list[Line]:
    """Growth of the delivery rate since each was chosen: rows with pop, ip_version, rtt_us, held_out, log2_growth."""
    groups: list[tuple[str, Callable[[Row], str]]] = [
        ("all", lambda row: "all"),
        ("PoP", lambda row: str(row["pop"])),
        ("prefix class", lambda row: "IPv4 /24" if row["ip_version"] == 4 else "IPv6 /56"),
        ("RTT", lambda row: rtt_group(row["rtt_us"])),
    ]
    return [
        Line("congestion", "delivery rate", by, group, _effect(chosen, "log2_growth", quantile))
        for by, of in groups
        for group, chosen in _grouped(rows, of)
    ]


def size_lines(rows: list[Row], quantile: float) -> list[Line]:
    """Goodput by size of object: rows with pop, size_class_bytes, held_out, log2_goodput."""
    return [
        Line("congestion", "goodput p10", "object size", size_group(int(size)), _effect(own, "log2_goodput", quantile))
        for size, own in _grouped(rows, lambda row: f"{row['size_class_bytes']:012}")
    ]


def edge_lines(rows: list[Row], held_out: Iterable[str], quantile: float) -> list[Line]:
    """Busy time of connections between PoPs by size: rows with host, src_pop, dst_pop, ip_version, size_class_bytes,
    connections, log2_busy. Negative is faster.

    An edge is one unit: its number is the mean over its destinations, by connections, of how much it differs from the
    median of its PoP's treated edges.
    """
    held = frozenset(held_out)
    lines = []
    for size, own in _grouped(rows, lambda row: f"{row['size_class_bytes']:012}"):
        lines.append(_edge_line(own, held, "object size", size_group(int(size)), quantile))
    for pop, own in _grouped(rows, lambda row: str(row["src_pop"])):
        lines.append(_edge_line(own, held, "PoP", pop, quantile))
    lines.append(_edge_line(rows, held, "all", "all", quantile))
    return lines


def _edge_line(rows: list[Row], held: frozenset[str], by: str, group: str, quantile: float) -> Line:
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}

    def cell(row: Row) -> str:
        return "{src_pop} {dst_pop} {ip_version} {size_class_bytes}".format(**row)

    for _, same in _grouped(rows, cell):
        treated = [row["log2_busy"] for row in same if row["host"] not in held]
        # What only one side shows is no comparison.
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
    return Line("initcwnd", "busy time", by, group, effect)


def rtt_group(rtt_us: float | None) -> str:
    if rtt_us is None:
        return "unknown"
    at = max(index for index, least in enumerate(RTT_GROUPS) if rtt_us >= least)
    low = RTT_GROUPS[at] // 1000
    return f"{low:03} to {RTT_GROUPS[at + 1] // 1000:03} ms" if at + 1 < len(RTT_GROUPS) else f"{low:03} ms and more"


def size_group(least_bytes: int) -> str:
    return f"from {least_bytes // 1000:,} kB"


def _effect(rows: list[Row], value: str, quantile: float) -> Effect:
    return difference(
        [row[value] for row in rows],
        [not row["held_out"] for row in rows],
        [str(row["pop"]) for row in rows],
        quantile=quantile,
    )


def _grouped(rows: Iterable[Row], of: Callable[[Row], str]) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(of(row), []).append(row)
    return sorted(groups.items())


_SPAN = "round > fromUnixTimestamp({since:UInt32}) and round <= fromUnixTimestamp({until:UInt32})"

# Each prefix's last decision that can be judged: over benefit_rounds, all of them since it was chosen.
_GROWTH = f"""
select pop, client_prefix, ip_version, held_out, rtt_us, log2(recent_rate / baseline_rate) as log2_growth
from congestion_decisions final
where {_SPAN} and selected_since is not null and baseline_rate > 0 and recent_rate > 0
    and toUnixTimestamp(round) - toUnixTimestamp(assumeNotNull(selected_since)) >= {{stay:UInt32}}
order by pop, client_prefix, round desc
limit 1 by pop, client_prefix
"""

_GOODPUT_BY_SIZE = f"""
select
    pop, client_prefix, size_class_bytes,
    max(chosen.held_out) as held_out,
    sum(requests * log2(greatest(assumeNotNull(goodput_p10_bytes_per_s), 1))) / sum(requests) as log2_goodput
from round_goodput
inner join (
    select round, pop, client_prefix, held_out from congestion_decisions final
    where {_SPAN} and selected_since is not null and selected_since < round
) as chosen using (round, pop, client_prefix)
where {_SPAN} and goodput_p10_bytes_per_s is not null
group by pop, client_prefix, size_class_bytes
order by pop, client_prefix, size_class_bytes
"""

_BUSY = f"""
select
    host, src_pop, dst_pop, ip_version, size_class_bytes, sum(round_outcomes.connections) as connections,
    sum(round_outcomes.connections * log2(assumeNotNull(busy_p50_us))) / connections as log2_busy
from round_outcomes
where {_SPAN} and dst_pop != '' and busy_p50_us > 0
    and ({{seen:UInt8}} = 0 or (round, host, dst_pop, ip_version) in (
        select round, host, dst_pop, ip_version from round_treatments
        where {_SPAN}
        group by round, host, dst_pop, ip_version
        having countIf(seen = 'same') > 0 and countIf(seen = 'differs') = 0
    ))
group by host, src_pop, dst_pop, ip_version, size_class_bytes
order by host, src_pop, dst_pop, ip_version, size_class_bytes
"""

_USED = f"""
select pop, client_prefix
from prefix_treatments
where {_SPAN} and seen != 'unknown'
group by pop, client_prefix
having 2 * countIf(seen = 'same') >= count()
"""

_CHOSEN = f"""
select
    toUnixTimestamp(round) as round_s, countIf(algorithm = 'bbr') as bbr, countIf(held_out) as held_out,
    countIf(action = 'enter') as new
from congestion_decisions final
where {_SPAN}
group by round_s
order by round_s
"""

_LOW_RATES = f"""
select
    toUnixTimestamp(round) as round_s,
    quantileExactIf(0.05)(rate, not chosen.held_out) as treated_p5,
    quantileExactIf(0.1)(rate, not chosen.held_out) as treated_p10,
    quantileExactIf(0.05)(rate, chosen.held_out) as held_out_p5,
    quantileExactIf(0.1)(rate, chosen.held_out) as held_out_p10
from (
    select round, pop, client_prefix, argMax(assumeNotNull(delivery_rate_p50_bytes_per_s), bytes_acked) as rate
    from round_prefixes
    where {_SPAN} and delivery_rate_p50_bytes_per_s > 0
    group by round, pop, client_prefix
) as rates
inner join (
    select pop, client_prefix, held_out from congestion_decisions final
    where {_SPAN} and selected_since is not null
    order by round desc limit 1 by pop, client_prefix
) as chosen using (pop, client_prefix)
group by round_s
order by round_s
"""

_GOODPUT_BY_ROUND = f"""
select
    toUnixTimestamp(round) as round_s,
    quantileExactIf(0.1)(assumeNotNull(goodput_p10_bytes_per_s), not chosen.held_out) as treated_p10,
    quantileExactIf(0.1)(assumeNotNull(goodput_p10_bytes_per_s), chosen.held_out) as held_out_p10
from round_goodput
inner join (
    select pop, client_prefix, held_out from congestion_decisions final
    where {_SPAN} and selected_since is not null
    order by round desc limit 1 by pop, client_prefix
) as chosen using (pop, client_prefix)
where {_SPAN} and size_class_bytes >= {{least:UInt64}} and goodput_p10_bytes_per_s is not null
group by round_s
order by round_s
"""

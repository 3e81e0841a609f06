"""The benefit of BBR: growth and goodput of chosen client prefixes, treated against held-out, and over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from springtide.laws.base import Figure
from springtide.laws.congestion.rows import DECISIONS
from springtide.laws.effect import SPAN, BenefitLine, Effect, by_size, difference, grouped
from springtide.store import Row, Store

# The least microseconds of each group of round-trip times.
RTT_GROUPS = (0, 25_000, 75_000, 150_000, 300_000)

MOST_SYSTEMS = 20

# Each prefix's last decision that can be judged: over benefit_rounds, all of them since it was chosen.
GROWTH = f"""
select pop, client_prefix, ip_version, held_out, rtt_us, log2(recent_rate / baseline_rate) as log2_growth,
    dictGetOrDefault('asns', 'asn', client_prefix, toUInt32(0)) as asn
from {DECISIONS}
where {SPAN} and selected_since is not null and baseline_rate > 0 and recent_rate > 0
    and toUnixTimestamp(round) - toUnixTimestamp(assumeNotNull(selected_since)) >= {{stay:UInt32}}
order by pop, client_prefix, round desc
limit 1 by pop, client_prefix
"""

GOODPUT_BY_SIZE = f"""
select
    pop, client_prefix, size_class_bytes,
    max(chosen.held_out) as held_out,
    sum(requests * log2(greatest(assumeNotNull(goodput_p10_bytes_per_s), 1))) / sum(requests) as log2_goodput
from round_goodput
inner join (
    select round, pop, client_prefix, held_out from {DECISIONS}
    where {SPAN} and selected_since is not null and selected_since < round
) as chosen using (round, pop, client_prefix)
where {SPAN} and goodput_p10_bytes_per_s is not null
group by pop, client_prefix, size_class_bytes
order by pop, client_prefix, size_class_bytes
"""

USED = f"""
select pop, client_prefix
from prefix_treatments
where {SPAN} and seen != 'unknown'
group by pop, client_prefix
having 2 * countIf(seen = 'same') >= count()
"""

CHOSEN = f"""
select
    toUnixTimestamp(round) as round_s, countIf(algorithm = 'bbr') as bbr, countIf(held_out) as held_out,
    countIf(action = 'enter') as new
from {DECISIONS}
where {SPAN}
group by round_s
order by round_s
"""

_LAST_CHOSEN = f"""
    select pop, client_prefix, held_out from {DECISIONS}
    where {SPAN} and selected_since is not null
    order by round desc limit 1 by pop, client_prefix
"""

LOW_RATES = f"""
select
    toUnixTimestamp(round) as round_s,
    quantileExactIf(0.05)(rate, not chosen.held_out) as treated_p5,
    quantileExactIf(0.1)(rate, not chosen.held_out) as treated_p10,
    quantileExactIf(0.05)(rate, chosen.held_out) as held_out_p5,
    quantileExactIf(0.1)(rate, chosen.held_out) as held_out_p10
from (
    select round, pop, client_prefix, argMax(assumeNotNull(delivery_rate_p50_bytes_per_s), bytes_acked) as rate
    from round_prefixes
    where {SPAN} and delivery_rate_p50_bytes_per_s > 0
    group by round, pop, client_prefix
) as rates
inner join ({_LAST_CHOSEN}) as chosen using (pop, client_prefix)
group by round_s
order by round_s
"""

GOODPUT_BY_ROUND = f"""
select
    toUnixTimestamp(round) as round_s,
    quantileExactIf(0.1)(assumeNotNull(goodput_p10_bytes_per_s), not chosen.held_out) as treated_p10,
    quantileExactIf(0.1)(assumeNotNull(goodput_p10_bytes_per_s), chosen.held_out) as held_out_p10
from round_goodput
inner join ({_LAST_CHOSEN}) as chosen using (pop, client_prefix)
where {SPAN} and size_class_bytes >= {{least:UInt64}} and goodput_p10_bytes_per_s is not null
group by round_s
order by round_s
"""


def growth_lines(rows: list[Row], quantile: float) -> list[BenefitLine]:
    """Growth of the delivery rate since each was chosen: rows with pop, ip_version, rtt_us, held_out, log2_growth, asn
    (0 unknown; of systems those with most prefixes)."""
    groups: list[tuple[str, Callable[[Row], str]]] = [
        ("all", lambda row: "all"),
        ("PoP", lambda row: str(row["pop"])),
        ("prefix class", lambda row: "IPv4 /24" if row["ip_version"] == 4 else "IPv6 /56"),
        ("RTT", lambda row: rtt_group(row["rtt_us"])),
    ]
    by_system = grouped([row for row in rows if row["asn"]], lambda row: f"AS{row['asn']}")
    largest = sorted(by_system, key=lambda system: -len(system[1]))[:MOST_SYSTEMS]
    found = [(by, *group) for by, of in groups for group in grouped(rows, of)]
    found += [("AS", *system) for system in largest]
    return [
        BenefitLine("congestion", "delivery rate", by, group, _effect(chosen, "log2_growth", quantile))
        for by, group, chosen in found
    ]


def size_lines(rows: list[Row], quantile: float) -> list[BenefitLine]:
    """Goodput by size of object: rows with pop, size_class_bytes, held_out, log2_goodput."""
    return [
        BenefitLine("congestion", "goodput p10", "object size", size, _effect(own, "log2_goodput", quantile))
        for size, own in by_size(rows, lambda row: row["size_class_bytes"])
    ]


def rtt_group(rtt_us: float | None) -> str:
    if rtt_us is None:
        return "unknown"
    at = max(index for index, least in enumerate(RTT_GROUPS) if rtt_us >= least)
    low = RTT_GROUPS[at] // 1000
    return f"{low:03} to {RTT_GROUPS[at + 1] // 1000:03} ms" if at + 1 < len(RTT_GROUPS) else f"{low:03} ms and more"


def _effect(rows: list[Row], value: str, quantile: float) -> Effect:
    return difference(
        [row[value] for row in rows],
        [not row["held_out"] for row in rows],
        [str(row["pop"]) for row in rows],
        quantile=quantile,
    )


def figures(store: Store, least_bytes: int, span: Mapping[str, int]) -> list[Figure]:
    """The article's figures, one value a round (None where it is unknown).

    `chosen`: prefixes that use BBR, held out, new in the round. `low_rates`: the 5th and 10th percentile over prefixes
    of their median delivery rates. `goodput`: the 10th percentile over objects beyond `least_bytes`.
    """
    megabits = 8e-6
    return [
        Figure(
            "low_rates",
            "Low delivery rates",
            "Of the prefixes chosen within this time, Mbit/s, before and after each was.",
            dict.fromkeys(("treated_p5", "held_out_p5", "treated_p10", "held_out_p10"), megabits),
            store.query(LOW_RATES, span),
        ),
        Figure(
            "goodput",
            "Goodput, 10th percentile",
            "Of large objects to the same prefixes, Mbit/s.",
            {"treated_p10": megabits, "held_out_p10": megabits},
            store.query(GOODPUT_BY_ROUND, {**span, "least": least_bytes}),
        ),
        Figure(
            "chosen",
            "Prefixes decided for BBR, and new ones in each round",
            "",
            {"bbr": 1.0, "new": 1.0},
            store.query(CHOSEN, span),
        ),
    ]

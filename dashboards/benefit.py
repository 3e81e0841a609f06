"""Benefit: treated against held-out."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard
from springtide.laws.congestion.rows import DECISIONS
from springtide.policy import HoldoutPolicy

from dashboards.build import choice, lines, row, rows, start, text

POP = "pop in (${pop:singlequote})"
# The side of each prefix that was chosen within the time shown, by its newest decision.
CHOSEN = f"""(
                    select pop, client_prefix, if(held_out, 'held out', 'treated') as side
                    from {DECISIONS}
                    where $__timeFilter(round) and {POP} and selected_since is not null
                    order by round desc limit 1 by pop, client_prefix
                ) as chosen using (pop, client_prefix)"""
# The law of springtide.laws.holdout over the hosts that sent samples.
HELD_OUT = """
select host from (
    select host,
        row_number() over (partition by pop order by SHA256(concat('springtide holdout\\0', host))) as place,
        count() over (partition by pop) as edges
    from (select distinct pop, toString(host) as host from round_hosts where $__timeFilter(round) and rows_seen > 0)
)
where edges >= ${min_edges:raw} and place <= greatest(1, round(${edge_share:raw} * edges))
order by host
"""
SIDE = "if(host in (${held_out:singlequote}), 'held out', 'treated')"

_NEWEST = "benefits final where until = (select max(until) from benefits where $__timeFilter(until))"


def benefit() -> Dashboard:
    """Long: panel after panel, as they stand on the screen."""
    made = start(
        "benefit",
        "Benefit",
        "What decisions are good for: treated against held-out, which a hash chose. Differences have their "
        "intervals, as `springtide measure` keeps them. Lines of both sides show, they do not prove.",
        choice(
            "pop",
            "PoP",
            "select distinct pop from round_hosts where $__timeFilter(round) order by pop",
            "PoPs whose prefixes and edges are compared.",
        ),
        text("edge_share", "Share held out", str(HoldoutPolicy().edge_share), "holdout.edge_share of your policy."),
        text("min_edges", "Least edges", str(HoldoutPolicy().min_edges), "holdout.min_edges of your policy."),
        choice(
            "held_out", "Edges held out", HELD_OUT, "Edges that keep the kernel's window, of those that sent samples."
        ),
    )
    return (
        made.with_row(row("As measured"))
        .with_panel(
            lines(
                "Difference of each law",
                "Treated beside the others over the day before, as measured every hour: negative is faster, but for "
                "BBR, of which it is the rate.",
                """
                select until as time, law as series, effect
                from benefits final
                where $__timeFilter(until) and by = 'all' and units = 'decided'
                order by time, series
                """,
                "percentunit",
                span=24,
            )
        )
        .with_panel(
            differences(
                "Groups",
                "Differences of the newest measured day by PoP, size of object and others. Decided: over all units; "
                "seen: over those whose sockets show it.",
                "by != 'path' and (src_pop = '' or src_pop in (${pop:singlequote}))",
            )
        )
        .with_panel(
            differences(
                "Paths",
                "Percentiles of the time of first flights over the newest measured day: connections that were given "
                "values, beside those of the same path that kept the default.",
                "by = 'path' and src_pop in (${pop:singlequote})",
            )
        )
        .with_row(row("BBR for the slowest prefixes"))
        .with_panel(_delivery("5th percentile", 0.05))
        .with_panel(_delivery("10th percentile", 0.1))
        .with_panel(
            lines(
                "Goodput, 10th percentile",
                "Over chosen prefixes, of their 10th percentile of goodput for objects of 100 KB and more.",
                f"""
                select round as time, side as series,
                    quantileExact(0.1)(goodput_p10_bytes_per_s) * 8 / 1000000 as goodput
                from round_goodput
                inner join {CHOSEN}
                where $__timeFilter(round) and {POP} and size_class_bytes >= 100000
                    and goodput_p10_bytes_per_s is not null
                group by time, series
                order by time, series
                """,
                "Mbits",
            )
        )
        .with_row(row("Initial windows between PoPs"))
        .with_panel(_completion("Completion time, median", 3, "median"))
        .with_panel(_completion("Completion time, 90th percentile", 5, "90th percentile"))
        .with_panel(
            rows(
                "Shown by sockets",
                "Rounds of pairs of an edge and a PoP, by whether new connections began with what was decided. The "
                "panels above are over all of them.",
                f"""
                select {SIDE} as side, countIf(seen = 'same') as same, countIf(seen = 'differs') as differs,
                    countIf(seen = 'unknown') as unknown
                from round_treatments
                where $__timeFilter(round) and src_pop in (${{pop:singlequote}})
                group by side
                order by side
                """,
                {},
            )
        )
        .with_row(row("By tenant and autonomous system"))
        .with_panel(_times_by_tenant())
        .with_panel(_slices("Tenants", "tenant", "if(tenant = '', 'none', toString(tenant))", "true"))
        .with_panel(
            _slices(
                "Clients by autonomous system",
                "system",
                "if(dst_asn = 0, 'unknown', concat('AS', toString(dst_asn)))",
                "dst_pop = ''",
            )
        )
    )


def counted(reading: str) -> str:
    """Counts the differences of the newest measured day that have this reading, over all units."""
    return f"select countIf(reading = '{reading}') as differences from {_NEWEST} and units = 'decided'"


def differences(title: str, description: str, among: str, *, height: int = 9) -> table.Panel:
    """Differences of the newest measured day with their intervals, the worst first."""
    return rows(
        title,
        description,
        f"""
        select law, outcome, by, group, effect, low, high, reading, treated_us / 1000 as treated_ms,
            held_out_us / 1000 as held_out_ms, treated, held_out, units, method
        from {_NEWEST} and {among}
        order by reading = 'worse' desc, abs(effect) desc, law, outcome, group
        limit 1000
        """,
        {
            **dict.fromkeys(("effect", "low", "high"), "percentunit"),
            **dict.fromkeys(("treated_ms", "held_out_ms"), "ms"),
        },
        height=height,
    )


def _slices(title: str, what: str, group: str, among: str) -> table.Panel:
    return rows(
        title,
        "Closed connections by whether they began with other values than the kernel's default. Times are geometric "
        "means of those that delivered 100 to 300 KB; over different paths: `springtide report` compares within each.",
        f"""
        select {group} as {what}, sum(round_slices.connections) as connections,
            100 * sumIf(round_slices.connections, started) / connections as started_percent,
            exp2(sumIf(busy_log2_thousandths, not started) / 1000
                / nullIf(sumIf(timed_connections, not started), 0)) / 1000 as default_100k_ms,
            exp2(sumIf(busy_log2_thousandths, started) / 1000
                / nullIf(sumIf(timed_connections, started), 0)) / 1000 as started_100k_ms,
            100 * sumIf(bytes_retransmitted, not started) / nullIf(sumIf(bytes_sent, not started), 0)
                as default_resent_percent,
            100 * sumIf(bytes_retransmitted, started) / nullIf(sumIf(bytes_sent, started), 0) as started_resent_percent
        from round_slices
        where $__timeFilter(round) and {POP} and {among}
        group by {what}
        order by connections desc, {what}
        limit 100
        """,
        {
            "started_percent": "percent",
            "default_100k_ms": "ms",
            "started_100k_ms": "ms",
            "default_resent_percent": "percent",
            "started_resent_percent": "percent",
        },
    )


def _times_by_tenant() -> timeseries.Panel:
    return lines(
        "Time of 100 KB by tenant",
        "Geometric mean of the time with data outstanding of closed connections that delivered 100 to 300 KB, of the "
        "ten tenants with most connections.",
        f"""
        select round as time,
            concat(if(tenant = '', 'none', toString(tenant)), if(started, ', started', ', default')) as series,
            exp2(sum(busy_log2_thousandths) / 1000 / sum(timed_connections)) / 1000 as busy_ms
        from round_slices
        where $__timeFilter(round) and {POP} and tenant in (
            select tenant from round_slices where $__timeFilter(round) and {POP}
            group by tenant order by sum(connections) desc, tenant limit 10
        )
        group by time, series
        having sum(timed_connections) > 0
        order by time, series
        """,
        "ms",
        span=24,
    )


def _delivery(what: str, quantile: float) -> timeseries.Panel:
    return lines(
        f"Delivery rate, {what}",
        "Over chosen prefixes, of their median delivery rates, before and after each was chosen.",
        f"""
                select round as time, side as series, quantileExact({quantile})(rate) * 8 / 1000000 as delivery
                from (
                    select round, pop, client_prefix, argMax(delivery_rate_p50_bytes_per_s, bytes_acked) as rate
                    from round_prefixes
                    where $__timeFilter(round) and {POP} and delivery_rate_p50_bytes_per_s > 0
                    group by round, pop, client_prefix
                ) as rates
                inner join {CHOSEN}
                group by time, series
                order by time, series
        """,
        "Mbits",
    )


def _completion(title: str, place: int, what: str) -> timeseries.Panel:
    return lines(
        title,
        f"Time with data outstanding of connections between PoPs that delivered 30 KB and more: {what} over closed "
        "ones.",
        f"""
        select round as time, {SIDE} as series,
            arrayElement(springtide_quantiles(busy_state), {place})
            / 1000 as busy_ms
        from completions
        where $__timeFilter(round) and src_pop in (${{pop:singlequote}}) and dst_pop != '' and from_kb >= 30
        group by time, series
        order by time, series
        """,
        "ms",
    )

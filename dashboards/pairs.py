"""PoP pairs: learnt windows over time, the evidence, and why."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard
from springtide.policy import BundlePolicy

from dashboards.build import choice, lines, row, rows, start, text
from dashboards.probes import SHOWN, panels

WHICH = "src_pop in (${src:singlequote}) and dst_pop in (${dst:singlequote})"
# `destination` is the other PoP.
DECISIONS = "(select *, destination as dst_pop from path_decisions final where part = 'initcwnd')"
PAIR = "concat(src_pop, ' → ', dst_pop, if(ip_version = 6, ' IPv6', ''))"


def pairs() -> Dashboard:
    """Long: panel after panel, as they stand on the screen."""
    made = start(
        "pairs",
        "PoP pairs",
        "The initial congestion window of each ordered pair of PoPs: what was learnt, from what, and why.",
        choice(
            "src",
            "From",
            pops("src_pop", "server_pop"),
            "PoPs whose edges send.",
        ),
        choice(
            "dst",
            "To",
            pops("dst_pop", "pop"),
            "PoPs that are sent to.",
        ),
        text("ttl_s", "Life of a bundle, s", str(BundlePolicy().ttl_s), "bundle.ttl_s of your policy."),
    )
    made = (
        made.with_row(row("Learnt"))
        .with_panel(
            lines(
                "Learnt windows",
                "What new connections should start with, segments; a gap is the kernel's default of 10. What they do "
                "start with is below.",
                f"""
                select round as time, {PAIR} as series, toFloat64(initcwnd) as initcwnd
                from {DECISIONS}
                where $__timeFilter(round) and {WHICH} and initcwnd > 0
                order by time, series
                """,
                "short",
            )
        )
        .with_panel(
            lines(
                "Earned windows",
                "Mean window of connections that had a whole window acknowledged within the round, segments: what "
                "is learnt from.",
                f"""
                select round as time, {PAIR} as series, cwnd_mean
                from pairs where $__timeFilter(round) and {WHICH} and cwnd_mean is not null
                order by time, series
                """,
                "short",
            )
        )
        .with_row(row("Evidence"))
        .with_panel(
            lines(
                "Connections",
                "Seen established, and those of them that earned their window. Only the latter count.",
                f"""
                select round as time, sum(connections_seen) as seen, sum(connections_earned) as earned,
                    sum(young_connections) as young
                from round_pairs where $__timeFilter(round) and {WHICH}
                group by round
                order by time
                """,
                "short",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Retransmissions",
                "Bytes sent again, percent of those sent. A window falls by what young connections lose, not by this.",
                f"""
                select round as time, {PAIR} as series, retransmit_percent
                from pairs where $__timeFilter(round) and {WHICH} and retransmit_percent is not null
                order by time, series
                """,
                "percent",
                span=8,
                steps=((0, "transparent"), (3, "red")),
            )
        )
        .with_panel(
            lines(
                "Round-trip time",
                "Median of smoothed round-trip times of connections that had bytes acknowledged.",
                f"""
                select round as time, {PAIR} as series, rtt_ms
                from pairs where $__timeFilter(round) and {WHICH} and rtt_ms is not null
                order by time, series
                """,
                "ms",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Held back by the receiver",
                "Time in which the receiver's window was the limit, percent of the time with data outstanding. "
                "There a larger "
                "initial window needs a larger tcp_rmem at the receiver first.",
                f"""
                select round as time, {PAIR} as series, receiver_limited_percent
                from pairs where $__timeFilter(round) and {WHICH} and receiver_limited_percent is not null
                order by time, series
                """,
                "percent",
            )
        )
        .with_panel(
            lines(
                "Windows by connection",
                "10th, 50th and 90th percentile of earned windows over the pairs chosen above, segments.",
                f"""
                select round as time, avg(cwnd_p10) as p10, avg(cwnd_p50) as p50, avg(cwnd_p90) as p90
                from pairs where $__timeFilter(round) and {WHICH} and cwnd_p50 is not null
                group by round
                order by time
                """,
                "short",
            )
        )
        .with_row(row("Why"))
        .with_panel(
            lines(
                "Reasons",
                "The rule that made each decision what it is; `springtide explain SRC DST` shows one in full.",
                f"""
                select round as time, toString(reason) as series, count() as decisions
                from {DECISIONS} where $__timeFilter(round) and {WHICH}
                group by time, series
                order by time, series
                """,
                "short",
                stacked=True,
                span=24,
            )
        )
        .with_panel(
            rows(
                "Newest decisions",
                "The newest decision of each pair with its inputs, as the law saw them. Bundles leave out what would "
                "expire before them.",
                f"""
                select src_pop, dst_pop, ip_version, toString(action) as decided, nullIf(initcwnd, 0) as initcwnd,
                    action = 'set' and reason != 'override'
                        and coalesce(expires_at < round + ${{ttl_s:raw}}, true) as left_out,
                    nullIf(previous_initcwnd, 0) as previous_initcwnd,
                    toString(reason) as because, connections_earned, connections_seen, observed_cwnd, smoothed_cwnd,
                    target_cwnd, receiver_cwnd, 100 * retransmit_ratio as retransmit_percent,
                    if(young_connections > 0, 100 * young_lossy_connections / young_connections, null)
                        as young_lossy_percent, nullIf(ceiling_initcwnd, 0) as ceiling_initcwnd,
                    measured_rounds, penalty, suppressed, guard_until,
                    expires_at, round as decided_at
                from {DECISIONS}
                where $__timeFilter(round) and {WHICH}
                order by round desc
                limit 1 by src_pop, dst_pop, ip_version
                """,
                {"retransmit_percent": "percent", "young_lossy_percent": "percent"},
                links={
                    "dst_pop": (
                        "Its connections",
                        "/d/springtide-connections?var-peer=${__value.raw}&${__url_time_range}",
                    )
                },
            )
        )
        .with_panel(
            rows(
                "Decided and seen",
                "What new connections of each edge began with in the newest round, the most frequent first, beside "
                "what the edge was given: those that differ come first.",
                f"""
                select host, src_pop, dst_pop, ip_version, decided_cwnd, toString(seen) as shown,
                    arrayStringConcat(arrayMap(x -> toString(x), first_cwnds), ' ') as began_with,
                    exact_connections, told_connections, bbr_connections
                from round_treatments
                where round = (select max(round) from rollups final where $__timeFilter(round)) and {WHICH}
                order by seen desc, host, dst_pop, ip_version
                limit 500
                """,
                {},
            )
        )
        .with_panel(
            rows(
                "Changes",
                "Every change of a window in the time shown, newest first.",
                f"""
                select round as decided_at, src_pop, dst_pop, ip_version,
                    nullIf(previous_initcwnd, 0) as previous_initcwnd, nullIf(initcwnd, 0) as initcwnd,
                    toString(reason) as because, observed_cwnd, connections_earned
                from {DECISIONS}
                where $__timeFilter(round) and {WHICH} and coalesce(initcwnd, 0) != coalesce(previous_initcwnd, 0)
                order by round desc, src_pop, dst_pop
                limit 500
                """,
                {},
            )
        )
        .with_row(row("Probes"))
    )
    for panel in panels():
        made.with_panel(panel)
    return made


def pops(end: str, of_probes: str) -> str:
    """PoPs at that end of pairs with traffic, or with probes alone."""
    return f"""
        select distinct {end} from (
            select {end} from pairs where $__timeFilter(round)
            union all
            select {of_probes} as {end} from probes where {SHOWN} and server_pop != ''
        )
        order by {end}
    """

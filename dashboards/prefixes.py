"""Prefixes: which client prefixes were decided for BBR, which use it, how many are new, and how calm that is."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard
from springtide.laws.congestion.rows import DECISIONS

from dashboards.build import PREFIX, choice, lines, row, rows, start, text

WHICH = f"pop in (${{pop:singlequote}}) and position({PREFIX}, ${{prefix:sqlstring}}) > 0"
SEEN = "pop in (${pop:singlequote}) and position(prefix, ${prefix:sqlstring}) > 0"
CHOSEN = "selected_since is not null"


def prefixes() -> Dashboard:
    """Long: panel after panel, as they stand on the screen."""
    made = start(
        "prefixes",
        "Prefixes",
        "Which client prefixes (/24, /56) of each PoP were decided for BBR instead of the kernel's default, why, and "
        "whether they use it.",
        choice(
            "pop",
            "PoP",
            "select distinct src_pop as pop from path_decisions "
            "where part = 'congestion' and $__timeFilter(round) order by pop",
            "PoPs that decide for their clients.",
        ),
        text("prefix", "Prefix", "", "Part of a prefix, such as 198.51.100; empty: all."),
    )
    return (
        made.with_panel(
            lines(
                "Selected",
                "Chosen prefixes by what was decided: BBR, or the default where they are held out for comparison.",
                f"""
                select round as time, countIf(algorithm = 'bbr') as bbr, countIf(held_out) as held_out
                from {DECISIONS} where $__timeFilter(round) and {WHICH}
                group by round
                order by time
                """,
                "short",
                span=8,
            )
        )
        .with_panel(
            lines(
                "New per round",
                "Prefixes that were chosen and that were let go in each round. Edgecast's article saw few new ones.",
                f"""
                select round as time, countIf(action = 'enter') as entered, countIf(action = 'leave') as let_go
                from {DECISIONS} where $__timeFilter(round) and {WHICH}
                group by round
                order by time
                """,
                "short",
                span=8,
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "New, of those selected",
                "Prefixes chosen in the round, percent of all chosen.",
                f"""
                select round as time, 100 * countIf(action = 'enter') / countIf({CHOSEN}) as new_percent
                from {DECISIONS} where $__timeFilter(round) and {WHICH}
                group by round having countIf({CHOSEN}) > 0
                order by time
                """,
                "percent",
                span=8,
                steps=((0, "transparent"), (10, "orange")),
            )
        )
        .with_panel(
            lines(
                "Duty cycle",
                "Share of the window's measured rounds that chosen prefixes spent among their PoP's slowest; "
                "congestion.enter_duty and leave_duty are what low rounds must exceed or fall short of.",
                f"""
                select round as time, 100 * quantileExact(0.1)(duty) as p10, 100 * quantileExact(0.5)(duty) as p50,
                    100 * quantileExact(0.9)(duty) as p90
                from (
                    select round, low_rounds / measured_rounds as duty
                    from {DECISIONS}
                    where $__timeFilter(round) and {WHICH} and {CHOSEN} and measured_rounds > 0
                )
                group by round
                order by time
                """,
                "percent",
            )
        )
        .with_panel(
            lines(
                "Flap rate",
                "How often chosen prefixes came among the slowest or went, percent of measured rounds: above "
                "congestion.max_flap_rate a prefix is not chosen.",
                f"""
                select round as time, 100 * avg(flap) as mean, 100 * max(flap) as highest
                from (
                    select round, state_changes / measured_rounds as flap
                    from {DECISIONS}
                    where $__timeFilter(round) and {WHICH} and measured_rounds > 0
                )
                group by round
                order by time
                """,
                "percent",
            )
        )
        .with_panel(
            lines(
                "Reasons",
                "The rule that made each decision what it is; `springtide explain POP PREFIX` shows one in full.",
                f"""
                select round as time, toString(reason) as series, count() as decisions
                from {DECISIONS} where $__timeFilter(round) and {WHICH}
                group by time, series
                order by time, series
                """,
                "short",
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Delivery rate by algorithm",
                "Median over prefixes of their median delivery rates, of connections under each algorithm.",
                f"""
                select round as time, algorithm as series, quantileExact(0.5)(delivery_p50_mbit_per_s) as delivery
                from prefixes
                where $__timeFilter(round) and {SEEN} and not back_office and delivery_p50_mbit_per_s is not null
                group by time, series
                order by time, series
                """,
                "Mbits",
            )
        )
        .with_row(row("Each prefix"))
        .with_panel(
            rows(
                "Newest decisions",
                "Every prefix that is chosen, was let go, is consistently slow or must wait, with the inputs of the "
                "law.",
                f"""
                select pop, {PREFIX} as prefix, toString(action) as decided, toString(algorithm) as should_use,
                    held_out, toString(reason) as because,
                    100 * low_rounds / nullIf(measured_rounds, 0) as duty_percent,
                    100 * state_changes / nullIf(measured_rounds, 0) as flap_percent, measured_rounds,
                    rtt_us / 1000 as rtt_ms, 100 * retransmit_ratio as retransmit_percent,
                    recent_rate * 8 / 1000000 as recent_mbit_per_s, baseline_rate * 8 / 1000000 as baseline_mbit_per_s,
                    100 * benefit as benefit_percent, selected_since, hold_until, penalty, suppressed,
                    round as decided_at
                from {DECISIONS}
                where $__timeFilter(round) and {WHICH}
                order by round desc, pop, prefix
                limit 1 by pop, prefix
                limit 1000
                """,
                {
                    "duty_percent": "percent",
                    "flap_percent": "percent",
                    "rtt_ms": "ms",
                    "retransmit_percent": "percent",
                    "recent_mbit_per_s": "Mbits",
                    "baseline_mbit_per_s": "Mbits",
                    "benefit_percent": "percent",
                },
                links={
                    "prefix": (
                        "Its connections",
                        "/d/springtide-connections?var-prefix=${__value.raw}&${__url_time_range}",
                    )
                },
            )
        )
        .with_panel(
            rows(
                "Decided and seen",
                "What the bytes of chosen prefixes went by in the newest decided round: those that differ first.",
                f"""
                select pop, prefix, toString(decided) as should_use, held_out, toString(seen) as shown,
                    100 * bbr_share as bbr_percent, known_bytes
                from prefix_treatments
                where round = (select max(round) from {DECISIONS} where $__timeFilter(round)) and {SEEN}
                order by shown, pop, prefix
                limit 1000
                """,
                {"bbr_percent": "percent", "known_bytes": "decbytes"},
            )
        )
        .with_panel(
            rows(
                "What prefixes get",
                "Over the time shown, chosen or not, slowest first.",
                f"""
                select pop, prefix, sum(prefixes.connections) as connections,
                    arrayElement(springtide_quantiles(delivery_rate_state), 1)
                        * 8 / 1000000 as delivery_p10_mbit_per_s,
                    arrayElement(springtide_quantiles(delivery_rate_state), 3)
                        * 8 / 1000000 as delivery_p50_mbit_per_s,
                    arrayElement(springtide_quantiles(rtt_state), 3)
                    / 1000 as rtt_p50_ms,
                    100 * sum(bytes_retransmitted) / nullIf(sum(bytes_sent), 0) as retransmit_percent
                from prefixes
                where $__timeFilter(round) and {SEEN} and not back_office
                group by pop, prefix
                order by delivery_p10_mbit_per_s
                limit 200
                """,
                {
                    "delivery_p10_mbit_per_s": "Mbits",
                    "delivery_p50_mbit_per_s": "Mbits",
                    "rtt_p50_ms": "ms",
                    "retransmit_percent": "percent",
                },
                links={
                    "prefix": (
                        "Its connections",
                        "/d/springtide-connections?var-prefix=${__value.raw}&${__url_time_range}",
                    )
                },
            )
        )
    )

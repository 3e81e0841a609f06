"""Starts: how fast and how wide connections begin on edges that pace, and what that does."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.build import choice, lines, number, paths_by, percentiles, row, rows, start, text

AMONG = "part = 'start' and src_pop in (${src:singlequote}) and position(destination, ${destination:sqlstring}) > 0"
DECIDED = f"path_decisions final where {AMONG} and $__timeFilter(round)"
NEWEST = f"{DECIDED} and round = (select max(round) from {DECIDED})"
HELD = "coalesce(hold_until, round) > round"
# The state of a path, as core/src/step/start/mod.rs has them.
STATE = f"multiIf(trial_window > 0, 'on trial', {HELD}, 'held', window > 0, 'in use', 'default')"
# A round trip, and 100 kB at the rate that is in use: as the limit is defined in docs/explanation/start.md.
LIMIT_US = "(min_rtt_us + 1e11 / connection_rate)"
TIMED = "connection_rate > 0 and t100_0_us > 0 and min_rtt_us > 0"


def starts() -> Dashboard:
    """Long: panel after panel, as they stand on the screen."""
    made = start(
        "starts",
        "Starts",
        "How connections start on edges that pace: rates, windows, trials and holds by path, and what they do "
        "(docs/explanation/start.md).",
        choice(
            "src",
            "From",
            "select distinct src_pop from path_decisions where part = 'start' and $__timeFilter(round) "
            "order by src_pop",
            "PoPs whose edges send.",
        ),
        text("destination", "To", "", "Part of a PoP's name or of a client prefix; empty: all."),
    )
    return (
        made.with_row(row("Newest round"))
        .with_panel(
            number(
                "Paths with a start of their own",
                "Paths whose connections all begin with values of their own.",
                f"select countIf(window > 0) as paths from {NEWEST}",
                "short",
            )
        )
        .with_panel(
            number(
                "On trial",
                "Paths where a share of connections tries values.",
                f"select countIf(trial_window > 0) as paths from {NEWEST}",
                "short",
            )
        )
        .with_panel(
            number(
                "Held",
                "Paths where a start failed: nothing near it is tried until the hold ends.",
                f"select countIf({HELD}) as paths from {NEWEST}",
                "short",
            )
        )
        .with_panel(
            number(
                "Times the limit",
                "Median over paths: the time of the first 100 kB, over a round trip and 100 kB at the rate in use. "
                "It may be a little below one: the first ten segments leave at once, whatever the rate.",
                f"select quantileIf(0.5)(t100_0_us / {LIMIT_US}, {TIMED}) as ratio from {NEWEST} having ratio > 0",
                "none",
                steps=((0, "green"), (1.25, "yellow"), (2, "red")),
            )
        )
        .with_panel(
            number(
                "First flights that lost something",
                "Percent of those with the values in use.",
                f"select 100 * sum(lossy_0) / sum(flights_0) as percent from {NEWEST} having sum(flights_0) > 0",
                "percent",
            )
        )
        .with_panel(
            number(
                "Brakes",
                "First flights that began with less than the bundle says, because an edge's brake had acted.",
                f"select sum(braked) as flights from {NEWEST}",
                "short",
                steps=((0, "text"), (1, "yellow")),
            )
        )
        .with_row(row("Over time"))
        .with_panel(
            paths_by(
                "Paths by state",
                "on trial and held also count paths that have values in use.",
                STATE,
                DECIDED,
            )
        )
        .with_panel(
            percentiles(
                "Rates in use",
                "10th, 50th and 90th percentile over paths of the rate of a single connection.",
                "connection_rate",
                f"{DECIDED} and connection_rate > 0",
                "Bps",
            )
        )
        .with_panel(
            percentiles(
                "Windows in use",
                "10th, 50th and 90th percentile over paths, segments; the kernel's is 10.",
                "window",
                f"{DECIDED} and window > 0",
                "short",
            )
        )
        .with_panel(
            percentiles(
                "Times the limit by round",
                "Time of the first 100 kB, over a round trip and 100 kB at the rate in use: 50th and 90th percentile "
                "over paths. One is as fast as that rate allows; the first ten segments leave at once.",
                f"t100_0_us / {LIMIT_US}",
                f"{DECIDED} and {TIMED}",
                "none",
                shares=(0.5, 0.9),
                steps=((0, "green"), (1.25, "yellow")),
            )
        )
        .with_panel(
            percentiles(
                "Times the default's time",
                "Time of the first 100 kB with the values in use, over that with the kernel's default: 50th and 90th "
                "percentile over paths whose default was timed lately. A path above one has got worse.",
                "t100_0_us / default_t100_us",
                f"{DECIDED} and t100_0_us > 0 and default_t100_us > 0",
                "none",
                shares=(0.5, 0.9),
                steps=((0, "green"), (1, "red")),
            )
        )
        .with_panel(
            lines(
                "First flights lost",
                "Percent of first flights that lost something: with the values in use, with those on trial, and longer "
                "ones with the kernel's default.",
                f"""
                select round as time, 100 * sum(lossy_0) / nullIf(sum(flights_0), 0) as in_use,
                    100 * sum(lossy_1) / nullIf(sum(flights_1), 0) as on_trial,
                    100 * sum(default_lossy) / nullIf(sum(default_flights), 0) as kernels_default
                from {DECIDED}
                group by round
                order by time
                """,
                "percent",
                span=8,
            )
        )
        .with_row(row("Paths"))
        .with_panel(
            rows(
                "Paths now",
                "The newest round, the furthest from its limit first. `springtide explain` says why.",
                f"""
                select src_pop, destination, ip_version, {STATE} as state, toString(reason) as because, window,
                    connection_rate, trial_connection_rate, trial_permille / 10 as trial_percent,
                    min_rtt_us / 1e6 as rtt_s, if({TIMED}, t100_0_us / 1e6, null) as time_100_kb_s,
                    if({TIMED}, {LIMIT_US} / 1e6, null) as limit_s, time_100_kb_s / limit_s as times_the_limit,
                    if(default_t100_us > 0, default_t100_us / 1e6, null) as default_100_kb_s,
                    100 * lossy_0 / nullIf(flights_0, 0) as lossy_percent, hold_until
                from {NEWEST}
                order by times_the_limit desc nulls last, src_pop, destination, ip_version
                limit 200
                """,
                {
                    **dict.fromkeys(("connection_rate", "trial_connection_rate"), "Bps"),
                    **dict.fromkeys(("rtt_s", "time_100_kb_s", "limit_s", "default_100_kb_s"), "s"),
                    **dict.fromkeys(("trial_percent", "lossy_percent"), "percent"),
                },
                height=12,
            )
        )
    )

"""Rollouts and drift: what was done to the fleet, what gates saw, what edges hold."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.build import choice, lines, number, row, rows, start

WHICH = "event in (${event:singlequote})"
# A gate's details: questions, of each its signals, and of each the shares of both groups before and after.
SHARE = (
    "100 * JSONExtractFloat(details, 'routes', '{signal}', '{group}', 'hits') / "
    "nullIf(JSONExtractFloat(details, 'routes', '{signal}', '{group}', 'of'), 0)"
)


def _share(signal: str, group: str) -> str:
    return SHARE.format(signal=signal, group=group)


def rollouts() -> Dashboard:
    """Long: panel after panel, as they stand on the screen."""
    made = start(
        "rollouts",
        "Rollouts and drift",
        "Who did what to the fleet, when and why: the audit. The marks on every other dashboard are made from it.",
        choice(
            "event",
            "Event",
            "select distinct event from audit final where $__timeFilter(at) order by event",
            "Kinds of events in the tables and the chart.",
        ),
    )
    for title, description, condition, steps in (
        ("Publications", "Rounds that were published in the time shown.", "event = 'publish'", ((0, "text"),)),
        ("Waves", "Waves that were applied in the time shown.", "event = 'wave'", ((0, "text"),)),
        (
            "Gates that waited",
            "Gates that had too few samples to judge by.",
            "event = 'gate' and verdict = 'wait'",
            ((0, "green"), (1, "orange")),
        ),
        (
            "Gates that rolled back",
            "Gates that saw harm beside unchanged edges.",
            "event = 'gate' and verdict = 'roll back'",
            ((0, "green"), (1, "red")),
        ),
        (
            "Taken back",
            "Rollbacks and withdrawals, by gates or by people.",
            "event in ('rollback', 'withdraw') and verdict != 'begun'",
            ((0, "green"), (1, "orange")),
        ),
        (
            "Drift",
            "Searches that found edges with something else than was published, or without an answer.",
            "event = 'drift' and verdict != 'none'",
            ((0, "green"), (1, "red")),
        ),
    ):
        sql = f"select countIf({condition}) as events from audit final where $__timeFilter(at)"
        made.with_panel(number(title, description, sql, "short", steps=steps))
    return (
        made.with_panel(
            lines(
                "Events",
                "Events of the audit by kind, for each interval of the chart.",
                f"""
                select $__timeInterval(at) as time, toString(event) as series, count() as events
                from audit final where $__timeFilter(at) and {WHICH}
                group by time, series
                order by time, series
                """,
                "short",
                stacked=True,
                span=24,
                height=6,
            )
        )
        .with_panel(
            rows(
                "Audit",
                "Every event, newest first; `springtide history` prints the same.",
                f"""
                select at, toString(who) as who, toString(event) as event, toString(verdict) as verdict, reason,
                    publication,
                    length(edges) as edge_count, arrayStringConcat(arraySlice(edges, 1, 20), ' ') as some_edges, digest
                from audit final where $__timeFilter(at) and {WHICH}
                order by audit.at desc, id
                limit 1000
                """,
                {},
                height=10,
            )
        )
        .with_panel(
            rows(
                "What gates saw",
                "New connections that lost of their first flight, and slow ones, of changed and of unchanged edges, "
                "before the rollout and after the wave. A gate judges how much more the changed ones' share rose.",
                f"""
                select at, publication, toString(verdict) as verdict, reason,
                    JSONExtractUInt(details, 'wave') as wave,
                    {_share("lost", "changed_before")} as changed_before_percent,
                    {_share("lost", "changed_after")} as changed_after_percent,
                    {_share("lost", "unchanged_before")} as unchanged_before_percent,
                    {_share("lost", "unchanged_after")} as unchanged_after_percent,
                    {_share("slow", "changed_before")} as slow_before_percent,
                    {_share("slow", "changed_after")} as slow_after_percent,
                    toUInt64(JSONExtractFloat(details, 'connections')) as changed_connections
                from audit final where $__timeFilter(at) and event = 'gate'
                order by audit.at desc, id
                limit 200
                """,
                {
                    "changed_before_percent": "percent",
                    "changed_after_percent": "percent",
                    "unchanged_before_percent": "percent",
                    "unchanged_after_percent": "percent",
                    "slow_before_percent": "percent",
                    "slow_after_percent": "percent",
                },
            )
        )
        .with_row(row("Drift"))
        .with_panel(
            rows(
                "Edges that drifted",
                "How often each edge was found to hold something else than was published, and when last.",
                """
                select edge, count() as times, max(at) as last_found, argMax(reason, at) as last_reason
                from audit final array join edges as edge
                where $__timeFilter(at) and event = 'drift' and verdict != 'none'
                group by edge
                order by times desc, edge
                """,
                {},
                span=12,
            )
        )
        .with_panel(
            rows(
                "Publications on their way",
                "Each publication with its waves and gates, newest first, and on how many edges they brought it.",
                """
                select publication, minOrNullIf(at, event = 'publish') as published_at,
                    countIf(event = 'wave') as waves,
                    uniqExactArrayIf(edges, event = 'wave') as edges_reached, countIf(event = 'gate') as gates,
                    argMaxIf(toString(verdict), at, event = 'gate') as last_gate,
                    countIf(event = 'rollback' and verdict != 'begun') as rollbacks
                from audit final where $__timeFilter(at) and publication != ''
                group by publication
                order by coalesce(published_at, min(at)) desc, publication desc
                limit 100
                """,
                {},
                span=12,
            )
        )
    )

"""Recovery: what loss costs, and what the paths' own timeouts of handshakes and copies of first segments do."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard
from springtide.learn.questions import question

from dashboards.build import choice, lines, paths_by, percentiles, row, rows, start

CLOSED = "connections where $__timeFilter(round) and src_pop in (${src:singlequote}) and closed"
DECIDED = "path_decisions final where part = 'recovery' and $__timeFilter(round) and src_pop in (${src:singlequote})"
SECONDS = "(toUnixTimestamp($__toTime) - toUnixTimestamp($__fromTime))"


def recovery() -> Dashboard:
    """Long: panel after panel, as they stand on the screen."""
    made = start(
        "recovery",
        "Recovery",
        "What loss costs connections, and what timeouts of handshakes and copies do on the paths that have them "
        "(docs/explanation/recovery.md).",
        choice(
            "src",
            "From",
            "select distinct src_pop from connections where $__timeFilter(round) and src_pop != '' order by src_pop",
            "PoPs whose edges send.",
        ),
    )
    return (
        made.with_row(row("Cost"))
        .with_panel(
            lines(
                "Connections that lost something",
                "Percent of closed connections that lost something, and that waited for a retransmission timeout as "
                "well.",
                f"""
                select round as time, 100 * countIf(life_bytes_lost > 0) / count() as lossy,
                    100 * countIf(life_bytes_lost > 0 and life_timeouts > 0) / count() as with_timeout
                from {CLOSED}
                group by round
                order by time
                """,
                "percent",
            )
        )
        .with_panel(
            lines(
                "Sent again in vain",
                "Bytes that the receiver had already (D-SACK), percent of those that closed connections sent again.",
                f"""
                select round as time,
                    100 * (1 - sum(life_bytes_lost) / sum(life_bytes_retransmitted)) as in_vain
                from {CLOSED}
                group by round having sum(life_bytes_retransmitted) > 0
                order by time
                """,
                "percent",
            )
        )
        .with_panel(
            rows(
                "What loss costs",
                "All paths together, then each, the worst first: `springtide sql loss-cost` over the time shown. "
                "`springtide advise` has what timeouts of handshakes would save.",
                _cost(),
                {
                    **dict.fromkeys(("lossy_percent", "cost_percent", "timeout_percent", "in_vain_percent"), "percent"),
                    **dict.fromkeys(("cost_s", "timeout_s", "handshake_wait_s"), "s"),
                },
            )
        )
        .with_row(row("Timeouts of handshakes"))
        .with_panel(
            paths_by(
                "Paths by reason",
                "The rule that decided each path's timeout; spurious and held_spurious keep the kernel's second.",
                "toString(reason)",
                DECIDED,
            )
        )
        .with_panel(
            percentiles(
                "Timeouts in use",
                "10th, 50th and 90th percentile over the paths that have one of their own; the kernel's is 1000.",
                "handshake_timeout_ms",
                f"{DECIDED} and handshake_timeout_ms > 0",
                "ms",
            )
        )
        .with_panel(
            lines(
                "Handshakes sent again",
                "Percent, with the path's timeout and with the kernel's second beside it, of the rounds that each "
                "decision saw (recovery.window_rounds). What is above the second's was sent in vain.",
                f"""
                select round as time, 100 * sum(treated_resent) / nullIf(sum(treated), 0) as own_timeout,
                    100 * sum(control_resent) / nullIf(sum(control), 0) as kernels_second
                from {DECIDED}
                group by round
                order by time
                """,
                "percent",
                span=8,
            )
        )
        .with_row(row("Copies"))
        .with_panel(
            paths_by(
                "Paths by reason of copies",
                "The rule that decided whether a path's connections begin with segments sent twice; lossy sends them.",
                "toString(copies_reason)",
                f"{DECIDED} and copies_reason not in ('', 'off')",
            )
        )
        .with_panel(
            lines(
                "First flights that lost something, beside copies",
                "Percent, of paths that have copies: of connections with them, and of those without beside them.",
                f"""
                select round as time, 100 * sum(copied_lossy) / sum(copied) as with_copies,
                    100 * sum(uncopied_lossy) / nullIf(sum(uncopied), 0) as without
                from {DECIDED} and copied > 0
                group by round
                order by time
                """,
                "percent",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Time of 10 kB",
                "Mean with copies, and without beside them, of paths that have both; each path by its connections.",
                f"""
                select round as time, sum(copied_10k_us * copied) / sum(copied) / 1000 as with_copies,
                    sum(uncopied_10k_us * copied) / sum(copied) / 1000 as without
                from {DECIDED} and copied_10k_us > 0 and uncopied_10k_us > 0
                group by round
                order by time
                """,
                "ms",
                span=8,
            )
        )
    )


def _cost() -> str:
    """The question with Grafana's time and choice in place of its parameters."""
    asked = question("loss-cost")
    text = "\n".join(line for line in asked.sql.splitlines() if not line.startswith("--"))
    text = text.replace("{src:String} = '' or pop = {src:String}", "pop in (${src:singlequote})")
    given = {"hours": f"{SECONDS} / 3600", "until_s": "toUnixTimestamp($__toTime)", "top": "50"}
    for parameter in asked.parameters:
        value = given.get(parameter.name, parameter.default)
        text = text.replace(f"{{{parameter.name}:{parameter.type}}}", value if value.isdigit() else f"({value})")
    return text

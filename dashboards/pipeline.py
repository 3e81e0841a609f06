"""Collectors and pipeline: rows, drops by cause, lag, spool, completeness."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.build import choice, lines, metric_lines, row, rows, start

HOST = "host in (${host:singlequote})"
RATE = "[$__rate_interval]"


def pipeline() -> Dashboard:
    """Long: panel after panel, as they stand on the screen."""
    made = start(
        "pipeline",
        "Collectors and pipeline",
        "From the kernel to the round tables: what collectors read, deliver and lose, how late it is, and what is "
        "missing.",
        choice(
            "host",
            "Host",
            "select distinct host from round_hosts where $__timeFilter(round) order by host",
            "Hosts of the panels that read ClickHouse; those that read Prometheus show every collector.",
        ),
    )
    return (
        made.with_row(row("Collectors"))
        .with_panel(
            metric_lines(
                "Rows read",
                "Samples that collectors made of sockets, a second.",
                {"{{instance}}": f"rate(springtide_collector_rows_read_total{RATE})"},
                "rowsps",
                span=8,
            )
        )
        .with_panel(
            metric_lines(
                "Rows dropped, by cause",
                "Samples that will never reach a sink, a second. Nothing should be here: the causes are described in "
                "docs/reference/collector-sending.md.",
                {
                    "{{instance}} {{sink}} {{cause}}": f"rate(springtide_collector_rows_dropped_total{RATE}) > 0",
                    "events the kernel dropped, {{instance}}": "rate("
                    f"springtide_collector_close_overruns_total{RATE}) > 0",
                },
                "rowsps",
                span=8,
                steps=((0, "transparent"), (0.001, "red")),
            )
        )
        .with_panel(
            metric_lines(
                "Rows waiting",
                "Samples on disk that a sink has not taken yet.",
                {"{{instance}} {{sink}}": "springtide_collector_rows_spooled"},
                "short",
                span=8,
            )
        )
        .with_panel(
            metric_lines(
                "Queue",
                "What waits on disk, percent of the queue's limit; at 100 the oldest is dropped.",
                {
                    "{{instance}}": "100 * sum by (instance) (springtide_collector_queue_bytes) "
                    "/ on (instance) springtide_collector_queue_limit_bytes"
                },
                "percent",
                span=8,
                steps=((0, "transparent"), (85, "red")),
            )
        )
        .with_panel(
            metric_lines(
                "Oldest that waits",
                "Age of the oldest record in each queue.",
                {"{{instance}}": "springtide_collector_queue_oldest_age_seconds"},
                "s",
                span=8,
                steps=((0, "transparent"), (300, "orange")),
            )
        )
        .with_panel(
            metric_lines(
                "Polls",
                "99th percentile of how long polls took, and their interval: beyond it polls are left out.",
                {
                    "{{instance}}": "histogram_quantile(0.99, "
                    f"rate(springtide_collector_poll_duration_seconds_bucket{RATE}))",
                    "interval of {{instance}}": "springtide_collector_poll_interval_seconds",
                },
                "s",
                span=8,
            )
        )
        .with_panel(
            metric_lines(
                "Health",
                "1 when the collector's /healthz answers well; 0 or nothing calls for a look at "
                "`springtide-collector top`.",
                {"{{instance}}": "springtide_collector_healthy"},
                "short",
                span=8,
            )
        )
        .with_panel(
            metric_lines(
                "Processor time",
                "Processor time of each collector, percent of one core.",
                {"{{instance}}": f'100 * rate(process_cpu_seconds_total{{job="springtide-collector"}}{RATE})'},
                "percent",
                span=8,
            )
        )
        .with_panel(
            metric_lines(
                "Memory",
                "Resident memory of each collector.",
                {"{{instance}}": 'process_resident_memory_bytes{job="springtide-collector"}'},
                "bytes",
                span=8,
            )
        )
        .with_row(row("Arrival"))
        .with_panel(
            lines(
                "Rows by round",
                "Samples of each round that arrived in time to be in its tables.",
                f"""
                select round as time, toString(host) as series, rows_seen
                from hosts where $__timeFilter(round) and {HOST}
                order by time, series
                """,
                "short",
            )
        )
        .with_panel(
            lines(
                "Completeness",
                "Samples that arrived, of those that should have: gaps in the numbers of polls are polls that did "
                "not arrive.",
                f"""
                select round as time, toString(host) as series, complete_percent
                from hosts where $__timeFilter(round) and {HOST}
                order by time, series
                """,
                "percent",
                steps=((0, "transparent"), (60, "red")),
            )
        )
        .with_panel(
            lines(
                "Lag",
                "From the poll to the store: the largest median over the chosen hosts, and the largest of all.",
                f"""
                select toDateTime(intDiv(time_unix_us, 300000000) * 300, 'UTC') as time,
                    quantile(0.5)(toUnixTimestamp(inserted_at) - time_unix_us / 1000000) as median_s,
                    max(toUnixTimestamp(inserted_at) - time_unix_us / 1000000) as largest_s
                from tcp_samples
                where intDiv(time_unix_us, 300000000) >= intDiv(toUnixTimestamp($__fromTime), 300)
                    and intDiv(time_unix_us, 300000000) <= intDiv(toUnixTimestamp($__toTime), 300)
                    and kind = 'POLL' and {HOST}
                group by time
                order by time
                """,
                "s",
                steps=((0, "transparent"), (60, "orange")),
            )
        )
        .with_panel(
            lines(
                "Rounds computed",
                "How long after its end each round was computed, and what it was made from.",
                """
                select round as time, waited_s, samples / 1000 as thousand_samples, sockets / 1000 as thousand_sockets
                from rollups final where $__timeFilter(round)
                order by time
                """,
                "short",
            )
        )
        .with_panel(
            rows(
                "Hosts",
                "Polls and samples of each host over the time shown, the least complete first.",
                f"""
                select host, any(pop) as pop, sum(polls_seen) as polls_arrived, sum(polls_expected) as polls_due,
                    sum(rows_seen) as rows_arrived, 100 * sum(rows_seen) / nullIf(sum(rows_expected),
                    0) as arrived_percent,
                    max(round) as newest_round
                from hosts where $__timeFilter(round) and {HOST}
                group by host
                order by arrived_percent
                """,
                {"arrived_percent": "percent"},
                span=12,
                links={
                    "host": ("Its connections", "/d/springtide-connections?var-host=${__value.raw}&${__url_time_range}")
                },
            )
        )
        .with_panel(
            rows(
                "Came too late",
                "Samples that arrived after their round was computed, and are in none of its tables.",
                f"""
                select round, host, samples, counted_at from round_late
                where $__timeFilter(round) and {HOST}
                order by round desc, host
                limit 500
                """,
                {},
                span=12,
            )
        )
        .with_panel(
            rows(
                "Not understood",
                "Messages and records that are none of a collector's, kept whole: in rejected_messages, or beside "
                "the spool.",
                """
                select message_time as seen_at, concat('topic ', topic) as place,
                    concat('partition ', toString(kafka_partition), ' offset ', toString(kafka_offset)) as position,
                    error as reason
                from rejected_messages final where $__timeFilter(message_time)
                union all
                select recorded_at as seen_at, file as place, concat('byte ', toString(position)) as position, reason
                from ingest_ledger final where outcome = 'rejected' and $__timeFilter(recorded_at)
                order by seen_at desc
                limit 200
                """,
                {},
            )
        )
    )

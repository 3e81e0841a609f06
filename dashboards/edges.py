"""Edges: what the edges' own program does to connections, and what stops it."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.build import metric_lines, row, start

RATE = "[$__rate_interval]"
NAME = "springtide_edge"


def edges() -> Dashboard:
    """Long: panel after panel, as they stand on the screen."""
    made = start(
        "edges",
        "Edges",
        "What springtide-edge does to new connections on each edge, by the metrics that its watch leaves for "
        "node_exporter (docs/how-to/push-routes.md).",
    )
    return (
        made.with_row(row("What is in force"))
        .with_panel(
            metric_lines(
                "In sync",
                "1 where an edge's kernel has what its last pass wrote down; at 0 look at `springtide-edge status`.",
                {"{{instance}}": f"{NAME}_in_sync"},
                "short",
                span=8,
            )
        )
        .with_panel(
            metric_lines(
                "Destinations",
                "That connections start with our values to, by what enforces them.",
                {"{{instance}} {{by}}": f"{NAME}_entries * on (instance) group_right {NAME}_enforced == 1"},
                "short",
                span=8,
            )
        )
        .with_panel(
            metric_lines(
                "Time left",
                "Until the applied bundle stops to count.",
                {"{{instance}}": f"({NAME}_expires_time_seconds - time()) and on (instance) {NAME}_applied == 1"},
                "s",
                span=8,
                steps=((0, "red"), (3600, "transparent")),
            )
        )
        .with_row(row("Connections, where the eBPF program starts them"))
        .with_panel(
            metric_lines(
                "Started with our values",
                "Connections a second that got our window or rate.",
                {"{{instance}}": f"rate({NAME}_started_total{RATE})"},
                "cps",
                span=8,
            )
        )
        .with_panel(
            metric_lines(
                "Left alone",
                "Connections a second that the program met and did not change, by why: a trial or a brake, an excluded "
                "destination, a tenant that opted out, a bundle past its time, a SYN that was sent again, a rate of "
                "the application's own.",
                {
                    f"{{{{instance}}}} {why}": f"rate({NAME}_{why}_total{RATE}) > 0"
                    for why in ("untreated", "excluded", "opted_out", "expired", "late", "own_rate")
                },
                "cps",
                span=8,
            )
        )
        .with_panel(
            metric_lines(
                "Switched",
                "Connections a second that got another congestion control.",
                {"{{instance}}": f"rate({NAME}_switched_total{RATE})"},
                "cps",
                span=8,
            )
        )
        .with_panel(
            metric_lines(
                "Losses in first flights",
                "Percent of connections that lost something of their first window, where it was larger than the "
                "kernel's because of us. The brake's bound is enforce.brake_lost_permille.",
                {"{{instance}}": f"100 * rate({NAME}_lost_total{RATE}) / (rate({NAME}_exposed_total{RATE}) > 0)"},
                "percent",
                span=8,
                steps=((0, "transparent"), (40, "red")),
            )
        )
        .with_panel(
            metric_lines(
                "Braked entries",
                "Entries that their brake has set to half of their values, or to the kernel's default, until a newer "
                "round.",
                {"{{instance}} {{arm}} {{step}}": f"{NAME}_braked_entries > 0"},
                "short",
                span=8,
                steps=((0, "transparent"), (1, "orange")),
            )
        )
        .with_panel(
            metric_lines(
                "Refused",
                "Values a second that the kernel did not take (window, rate, algorithm), and connections for which "
                "there was no room (socket, prefix).",
                {"{{instance}} {{what}}": f"rate({NAME}_refused_total{RATE}) > 0"},
                "short",
                span=8,
                steps=((0, "transparent"), (0.001, "red")),
            )
        )
        .with_panel(
            metric_lines(
                "In first flights",
                "Connections that share the start rates at this moment.",
                {"{{instance}}": f"{NAME}_first_flights"},
                "short",
                span=8,
            )
        )
        .with_panel(
            metric_lines(
                "Room for prefixes",
                "Prefixes that the program knows, percent of those that it can; connections to further ones are left "
                "alone.",
                {"{{instance}}": f"100 * {NAME}_prefixes / {NAME}_prefixes_limit"},
                "percent",
                span=8,
                steps=((0, "transparent"), (85, "red")),
            )
        )
        .with_panel(
            metric_lines(
                "First-flight records",
                "Written a second, and those that found no room.",
                {
                    "{{instance}}": f"rate({NAME}_records_total{RATE})",
                    "{{instance}} lost": f"rate({NAME}_records_lost_total{RATE}) > 0",
                },
                "short",
                span=8,
            )
        )
    )

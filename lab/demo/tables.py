"""The demo's closing tables, for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from lab.demo.report import kilobytes
from lab.demo.summary import Group


def results_table(groups: Sequence[Group]) -> Table:
    """Transfer times by RTT and object size, before and after, in ms."""
    table = Table(title="Fresh connections: request to last byte, ms", box=box.SIMPLE_HEAD, title_justify="left")
    for name in ("RTT", "object", "p50", "→", "p90", "→", "p95", "→", "RTTs saved", "retransmitted", "→"):
        table.add_column(name, justify="right")
    for group in groups:
        style = "bold green" if group.rtts_saved_p50 >= 0.5 else None
        times = [f"{phase[name]:.0f}" for name in ("p50", "p90", "p95") for phase in (group.before, group.after)]
        shares = [f"{share:.2%}" for share in (group.retransmitted_before, group.retransmitted_after)]
        table.add_row(
            f"{group.rtt_ms:g}",
            kilobytes(group.size_bytes),
            *times,
            f"{group.rtts_saved_p50:.2f}",
            *shares,
            style=style,
        )
    return table


def decisions_table(decisions: Sequence[Mapping[str, Any]]) -> Table:
    """Decided windows with their reasons."""
    table = Table(title="Decided windows", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("from")
    table.add_column("to")
    table.add_column("initcwnd", justify="right")
    table.add_column("connections", justify="right")
    table.add_column("reason")
    for row in decisions:
        value = "default" if row["value"] is None else str(row["value"])
        table.add_row(row["src_pop"], row["dst_pop"], value, str(row["evidence"]), row["reason"])
    return table

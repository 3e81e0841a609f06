"""The demo's closing tables, for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from lab.demo.report import NOTHING, kilobytes, losses, start_text
from lab.demo.summary import Group
from lab.topology import Topology


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


def paths_table(
    topology: Topology, decisions: Sequence[Mapping[str, Any]], pairs: Sequence[Mapping[str, Any]]
) -> Table:
    """Decided windows with their reasons, and what they did to the largest object (`pairs` of summary.json)."""
    largest = max(row["size_bytes"] for row in pairs)
    measured = {(row["src"], row["dst"]): row for row in pairs if row["size_bytes"] == largest}
    title = f"Decided windows, and {kilobytes(largest)} over each path: p50 in ms, segments sent again"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for name in ("from", "to", "path"):
        table.add_column(name)
    for name in ("start", "conns", "p50", "→", "limit", "ratio", "again", "→"):
        table.add_column(name, justify="right")
    table.add_column("reason")
    for decision in decisions:
        pair = decision["src_pop"], decision["dst_pop"]
        value = "default" if decision["value"] is None else str(decision["value"])
        row = measured.get(pair)
        times: tuple[str, ...] = ("",) * 6
        if row is not None:
            shares = f"{row['retransmit_before']:.1%}", f"{row['retransmit_after']:.1%}"
            milliseconds = row["before_ms"]["p50"], row["after_ms"]["p50"], row["limit_ms"]
            ratio = "" if row["ratio_limit"] is None else f"{row['ratio_limit']:.2f}"
            times = (*(f"{time_ms:.0f}" for time_ms in milliseconds), ratio, *shares)
            value = start_text(row)
        path = path_text(topology, *pair)
        table.add_row(*pair, path, value, str(decision["evidence"]), *times, decision["reason"])
    return table


def worse_text(probes: Sequence[Mapping[str, Any]], groups: Sequence[Group]) -> str:
    """Results that are clearly worse, a line each."""
    return "\n".join(["What got worse:", *(f"  {text}" for text in losses(probes, groups) or [f"nothing: {NOTHING}"])])


def path_text(topology: Topology, src: str, dst: str) -> str:
    """A directed path in a few words: `80 ms, 50M, 41 pkt`."""
    shape = topology.shape(src, dst)
    words = [f"{topology.rtt(src, dst):g} ms"]
    if shape.rate_mbit is not None:
        queue = f"{shape.queue_bytes / 1e6:g} MB" if shape.queue_packets is None else f"{shape.queue_packets} pkt"
        words += [f"{shape.rate_mbit:g}M", queue]
    if shape.policer is not None:
        words.append(f"policed {shape.policer.rate_mbit:g}M")
    if shape.loss:
        words.append(f"loss {shape.loss:g}" if isinstance(shape.loss, float) else "bursts")
    return ", ".join(words)


def conditions_text(conditions: Mapping[str, Any]) -> str:
    """Conditions of the numbers beside the paths, in a line or two."""
    named = {name.rpartition(".")[2]: value for name, value in conditions["sysctls"].items()}
    sysctls = ", ".join(f"{name}={value}" for name, value in named.items() if name.startswith("tcp_"))
    return (
        f"Conditions: {conditions['rounds']} rounds of {conditions['round_s']} s, no gate between the waves, "
        f"n = {conditions['probes_of_each_size']} of each object and path. "
        f"Settings of the kernel inside the lab: {sysctls}. What is not named is the kernel's default."
    )

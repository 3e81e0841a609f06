"""Tables for people: probes and windows by pair of PoPs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from rich.table import Table

from lab.traffic import Probe
from lab.windows import Window


def by_pair(probes: Sequence[Probe]) -> Table:
    """For each ordered pair and size: how many, how many failed, and the medians."""
    table = Table("served by", "fetched by", "RTT ms", "bytes", "probes", "failed", "connect ms", "transfer ms", "RTTs")
    groups: defaultdict[tuple[str, str, int], list[Probe]] = defaultdict(list)
    for probe in probes:
        groups[probe.src, probe.dst, probe.size_bytes].append(probe)
    for (src, dst, size), group in groups.items():
        rtt_ms = group[0].rtt_ms
        connects = [probe.connect_ms for probe in group if probe.connect_ms is not None]
        transfers = [probe.transfer_ms for probe in group if probe.transfer_ms is not None]
        row = [src, dst, f"{rtt_ms:g}", str(size), str(len(group)), str(len(group) - len(transfers))]
        row.append(f"{median(connects):.1f}" if connects else "-")
        row.append(f"{median(transfers):.1f}" if transfers else "-")
        row.append(f"{median(transfers) / rtt_ms:.2f}" if transfers and rtt_ms else "-")
        table.add_row(*row)
    return table


def window_table(windows: Sequence[Window]) -> Table:
    """For each ordered pair: the connections that nginx serves, and their windows in segments."""
    table = Table("served by", "fetched by", "connections", "least cwnd", "median", "mean", "most")
    groups: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for window in windows:
        groups[window.src, window.dst].append(window.cwnd)
    for (src, dst), cwnds in sorted(groups.items()):
        mean = sum(cwnds) / len(cwnds)
        table.add_row(src, dst, str(len(cwnds)), str(min(cwnds)), f"{median(cwnds):g}", f"{mean:.0f}", str(max(cwnds)))
    return table

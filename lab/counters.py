"""TCP's counters of a namespace, from /proc/PID/net of a process in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TcpCounters:
    """RFC 4022's counters, in segments: `out_segs` holds acknowledgements as well, and no retransmissions."""

    in_segs: int
    out_segs: int
    retrans_segs: int
    # Retransmission timeouts, in events (TcpExt of /proc/net/netstat).
    timeouts: int

    def __sub__(self, earlier: TcpCounters) -> TcpCounters:
        return TcpCounters(
            self.in_segs - earlier.in_segs,
            self.out_segs - earlier.out_segs,
            self.retrans_segs - earlier.retrans_segs,
            self.timeouts - earlier.timeouts,
        )


def read(pid: int) -> TcpCounters:
    """The counters of the network namespace that the process is in. Raises OSError when it is gone."""
    net = Path(f"/proc/{pid}/net")
    tcp = _table((net / "snmp").read_text(), "Tcp")
    extended = _table((net / "netstat").read_text(), "TcpExt")
    return TcpCounters(tcp["InSegs"], tcp["OutSegs"], tcp["RetransSegs"], extended["TCPTimeouts"])


def _table(text: str, group: str) -> dict[str, int]:
    """One group of /proc/net/snmp: a line of names, then a line of values."""
    names, values = (line.split()[1:] for line in text.splitlines() if line.startswith(f"{group}: "))
    return dict(zip(names, map(int, values), strict=True))


def retransmit_ratio(before: Mapping[str, TcpCounters], after: Mapping[str, TcpCounters]) -> float:
    """Retransmitted segments per segment sent anew between two readings, over all edges; 0 when none was."""
    spent = [after[edge] - before[edge] for edge in after]
    sent = sum(counters.out_segs for counters in spent)
    return sum(counters.retrans_segs for counters in spent) / sent if sent else 0.0

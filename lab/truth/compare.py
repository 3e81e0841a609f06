"""Windows that were counted beside what the emulated path carried: pure functions over rows and flows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from statistics import median
from typing import Any

from lab.flows import Flow


@dataclass(frozen=True)
class Connection:
    """One connection in one round, in segments of its own size: the kernel's last window, the window that the roll-up
    counted (None where it did not count), and the most that one base round trip carried."""

    kind: str
    round_s: int
    src: str
    dst: str
    cwnd: int
    counted: float | None
    carried: float

    @property
    def ratio(self) -> float | None:
        """Counted as a multiple of carried."""
        return None if self.counted is None else self.counted / self.carried


def endpoint(address: str, port: int) -> str:
    """`10.0.0.1:80` or `[fd00::1]:80`, also of an IPv4 address in IPv6's form."""
    found = ip_address(address.removeprefix("::ffff:"))
    return f"{found}:{port}" if found.version == 4 else f"[{found}]:{port}"


def match(rows: Iterable[Mapping[str, Any]], flows: Iterable[Flow], kinds: Mapping[int, str]) -> list[Connection]:
    """Every socket of a round with what it was carried then; what carried nothing has no truth and is left out.

    `rows` have round (seconds since the epoch), src_ip, src_port, dst_ip, dst_port, src_pop, dst_pop, snd_cwnd, snd_mss
    (bytes) and counted (segments, 0 where not counted); `kinds` name the traffic of each round that counts.
    """
    carried = {(flow.src, flow.dst, flow.interval_end_s): flow.most_bytes for flow in flows}
    found = []
    for row in rows:
        ends = endpoint(row["src_ip"], row["src_port"]), endpoint(row["dst_ip"], row["dst_port"])
        most_bytes = carried.get((*ends, row["round"]), 0)
        if row["round"] not in kinds or not most_bytes or not row["snd_mss"]:
            continue
        found.append(
            Connection(
                kinds[row["round"]],
                row["round"],
                row["src_pop"],
                row["dst_pop"],
                row["snd_cwnd"],
                float(row["counted"]) or None,
                most_bytes / row["snd_mss"],
            )
        )
    return found


def judge(connections: Sequence[Connection]) -> dict[str, Any]:
    """How far what was counted lies from what was carried: of those that counted, the median error and the extremes."""
    ratios = [one.ratio for one in connections if one.ratio is not None]
    if not ratios:
        return {"connections": len(connections), "counted": 0}
    return {
        "connections": len(connections),
        "counted": len(ratios),
        "median_error": round(median(abs(ratio - 1) for ratio in ratios), 4),
        "least_ratio": round(min(ratios), 3),
        "most_ratio": round(max(ratios), 3),
    }


def grouped(connections: Sequence[Connection]) -> list[dict[str, Any]]:
    """`judge` for each kind of traffic and path."""
    groups: defaultdict[tuple[str, str, str], list[Connection]] = defaultdict(list)
    for one in connections:
        groups[one.kind, one.src, one.dst].append(one)
    return [
        {"kind": kind, "src": src, "dst": dst}
        | judge(group)
        | {
            "cwnd_p50": median(one.cwnd for one in group),
            "counted_p50": median([one.counted for one in group if one.counted is not None] or [0.0]),
            "carried_p50": round(median(one.carried for one in group), 1),
        }
        for (kind, src, dst), group in groups.items()
    ]

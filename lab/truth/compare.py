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
    """One connection in one round, in segments of its own size.

    The kernel's last window; the window that the roll-up counted, None where it did not count; the most that one base
    round trip carried; and the most that one carried late, in the last two seconds in which anything was: a window that
    goes up and down ends the round below its most.
    """

    kind: str
    round_s: int
    src: str
    dst: str
    cwnd: int
    counted: float | None
    carried: float
    late: float

    @property
    def ratio(self) -> float | None:
        """Counted as a multiple of carried."""
        return None if self.counted is None else self.counted / self.carried

    @property
    def late_ratio(self) -> float | None:
        """Counted as a multiple of what was carried late."""
        return None if self.counted is None else self.counted / self.late


def endpoint(address: str, port: int) -> str:
    """`10.0.0.1:80` or `[fd00::1]:80`, also of an IPv4 address in IPv6's form."""
    found = ip_address(address.removeprefix("::ffff:"))
    return f"{found}:{port}" if found.version == 4 else f"[{found}]:{port}"


LATE = 2  # seconds: a poll a second, and the next


def match(
    rows: Iterable[Mapping[str, Any]], flows: Iterable[Flow], kinds: Mapping[int, str], interval_s: int
) -> list[Connection]:
    """Every socket of a round with what it was carried then; what carried nothing has no truth and is left out.

    `flows` are of seconds, a round is `interval_s` of them; `rows` have round (seconds since the epoch), src_ip,
    src_port, dst_ip, dst_port, src_pop, dst_pop, snd_cwnd, snd_mss (bytes) and counted (segments, 0 where not counted);
    `kinds` name the traffic of each round that counts.
    """
    carried: defaultdict[tuple[str, str, int], list[tuple[int, int]]] = defaultdict(list)
    for flow in flows:
        if flow.most_bytes:
            round_s = -(-flow.interval_end_s // interval_s) * interval_s
            carried[flow.src, flow.dst, round_s].append((flow.interval_end_s, flow.most_bytes))
    found = []
    for row in rows:
        ends = endpoint(row["src_ip"], row["src_port"]), endpoint(row["dst_ip"], row["dst_port"])
        seconds = sorted(carried.get((*ends, row["round"]), []))
        if row["round"] not in kinds or not seconds or not row["snd_mss"]:
            continue
        found.append(
            Connection(
                kinds[row["round"]],
                row["round"],
                row["src_pop"],
                row["dst_pop"],
                row["snd_cwnd"],
                float(row["counted"]) or None,
                max(most for _, most in seconds) / row["snd_mss"],
                max(most for _, most in seconds[-LATE:]) / row["snd_mss"],
            )
        )
    return found


def judge(connections: Sequence[Connection]) -> dict[str, Any]:
    """How far what was counted lies from what was carried: of those that counted, the median error and the extremes."""
    ratios = [one.ratio for one in connections if one.ratio is not None]
    late = [one.late_ratio for one in connections if one.late_ratio is not None]
    return {
        "connections": len(connections),
        "counted": len(ratios),
        "median_error": round(median(abs(ratio - 1) for ratio in ratios), 4) if ratios else None,
        "least_ratio": round(min(ratios), 3) if ratios else None,
        "most_ratio": round(max(ratios), 3) if ratios else None,
        "late_median_error": round(median(abs(ratio - 1) for ratio in late), 4) if late else None,
        "late_most_ratio": round(max(late), 3) if late else None,
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
            "late_p50": round(median(one.late for one in group), 1),
        }
        for (kind, src, dst), group in groups.items()
    ]

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

    The kernel's last window; the window that the roll-up counted, None where it did not count; and what base round
    trips carried of late, in the last seconds in which anything was. `mean` is weighted by bytes, and is the truth of a
    transfer that fills every round trip, whose window goes up and down. `most` is that of answers, which begin and end
    with round trips that are not full.
    """

    kind: str
    round_s: int
    src: str
    dst: str
    cwnd: int
    counted: float | None
    mean: float
    most: float


def endpoint(address: str, port: int) -> str:
    """`10.0.0.1:80` or `[fd00::1]:80`, also of an IPv4 address in IPv6's form."""
    found = ip_address(address.removeprefix("::ffff:"))
    return f"{found}:{port}" if found.version == 4 else f"[{found}]:{port}"


LATE = 5  # seconds: a rate is that of the last full flight, and not each answer is one


def match(
    rows: Iterable[Mapping[str, Any]], flows: Iterable[Flow], kinds: Mapping[int, str], interval_s: int
) -> list[Connection]:
    """Every socket of a round with what it was carried then; what carried nothing has no truth and is left out.

    `flows` are of seconds, a round is `interval_s` of them; `rows` have round (seconds since the epoch), src_ip,
    src_port, dst_ip, dst_port, src_pop, dst_pop, snd_cwnd, snd_mss (bytes) and counted (segments, 0 where not counted);
    `kinds` name the traffic of each round that counts.
    """
    carried: defaultdict[tuple[str, str, int], list[Flow]] = defaultdict(list)
    for flow in flows:
        if flow.round_trip_bytes:
            round_s = -(-flow.interval_end_s // interval_s) * interval_s
            carried[flow.src, flow.dst, round_s].append(flow)
    found = []
    for row in rows:
        ends = endpoint(row["src_ip"], row["src_port"]), endpoint(row["dst_ip"], row["dst_port"])
        seconds = sorted(carried.get((*ends, row["round"]), []), key=lambda flow: flow.interval_end_s)
        if row["round"] not in kinds or not seconds or not row["snd_mss"]:
            continue
        late = seconds[-LATE:]
        mean = sum(one.round_trip_bytes_squared for one in late) / sum(one.round_trip_bytes for one in late)
        found.append(
            Connection(
                kinds[row["round"]],
                row["round"],
                row["src_pop"],
                row["dst_pop"],
                row["snd_cwnd"],
                float(row["counted"]) or None,
                mean / row["snd_mss"],
                max(one.most_bytes for one in late) / row["snd_mss"],
            )
        )
    return found


def judge(connections: Sequence[Connection]) -> dict[str, Any]:
    """Errors of those that counted: the medians against the mean and the most, and 0 between them; and the extremes."""
    found = [(one.counted, one.mean, one.most) for one in connections if one.counted is not None]

    def error(errors: Iterable[float]) -> float | None:
        return round(median(errors), 4) if found else None

    return {
        "connections": len(connections),
        "counted": len(found),
        "error": error(max(1 - counted / mean, counted / most - 1, 0.0) for counted, mean, most in found),
        "error_of_mean": error(abs(counted / mean - 1) for counted, mean, _ in found),
        "error_of_most": error(abs(counted / most - 1) for counted, _, most in found),
        "least_of_mean": round(min(counted / mean for counted, mean, _ in found), 3) if found else None,
        "most_of_most": round(max(counted / most for counted, _, most in found), 3) if found else None,
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
            "mean_p50": round(median(one.mean for one in group), 1),
            "most_p50": round(median(one.most for one in group), 1),
        }
        for (kind, src, dst), group in groups.items()
    ]

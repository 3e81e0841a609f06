"""A round's samples as what the control laws read: one row for each pair of PoPs and IP version."""

from __future__ import annotations

from dataclasses import dataclass

from springtide.store import Store
from springtide.store.files import sql

Pair = tuple[str, str, int]


@dataclass(frozen=True)
class PairObservation:
    """Live connections from one PoP to another within a round; windows in segments, over those that earned theirs."""

    src_pop: str
    dst_pop: str
    ip_version: int
    connections_seen: int
    connections_earned: int
    mean_cwnd: float | None
    min_cwnd: int | None
    max_cwnd: int | None
    retransmit_ratio: float | None

    @property
    def pair(self) -> Pair:
        return self.src_pop, self.dst_pop, self.ip_version


def pair_observations(store: Store, round_unix_s: int, interval_s: int) -> list[PairObservation]:
    """What [round - interval, round) shows, with one more interval before it to tell what happened within it."""
    parameters = {
        "lookback_us": (round_unix_s - 2 * interval_s) * 1_000_000,
        "round_start_us": (round_unix_s - interval_s) * 1_000_000,
        "round_us": round_unix_s * 1_000_000,
    }
    return [
        PairObservation(
            src_pop=row["src_pop"],
            dst_pop=row["dst_pop"],
            ip_version=row["ip_version"],
            connections_seen=row["connections_seen"],
            connections_earned=row["connections_earned"],
            mean_cwnd=_ratio(row["weighted_cwnd"], row["weight"]),
            min_cwnd=row["min_cwnd"],
            max_cwnd=row["max_cwnd"],
            retransmit_ratio=_ratio(row["bytes_retransmitted"], row["bytes_sent"]),
        )
        for row in store.query(sql("rounds/initcwnd_observations"), parameters)
    ]


def _ratio(part: int, whole: int) -> float | None:
    """Of integers, so that it is the same double whatever the order of what was summed."""
    return part / whole if whole else None

"""The round tables as the control laws read them."""

from __future__ import annotations

from dataclasses import dataclass

from springtide.store import Store

Pair = tuple[str, str, int]


@dataclass(frozen=True)
class PairObservation:
    """Connections from one PoP to another within a round; windows in segments, over those that earned theirs.

    Young connections closed within the round after at most two windows were sent; `receiver_cwnd` is the median window
    that their receivers advertised, in segments.
    """

    src_pop: str
    dst_pop: str
    ip_version: int
    connections_seen: int = 0
    connections_earned: int = 0
    mean_cwnd: float | None = None
    min_cwnd: int | None = None
    max_cwnd: int | None = None
    retransmit_ratio: float | None = None
    cwnd_p10: float | None = None
    cwnd_p25: float | None = None
    cwnd_p50: float | None = None
    cwnd_p75: float | None = None
    cwnd_p90: float | None = None
    traffic_cwnd: float | None = None
    receiver_cwnd: float | None = None
    young_connections: int = 0
    young_retransmit_ratio: float | None = None

    @property
    def pair(self) -> Pair:
        return self.src_pop, self.dst_pop, self.ip_version


def pair_observations(store: Store, round_unix_s: int) -> list[PairObservation]:
    """What the round's tables say of each pair with live or young connections, sorted by pair."""
    rows = store.query(
        """
        select
            src_pop, dst_pop, ip_version, connections_seen, connections_earned,
            cwnd_sum, cwnd_weight, min_cwnd, max_cwnd, traffic_cwnd,
            cwnd_p10, cwnd_p25, cwnd_p50, cwnd_p75, cwnd_p90, bytes_sent, bytes_retransmitted,
            young_connections, young_bytes_sent, young_bytes_retransmitted, young_rwnd_p50
        from round_pairs
        where round = {round:DateTime('UTC')} and (connections_seen > 0 or young_connections > 0)
        order by src_pop, dst_pop, ip_version
        """,
        {"round": round_unix_s},
    )
    return [
        PairObservation(
            src_pop=row["src_pop"],
            dst_pop=row["dst_pop"],
            ip_version=row["ip_version"],
            connections_seen=row["connections_seen"],
            connections_earned=row["connections_earned"],
            mean_cwnd=_ratio(row["cwnd_sum"], row["cwnd_weight"]),
            min_cwnd=row["min_cwnd"],
            max_cwnd=row["max_cwnd"],
            retransmit_ratio=_ratio(row["bytes_retransmitted"], row["bytes_sent"]),
            cwnd_p10=_double(row["cwnd_p10"]),
            cwnd_p25=_double(row["cwnd_p25"]),
            cwnd_p50=_double(row["cwnd_p50"]),
            cwnd_p75=_double(row["cwnd_p75"]),
            cwnd_p90=_double(row["cwnd_p90"]),
            traffic_cwnd=_double(row["traffic_cwnd"]),
            receiver_cwnd=_double(row["young_rwnd_p50"]),
            young_connections=row["young_connections"],
            young_retransmit_ratio=_ratio(row["young_bytes_retransmitted"], row["young_bytes_sent"]),
        )
        for row in rows
    ]


def _double(value: float | None) -> float | None:
    """The engine prints a whole double without its point."""
    return None if value is None else float(value)


def _ratio(part: int, whole: int) -> float | None:
    """Of integers, so that it is the same double whatever the order of what was summed."""
    return part / whole if whole else None

"""The round tables as the control laws read them."""

from __future__ import annotations

from dataclasses import dataclass

from springtide.store import Store

Pair = tuple[str, str, int]


@dataclass(frozen=True)
class PairObservation:
    """Connections from one PoP to another within a round; windows in segments, over those that earned theirs.

    `receiver_cwnd` is the median advertised window of the live connections' peers, in segments. Young connections
    closed within the round after at most two windows were sent.
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
    quantile_cwnd: float | None = None
    traffic_cwnd: float | None = None
    receiver_cwnd: float | None = None
    young_connections: int = 0
    young_retransmit_ratio: float | None = None

    @property
    def pair(self) -> Pair:
        return self.src_pop, self.dst_pop, self.ip_version


@dataclass(frozen=True)
class Completeness:
    """What a host should have said in a round, and said."""

    host: str
    pop: str
    polls_seen: int
    polls_expected: int
    rows_seen: int
    rows_expected: int

    @property
    def share(self) -> float:
        """Of the rows expected, 0 to 1."""
        return self.rows_seen / self.rows_expected if self.rows_expected else 1.0


def pair_observations(store: Store, round_unix_s: int) -> list[PairObservation]:
    """What the round's tables say of each pair that had a live connection, sorted by pair."""
    rows = store.query(
        """
        select
            src_pop, dst_pop, ip_version, connections_seen, connections_earned,
            cwnd_sum, cwnd_weight, min_cwnd, max_cwnd, bytes_sent, bytes_retransmitted
        from round_pairs
        where round = {round:DateTime('UTC')} and connections_seen > 0
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
        )
        for row in rows
    ]


def completeness(store: Store, round_unix_s: int) -> list[Completeness]:
    """Each host that was heard in the round or in the one before it, sorted by name."""
    rows = store.query(
        "select host, pop, polls_seen, polls_expected, rows_seen, rows_expected from round_hosts "
        "where round = {round:DateTime('UTC')} order by host",
        {"round": round_unix_s},
    )
    return [Completeness(**row) for row in rows]


def _ratio(part: int, whole: int) -> float | None:
    """Of integers, so that it is the same double whatever the order of what was summed."""
    return part / whole if whole else None

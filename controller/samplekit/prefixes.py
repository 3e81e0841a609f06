"""Client prefixes round by round, and what a plain reading of the law says of them: an independent model."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from ipaddress import IPv6Address

from springtide.policy import CongestionPolicy
from springtide.store import Store

INTERVAL = 300


@dataclass(frozen=True)
class Seen:
    """One row of the prefixes' round table."""

    round: int
    pop: str
    # The third octet of 192.0.x.0/24, or of 2001:db8:0:x00::/56 with `six`.
    number: int
    rate: int
    algorithm: str = "cubic"
    six: bool = False
    connections: int = 5
    samples: int = 20
    bytes_acked: int = 5_000_000
    retransmitted: int = 50_000
    rtt_us: int = 60_000
    dst_pop: str = ""
    # The only host that showed it; empty where several did.
    host: str = ""

    @property
    def address(self) -> IPv6Address:
        base = "2001:db8::" if self.six else "::ffff:192.0.0.0"
        return IPv6Address(int(IPv6Address(base)) + (self.number << (72 if self.six else 8)))

    @property
    def prefix(self) -> str:
        return f"{self.address}/56" if self.six else f"{self.address.ipv4_mapped}/24"


def store_rounds(store: Store, rows: Iterable[Seen]) -> None:
    """Make these the round tables, as if rolled up long after each round."""
    rows = list(rows)
    store.insert(
        "rollup_prefixes",
        [
            {
                "round": row.round,
                "generation": 1,
                "pop": row.pop,
                "ip_version": 6 if row.six else 4,
                "client_prefix": str(row.address),
                "congestion_algorithm": row.algorithm,
                "dst_pop": row.dst_pop,
                "connections": row.connections,
                "samples": row.samples,
                "bytes_acked": row.bytes_acked,
                "bytes_sent": row.bytes_acked + row.retransmitted,
                "bytes_retransmitted": row.retransmitted,
                "delivery_rate_p50_bytes_per_s": row.rate or None,
                "rtt_p50_us": row.rtt_us or None,
                "only_host": row.host,
            }
            for row in rows
        ],
    )
    hosts = {"polls_seen": 5, "polls_expected": 5, "rows_seen": 100, "rows_expected": 100, "closes": 0}
    heard = sorted({(row.round, row.pop) for row in rows})
    store.insert(
        "rollup_hosts",
        [{"round": moment, "generation": 1, "host": f"{pop}-1", "pop": pop, **hosts} for moment, pop in heard],
    )
    lines = [
        {"round": moment, "generation": 1, "interval_s": INTERVAL, "waited_s": 9999}
        for moment in sorted({row.round for row in rows})
    ]
    store.insert("rollups", lines)


def random_rounds(seed: int, newest: int, rounds: int, pops: Sequence[str] = ("ams", "fra")) -> list[Seen]:
    """Slow and fast prefixes, some flapping, some thin, some under BBR, one a PoP's own; gaps everywhere."""
    chance = random.Random(seed)
    rows = []
    for pop in pops:
        for number in range(30):
            base = math.exp(chance.gauss(13, 1.5))
            six = number % 5 == 0
            thin = number % 7 == 0
            for age in range(rounds):
                if chance.random() < 0.15:
                    continue
                for algorithm in ("cubic", "bbr") if number % 4 == 0 else ("cubic",):
                    if algorithm == "bbr" and chance.random() < 0.5:
                        continue
                    rows.append(
                        Seen(
                            newest - age * INTERVAL,
                            pop,
                            number,
                            int(base * math.exp(chance.gauss(0, 0.8))),
                            algorithm,
                            six,
                            connections=chance.randint(1, 8) if thin else chance.randint(3, 9),
                            samples=chance.randint(5, 50),
                            bytes_acked=chance.randint(500_000, 9_000_000),
                            retransmitted=chance.randint(0, 90_000),
                            rtt_us=chance.choice([0, 5_000, 80_000]),
                            dst_pop="nyc" if number == 3 else "",
                        )
                    )
    chance.shuffle(rows)
    return rows


@dataclass
class Read:
    """What the model makes of one prefix: flags by age in rounds, and means."""

    measured: set[int]
    low: set[int]
    rtt_us: float
    retransmit_ratio: float
    log2_rate: float
    recent_log2_rate: float


def read(rows: Iterable[Seen], now: int, law: CongestionPolicy) -> dict[tuple[str, str], Read]:
    """The evidence of each prefix at `now`."""
    counted = [
        row
        for row in rows
        if now - law.window_rounds * INTERVAL < row.round <= now
        and row.connections >= law.min_connections
        and row.samples >= law.min_samples
        and row.bytes_acked >= law.min_bytes
        and row.rate > 0
    ]
    clients: dict[tuple[int, str], list[Fraction]] = defaultdict(list)
    for row in counted:
        if not row.dst_pop:
            clients[row.round, row.pop].append(_compared(row, law))
    found: dict[tuple[str, str], list[tuple[int, Seen, bool]]] = defaultdict(list)
    for row in counted:
        rates = sorted(clients[row.round, row.pop])
        if len(rates) >= law.min_prefixes:
            bound = rates[min(int(law.low_share * len(rates)), len(rates) - 1)]
            age = (now - row.round) // INTERVAL
            found[row.pop, row.prefix].append((age, row, _compared(row, law) < bound))
    return {key: _summary(rows, law) for key, rows in found.items()}


def _compared(row: Seen, law: CongestionPolicy) -> Fraction:
    divisor = round(law.bbr_discount * 100) if row.algorithm.startswith("bbr") else 100
    return Fraction(row.rate * 100 // divisor)


def _summary(rows: list[tuple[int, Seen, bool]], law: CongestionPolicy) -> Read:
    low = set()
    for age in {age for age, _, _ in rows}:
        same = [(row, is_low) for at, row, is_low in rows if at == age]
        under_bbr = [is_low for row, is_low in same if row.algorithm.startswith("bbr")]
        if any(under_bbr or [is_low for _, is_low in same]):
            low.add(age)
    timed = [row for _, row, _ in rows if row.rtt_us]
    connections = sum(row.connections for row in timed)
    sent = sum(row.bytes_acked + row.retransmitted for _, row, _ in rows)

    def mean(chosen: list[Seen]) -> float:
        if not chosen:
            return -1.0
        weights = [1 + row.bytes_acked // 1000 for row in chosen]
        return sum(w * math.log2(row.rate) for w, row in zip(weights, chosen, strict=True)) / sum(weights)

    return Read(
        measured={age for age, _, _ in rows},
        low=low,
        rtt_us=sum(row.rtt_us * row.connections for row in timed) / connections if timed else -1.0,
        retransmit_ratio=sum(row.retransmitted for _, row, _ in rows) / sent,
        log2_rate=mean([row for _, row, _ in rows]),
        recent_log2_rate=mean([row for age, row, _ in rows if age < law.benefit_rounds]),
    )

"""Client prefixes round by round, decided by a plain implementation of the law: an independent model."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Any

from springtide.policy import CongestionPolicy
from springtide.store import Store

INTERVAL = 300


@dataclass(frozen=True)
class Seen:
    """Evidence of a prefix from connections under one algorithm in a round, all of them eligible by default."""

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
    # Connections above acting_bytes; and those of them that the application did not limit.
    acting: int | None = None
    eligible: int | None = None
    acting_bytes: int = 100_000

    @property
    def above(self) -> int:
        return self.connections if self.acting is None else self.acting

    @property
    def counted(self) -> int:
        return self.above if self.eligible is None else self.eligible

    @property
    def is_bbr(self) -> bool:
        return self.algorithm.startswith("bbr")

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
    store.insert("rollup_prefix_rates", [_unit_row(unit) for unit in units_of(rows)])
    hosts = {"polls_seen": 5, "polls_expected": 5, "rows_seen": 100, "rows_expected": 100, "closes": 0}
    seen = sorted({(row.round, row.pop) for row in rows})
    store.insert(
        "rollup_hosts",
        [{"round": moment, "generation": 1, "host": f"{pop}-1", "pop": pop, **hosts} for moment, pop in seen],
    )
    lines = [
        {"round": moment, "generation": 1, "interval_s": INTERVAL, "waited_s": 9999}
        for moment in sorted({row.round for row in rows})
    ]
    store.insert("rollups", lines)


def units_of(rows: Iterable[Seen]) -> list[list[Seen]]:
    """One prefix's rows in one round, together."""
    found: dict[tuple[int, str, str], list[Seen]] = defaultdict(list)
    for row in rows:
        found[row.round, row.pop, row.prefix].append(row)
    return list(found.values())


def _unit_row(unit: list[Seen]) -> dict[str, object]:
    [acting_bytes] = {row.acting_bytes for row in unit}
    rated = [row for row in unit if row.counted and row.rate]
    rates = {row.is_bbr: row.rate for row in rated}
    if len(rates) < len(rated):
        raise ValueError(f"{unit}: two rows of one kind, of which the roll-up takes one median over connections")
    first = unit[0]
    return {
        "round": first.round,
        "generation": 1,
        "pop": first.pop,
        "ip_version": 6 if first.six else 4,
        "client_prefix": str(first.address),
        "dst_pop": max(row.dst_pop for row in unit),
        "acting_bytes": acting_bytes,
        "connections": sum(row.connections for row in unit),
        "acting_connections": sum(row.above for row in unit),
        "app_limited_connections": sum(row.above - row.counted for row in unit),
        "eligible_connections": sum(row.counted for row in rated),
        "eligible_bbr_connections": sum(row.counted for row in rated if row.is_bbr),
        "delivery_rate_p50_bytes_per_s": rates.get(False, 0),
        "bbr_delivery_rate_p50_bytes_per_s": rates.get(True, 0),
        "rtt_p50_us": max((row.rtt_us for row in rated), default=0),
        "samples": sum(row.samples for row in rated),
        "bytes_acked": sum(row.bytes_acked for row in rated),
        "bytes_sent": sum(row.bytes_acked + row.retransmitted for row in rated),
        "bytes_retransmitted": sum(row.retransmitted for row in rated),
        "only_host": rated[0].host if len({row.host for row in rated}) == 1 else "",
    }


def rates_of(sockets: Iterable[dict[str, Any]], acting_bytes: int) -> list[dict[str, Any]]:
    """The rows of round_prefix_rates for these sockets (of testkit.round_model), computed by loops."""
    found: dict[tuple[str, int, str], list[dict[str, Any]]] = defaultdict(list)
    for socket in sockets:
        if socket["bytes_acked"]:
            found[socket["pop"], socket["ip_version"], socket["client_prefix"]].append(socket)
    result = []
    for (pop, version, prefix), members in sorted(found.items()):
        large = [s for s in members if s["life_bytes_acked"] >= acting_bytes]
        free = [s for s in large if s["delivery_rate_bytes_per_s"] and not s["app_limited"]]
        unnamed = [s for s in free if not s["congestion_algorithm"]]
        bbr = [s for s in free if s["congestion_algorithm"].startswith("bbr")]
        other = [s for s in free if s not in bbr and s not in unnamed]
        (bbr if len(bbr) > len(other) else other).extend(unnamed)
        hosts = {s["host"] for s in free}
        result.append(
            {
                "pop": pop,
                "ip_version": version,
                "client_prefix": prefix,
                "dst_pop": max(s["dst_pop"] for s in members),
                "acting_bytes": acting_bytes,
                "connections": len(members),
                "acting_connections": len(large),
                "app_limited_connections": sum(s["app_limited"] for s in large),
                "eligible_connections": len(free),
                "eligible_bbr_connections": len(bbr),
                "delivery_rate_p50_bytes_per_s": _median(other, "delivery_rate_bytes_per_s"),
                "bbr_delivery_rate_p50_bytes_per_s": _median(bbr, "delivery_rate_bytes_per_s"),
                "rtt_p50_us": _median([s for s in free if s["rtt_us"]], "rtt_us"),
                **{
                    name: sum(s[name] for s in free)
                    for name in ("samples", "bytes_acked", "bytes_sent", "bytes_retransmitted")
                },
                "only_host": hosts.pop() if len(hosts) == 1 else "",
            }
        )
    return result


def _median(sockets: Sequence[dict[str, Any]], name: str) -> int:
    """Each value as often as its connection's weight; of two middle ones the lower; 0 of none."""
    values = sorted(value for s in sockets for value in [s[name]] * s["sample_weight"])
    return values[(len(values) - 1) // 2] if values else 0


def random_rounds(seed: int, newest: int, rounds: int, pops: Sequence[str] = ("ams", "fra")) -> list[Seen]:
    """Slow and fast prefixes, some flapping, some thin, some under both algorithms, one a PoP's own; connections that
    show nothing of the path, rounds that were rolled up for another size, and gaps everywhere."""
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
                acting_bytes = 50_000 if chance.random() < 0.05 else chance.choice([100_000, 200_000])
                for algorithm in ("cubic", "bbr") if number % 4 == 0 else ("cubic",):
                    if algorithm == "bbr" and chance.random() < 0.5:
                        continue
                    connections = chance.randint(1, 8) if thin else chance.randint(3, 9)
                    acting = max(0, connections - chance.choice([0, 0, 0, 1, 4]))
                    rows.append(
                        Seen(
                            newest - age * INTERVAL,
                            pop,
                            number,
                            int(base * math.exp(chance.gauss(0, 0.8))),
                            algorithm,
                            six,
                            connections=connections,
                            acting=acting,
                            eligible=max(0, acting - chance.choice([0, 0, 0, 1, 4])),
                            acting_bytes=acting_bytes,
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
    """The model's reading of one prefix: flags by age in rounds, and means."""

    measured: set[int]
    low: set[int]
    rtt_us: float
    retransmit_ratio: float
    log2_rate: float
    recent_log2_rate: float


def read(rows: Iterable[Seen], now: int, law: CongestionPolicy) -> dict[tuple[str, str], Read]:
    """The evidence of each prefix at `now`."""
    units: list[list[Seen]] = []
    for unit in units_of(rows):
        rated = [row for row in unit if row.counted and row.rate]
        if (
            now - law.window_rounds * INTERVAL < unit[0].round <= now
            and unit[0].acting_bytes >= law.min_object_bytes
            and sum(row.counted for row in rated) >= law.min_connections
            and sum(row.samples for row in rated) >= law.min_samples
            and sum(row.bytes_acked for row in rated) >= law.min_bytes
        ):
            units.append(rated)
    clients: dict[tuple[int, str], list[float]] = defaultdict(list)
    for unit in units:
        if not any(row.dst_pop for row in unit):
            clients[unit[0].round, unit[0].pop].append(_compared(unit, law))
    found: dict[tuple[str, str], list[tuple[int, list[Seen], bool]]] = defaultdict(list)
    for unit in units:
        first = unit[0]
        rates = sorted(clients[first.round, first.pop])
        if len(rates) >= law.min_prefixes:
            bound = rates[min(int(law.low_share * len(rates)), len(rates) - 1)]
            age = (now - first.round) // INTERVAL
            found[first.pop, first.prefix].append((age, unit, _compared(unit, law) < bound))
    return {key: _summary(units, law) for key, units in found.items()}


def _mean(values: Iterable[tuple[float, int]]) -> float:
    """The geometric mean of values, each with its count."""
    values = list(values)
    return math.exp(math.fsum(math.log(value) * times for value, times in values) / sum(n for _, n in values))


def _compared(unit: list[Seen], law: CongestionPolicy) -> float:
    return _mean((row.rate / law.bbr_discount if row.is_bbr else row.rate, row.counted) for row in unit)


def _summary(units: list[tuple[int, list[Seen], bool]], law: CongestionPolicy) -> Read:
    rtts = [(max(row.rtt_us for row in unit), sum(row.counted for row in unit)) for _, unit, _ in units]
    timed = sum(connections for rtt, connections in rtts if rtt)
    rows = [(age, row) for age, unit, _ in units for row in unit]
    recent = [row for age, row in rows if age < law.benefit_rounds]
    return Read(
        measured={age for age, _, _ in units},
        low={age for age, _, is_low in units if is_low},
        rtt_us=sum(rtt * connections for rtt, connections in rtts) / timed if timed else -1.0,
        retransmit_ratio=sum(row.retransmitted for _, row in rows)
        / sum(row.bytes_acked + row.retransmitted for _, row in rows),
        log2_rate=math.log2(_mean((row.rate, row.counted) for _, row in rows)),
        recent_log2_rate=math.log2(_mean((row.rate, row.counted) for row in recent)) if recent else -1.0,
    )

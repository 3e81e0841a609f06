"""Prefixes that are slow by their path: clients with known path rates and known limits of their applications, from
samples over the roll-up to the ranking."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from springtide.fleet import Fleet
from springtide.laws.congestion import rows as congestion_rows
from springtide.laws.congestion.law import PREVIOUS, decide
from springtide.observe.enrich import publish_fleet
from springtide.observe.rollup import rollup
from springtide.policy import CongestionPolicy, Policy
from springtide.store import Row, Store
from springtide.store.files import sql

from testkit.home import FLEET, ROUND
from testkit.prefixes import INTERVAL, Seen, store_rounds

MSS = 1448
LAW = CongestionPolicy(window_rounds=2, min_rounds=1, benefit_rounds=1, holdout_share=0.0)
POLICY = Policy(congestion=LAW)
NOBODY = np.zeros(0, PREVIOUS)


@dataclass(frozen=True)
class Client:
    """A connection over a path of `rate` bytes per second; its application offers so much, or all that it takes."""

    rate: float
    rtt_s: float
    size: int
    offers: float = float("inf")
    algorithm: str = "cubic"

    def seen(self) -> tuple[int, bool]:
        """`delivery_rate` and whether it was application-limited, as the kernel keeps them (net/ipv4/tcp_rate.c): each
        round trip gives a sample; one that the application limited replaces the last only where it is no lower."""
        window, left, best, limited = 10 * MSS, float(self.size), 0.0, True
        while left > 0:
            offered = min(left, self.offers * self.rtt_s)
            delivered = min(offered, float(window), self.rate * self.rtt_s)
            by_application = offered < min(window, self.rate * self.rtt_s)
            if not by_application or delivered / self.rtt_s >= best:
                best, limited = delivered / self.rtt_s, by_application
            left -= max(delivered, 1.0)
            window = min(2 * window, 4000 * MSS)
        return round(best), limited


def samples(clients: dict[int, list[Client]]) -> Iterable[Row]:
    cookie = 0
    for number, those in clients.items():
        for client in those:
            cookie += 1
            rate, limited = client.seen()
            for poll in range(4):
                acked = client.size * (poll + 1) // 4
                yield {
                    "time_unix_us": (ROUND - 290 + 60 * poll) * 1_000_000 + cookie,
                    "host": f"ams-{1 + cookie % 2}",
                    "pop": "ams",
                    "boot_id": "boot",
                    "netns": 1,
                    "poll_sequence": poll + 1,
                    "cookie": cookie,
                    "kind": "POLL",
                    "state": "ESTABLISHED",
                    "dst_ip": f"::ffff:192.0.{number}.9",
                    "congestion_algorithm": client.algorithm or None,
                    "rtt": int(client.rtt_s * 1e6),
                    "delivery_rate": rate,
                    "delivery_rate_app_limited": limited,
                    "bytes_acked": acked,
                    "bytes_sent": acked + 60 * MSS,
                    "bytes_retrans": 20 * MSS * poll,
                }


def numbers(table: Any) -> set[int]:
    """The third octets of the prefixes."""
    return {int(row["destination"].split(b".")[2]) for row in table}


def test_prefixes_are_chosen_by_their_path_and_by_nothing_else(store: Store) -> None:
    """The slowest four of 20 paths with a known rate are chosen."""
    ordinary = {n: [Client(1e6 * (1 + n / 10), 0.05, 6_000_000)] * 4 for n in range(15)}
    slow = {n: [Client(150_000.0 + n, 0.08, 2_000_000)] * 4 for n in range(20, 23)}
    # One of the slow ones is served by several algorithms; for some connections no record has the algorithm.
    slow[23] = [Client(150_000.0, 0.08, 2_000_000, algorithm=name) for name in ("cubic", "reno", "", "cubic")]
    # 43 KB are two flights: on a path of 10 MB/s they look slower than any slow one, and no application limited them.
    small = [Client(10e6, 0.2, 30 * MSS)] * 60
    # A live stream, sent as it is made.
    stream = [Client(10e6, 0.05, 6_000_000, offers=20_000.0)] * 6
    others = {30: small, 31: stream, 32: [*small, *stream], 33: [*small, *[Client(5e6, 0.2, 6_000_000)] * 3]}
    assert max(client.seen()[0] for client in (*small, *stream)) < 150_000
    assert small[0].seen()[1] is False
    assert all(client.seen() == (client.rate, False) for client in slow[20])

    publish_fleet(store, Fleet.model_validate(yaml.safe_load(FLEET)))
    store.insert("tcp_samples", list(samples(ordinary | slow | others)))
    rollup(store, ROUND, INTERVAL, ROUND + 60, LAW.min_object_bytes)
    seen = congestion_rows.evidence(store, ROUND, POLICY, 0, least_low=0)
    assert numbers(seen) == {*ordinary, *slow, 33}
    chosen = decide(ROUND, POLICY, seen, NOBODY)
    assert numbers(chosen[chosen["algorithm"] == 1]) == set(slow)


def test_a_prefix_under_two_algorithms_is_one_number(store: Store) -> None:
    """By hand: three connections at 1 MB/s and one under BBR at 8, which counts as 4: the fourth root of 1 * 1 * 1 * 4
    is 1.414 MB/s. As delivered, with 8, it is 2 ** 0.75 = 1.682 MB/s. A fifth of 11 prefixes are two."""
    mixed = [Seen(ROUND, "ams", 0, 1_000_000, connections=3), Seen(ROUND, "ams", 0, 8_000_000, "bbr", connections=1)]
    rates = {1: 1_410_000, 2: 1_420_000, **{n: 5_000_000 + n for n in range(3, 11)}}
    store_rounds(store, [*mixed, *(Seen(ROUND, "ams", n, rate) for n, rate in rates.items())])
    seen = congestion_rows.evidence(store, ROUND, POLICY, 0, least_low=0)
    assert numbers(seen[seen["low_0"] == 1]) == {0, 1}
    assert set(seen["measured_0"].tolist()) == {1}
    [own] = seen[seen["low"] & 0xFF00 == 0]
    assert 2.0 ** own["log2_rate"] == pytest.approx(1_681_793, rel=1e-5)


@pytest.mark.parametrize(("eligible", "bbr", "measured"), [(2, 0, 0), (3, 0, 1), (2, 1, 1), (1, 1, 0)])
def test_connections_of_all_algorithms_count_together(store: Store, eligible: int, bbr: int, measured: int) -> None:
    others = [Seen(ROUND, "ams", n, 5_000_000 + n) for n in range(1, 11)]
    own = [Seen(ROUND, "ams", 0, 10**6, connections=50, eligible=eligible)]
    own += [Seen(ROUND, "ams", 0, 10**6, "bbr", connections=bbr)] if bbr else []
    store_rounds(store, others + own)
    seen = congestion_rows.evidence(store, ROUND, POLICY, 0, least_low=0)
    assert len(seen[seen["low"] & 0xFF00 == 0]) == measured


def socket(cookie: int, number: int, rate: int, algorithm: str) -> Row:
    return {
        "round": ROUND,
        "generation": 1,
        "pop": "ams",
        "host": f"ams-{1 + cookie % 2}",
        "cookie": cookie,
        "ip_version": 4,
        "client_prefix": str(IPv6Address(f"::ffff:192.0.{number}.0")),
        "congestion_algorithm": algorithm,
        "sample_weight": 1,
        "samples": 5,
        "rtt_us": 60_000,
        "delivery_rate_bytes_per_s": rate,
        "bytes_acked": 1_000_000,
        "bytes_sent": 1_020_000,
        "bytes_retransmitted": 20_000,
        "life_bytes_acked": 1_000_000,
        "counted": True,
    }


def ranks(store: Store, sockets: Sequence[Row]) -> dict[int, bool]:
    for table in ("rollup_sockets", "rollup_prefix_rates", "rollups"):
        store.execute(f"truncate table {table}")
    store.insert("rollup_sockets", list(sockets))
    key = {"round_s": ROUND, "generation": 1, "acting_bytes": LAW.min_object_bytes}
    store.execute(sql("rollup/4_prefix_rates"), key)
    store.insert("rollups", [{"round": ROUND, "generation": 1, "interval_s": INTERVAL}])
    seen = congestion_rows.evidence(store, ROUND, POLICY, 0, least_low=0)
    assert len(seen) == len(numbers(seen))
    return {int(row["low"]) >> 8 & 0xFF: bool(row["low_0"]) for row in seen}


LABELS = st.one_of(
    st.lists(st.sampled_from(["cubic", "reno", ""]), min_size=4, max_size=4),
    st.lists(st.sampled_from(["cubic", "bbr", "bbr2"]), min_size=4, max_size=4),
)


@given(st.permutations(range(14)), st.dictionaries(st.integers(0, 13), LABELS, min_size=1, max_size=8))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_several_algorithms_in_one_prefix_change_no_rank(
    store: Store, places: Sequence[int], labels: dict[int, list[str]]
) -> None:
    """BBR doubles a rate, as the policy supposes: then no prefix's place depends on who is served by what."""
    plain, mixed = [], []
    for number in range(14):
        rate = 100_000 + 10_000 * places[number]
        for at in range(4):
            algorithm = labels.get(number, ["cubic"] * 4)[at]
            plain.append(socket(10 * number + at, number, rate, "cubic"))
            mixed.append(socket(10 * number + at, number, rate * (2 if "bbr" in algorithm else 1), algorithm))
    assert ranks(store, mixed) == ranks(store, plain) == {n: places[n] < 2 for n in range(14)}

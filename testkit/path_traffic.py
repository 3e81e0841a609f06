"""Connections over paths, as samples, and what the law of starts had decided for them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import yaml
from springtide.fleet import Fleet
from springtide.frame import Frame
from springtide.laws.start.evidence import SHOWN, observe
from springtide.observe.enrich import publish_fleet
from springtide.observe.rollup import TABLES, rollup
from springtide.policy import StartPolicy
from springtide.store import Row, Store

from testkit import path_model, round_model
from testkit.home import ROUND
from testkit.path_model import Gave, Unit

INTERVAL = 300
MSS = 1448
FLEET = """\
version: 1
pops:
  ams:
    region: europe
    prefixes: [10.77.1.0/24, "fd77:1::/48"]
    edges:
      ams-1: {address: 10.77.1.1}
      ams-2: {address: 10.77.1.2}
      ams-3: {address: 10.77.1.3}
      ams-4: {address: 10.77.1.4}
  fra:
    region: europe
    prefixes: [10.77.2.0/24, "fd77:2::/48"]
    edges:
      fra-1: {address: 10.77.2.1}
      fra-2: {address: 10.77.2.2}
  nyc:
    region: america
    prefixes: [10.77.3.0/24, "fd77:3::/48"]
    edges:
      nyc-1: {address: 10.77.3.1}
"""
EDGES = {"ams-1": "ams", "ams-2": "ams", "ams-3": "ams", "ams-4": "ams", "fra-1": "fra", "fra-2": "fra", "nyc-1": "nyc"}
# Address and the PoP that has it.
PEERS = {
    "::ffff:10.77.1.9": "ams",
    "::ffff:10.77.2.9": "fra",
    "fd77:2::9": "fra",
    "::ffff:10.77.3.9": "nyc",
    "::ffff:203.0.113.7": "",
    "::ffff:203.0.113.200": "",
    "::ffff:198.51.100.1": "",
    "2001:db8:12:3456::1": "",
    "2001:db8:0:ab00:1::1": "",
}
# Values that the decisions of three rounds gave: the path to fra was raised, and a step is on trial now.
SLOW, FAST, STEP = (20.0, 1e6, 4e6), (40.0, 2e6, 8e6), (60.0, 3e6, 8e6)
NONE = path_model.NOTHING
# Fields that not every sample has.
OPTIONAL = (
    *round_model.COUNTERS,
    *("snd_cwnd", "delivery_rate", "unacked", "sample_weight", "congestion_algorithm", "dsack_dups", "total_rto"),
    *(
        "data_segs_out",
        "first_flight_segs",
        "first_flight_retrans",
        "handshake_rtt",
        "started_at_once",
        "started_prefix_length",
    ),
    *(f"started_{name}" for name in ("round", "window", "rate", "arm", "step")),
    *(f"{name}_time" for name in ("first_acked", "acked_10k", "acked_50k", "acked_100k", "cap_lifted", "lived")),
    *("train_bytes", "train_time"),
)
FRA, CLIENTS = ("ams", "fra", 4), ("ams", "203.0.113.0/24", 4)
# Columns of a path for analysts, besides the law's evidence.
BESIDES = (
    *("src_pop", "destination", "ip_version", "hosts"),
    *("entry_window_p50", "entry_rate_p50_bytes_per_s", "trial_window_p50"),
)
DECIDED: dict[int, Gave] = {
    ROUND - 900: {FRA: (SLOW, NONE), CLIENTS: (NONE, SLOW)},
    ROUND - 600: {FRA: (FAST, STEP), CLIENTS: (NONE, SLOW)},
    ROUND - 300: {FRA: (FAST, STEP), CLIENTS: (NONE, SLOW), ("ams", "2001:db8:12:3400::/56", 6): (SLOW, NONE)},
}


def decision_rows(decided: Mapping[int, Gave]) -> list[Row]:
    return [
        {
            "round": moment,
            "part": "start",
            "src_pop": unit[0],
            "destination": unit[1],
            "ip_version": unit[2],
            "window": int(entry[0]),
            "connection_rate": entry[1],
            "path_rate": entry[2],
            "trial_window": int(trial[0]),
            "trial_connection_rate": trial[1],
            "trial_path_rate": trial[2],
            "trial_permille": 100 if trial[0] else 0,
        }
        for moment, gave in decided.items()
        for unit, (entry, trial) in gave.items()
    ]


def load(store: Store, batches: list[list[Row]], decided: Mapping[int, Gave] | None = None) -> None:
    publish_fleet(store, Fleet.model_validate(yaml.safe_load(FLEET)))
    for table in ("tcp_samples", "rollups", "path_decisions", *TABLES):
        store.execute(f"truncate table {table}")
    for batch in batches:
        store.insert("tcp_samples", batch)
    if decided:
        store.insert("path_decisions", decision_rows(decided))


def roll_up(store: Store, batches: list[list[Row]], decided: Mapping[int, Gave] | None = None) -> None:
    load(store, batches, decided)
    rollup(store, ROUND, INTERVAL, ROUND + 60, paced=True)


class Traffic:
    """Samples of polls 30 s apart, of a round and the one before."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.rows: list[Row] = []
        self.cookies = 0

    def row(self, host: str, cookie: int, peer: str, poll: int, **values: Any) -> Row:
        pop = EDGES.get(host, "ams")
        return dict.fromkeys(OPTIONAL) | {
            "time_unix_us": (ROUND - 2 * INTERVAL + 30 * poll) * 10**6 + 1000 + cookie,
            "host": host,
            "pop": pop,
            "boot_id": "boot",
            "netns": 1,
            "poll_sequence": 500 + poll,
            "cookie": cookie,
            "kind": "POLL",
            "state": "ESTABLISHED",
            "src_ip": "::ffff:10.0.0.1",
            "src_pop": pop,
            "dst_ip": peer,
            "dst_pop": PEERS[peer],
            "snd_mss": MSS,
            "snd_ssthresh": 2**31 - 1,
            "total_retrans": 0,
            "rtt": 50_000,
            "min_rtt": 40_000,
            "snd_wnd": 65_535,
            "delivery_rate_app_limited": False,
            "bytes_retrans": 0,
            **values,
        }

    def hosts(self, *hosts: str) -> None:
        """One idle connection each, so that what is new can be distinguished."""
        for host in hosts:
            self.cookies += 1
            for poll in range(20):
                self.rows.append(self.row(host, self.cookies, "::ffff:198.51.100.1", poll, bytes_acked=5, bytes_sent=5))

    def connection(
        self, host: str, peer: str, rate: int, born: int = 11, polls: int = 6, sent: int = 2_000_000, **more: Any
    ) -> None:
        """Seen by so many polls, delivered `rate`, with data in flight, and closed."""
        self.cookies += 1
        for n in range(polls + 1):
            values = {
                "bytes_acked": sent * (n + 1) // (polls + 1),
                "bytes_sent": sent * (n + 1) // (polls + 1),
                "delivery_rate": rate - polls + n,
                "unacked": 20,
                **more,
            }
            if n == polls:
                values |= {"kind": "CLOSE", "state": "CLOSE", "unacked": 0}
            self.rows.append(self.row(host, self.cookies, peer, born + n - (n == polls), **values))

    def flight(
        self, host: str, peer: str, moment: int, window: int, *, arm: int = 0, step: int = 0, **more: Any
    ) -> None:
        """A connection that began between polls, its close and its record."""
        self.cookies += 1
        at = 11 + self.cookies % 8
        started = {"started_round": moment, "started_window": window, "started_rate": window * 10_000}
        started |= {"started_arm": arm, "started_step": step}
        counted = {"data_segs_out": 70, "total_retrans": 0, "bytes_acked": 100_000, "bytes_sent": 100_000}
        closed = {"kind": "CLOSE", "state": "CLOSE"}
        source = {"src_pop": more["src_pop"]} if "src_pop" in more else {}
        self.rows.append(self.row(host, self.cookies, peer, at, **closed, **started, **counted, **source))
        record = {"kind": "FIRST_FLIGHT", "state": "UNSPECIFIED", "started_at_once": 2, "started_prefix_length": 24}
        times = {"first_flight_retrans": 0, "acked_10k_time": 90_000, "acked_50k_time": 150_000, "lived_time": 300_000}
        values = started | counted | record | times | more
        self.rows.append(self.row(host, self.cookies, peer, at, **values))

    def anything(self, host: str) -> None:
        """A connection of any kind."""
        draw = self.random
        peer = draw.choice(list(PEERS))
        rate = int(10 ** draw.uniform(4, 7.5))
        more: dict[str, Any] = {
            "delivery_rate_app_limited": draw.random() < 0.3,
            "min_rtt": draw.choice([None, 10_000, draw.randrange(20_000, 90_000)]),
            "snd_wnd": draw.choice([None, 65_535, 2**20]),
            "sample_weight": draw.choice([None, None, 1, 10]),
        }
        if draw.random() < 0.5:
            more |= {"snd_ssthresh": 700, "bytes_retrans": draw.choice([0, 0, 5 * MSS])}
        born, polls = draw.randrange(1, 18), draw.randrange(0, 10)
        sent = draw.choice([3_000, 20_000, 27_000, 100_000, 5_000_000])
        self.connection(host, peer, rate, born, min(polls, 19 - born), sent, **more)
        for _ in range(draw.randrange(3)):
            self.flight(
                host,
                draw.choice(["::ffff:10.77.2.9", "::ffff:203.0.113.7", "2001:db8:12:3456::1", peer]),
                ROUND - draw.choice([300, 360, 600, 900, 1500]),
                window := draw.choice([0, 20, 40, 60, 80]),
                started_rate=draw.choice([window * 10_000, 2_500_000 if window else 0]),
                arm=draw.choice([0, 0, 1]),
                bytes_acked=draw.choice([50_000, 100_000, 1_000_000]),
                step=draw.choice([0, 0, 0, 1, 2]),
                data_segs_out=draw.choice([8, 12, 70]),
                total_retrans=draw.choice([0, 0, 3]),
                first_flight_retrans=draw.choice([0, 0, 3]),
                min_rtt=draw.choice([None, 30_000, 95_000, 120_000]),
                first_acked_time=draw.choice([None, 35_000, 120_000]),
                acked_100k_time=draw.choice([None, draw.randrange(10**5, 10**6)]),
                started_at_once=draw.choice([None, 0, 1, 5]) or 0,
                train_bytes=(train := draw.choice([None, None, 5_792, 13_032])),
                train_time=train and draw.choice([1, 400, draw.randrange(1_000, 40_000)]),
                first_flight_segs=(None, 8, 12, 70)[self.cookies % 4],
                started_prefix_length=draw.choice([24, None, 0]),
                lived_time=draw.choice([None, 300_000, 4000 * 10**6]),
            )


def mixed(seed: int) -> list[Row]:
    traffic = Traffic(seed)
    traffic.hosts("ams-1", "ams-2", "ams-3", "fra-1", "nyc-1", "ams-9")
    for host, count in (("ams-1", 30), ("ams-2", 10), ("ams-3", 12), ("fra-1", 8), ("nyc-1", 3), ("ams-9", 5)):
        for _ in range(count):
            traffic.anything(host)
    return traffic.rows


def thin(seed: int, units: int = 60) -> tuple[list[Row], dict[int, Gave]]:
    """Client prefixes with connections on two to four hosts, of which few have a first flight, and one may have many;
    and what was decided for them."""
    traffic, gave = Traffic(seed), {}
    draw, hosts = traffic.random, ("ams-1", "ams-2", "ams-3", "ams-4")
    traffic.hosts(*hosts)
    for number in range(units):
        peer = f"::ffff:192.0.{number}.1"
        PEERS[peer] = ""
        gave["ams", f"192.0.{number}.0/24", 4] = (FAST, STEP)
        for host in hosts[: draw.randrange(2, 5)]:
            traffic.connection(host, peer, 10**6, sent=100_000)
            for _ in range(draw.choice([0, 0, 0, 1, 1, 2, 7])):
                traffic.flight(
                    host,
                    peer,
                    ROUND - 300,
                    80,
                    arm=draw.choice([0, 0, 0, 1]),
                    step=draw.choice([0, 0, 0, 0, 1]),
                    data_segs_out=draw.choice([12, 70]),
                    first_flight_retrans=draw.choice([0, 0, 0, 5, 35]),
                    started_at_once=1,
                    acked_100k_time=draw.randrange(10**5, 10**6),
                    train_bytes=(train := draw.choice([None, 5_792, 13_032])),
                    train_time=train and draw.randrange(1_000, 40_000),
                    first_flight_segs=(None, 8, 70)[traffic.cookies % 3],
                )
    return traffic.rows, {ROUND - 600: gave}


def seen(store: Store, unit: Unit, law: StartPolicy | None = None) -> dict[str, Any]:
    """The law's evidence of a unit, and what analysts see besides of the round's row, under its name there."""
    of_round = "round = fromUnixTimestamp({round_s:UInt32})"
    paths = store.query(f"select {', '.join(BESIDES)} from round_paths where {of_round}", {"round_s": ROUND})
    return evidence(unit, observe(store, ROUND, law or StartPolicy()), paths)


def evidence(unit: Unit, table: Frame, paths: list[Row]) -> dict[str, Any]:
    """`paths`: BESIDES of each."""
    assert table.dtype == SHOWN
    [row] = [row for row in table if (row["src_pop"].decode(), row["destination"].decode(), row["ip_version"]) == unit]
    # With the digits that a number has: a double would show more.
    found = {name: float(str(row[name])) if SHOWN[name].kind == "f" else row[name].item() for name in SHOWN.names or ()}
    [path] = [path for path in paths if unit_of(path) == unit]
    return found | path


def unit_of(row: Row) -> Unit:
    return row["src_pop"], row["destination"], row["ip_version"]

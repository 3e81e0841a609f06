"""Six hours of a small fleet that paces, closed: what laws decide is what the next connections start with.

    python -m testkit.hours docs/images/boards

writes each dashboard over them as a picture (`make boards`). Paths and what first flights meet are those of
`make calm`; the commands are those that users run. Some minutes long; the same numbers each time.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from unittest.mock import patch

import numpy as np
from springtide import instants
from springtide.fleet import load_fleet
from springtide.laws.holdout import held_out_edges
from springtide.policy import load_policy
from springtide.publication import journal
from springtide.publication.folder import PublishFolder
from springtide.store import Row

from bench.calm.start_flights import PARTS, SEGMENTS, SIZES, Given, meet
from bench.calm.start_paths import Paths
from dashboards.drawing import draw
from dashboards.generate import documents
from testkit import history, path_traffic
from testkit.home import ROUND, Home, migrated
from testkit.path_traffic import EDGES, INTERVAL, MSS, OPTIONAL, Traffic

HOURS = 6
ROUNDS = range(ROUND - HOURS * 3600, ROUND + 1, INTERVAL)
# As few edges, prefixes and connections as this need less of each.
POLICY = """\
enforce: {by: bpf}
enforce_overrides: [{edges: [fra-2], by: routes, reason: an older kernel}]
initcwnd: {duty_rounds: 1}
holdout: {min_edges: 4, edge_share: 0.25, connection_permille: 100}
gate: {min_connections: 20}
recovery: {handshake: true, copies: true, copies_permille: 50}
congestion:
  {window_rounds: 24, min_rounds: 6, min_prefixes: 4, min_connections: 1, min_samples: 1, min_bytes: 1, low_share: 0.3,
   benefit_rounds: 6, min_stay_s: 3600, max_selected: 4, holdout_share: 0.3, low_rtt_us: 1000}
"""
POPS = {"ams": "10.77.1.9", "fra": "10.77.2.9", "nyc": "10.77.3.9"}
BETWEEN_MS = {frozenset(("ams", "fra")): 12.0, frozenset(("ams", "nyc")): 82.0, frozenset(("fra", "nyc")): 88.0}
CLIENTS = [*history.CLIENTS, "192.0.3.7", "198.51.101.7", "203.0.114.7", "203.0.115.7"]
UNITS = [(pop, to) for pop in POPS for to in (*(other for other in POPS if other != pop), *CLIENTS)]
CANARY, OTHERS = "ams-1", [edge for edge in EDGES if edge != "ams-1"]
# Connections of a path that begin on each host in a round, on average.
FRESH = 9
# The round after which an edge is found to have something else.
DRIFT = 30
# The edge that runs no program: its connections leave no record, and those to clients start as by default.
BY_ROUTES = "fra-2"
# Fields that only some samples have: every row has the same names.
DEFAULTS = dict.fromkeys((*OPTIONAL, "handshake_timeout_ms", "handshake_retrans", "copied_bytes", "copied_segments"))
DEFAULTS |= {"src_port": 443, "dst_port": 40_000, "congestion_algorithm": "cubic", "snd_cwnd": 10}


def mapped(address: str) -> str:
    return address if ":" in address else f"::ffff:{address}"


def destination(to: str) -> str:
    """A unit's name in decisions."""
    if to in POPS:
        return to
    return "2001:db8:1::/56" if ":" in to else to.rsplit(".", 1)[0] + ".0/24"


def starting(rows: Sequence[Row], kind: str = "") -> Given:
    """Start values of each unit, as decided."""
    names = ("window", "connection_rate", "path_rate")
    window, rate, path = (np.array([row.get(kind + name) or 0.0 for row in rows]) for name in names)
    return Given(window.astype(np.int64), rate, path)


class Hours:
    def __init__(self, home: Home) -> None:
        self.home, self.chance = home, Random(7)
        self.folder = PublishFolder(home.publish_dir)
        self.waiting, self.now = "", ROUNDS[0]
        self.traffic = Traffic(7)
        self.traffic.cookies = 1000
        self.paths = Paths(len(UNITS), 5)
        for number, (pop, to) in enumerate(UNITS):
            if to in POPS:
                self.paths.rtt_ms[number] = BETWEEN_MS[frozenset((pop, to))]
        # A segment's odds of being lost by chance.
        self.loss = [self.chance.choice([0.0, 0.0, 0.0002, 0.002]) for _ in UNITS]
        path_traffic.PEERS.update({mapped(client): "" for client in CLIENTS})
        self.held_out = held_out_edges(load_fleet(home.fleet), load_policy(home.policy).holdout)

    def round(self, number: int, moment: int) -> None:
        """Traffic of a round, and all jobs after it."""
        store, at = self.home.open(), ("--round", instants.show(moment))
        store.insert("tcp_samples", list(self.samples(number, moment)))
        self.now = moment + 20
        if self.waiting and number % 3 == 2:
            # The canary of the rollout before has had its connections.
            wave = ("--wave", 1, "--changed", CANARY, "--unchanged", ",".join(OTHERS))
            self.home.run("gate", "--publication", self.waiting, *wave, code=None)
        self.now = moment + 61
        self.home.run("rollup", *at)
        for law in ("start", "initcwnd", "congestion", "recovery"):
            self.home.run("decide", law, *at)
        if number % 12 == 11:
            self.home.run("measure", *at)
        self.waiting = self.home.json("publish", *at)["publication"]
        for event, verdict, edges in (
            ("rollout", "begun", ()),
            ("wave", "applied", [CANARY]),
            ("wave", "applied", OTHERS),
            *([("drift", "repaired", ["fra-2"])] if number == DRIFT else ()),
        ):
            self.now += 5
            entry = journal.Event(event, publication=self.waiting, verdict=verdict, edges=edges)
            journal.append(self.folder.path, entry)
        self.folder.point("current", self.folder.path / "rounds" / self.waiting / "edges")

    def decided(self, part: str, moment: int) -> dict[tuple[str, str], Row]:
        found = self.home.query(
            f"select * from path_decisions final where part = '{part}' and round = fromUnixTimestamp({moment})"
        )
        return {(row["src_pop"], row["destination"]): row for row in found}

    def samples(self, number: int, moment: int) -> Iterator[Row]:
        """Rows of tcp_samples of a round, whose connections start as the round before decided."""
        self.moment, self.before = self.paths.moment(number), moment - INTERVAL
        before = self.before
        starts, kept = self.decided("start", before), self.decided("recovery", before)
        selected = self.decided("congestion", before)
        windows = self.decided("initcwnd", before)
        rows = [starts.get((pop, destination(to)), {}) for pop, to in UNITS]
        self.arms = {
            "default": Given.default(len(UNITS)),
            "routes": starting([{"window": windows.get(unit, {}).get("initcwnd")} for unit in UNITS]),
            "entry": starting(rows),
            "trial": starting(rows, "trial_"),
        }
        self.met = {arm: meet(self.moment, one) for arm, one in self.arms.items()}
        self.traffic.rows.clear()
        cookies, self.traffic.cookies = self.traffic.cookies, 0
        self.traffic.hosts(*EDGES)
        self.traffic.cookies = cookies
        for unit, (pop, to) in enumerate(UNITS):
            peer = mapped(POPS.get(to, to))
            is_bbr = selected.get((pop, destination(to)), {}).get("algorithm") == "bbr"
            for host in (host for host, of in EDGES.items() if of == pop):
                for _ in range(self.chance.randrange(1, 4)):
                    self.stays(host, peer, unit, is_bbr)
                for _ in range(self.chance.randrange(FRESH // 2, FRESH * 3 // 2)):
                    row, held = rows[unit], kept.get((pop, destination(to)), {})
                    self.fresh(host, peer, unit, row, held)
        for row in self.traffic.rows:
            # Traffic is of ROUND and the round before.
            if row["time_unix_us"] >= (ROUND - INTERVAL) * 10**6:
                row["time_unix_us"] += (moment - ROUND) * 10**6
                row["poll_sequence"] += (moment - ROUNDS[0]) // 30
                yield DEFAULTS | {name: value for name, value in row.items() if value is not None}

    def stays(self, host: str, peer: str, unit: int, is_bbr: bool) -> None:
        """A transfer that takes minutes; BBR keeps its rate where others take loss for a full path."""
        share, rtt_ms, loss = float(self.moment.share[unit]), float(self.moment.rtt_ms[unit]), self.loss[unit]
        # Rate that chance losses leave CUBIC (Mathis et al., "The macroscopic behavior of TCP").
        most = share if is_bbr or not loss else min(share, 1.22 * MSS / (rtt_ms / 1000 * math.sqrt(loss)))
        rate = int(most * math.exp(self.chance.gauss(0, 0.15)))
        window, sent = max(4, int(rate * rtt_ms / 1000 / MSS)), min(20_000_000, rate * 20)
        shown = {
            "snd_cwnd": window,
            "snd_ssthresh": max(2, window - 2),
            "congestion_algorithm": "bbr" if is_bbr else "cubic",
            "rtt": int(rtt_ms * 1100),
            "min_rtt": int(rtt_ms * 1000),
            "bytes_retrans": int(sent * loss),
            "total_retrans": int(sent * loss / MSS),
            "busy_time": int(sent / rate * 10**6),
            "rwnd_limited": int(sent / rate * 10**6 * max(0.0, self.chance.gauss(-0.1, 0.15))),
            "snd_wnd": 4_000_000,
            "dst_port": self.chance.randrange(32_768, 61_000),
        }
        self.traffic.connection(host, peer, rate, 10 + self.chance.randrange(3), 6, sent, **shown)

    def fresh(self, host: str, peer: str, unit: int, row: Row, held: Row) -> None:
        """A short connection: its close and the record of how it began. `row` and `held` are what was decided of starts
        and of recovery. Long: a record, field after field."""
        draw, now = self.chance, self.moment
        is_named = host not in (*self.held_out, BY_ROUTES) and bool(
            row.get("window") or row.get("trial_window") or held
        )
        permille = row.get("trial_permille") or (100 if row.get("connection_rate") else 0)
        arm = int(is_named and draw.random() * 1000 < permille)
        # Tries some without values where nothing is on trial: the benefit is measured by them.
        way = ("trial" if row.get("trial_window") else "default") if arm else "entry"
        if not is_named:
            way = "routes" if host == BY_ROUTES else "default"
        given, meets = self.arms[way], self.met[way]
        size = draw.choices(range(len(SIZES)), PARTS.tolist())[0]
        copied = int(held.get("copied_bytes") or 0) if is_named and draw.random() < 0.9 else 0
        timeout = int(held.get("handshake_timeout_ms") or 0) if is_named and draw.random() < 0.9 else 0
        by_chance = (1 - (1 - self.loss[unit]) ** SEGMENTS[size]) * (0.3 if copied else 1)
        lossy = bool(draw.random() < meets.lossy[unit, size] + by_chance)
        again = max(1, round(float(meets.first[unit, size]))) if lossy else 0
        rtt_us = now.rtt_ms[unit] * 1000 * math.exp(draw.gauss(0, 0.01)) + 100
        took = [
            int(trips * rtt_us * math.exp(draw.gauss(0, 0.03))) + 200_000 * (lossy and draw.random() < 0.2)
            for trips in np.maximum.accumulate(meets.trips[unit, : size + 1])
        ]
        at_once, window = int(now.at_once[unit]), int(given.window[unit])
        rate = min(given.rate[unit], given.path[unit] / at_once)
        braked = bool(window and arm == 0 and self.paths.episode[unit] < 0.5 and draw.random() < 0.2)
        sent = SIZES[size] + again * MSS
        counted: Row = {
            "bytes_acked": SIZES[size],
            "bytes_sent": sent,
            "bytes_retrans": again * MSS,
            "data_segs_out": int(SEGMENTS[size]) + again,
            "total_retrans": again,
            "total_rto": int(lossy and draw.random() < 0.2),
            "dsack_dups": int(lossy and draw.random() < 0.1),
            "busy_time": took[-1],
            "rtt": int(rtt_us * 1.05),
            "min_rtt": int(rtt_us),
            # A window that an object does not fill does not grow.
            "snd_cwnd": (window or 10) + int(SEGMENTS[size] * (window < 2 * SEGMENTS[size])),
            "snd_wnd": 4_000_000,
            "delivery_rate": int(SIZES[size] * 10**6 / took[-1]),
            "delivery_rate_app_limited": True,
            "dst_port": draw.randrange(32_768, 61_000),
            "src_port": draw.choice((443, 443, 8443)),
        }
        started: Row = {
            "started_round": self.before,
            "started_window": window // (2 if braked else 1),
            "started_rate": int(rate / (2 if braked else 1)),
            "started_arm": arm,
            "started_step": int(braked),
        }
        train = 0 if lossy or size == 0 else 9 * MSS
        record: Row = {
            "kind": "FIRST_FLIGHT",
            "state": "UNSPECIFIED",
            "started_at_once": at_once,
            "started_prefix_length": 24 * is_named,
            "first_flight_retrans": again,
            "handshake_rtt": int(rtt_us),
            "handshake_timeout_ms": timeout,
            "handshake_retrans": int(draw.random() < 2 * self.loss[unit]),
            "first_acked_time": int(rtt_us),
            **{f"acked_{name}_time": took[at] for at, name in enumerate(("10k", "50k", "100k")) if at <= size},
            "lived_time": took[-1] + 20_000,
            "train_bytes": train,
            "train_time": int(train * 10**6 / now.capacity[unit] * math.exp(draw.gauss(0, 0.04))),
            "copied_bytes": min(copied, SIZES[size]),
            "copied_segments": min(copied, SIZES[size]) // MSS,
        }
        traffic, poll = self.traffic, 10 + draw.randrange(10)
        traffic.cookies += 1
        kinds = [counted | {"kind": "CLOSE", "state": "CLOSE"}]
        if host != BY_ROUTES:
            kinds = [kinds[0] | started, counted | started | record]
        traffic.rows += [traffic.row(host, traffic.cookies, peer, poll, **values) for values in kinds]


def live(folder: Path) -> Home:
    """A home after these hours; its store stays open."""
    migrated(folder)
    home = Home(folder, kept={})
    home.fleet.write_text(path_traffic.FLEET + history.TENANTS)
    home.policy.write_text(POLICY)
    networks, chance = folder / "asn.csv", Random(3)
    networks.write_text(history.ASN)
    home.run("asn", networks)
    with patch.object(instants, "now", lambda: ROUND):
        history.report(home, ROUNDS, [line for moment in ROUNDS for line in history.requests(moment, chance)])
    # In place of the engine's clock, which is not the fleet's.
    stamp = "toDateTime(intDiv(time_unix_us, 1000000) + 2 + cityHash64(cookie, time_unix_us) % 7)"
    home.open().execute(f"alter table tcp_samples modify column inserted_at DateTime('UTC') materialized {stamp}")
    hours = Hours(home)
    with patch.object(instants, "now", lambda: hours.now):
        for number, moment in enumerate(ROUNDS):
            hours.round(number, moment)
        home.run("history")
    return home


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = live(Path(folder))
        for path in draw(home.open(), documents(), Path(sys.argv[1]), ROUNDS[0], ROUND + 85):
            print(path)
        home.release()


if __name__ == "__main__":
    main()

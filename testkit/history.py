"""Two days of a small fleet: pairs and clients, losses, closes, a host that misses polls, and an access log."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from springtide import instants

from testkit.home import FLEET, ROUND, Home
from testkit.proto import Value
from testkit.spool import record, write_spool
from testkit.traffic import MSS, Socket

INTERVAL = 300
ROUNDS = [*range(ROUND - 86_400 - 600, ROUND - 86_400 + 1, INTERVAL), *range(ROUND - 1500, ROUND + 1, INTERVAL)]
HOSTS = {"ams-1": ("ams", "10.77.1.1"), "ams-2": ("ams", "10.77.1.2"), "fra-1": ("fra", "10.77.2.1")}
PEERS = {"ams": ["10.77.2.9", "10.77.3.9"], "fra": ["10.77.1.9", "10.77.3.9"]}
# Prefix: round-trip time (ms), delivery rate (Mbit/s), loss (per million).
CLIENTS = {
    "192.0.2.7": (12, 80, 100),
    "198.51.100.7": (35, 30, 4_000),
    "203.0.113.7": (140, 3, 30_000),
    "2001:db8:1::7": (60, 40, 500),
}
# Tenants and autonomous systems, which dashboards show.
TENANTS = "tenants:\n  web: {ports: [443]}\n  far: {ports: [8443]}\n"
ASN = "prefix,asn,name\n203.0.113.0/24,64500,Far Away\n198.51.100.0/24,64501,Near By\n"


@dataclass(frozen=True)
class Life:
    """One connection: where to, and how it fares."""

    host: str
    peer: str
    algorithm: str
    rtt_ms: int
    mbit: float
    loss_ppm: int
    cwnd: int
    rwnd_limited: bool


def fill(home: Home) -> None:
    """Samples, decisions and requests of every round of ROUNDS, by the commands that users run."""
    lines = spool(home)
    home.run("ingest", home.spool)
    report(home, ROUNDS, lines)


def report(home: Home, rounds: Iterable[int], lines: Iterable[str]) -> None:
    """Loads lines of access logs, and the probes of these rounds."""
    log = home.path / "access.json"
    log.write_text("".join(lines))
    home.run("ingest-logs", log)
    probes = home.path / "probes.jsonl"
    probes.write_text("".join(_probes(rounds)))
    home.run("ingest-probes", probes)


def live(template: Path, folder: Path) -> None:
    """A home with the history and the tables of its rounds, for copies by `lived`."""
    home = Home(folder, kept={})
    shutil.copytree(template, folder / "store", symlinks=True)
    home.fleet.write_text(FLEET + TENANTS)
    home.policy.write_text("{}\n")
    table = folder / "asn.csv"
    table.write_text(ASN)
    with patch.object(instants, "now", lambda: ROUND + 120):
        home.run("asn", table)
        fill(home)
        for first, last in ((ROUNDS[0], ROUNDS[2]), (ROUNDS[3], ROUNDS[-1])):
            home.run("rollup", "--from", instants.show(first), "--to", instants.show(last))
    home.release()


def lived(history: Path, folder: Path) -> Home:
    """A copy of such a home. Its store stays open."""
    shutil.copytree(history, folder, symlinks=True, dirs_exist_ok=True)
    return Home(folder, kept={})


def spool(home: Home) -> list[str]:
    """The samples as a spool file; the lines of the access log."""
    samples, lines = made(ROUNDS)
    write_spool(home.spool, "history", [record(samples), record(_flights())])
    return lines


def made(rounds: Iterable[int]) -> tuple[list[dict[str, Value]], list[str]]:
    """Samples and lines of access logs of these rounds, the same each time."""
    chance = random.Random(11)
    samples: list[dict[str, Value]] = []
    lines: list[str] = []
    cookies: dict[str, int] = dict.fromkeys(HOSTS, 0)
    for moment in rounds:
        later = moment > ROUND - 900
        for host in HOSTS:
            for life in _lives(host, chance, later):
                cookies[host] += 1
                samples += _samples(life, cookies[host], moment, chance)
        lines += requests(moment, chance)
    return samples, lines


def _probes(rounds: Iterable[int]) -> Iterator[str]:
    """Edges' fetches from other PoPs: one round trip to connect, one for the first byte, and one for each window more
    that an object needs; later windows are larger. The far path loses the end of one in twenty."""
    chance = random.Random(13)
    for moment in rounds:
        window = 40 if moment > ROUND - 900 else 10
        for host, (pop, _) in HOSTS.items():
            for peer in PEERS[pop]:
                rtt_us = 80_000 if peer.startswith("10.77.3") else 20_000
                for size in (10_000, 50_000, 100_000):
                    given: dict[str, Any] = {"time": moment - chance.uniform(1, INTERVAL - 1), "host": host}
                    given |= {"server": peer, "bytes": size, "window": window, "result": "ok"}
                    connect = rtt_us + chance.randint(50, 2000)
                    flights = math.ceil(math.log2(size / MSS / window + 1))
                    total = connect + flights * rtt_us + chance.randint(100, 5000)
                    given |= {"connect_us": connect, "first_byte_us": connect + rtt_us, "total_us": total}
                    if rtt_us == 80_000 and chance.random() < 0.05:
                        del given["total_us"]
                        given["result"] = "timeout"
                    yield json.dumps(given) + "\n"


def _flights() -> list[dict[str, Value]]:
    """Records of first flights on one edge that paces: every tenth on trial, twice as fast, which loses more."""
    found = []
    for number in range(60):
        trial = number % 10 == 0
        socket = Socket("ams-1", 200_000 + number, "10.77.1.1", "10.77.2.9", "ams")
        seen: dict[str, Value] = {
            "total_retrans": 4 if trial and number % 20 == 0 else 0,
            "data_segs_out": 83,
            "started_round": ROUND - INTERVAL,
            "started_window": 80 if trial else 40,
            "started_rate": (5_000_000 if trial else 2_500_000) // (1 + number % 2),
            "started_arm": int(trial),
            "started_step": 0,
            "started_at_once": 1 + number % 2,
            "started_prefix_length": 24,
            "first_flight_retrans": 4 if trial and number % 20 == 0 else 0,
            "handshake_rtt": 20_100 + number,
            "first_acked_time": 20_300,
            "acked_10k_time": 20_400,
            "acked_50k_time": 30_000 if trial else 40_000,
            "acked_100k_time": 45_000 if trial else 60_000,
            "cap_lifted_time": 35_000,
            "lived_time": 90_000,
        }
        poll = ROUND // INTERVAL % 1000 * 5 + 101
        found.append(socket.first_flight(ROUND - 200 + number, poll, 120_001, **seen))
    return found


def _lives(host: str, chance: random.Random, later: bool) -> list[Life]:
    pop = HOSTS[host][0]
    lives = []
    for peer in PEERS[pop]:
        far = peer.startswith("10.77.3")
        for _ in range(4):
            rtt, loss = (80, 8_000) if far else (20, 200)
            cwnd = chance.randint(30, 60) + (25 if later else 0)
            # Nearly a window in each round trip.
            mbit = 0.9 * cwnd * MSS * 8 / (rtt * 1000)
            lives.append(Life(host, peer, "cubic", rtt, mbit, loss, cwnd, far))
    for address, (rtt, mbit, loss) in CLIENTS.items():
        for algorithm, factor in (("cubic", 1.0), ("bbr", 1.4 if loss > 1000 else 1.0)):
            for _ in range(3):
                cwnd = chance.randint(10, 40)
                rate = mbit * factor * chance.uniform(0.8, 1.2)
                lives.append(Life(host, address, algorithm, rtt, rate, loss, cwnd, rwnd_limited=False))
    return lives


def _samples(life: Life, cookie: int, moment: int, chance: random.Random) -> list[dict[str, Value]]:
    pop, own = HOSTS[life.host]
    source = own if ":" not in life.peer else f"fd77:{1 if pop == 'ams' else 2}::1"
    socket = Socket(life.host, cookie, source, life.peer, pop, life.cwnd)
    size = chance.choice([8_000, 20_000, 50_000, 150_000, 400_000]) * (4 if life.rwnd_limited else 1)
    lost = size * life.loss_ppm // 1_000_000
    polls = [n for n in range(5) if not (life.host == "ams-2" and n == 2 and moment == ROUND)]
    more: dict[str, Any] = {
        "rtt": life.rtt_ms * 1000 + chance.randint(0, 2000),
        "min_rtt": life.rtt_ms * 1000,
        "delivery_rate": int(life.mbit * 125_000),
        "delivery_rate_app_limited": chance.random() < 0.3,
        "snd_ssthresh": life.cwnd - 4 if chance.random() < life.loss_ppm / 30_000 else 2**31 - 1,
        "snd_wnd": 65_535 if life.rwnd_limited else 4_000_000,
    }
    first = moment // INTERVAL % 1000 * 5 + 100
    rows = []
    for n in polls:
        done = size * (n + 1) // 5
        busy = (life.rtt_ms * 1000 * (1 + n), "busy_time")
        change: dict[str, Any] = {
            **more,
            # Measured anew.
            "delivery_rate": int(life.mbit * 125_000) + n,
            "congestion_algorithm": life.algorithm,
            "bytes_sent": done + lost * n // 4,
            "bytes_retrans": lost * n // 4,
            "busy_time": busy[0],
            "rwnd_limited": busy[0] // 3 if life.rwnd_limited else 0,
        }
        rows.append(socket.at(moment - INTERVAL + 20 + 60 * n, first + n, max(done, life.cwnd * MSS), **change))
    if cookie % 2:
        final = {**more, "bytes_sent": size + lost, "bytes_retrans": lost, "busy_time": life.rtt_ms * 1000 * 5}
        acked = max(size, life.cwnd * MSS)
        rows.append(
            socket.at(moment - 10, first + 4, acked, kind="SAMPLE_KIND_CLOSE", state="TCP_STATE_CLOSE", **final)
        )
    return rows


def requests(moment: int, chance: random.Random) -> list[str]:
    """Lines of access logs of a round."""
    lines = []
    for host, (_, own) in HOSTS.items():
        for client, (rtt, mbit, _) in CLIENTS.items():
            slow = 0.6 if client == "203.0.113.7" and moment > ROUND - 7200 else 1.0
            for size in (20_000, 150_000, 2_000_000):
                seconds = size * 8 / (mbit * slow * 1_000_000) * chance.uniform(0.9, 1.1) + rtt / 1000
                entry = {
                    "time": moment - chance.randint(1, 290),
                    "host": host,
                    "request_id": f"{chance.getrandbits(128):032x}",
                    "client": client,
                    "server": own,
                    "method": "GET",
                    "status": 200,
                    "bytes": size,
                    "request_time": round(seconds, 3),
                }
                lines.append(json.dumps(entry) + "\n")
    return lines

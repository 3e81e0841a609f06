"""Real connections over emulated paths, read by the real collector and rolled up: counted against carried."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from lab import nginx, sizes
from lab.demo.edges import start_collector
from lab.demo.product import Springtide
from lab.demo.run import POLICY
from lab.fleet import fleet
from lab.lab import Lab
from lab.topology import Kind, Pair, gateway
from lab.truth.compare import Connection, grouped, judge, match

SEALED_S = 3  # after a round's end its last samples are in files
_SOCKETS = f"""
select
    toUnixTimestamp(sockets.round) as round,
    sockets.src_pop as src_pop, sockets.dst_pop as dst_pop,
    toString(ends.own_ip) as src_ip, ends.own_port as src_port,
    toString(ends.peer_ip) as dst_ip, ends.peer_port as dst_port,
    sockets.snd_cwnd as snd_cwnd, sockets.snd_mss as snd_mss,
    if(sockets.earned, sockets.proved_cwnd, 0) as counted
from round_sockets as sockets
inner join (
    select
        host, boot_id, netns, cookie,
        any(src_ip) as own_ip, any(src_port) as own_port, any(dst_ip) as peer_ip, any(dst_port) as peer_port
    from tcp_samples
    where src_port = {nginx.PORT} and kind = 'POLL'
    group by host, boot_id, netns, cookie
) as ends on
    sockets.host = ends.host and sockets.boot_id = ends.boot_id
    and sockets.netns = ends.netns and sockets.cookie = ends.cookie
order by round, src_ip, src_port, dst_ip, dst_port
"""


class Truth:
    """One run in a lab that is up and records its flows."""

    def __init__(self, out: Path, lab: Lab, interval_s: int) -> None:
        self.out, self.lab, self.interval_s = out, lab, interval_s
        self.product = Springtide(out / "store", out / "fleet.yaml", out / "policy.yaml", out / "publish")
        self.product.fleet.write_text(yaml.safe_dump(fleet(lab.topology), sort_keys=False))
        policy = yaml.safe_load(POLICY.read_text())
        policy["round"]["interval_s"] = interval_s
        self.product.policy.write_text(yaml.safe_dump(policy, sort_keys=False))
        self.product.text("migrate")

    @contextlib.contextmanager
    def collectors(self) -> Iterator[None]:
        """A collector on every edge that serves."""
        serving = {src for src, _ in self.lab.topology.busy_pairs()}
        edges = {edge: pop for edge, pop in self.lab.topology.edges().items() if pop in serving}
        running = [start_collector(self.lab, edge, pop, self.out / "spool" / edge, "1s") for edge, pop in edges.items()]
        try:
            yield
        finally:
            for process in running:
                process.send_signal(signal.SIGTERM)
            for process in running:
                process.wait(10)

    def boundary(self) -> int:
        """Waits for the begin of a round; when that is."""
        start = (int(time.time()) // self.interval_s + 1) * self.interval_s
        time.sleep(max(0.0, start - time.time()))
        return start

    def kinds(self, kinds: Sequence[Kind], rounds: int) -> list[Connection]:
        """Each kind of traffic for so many rounds, one after another, and what was counted of its connections."""
        played: dict[int, str] = {}
        with self.collectors():
            for kind in kinds:
                start = self.boundary()
                with self.lab.load(rounds * self.interval_s + 1, kind):
                    played |= {start + number * self.interval_s: kind for number in range(1, rounds + 1)}
                    time.sleep(max(0.0, max(played) + 0.5 - time.time()))
            time.sleep(SEALED_S)
        self.ingest()
        self.product.text("rollup", "--from", instant(min(played)), "--to", instant(max(played)))
        return self.connections(played)

    def collapse(self, rounds: int, rate_mbit: float) -> list[dict[str, Any]]:
        """Chunks until windows are learnt and applied; then every path falls to this rate with a queue of ten packets,
        and for as many rounds only small answers flow, which fit everywhere and show nothing; then mixed ones, over
        connections that begin with what was learnt. One row a round and pair.
        """
        before, rows = self.lab.topology, []
        slow = {"rate_mbit": rate_mbit, "queue_packets": 10}
        shapes = {
            (src, dst): before.shape(src, dst).model_dump(exclude={"queue_bytes", "policer"}, exclude_none=True) | slow
            for src, dst in before.busy_pairs()
        }
        data = before.model_dump(mode="json", exclude_none=True)
        data["paths"] = [
            {"src": src, "dst": dst, "delay_ms": before.delay_ms(src, dst), **shape}
            for (src, dst), shape in shapes.items()
        ]
        after = type(before).model_validate(data, strict=False)
        phases: tuple[Kind, ...] = ("chunks", "small", "mixed")
        with self.collectors():
            for kind in phases:
                start = self.boundary()
                if kind == "small":
                    self.lab.reshape(after)
                with self.lab.load(rounds * self.interval_s + 60, kind):
                    for number in range(1, rounds + 1):
                        round_s = start + number * self.interval_s
                        time.sleep(max(0.0, round_s + SEALED_S - time.time()))
                        rows += self.decide(round_s, kind)
        return rows

    def decide(self, round_s: int, kind: str) -> list[dict[str, Any]]:
        """The round's decisions, in force at once on new connections, beside what its connections show."""
        self.ingest()
        found = self.product.json("decide", "initcwnd", "--round", instant(round_s), accept=(0, 3))
        windows = {(one["src_pop"], one["dst_pop"]): one["initcwnd"] for one in found["decisions"]}
        connections = self.connections({round_s: kind})
        rows = []
        for src, dst in self.lab.topology.busy_pairs():
            self.apply((src, dst), windows.get((src, dst)))
            own = [one for one in connections if (one.src, one.dst) == (src, dst)]
            rows.append(
                {
                    "round": round_s,
                    "kind": kind,
                    "src": src,
                    "dst": dst,
                    "initcwnd": windows.get((src, dst)),
                    "connections": len(own),
                    "cwnd_p50": median([one.cwnd for one in own] or [0]),
                    "counted_p50": median([one.counted for one in own if one.counted is not None] or [0.0]),
                    "carried_p50": round(median([one.most for one in own] or [0.0]), 1),
                }
            )
        return rows

    def apply(self, pair: Pair, window: int | None) -> None:
        """A route with the window on the serving edges, without what keeps it safe in a fleet: the loop is short."""
        pops = self.lab.topology.pops
        for edge, about in pops[pair[0]].edges.items():
            version = about.addresses[0].version
            via = next(gateway(prefix) for prefix in pops[pair[0]].prefixes if prefix.version == version)
            prefix = next(str(prefix) for prefix in pops[pair[1]].prefixes if prefix.version == version)
            self.lab.exec(
                edge,
                ["ip", f"-{version}", "route", "replace", prefix, "via", str(via), "dev", "wan0"]
                + ([] if window is None else ["initcwnd", str(window)]),
            )

    def ingest(self) -> None:
        """Loads what the spools have gained."""
        self.product.json("ingest", str(self.out / "spool"))

    def connections(self, kinds: Mapping[int, str]) -> list[Connection]:
        """Pairs the counts of these rounds' connections with what the emulator carried of them."""
        return match(self.product.json("sql", _SOCKETS), self.lab.flows(), kinds, self.interval_s)


def instant(unix_s: int) -> str:
    """As Springtide writes instants."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def report(connections: Sequence[Connection]) -> dict[str, Any]:
    """truth.json: over all, by kind and path, and every connection."""
    return {
        "all": judge(connections),
        "kinds": {kind: judge([one for one in connections if one.kind == kind]) for kind in sizes.KINDS},
        "groups": grouped(connections),
        "connections": [asdict(one) for one in connections],
    }


def empty(out: Path) -> None:
    """Makes the directory anew."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)

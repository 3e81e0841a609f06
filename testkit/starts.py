"""Fresh connections over emulated paths, at the kernel's default and with the edge's eBPF program."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from lab.host import promptly
from lab.lab import Lab
from lab.topology import Topology

TRANSFERS = Path(__file__).parents[1] / "lab/transfers.py"
SEGMENT = 1448
SERVER = "srv"
# The part of the path's rate that is given; the rest is for acknowledgements, headers and other traffic.
SHARE = 0.95


@dataclass(frozen=True)
class Link:
    """Rate in Mbit/s, round trip in ms, queue in packets (None is deep), and the number in its addresses."""

    name: str
    rate_mbit: float
    rtt_ms: float
    queue: int | None
    number: int

    def limit_ms(self, size: int, together: int = 1) -> float:
        """The least time of any sender: a round trip, and the time that the link takes for all of them."""
        return self.rtt_ms + together * size * 8 / self.rate_mbit / 1000

    def prefixes(self) -> tuple[str, str]:
        return f"10.73.{self.number}.0/24", f"fd73:{self.number}::/48"

    def window(self) -> int:
        """The rate for a round trip, in segments."""
        return max(10, math.ceil(self.rate_mbit * self.rtt_ms * 125 / SEGMENT))

    def entries(self, **more: Any) -> list[dict[str, Any]]:
        """A bundle's entries at the path's rate; `more` replaces values, or by None removes them."""
        rate = int(self.rate_mbit * SHARE * 125_000)
        given = {"initcwnd": self.window(), "start_rate": rate} | more
        values = {name: value for name, value in given.items() if value is not None}
        return [{"prefix": prefix, **values} for prefix in self.prefixes()]


# Three queues shorter than a round trip's data, one about as long, one deep.
PATHS = (
    Link("fifty", 50, 102, 41, 1),
    Link("twenty", 20, 150, 20, 2),
    Link("twelve", 12, 54, 10, 3),
    Link("seventy", 77, 102, 97, 4),
    Link("deep", 200, 150, None, 5),
)


def topology(paths: Sequence[Link] = PATHS) -> Topology:
    """One server, and a client behind each path; both families."""
    pops: dict[str, Any] = {}
    for name, number in [(SERVER, 0), *((path.name, path.number) for path in paths)]:
        four, six = f"10.73.{number}.0/24", f"fd73:{number}::/48"
        addresses = [str(ip_network(four)[1]), str(ip_network(six)[1])]
        pops[name] = {"prefixes": [four, six], "edges": {f"{name}-1": {"addresses": addresses}}}
    shapes = [
        {"src": SERVER, "dst": path.name, "rate_mbit": path.rate_mbit, "queue_packets": path.queue or 20_000}
        for path in paths
    ]
    text = {
        "name": "starts",
        "pops": pops,
        "rtt_ms": {SERVER: {path.name: path.rtt_ms for path in paths}},
        "default_rtt_ms": 50,
        "paths": shapes,
    }
    return Topology.model_validate(text, strict=False)


@dataclass
class Measured:
    """Times of transfers in ms, and segments that were sent again, of all of them together."""

    ms: list[float] = field(default_factory=list)
    resent: int = 0
    errors: list[str] = field(default_factory=list)

    def p50(self) -> float:
        return median(self.ms)

    def p95(self) -> float:
        return quantiles(self.ms, n=20, method="inclusive")[18] if len(self.ms) > 1 else self.ms[0]

    def resent_each(self) -> float:
        return self.resent / max(1, len(self.ms))

    def take(self, other: Measured) -> None:
        self.ms += other.ms
        self.resent += other.resent
        self.errors += other.errors


@dataclass(frozen=True)
class Order:
    """Transfers of `size` bytes over one path at these times; `active`: the server opens the connections; `pause_s`:
    its application writes them segment by segment, so far apart."""

    path: Link
    at_s: Sequence[float]
    size: int = 100_000
    family: int = 4
    active: bool = False
    pause_s: float = 0.0


def transfer(lab: Lab, orders: Sequence[Order], cgroup: Path | None, first_port: int = 5000) -> list[Measured]:
    """All orders at once; the senders are in the cgroup, if there is one."""
    started: list[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]] = []
    group = {"cgroup": str(cgroup)} if cgroup else {}
    try:
        for port, order in enumerate(orders, first_port):
            started.append(_start(lab, order, port, group))
        return [_finish(order, *pair) for order, pair in zip(orders, started, strict=True)]
    finally:
        for listener, opener in started:
            for process in (listener, opener):
                if process.poll() is None:
                    process.terminate()
                    process.wait(10)


def _start(
    lab: Lab, order: Order, port: int, group: dict[str, str]
) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
    """The listening process, and the one that opens connections."""
    server, client = f"{SERVER}-1", f"{order.path.name}-1"
    listener, opener = (client, server) if order.active else (server, client)
    roles = ("receive", "send") if order.active else ("send", "receive")
    address = str(lab.topology.edge(listener).addresses[order.family == 6])
    tasks: tuple[dict[str, Any], dict[str, Any]] = (
        {"listen": [address], "port": port, "size": order.size},
        {"connect": address, "port": port, "at_s": list(order.at_s), "size": order.size},
    )
    tasks[roles.index("send")].update(group, pause_s=order.pause_s)
    # A sender that waits for a processor leaves its path idle, and its train has no rate.
    commands = [
        promptly([sys.executable, str(TRANSFERS), role, json.dumps(task)])
        for role, task in zip(roles, tasks, strict=True)
    ]
    first = lab.popen(listener, commands[0], stdout=subprocess.PIPE)
    assert first.stdout is not None
    assert first.stdout.readline() == b"ready\n"
    return first, lab.popen(opener, commands[1], stdout=subprocess.PIPE)


def _finish(order: Order, listener: subprocess.Popen[bytes], opener: subprocess.Popen[bytes]) -> Measured:
    assert listener.stdout is not None
    assert opener.stdout is not None
    count = len(order.at_s)
    lines = [json.loads(line) for line in opener.stdout]
    opener.wait()
    # The other end has as much to say of each connection, which closed before or closes now.
    lines += [json.loads(listener.stdout.readline()) for _ in range(count)]
    return Measured(
        ms=[line["ms"] for line in lines if line.get("missing") == 0],
        resent=sum(line.get("resent", 0) for line in lines),
        errors=[line.get("error", f"{line['missing']} bytes are missing") for line in lines if _failed(line)],
    )


def _failed(line: dict[str, Any]) -> bool:
    return "error" in line or line.get("missing", 0) != 0

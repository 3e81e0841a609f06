"""Fresh connections over paths that lose packets, with the kernel's timeout of handshakes and with a bundle's.

Clients open connections to a server, and fetch an object over each: from connect to the last byte. CUBIC; the paths
have 100 Mbit/s, a long queue, and random loss of the same share in both directions. Three ways share each path at the
same time, each at random moments of equal spaces: `default` has no entry; in `server` the server's edge has
`handshake_timeout_ms`, as towards clients of others; in `handshake` both edges have it, as between two PoPs. It is what
the law gives for the path's round trip. One connection in ten keeps the kernel's second.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from ipaddress import ip_network
from itertools import product
from pathlib import Path as File
from random import Random
from statistics import mean
from typing import Any

import numpy as np

from bench.runner import Bench, BenchError, Run, progress
from bench.start_paths import SERVER
from bench.start_ways import apply
from lab.collector import wait_until
from lab.host import promptly
from lab.lab import Lab
from lab.topology import Topology
from testkit.starts import TRANSFERS

RATE_MBIT, QUEUE = 100, 20_000
# Timeouts as the law gives them: a multiple of the round trip, in steps of milliseconds, and the least.
MARGIN, STEP_MS, LEAST_MS = 1.5, 10, 50
# Way -> whether the server's edge and the client's have entries.
WAYS = {"default": (False, False), "server": (True, False), "handshake": (True, True)}
PORT = 5000
SEED = 21
# A connection that begins last and is unlucky ends within this; the senders' last words come soon after.
LONGEST_S, LAST_WORDS_S = 60.0, 10.0


@dataclass(frozen=True)
class Path:
    rtt_ms: int
    loss_percent: int
    number: int

    def name(self) -> str:
        return f"rtt{self.rtt_ms}-loss{self.loss_percent}"

    def timeout_ms(self) -> int:
        return max(LEAST_MS, math.ceil(MARGIN * self.rtt_ms / STEP_MS) * STEP_MS)

    def entry(self, number: int) -> dict[str, Any]:
        """For the PoP of this number at the path's other end."""
        return {"prefix": prefix(number), "handshake_timeout_ms": self.timeout_ms()}


@dataclass
class Seen:
    """Connections of one path, size and way: milliseconds to the last byte and of the handshake, how often their SYN
    and their SYN-ACK was sent again, and bytes that the server sent and that it was asked for."""

    ms: list[float] = field(default_factory=list)
    connect_ms: list[float] = field(default_factory=list)
    syn: list[int] = field(default_factory=list)
    synack: list[int] = field(default_factory=list)
    sent: int = 0
    asked: int = 0

    def again(self) -> float:
        """The share of handshakes of which anything was sent again."""
        return mean(bool(syn or synack) for syn, synack in zip(self.syn, self.synack, strict=True))

    def twice(self) -> float:
        """The share whose SYN-ACK was sent again twice, by its timer and for a SYN that came again: the kernel then
        begins with a window of one segment (tcp_init_transfer)."""
        return mean(synack > 1 for synack in self.synack)


Results = dict[tuple[Path, int, str], Seen]


def prefix(number: int) -> str:
    return f"10.74.{number}.0/24"


def client(path: Path, has_entries: bool) -> str:
    return f"{path.name()}-{'entries' if has_entries else 'plain'}"


def server(has_entries: bool) -> str:
    return f"{SERVER}-{'entries' if has_entries else 'plain'}"


def pop(number: int, plain: str, entries: str) -> dict[str, Any]:
    """A PoP of two edges, of which one has the program."""
    network = ip_network(prefix(number))
    edges: dict[str, Any] = {name: {"addresses": [str(network[at])]} for at, name in enumerate((plain, entries), 1)}
    edges[entries]["enforce"] = "bpf"
    return {"prefixes": [str(network)], "edges": edges}


def topology(paths: Sequence[Path]) -> Topology:
    """The server's PoP, and a client's behind each path."""
    pops = {path.name(): pop(path.number, client(path, False), client(path, True)) for path in paths}
    shape = {"rate_mbit": RATE_MBIT, "queue_packets": QUEUE}
    ends = [(path, pair) for path in paths for pair in ((SERVER, path.name()), (path.name(), SERVER))]
    text = {
        "name": "recovery",
        "seed": SEED,
        "pops": {SERVER: pop(0, server(False), server(True)), **pops},
        "rtt_ms": {SERVER: {path.name(): path.rtt_ms for path in paths}},
        "default_rtt_ms": 50,
        "paths": [{"src": src, "dst": dst, **shape, "loss": path.loss_percent / 100} for path, (src, dst) in ends],
    }
    return Topology.model_validate(text, strict=False)


def give(lab: Lab, paths: Sequence[Path], directory: File) -> None:
    """Bundles, by `springtide-edge`."""
    now = int(time.time()) // 300 * 300
    apply(lab, server(True), [path.entry(path.number) for path in paths], directory, now)
    for path in paths:
        apply(lab, client(path, True), [path.entry(0)], directory, now)


class Processes:
    """Processes on edges that run for one size of objects, and what they print, in files."""

    def __init__(self, lab: Lab, stack: ExitStack, directory: File) -> None:
        self._lab, self._stack, self._directory = lab, stack, directory

    def start(self, edge: str, name: str, role: str, task: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        # A process that waits for a processor would show in the times.
        command = promptly([sys.executable, str(TRANSFERS), role, json.dumps(task)])
        with (self._directory / name).open("wb") as out:
            process = self._lab.popen(edge, command, stdout=out)
        self._stack.callback(process.wait, 10)
        self._stack.callback(process.kill)
        return process

    def lines(self, name: str) -> list[str]:
        return (self._directory / name).read_text().splitlines()


def moments(path: Path, way: str, size: int, count: int, seconds: float) -> list[float]:
    """So many times of a connection, one at random in each of as many equal spaces."""
    chance = Random(f"{SEED} {path.name()} {way} {size}")
    return [round(0.5 + (number + chance.random()) * seconds / count, 4) for number in range(count)]


def transfers(lab: Lab, paths: Sequence[Path], size: int, count: int, seconds: float, directory: File) -> Results:
    """Objects of one size, over all paths, which share no link, and by all ways at once."""
    with ExitStack() as stack:
        processes = Processes(lab, stack, directory)
        address = {way: str(lab.topology.edge(server(ours)).addresses[0]) for way, (ours, _) in WAYS.items()}
        ports = {way: PORT + at for at, way in enumerate(WAYS)}
        for way, (ours, _) in WAYS.items():
            processes.start(server(ours), way, "send", {"listen": [address[way]], "port": ports[way]})
        wait_until("sender", lambda: all(processes.lines(way) for way in WAYS))
        clients = []
        for path, (way, (_, theirs)) in product(paths, WAYS.items()):
            at_s = moments(path, way, size, count, seconds)
            task = {"connect": address[way], "port": ports[way], "at_s": at_s, "size": size}
            clients.append(processes.start(client(path, theirs), f"{path.name()}-{way}", "receive", task))
        deadline = time.monotonic() + seconds + LONGEST_S
        try:
            for process in clients:
                process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise BenchError(f"transfers of {size} bytes did not end within {LONGEST_S:.0f} s of the last") from None
        # The first line is `ready`.
        until = time.monotonic() + LAST_WORDS_S
        while time.monotonic() < until and any(len(processes.lines(way)) <= count * len(paths) for way in WAYS):
            time.sleep(0.2)
        said = {way: reported(processes.lines(way)[1:]) for way in WAYS}
        return {
            (path, size, way): matched(processes.lines(f"{path.name()}-{way}"), said[way], address_of(lab, path, way))
            for path, way in product(paths, WAYS)
        }


def address_of(lab: Lab, path: Path, way: str) -> str:
    return str(lab.topology.edge(client(path, WAYS[way][1])).addresses[0])


def reported(lines: Sequence[str]) -> dict[tuple[str, int], dict[str, Any]]:
    """The sender's line for each connection, by the client's address and port."""
    found = [json.loads(line) for line in lines]
    return {(one["peer"][0], one["peer"][1]): one for one in found if "error" not in one}


def matched(lines: Sequence[str], said: Mapping[tuple[str, int], Mapping[str, Any]], address: str) -> Seen:
    """Both ends' lines of each connection. Raises BenchError where one in a hundred failed at one of them."""
    seen = Seen()
    found = [json.loads(line) for line in lines]
    for one in found:
        other = said.get((address, one["port"])) if one["missing"] == 0 else None
        if other is None:
            continue
        seen.ms.append(one["connect_ms"] + one["ms"])
        seen.connect_ms.append(one["connect_ms"])
        seen.syn.append(one["handshake_resent"])
        seen.synack.append(other["handshake_resent"])
        seen.sent += other["bytes"]
        seen.asked += other["sent"]
    if len(seen.ms) < 0.99 * len(found) or not found:
        failed = [one for one in found if one["missing"]]
        raise BenchError(f"of {len(found)} transfers to {address} {len(seen.ms)} came to an end: {failed[:1]}")
    return seen


def figures(run: Run, path: Path, size: int, way: str, seen: Seen, default: Seen) -> str:
    """The figures of a cell and way, and its row."""
    labels: dict[str, str | int] = {"rtt_ms": path.rtt_ms, "loss_percent": path.loss_percent}
    labels |= {"object_bytes": size, "way": way}
    p50, p95, p99 = (float(one) for one in np.quantile(seen.ms, (0.5, 0.95, 0.99)))
    handshake = float(np.quantile(seen.connect_ms, 0.99))
    values = {
        "connections": len(seen.ms),
        "mean_ms": mean(seen.ms),
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
        "handshake_p99_ms": handshake,
        "handshakes_resent_share": seen.again(),
        "syns_resent_per_connection": mean(seen.syn),
        "synacks_resent_per_connection": mean(seen.synack),
        "synacks_resent_twice_share": seen.twice(),
        "sent_per_asked_ratio": seen.sent / seen.asked,
    }
    if way != "default":
        values["mean_per_default_ratio"] = mean(seen.ms) / mean(default.ms)
        values["p99_per_default_ratio"] = p99 / float(np.quantile(default.ms, 0.99))
    for name, value in values.items():
        run.figure(name, value, **labels)
    cells = [f"{path.rtt_ms} ms, {path.loss_percent} %", f"{size // 1000} kB", way, f"{mean(seen.ms):.1f}"]
    cells += [f"{one:.0f}" for one in (p50, p95, p99, handshake)]
    again = [f"{seen.again():.2%}", f"{mean(seen.syn):.4f} / {mean(seen.synack):.4f}", f"{seen.twice():.2%}"]
    return f"| {' | '.join([*cells, *again, f'{seen.sent / seen.asked:.4f}', str(len(seen.ms))])} |"


def measure(run: Run) -> None:
    pairs = product(run.sizes["rtt_ms"], run.sizes["loss_percent"])
    paths = [Path(rtt_ms, loss, number) for number, (rtt_ms, loss) in enumerate(pairs, 1)]
    results: Results = {}
    with (
        tempfile.TemporaryDirectory(prefix="springtide-bench-") as temporary,
        Lab.up(topology(paths), f"bench-rec-{os.getpid()}") as lab,
    ):
        give(lab, paths, File(temporary))
        for size in run.sizes["object_bytes"]:
            progress(f"{size} bytes")
            count, seconds = run.sizes["count"], run.sizes["seconds"]
            results |= transfers(lab, paths, size, count, seconds, File(temporary))
    rows = [
        figures(run, path, size, way, seen, results[path, size, "default"])
        for (path, size, way), seen in results.items()
    ]
    head = (
        "| path | object | way | mean | p50 | p95 | p99 | handshake p99 | handshakes sent again "
        "| SYNs / SYN-ACKs again, each | SYN-ACK twice | sent / asked | n |"
    )
    run.note("\n".join(["From connect to the last byte, ms", "", head, "|---|---|---|" + "---:|" * 10, *rows]))


BENCH = Bench(
    name="recovery",
    summary="fresh connections over paths that lose packets, with handshake_timeout_ms beside the kernel's second",
    measure=measure,
    sizes={
        "rtt_ms": ((50, 150), (50,)),
        "loss_percent": ((0, 1, 2), (2,)),
        "object_bytes": ((10_000, 100_000), (10_000,)),
        # Connections of each path, size and way; the seconds in which they begin.
        "count": (600, 20),
        "seconds": (90.0, 2.0),
    },
    seconds=200,
    turns=None,
    root=True,
)

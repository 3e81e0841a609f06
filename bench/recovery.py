"""Fresh connections over paths that lose packets: as the kernel recovers, and as bundles say.

Clients open connections to a server, and fetch an object over each: from connect to the last byte. Or they keep the
connection, and ask for a short answer again and again: each but the first, from its request to the last byte. The paths
have 100 Mbit/s, a long queue, and loss of the same share in both directions: at random, or in `bursts` of four packets.
`full` loses by its queue only: 20 Mbit/s, 20 packets, four connections at once. Each path is shared by all ways at the
same time, each at random moments of equal spaces; but a full one is each way's own. By CUBIC and by BBR.

`default` has no entry. In `handshake` both ends have `handshake_timeout_ms`, as the law gives it for the path's round
trip. In `copies` the server has `copied_bytes`, as towards clients of others. `both` has all of these. In `more` both
ends have all, as between PoPs, of more bytes. In `parity` both ends have the timeouts, and send parity of five
segments. One connection in ten recovers as the kernel does.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path as File
from random import Random
from statistics import mean
from typing import Any

import numpy as np

from bench.recovery_paths import KINDS, SEED, WAYS, Path, all_paths, edge_of, topology
from bench.runner import Bench, BenchError, Run, progress
from bench.start_paths import SERVER
from bench.start_ways import apply
from lab.collector import wait_until
from lab.demo.edges import edge_command
from lab.demo.product import EDGE
from lab.host import promptly
from lab.lab import Lab
from testkit.starts import TRANSFERS

AT_ONCE = 4
PORT = 5000
# Between two answers: longer than what the kernel takes for an idle time.
BETWEEN_S = 0.5
# A connection that begins last and is unlucky ends within this; the senders' last words come soon after.
LONGEST_S, LAST_WORDS_S = 60.0, 10.0


@dataclass
class Seen:
    """Connections of one path, size and way.

    `ms` to the last byte, or of each later answer, and `connect_ms` of the handshake. `syn`, `synack`: how often each
    was sent again. `again`: segments that the server sent again on each, and `timeouts` of it (Linux 6.7 and newer). It
    sent `segments` in all, and was asked for `asked` bytes."""

    ms: list[float] = field(default_factory=list)
    connect_ms: list[float] = field(default_factory=list)
    syn: list[int] = field(default_factory=list)
    synack: list[int] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    timeouts: list[int] = field(default_factory=list)
    segments: int = 0
    asked: int = 0

    @property
    def resent(self) -> int:
        return sum(self.again)

    def handshakes_again(self) -> float:
        """The share of handshakes of which anything was sent again."""
        return mean(bool(syn or synack) for syn, synack in zip(self.syn, self.synack, strict=True))

    def twice(self) -> float:
        """The share whose SYN-ACK was sent again twice, by its timer and for a SYN that came again: the kernel then
        begins with a window of one segment (tcp_init_transfer)."""
        return mean(synack > 1 for synack in self.synack)


# By round trip, loss, size, congestion control and way.
Results = dict[tuple[int, str, int, str, str], Seen]


def give(lab: Lab, paths: Sequence[Path], directory: File, stack: ExitStack) -> None:
    """Bundles, by `springtide-edge`, without a bound of the copies; and parity's service, until the stack ends."""
    now = int(time.time()) // 300 * 300
    for kind in KINDS:
        entries = [path.entry(path.number, kind) for path in paths]
        apply(lab, edge_of(SERVER, kind), entries, directory, now, copies_permille=1000)
        for path in paths:
            if kind in {WAYS[way][1] for way in path.ways}:
                apply(lab, edge_of(path.name, kind), [path.entry(0, kind)], directory, now, copies_permille=1000)
    _serve_parity(lab, paths, directory, stack)


def _serve_parity(lab: Lab, paths: Sequence[Path], directory: File, stack: ExitStack) -> None:
    key = directory / "parity.key"
    key.write_text(secrets.token_hex(32))
    for name in (SERVER, *(path.name for path in paths if "parity" in path.ways)):
        edge = edge_of(name, "parity")
        command = [str(EDGE), "parity", "--key", str(key), "--run-dir", str(directory / edge), *lab.enforcing(edge)]
        process = lab.popen(edge, promptly(command))
        stack.callback(process.wait, 10)
        stack.callback(process.kill)
        wait_until("service of parity", (directory / edge / "parity.json").exists)


def copied(lab: Lab, directory: File) -> dict[str, int]:
    """Bytes that each way's server has sent twice so far, or of parity."""
    edges = {way: edge_of(SERVER, kind) for way, (kind, _) in WAYS.items() if kind in KINDS}
    found = {
        way: edge_command(lab, edge, directory / edge, "status")["program"]["totals"]["copied_bytes"]
        for way, edge in edges.items()
    }
    parity = json.loads((directory / edges["parity"] / "parity.json").read_text())
    return {"default": 0, **found, "parity": parity["sent_bytes"]}


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
    """So many times of a connection, one at random in each of as many equal spaces; of a full path several at once."""
    chance = Random(f"{SEED} {path.rtt_ms} {path.loss} {way} {size}")
    times = [round(0.5 + (number + chance.random()) * seconds / count, 4) for number in range(count)]
    return [times[at - at % AT_ONCE] for at in range(count)] if path.loss == "full" else times


def transfers(lab: Lab, paths: Sequence[Path], size: int, algorithm: str, run: Run, directory: File) -> Results:
    """Objects of one size, over all paths, which share no link, and by all ways at once."""
    count, seconds = run.sizes["count"], run.sizes["seconds"]
    answers = answers_of(run, size)
    pairs = [(path, way) for path in paths for way in path.ways]
    with ExitStack() as stack:
        processes = Processes(lab, stack, directory)
        address = {way: address_of(lab, SERVER, ours) for way, (ours, _) in WAYS.items()}
        ports = {way: PORT + at for at, way in enumerate(WAYS)}
        for way, (ours, _) in WAYS.items():
            task = {"listen": [address[way]], "port": ports[way], "congestion": algorithm}
            processes.start(edge_of(SERVER, ours), way, "send", task)
        wait_until("sender", lambda: all(processes.lines(way) for way in WAYS))
        clients = []
        for path, way in pairs:
            at_s = moments(path, way, size, count, seconds)
            task = {"connect": address[way], "port": ports[way], "at_s": at_s, "size": size}
            task |= {"answers": answers, "between_s": BETWEEN_S}
            edge = edge_of(path.name, WAYS[way][1])
            clients.append(processes.start(edge, f"{path.name}-{way}.out", "receive", task))
        deadline = time.monotonic() + seconds + answers * BETWEEN_S + LONGEST_S
        try:
            for process in clients:
                process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise BenchError(f"transfers of {size} bytes did not end within {LONGEST_S:.0f} s of the last") from None
        wanted = Counter(way for _, way in pairs)
        # The first line is `ready`.
        until = time.monotonic() + LAST_WORDS_S
        while time.monotonic() < until and any(len(processes.lines(way)) <= count * wanted[way] for way in WAYS):
            time.sleep(0.2)
        said = {way: reported(processes.lines(way)[1:]) for way in WAYS}
        found: Results = {}
        for path, way in pairs:
            lines = processes.lines(f"{path.name}-{way}.out")
            seen = matched(lines, said[way], address_of(lab, path.name, WAYS[way][1]))
            found[path.rtt_ms, path.loss, size, algorithm, way] = seen
        return found


def answers_of(run: Run, size: int) -> int:
    """Answers of this size that one connection asks for."""
    return int(run.sizes["answers"]) if size == run.sizes["answer_bytes"] else 1


def address_of(lab: Lab, name: str, kind: str) -> str:
    return str(lab.topology.edge(edge_of(name, kind)).addresses[0])


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
        seen.ms += one["later_ms"] or [one["connect_ms"] + one["ms"]]
        seen.connect_ms.append(one["connect_ms"])
        seen.syn.append(one["handshake_resent"])
        seen.synack.append(other["handshake_resent"])
        seen.timeouts.append(other["timeouts"])
        seen.segments += other["segments"]
        seen.again.append(other["resent"] - other["handshake_resent"])
        seen.asked += other["sent"]
    if len(seen.connect_ms) < 0.99 * len(found) or not found:
        failed = [one for one in found if one["missing"]]
        raise BenchError(f"of {len(found)} transfers to {address} {len(seen.connect_ms)} came to an end: {failed[:1]}")
    return seen


def figures(run: Run, cell: tuple[int, str, int, str, str], seen: Seen, default: Seen) -> str:
    """The figures of a cell and way, and its row."""
    rtt_ms, loss, size, algorithm, way = cell
    labels: dict[str, str | int] = {"rtt_ms": rtt_ms, "loss": loss, "object_bytes": size}
    labels |= {"congestion": algorithm, "way": way, "answers": answers_of(run, size)}
    p50, p95, p99 = (float(one) for one in np.quantile(seen.ms, (0.5, 0.95, 0.99)))
    handshake = float(np.quantile(seen.connect_ms, 0.99))
    values = {
        "connections": len(seen.connect_ms),
        "mean_ms": mean(seen.ms),
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
        "handshake_p99_ms": handshake,
        "handshakes_resent_share": seen.handshakes_again(),
        "syns_resent_per_connection": mean(seen.syn),
        "synacks_resent_per_connection": mean(seen.synack),
        "synacks_resent_twice_share": seen.twice(),
        "segments_resent_share": seen.resent / seen.segments,
    }
    than = ""
    if way != "default":
        values["mean_per_default_ratio"] = mean(seen.ms) / mean(default.ms)
        values["p99_per_default_ratio"] = p99 / float(np.quantile(default.ms, 0.99))
        than = f"{values['mean_per_default_ratio']:.2f} / {values['p99_per_default_ratio']:.2f}"
    for name, value in values.items():
        run.figure(name, value, **labels)
    kept = ", later answers" if labels["answers"] != 1 else ""
    cells = [f"{rtt_ms} ms, {loss}", f"{size // 1000} kB, {algorithm}{kept}", way, f"{mean(seen.ms):.1f}"]
    cells += [f"{one:.0f}" for one in (p50, p95, p99, handshake)]
    cells += [than, f"{seen.handshakes_again():.2%}", f"{seen.resent / seen.segments:.2%}", str(len(seen.ms))]
    return f"| {' | '.join(cells)} |"


def measure(run: Run) -> None:
    paths = all_paths(run.sizes["rtt_ms"], run.sizes["loss"])
    results: Results = {}
    with (
        tempfile.TemporaryDirectory(prefix="springtide-bench-") as temporary,
        Lab.up(topology(paths), f"bench-rec-{os.getpid()}") as lab,
        ExitStack() as stack,
    ):
        give(lab, paths, File(temporary), stack)
        before = copied(lab, File(temporary))
        for size, algorithm in product(
            (*run.sizes["object_bytes"], run.sizes["answer_bytes"]), run.sizes["congestion"]
        ):
            progress(f"{size} bytes, {algorithm}")
            found = transfers(lab, paths, size, algorithm, run, File(temporary))
            results |= found
            after = copied(lab, File(temporary))
            for way in WAYS:
                asked = sum(seen.asked for cell, seen in found.items() if cell[-1] == way)
                labels = {"object_bytes": size, "congestion": algorithm, "way": way}
                run.figure("copied_per_asked_ratio", (after[way] - before[way]) / asked, **labels)
            before = after
    rows = [figures(run, cell, seen, results[*cell[:-1], "default"]) for cell, seen in results.items()]
    head = (
        "| path, loss in % | object | way | mean | p50 | p95 | p99 | handshake p99 | mean, p99 / default's "
        "| handshakes sent again | segments sent again | n |"
    )
    run.note(
        "\n".join(
            [
                "From connect to the last byte; of later answers from their request, ms",
                "",
                head,
                "|---|---|---|" + "---:|" * 9,
                *rows,
            ]
        )
    )


BENCH = Bench(
    name="recovery",
    summary="fresh connections over paths that lose packets: as the kernel recovers, and as bundles say",
    measure=measure,
    sizes={
        "rtt_ms": ((50, 150), (50,)),
        "loss": (("0", "0.1", "0.5", "1", "2", "bursts", "full"), ("2", "full")),
        "object_bytes": ((10_000, 50_000, 100_000), (10_000,)),
        # Answers over kept connections, ten over each.
        "answer_bytes": (2_000, 2_000),
        "answers": (10, 3),
        "congestion": (("cubic", "bbr"), ("cubic",)),
        # Connections of each path, size and way; the seconds in which they begin.
        "count": (400, 20),
        "seconds": (120.0, 2.0),
    },
    seconds=1200,
    turns=None,
    root=True,
)

"""Who sends and who fetches in the bench of starts: processes on the edges, for the whole of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from bench.runner import BenchError
from bench.start_cells import Group, Results
from bench.start_paths import EDGES, WAYS, Path, edge_of
from lab import host
from lab.clients import pipe
from lab.lab import Lab
from testkit.starts import TRANSFERS

PORT = 5000
TIMEOUT_S = 30.0
LEAST_GAP_S = 0.1


class Senders:
    """A sender on each server edge, all ways' where none are named, and what it says of each connection, in the order
    of their ends."""

    def __init__(self, lab: Lab, edges: Sequence[str] = ()) -> None:
        self._said: defaultdict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
        self._lock = threading.Lock()
        for edge in edges or [edge_of(way, number) for way in WAYS for number in range(EDGES)]:
            addresses = [str(address) for address in lab.topology.edge(edge).addresses]
            task = json.dumps({"listen": addresses, "port": PORT})
            process = lab.popen(edge, [sys.executable, str(TRANSFERS), "send", task], stdout=subprocess.PIPE)
            lines = pipe(process.stdout)
            if lines.readline() != b"ready\n":
                raise BenchError(f"{edge}: the sender did not start")
            threading.Thread(target=self._listen, args=(edge, lines), daemon=True).start()

    def _listen(self, edge: str, lines: Any) -> None:
        for line in lines:
            said = json.loads(line)
            with self._lock:
                self._said[edge, said["peer"][0], said["peer"][1]].append(said)

    def take(self, edge: str, address: str, port: int) -> dict[str, Any]:
        """The sender's report of the next connection of this edge to this peer; empty where none comes in time."""
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            with self._lock:
                if said := self._said[edge, address, port]:
                    return said.pop(0)
            time.sleep(0.005)
        return {}


class Client:
    """Fetches behind a path, one group after another."""

    def __init__(self, lab: Lab, path: Path, senders: Senders) -> None:
        self._lab, self.path, self._senders = lab, path, senders
        environment = os.environ | {"PYTHONPATH": str(host.REPOSITORY)}
        command = [sys.executable, "-S", "-m", "lab.fetches"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = lab.popen(path.edge(), command, env=environment, **pipes)
        self._number = 0

    def run(self, group: Group, results: Results, shift: int = 0) -> None:
        """A group to its end, the first connection from the way's edge `shift`. Raises BenchError where the client ends
        before."""
        index = group.family == 6
        edges = [edge_of(group.way, (at + shift) % group.cell.edges) for at in range(group.cell.at_once)]
        to = [[str(self._lab.topology.edge(edge).addresses[index]), PORT] for edge in edges]
        self._number += 1
        task = {"id": self._number, "size": group.cell.size, "to": to, "timeout_s": TIMEOUT_S, "before": group.before}
        asks = pipe(self._process.stdin)
        asks.write(json.dumps(task).encode() + b"\n")
        asks.flush()
        line = pipe(self._process.stdout).readline()
        if not line:
            raise BenchError(f"{self.path.name}: the client has ended; see its namespace's log")
        mine = str(self._lab.topology.edge(self.path.edge()).addresses[index])
        found = results[self.path.name, group.cell, group.way].begin()
        for edge, transfer in zip(edges, json.loads(line)["transfers"], strict=True):
            said = self._senders.take(edge, mine, transfer["port"]) if transfer["port"] else {}
            for one in found:
                one.segments += said.get("segments", 0)
                one.resent += said.get("resent", 0)
                if "ms" in transfer:
                    one.ms.append(transfer["ms"])
                else:
                    one.errors.append(transfer["error"])
        time.sleep(max(LEAST_GAP_S, self.path.rtt_ms / 1000))

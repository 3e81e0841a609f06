"""The demo's work on each edge: the collector, the routes, and the state that must come back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from lab.demo import closes
from lab.demo.product import COLLECTOR, EDGE, CommandError
from lab.demo.summary import Closed


class Host(Protocol):
    """Where commands of one edge run: the lab's namespaces."""

    def popen(self, edge: str, command: list[str], **options: Any) -> subprocess.Popen[bytes]: ...

    def exec(self, edge: str, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]: ...

    def pins(self, edge: str) -> Path | None: ...

    def enforcing(self, edge: str) -> list[str]: ...


def routing(host: Host, edge: str) -> str:
    """Every rule and route of the edge, both families, as text that must be the same again after the expiry."""
    parts = []
    for family in ("-4", "-6"):
        for what in (["rule"], ["route", "show", "table", "all"]):
            # IPv6 prints the seconds that a route has left, which change by themselves.
            parts.append(host.exec(edge, ["ip", family, *what]).stdout)
    return "".join(parts)


def edge_command(host: Host, edge: str, state: Path, *arguments: str) -> dict[str, Any]:
    """`springtide-edge` on the edge; its `--json` answer. Raises CommandError when it fails."""
    command = [str(EDGE), *arguments, "--edge", edge, "--state-dir", str(state), "--json", *host.enforcing(edge)]
    done = host.exec(edge, command, check=False)
    if done.returncode != 0:
        raise CommandError(command, done.returncode, done.stderr or done.stdout)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def start_collector(host: Host, edge: str, pop: str, spool: Path, interval: str) -> subprocess.Popen[bytes]:
    """A collector that reads the edge's sockets every `interval` and seals its spool at SIGTERM."""
    spool.mkdir(parents=True, exist_ok=True)
    command = [str(COLLECTOR), "run", "--spool-dir", str(spool), "--interval", interval, "--rotate-interval", "2s"]
    command += ["--netns", "own"]
    if pins := host.pins(edge):
        command += ["--start-values", str(pins)]
    return host.popen(edge, [*command, "--host", edge, "--pop", pop])


@dataclass
class CloseWatch:
    """Listens to the kernel's destroy events on every serving edge while probes run.

    The probes' senders live for less than a poll, so only their close records show what they retransmitted.
    """

    host: Host
    pop_of_edge: dict[str, str]
    pop_of_address: dict[str, str]
    rtt_ms: dict[tuple[str, str], float]
    directory: Path
    _running: list[tuple[str, Path, subprocess.Popen[bytes]]] = field(default_factory=list)

    def __enter__(self) -> CloseWatch:
        self.directory.mkdir(parents=True, exist_ok=True)
        for edge in self.pop_of_edge:
            path = self.directory / f"{edge}.closes"
            with path.open("wb") as out:
                # stdbuf: ss would keep its last lines in a buffer that SIGTERM throws away.
                process = self.host.popen(edge, ["stdbuf", "-oL", "ss", "-HEtinO"], stdout=out)
            self._running.append((edge, path, process))
        return self

    def __exit__(self, *raised: object) -> None:
        for _, _, process in self._running:
            process.terminate()
        for _, _, process in self._running:
            process.wait(10)

    def closed(self, sizes: Iterable[int], port: int) -> list[Closed]:
        """One row for each closed connection of the serving `port` whose acknowledged bytes fit a probe's object."""
        rows = []
        for edge, path, _ in self._running:
            src = self.pop_of_edge[edge]
            for close in closes.parse(path.read_text().splitlines()):
                dst = self.pop_of_address.get(close.peer)
                # A response is the object and its header, which is far smaller than the objects lie apart.
                size = next((size for size in sizes if size <= close.bytes_acked < size + 2000), None)
                if close.local_port != port or dst is None or size is None or src == dst:
                    continue
                rows.append(Closed(src, dst, self.rtt_ms[src, dst], size, close.segments, close.retransmitted))
        return rows

"""An edge host with network namespaces, a cgroup and pins of its own, around the shipped command."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testkit import steps
from testkit.bpf import BPF_FS, cgroup2
from testkit.edge import PROGRAM, Edge, Outcome, bundle
from testkit.loopback import on_loopback

NO_CAP = 0xFFFFFFFF
FAR, NEAR = ("10.77.2.1", "fd77:2::1"), ("192.168.0.1", "fd00:0::1")
ENTRIES = [
    {"prefix": "10.77.2.0/24", "initcwnd": 60, "start_rate": 5_000_000},
    {"prefix": "fd77:2::/48", "initcwnd": 40, "congestion": {"algorithm": "reno", "from_bytes": 0}},
]

LISTEN = """
import collections, socket, sys, threading
def serve(server):
    held = collections.deque(maxlen=64)
    while True:
        held.append(server.accept())
for address in sys.argv[1:]:
    server = socket.create_server((address, 7000), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    threading.Thread(target=serve, args=(server,), daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""
# Window, pacing rate and congestion control right after the handshake, of a connection to each (source, destination).
CONNECT = """
import json, socket, struct, sys
if sys.argv[1]:
    open(sys.argv[1] + "/cgroup.procs", "w").write("0")
found = []
for pair in sys.argv[2:]:
    source, address = pair.split(",")
    one = socket.create_connection((address, 7000), 10, (source, 0))
    window = struct.unpack_from("=I", one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), 80)[0]
    algorithm = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode()
    found.append([window, one.getsockopt(1, 47) & 0xFFFFFFFF, algorithm])
print(json.dumps(found))
"""
# Connections to one pair after another until standard input ends: how often each window was seen of each, and failures.
LOAD = """
import collections, json, select, socket, struct, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
pairs = [pair.split(",") for pair in sys.argv[2:]]
seen, failures = [collections.Counter() for _ in pairs], []
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.004)[0]:
    for counter, (source, address) in zip(seen, pairs):
        try:
            with socket.create_connection((address, 7000), 10, (source, 0)) as one:
                info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
                counter[struct.unpack_from("=I", info, 80)[0]] += 1
        except OSError as error:
            failures.append(repr(error))
print(json.dumps([[dict(counter) for counter in seen], failures]))
"""


@dataclass
class Host:
    """An edge with a cgroup and a directory of pins of its own, and a peer that accepts connections."""

    edge: Edge
    cgroup: Path
    pins: Path

    def inside(self) -> list[str]:
        """Runs a command in the edge's network namespace; `ip netns exec` would hide /sys/fs/bpf and the cgroups."""
        return ["nsenter", f"--net=/run/netns/{self.edge.name}"]

    def command(self, *arguments: str) -> list[str]:
        command = self.edge.command(*arguments)
        own = command[command.index(str(PROGRAM)) :]
        return [*self.inside(), *own, "--cgroup", str(self.cgroup), "--pins", str(self.pins)]

    def run(self, *arguments: str, later: int = 0) -> Outcome:
        command = self.command(*arguments)
        at = command.index(str(PROGRAM))
        command[at:at] = ["unshare", "--time", f"--boottime={later}"] if later else []
        return self.finished(command)

    @staticmethod
    def finished(command: list[str]) -> Outcome:
        """The outcome of a whole command line."""
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert "panicked" not in done.stderr, done.stderr
        return Outcome(done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr)

    def document(self, entries: list[dict[str, Any]] | None = None, **enforce: Any) -> str:
        """A signed bundle for the program; its path."""
        return self.edge.write(bundle({}, enforce={"by": "bpf", **enforce}, entries=entries or ENTRIES))

    def connections(self, *, inside: bool = True) -> list[list[Any]]:
        """Window, rate and algorithm of a new connection to each far address, from the cgroup or beside it."""
        pairs = [f"{source},{address}" for source, address in zip(NEAR, FAR, strict=True)]
        where = str(self.cgroup) if inside else ""
        command = [*self.inside(), sys.executable, "-c", CONNECT, where, *pairs]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found: list[list[Any]] = json.loads(done.stdout)
        return found

    def windows(self) -> list[int]:
        return [window for window, _, _ in self.connections()]

    @contextmanager
    def load(self) -> Iterator[list[dict[str, int]]]:
        """New connections all the while, of which none fails; at the end, how often which window was seen."""
        pairs = [f"{source},{address}" for source, address in zip(NEAR, FAR, strict=True)]
        command = [*self.inside(), sys.executable, "-c", LOAD, str(self.cgroup), *pairs]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as loading:
            assert loading.stdout is not None
            assert loading.stdout.readline() == "ready\n"
            seen: list[dict[str, int]] = []
            yield seen
            found, failures = json.loads(loading.communicate()[0])
        assert failures == []
        assert all(sum(counter.values()) > 0 for counter in found), "the load was none"
        seen.extend(found)

    def killed(self, step: int, *arguments: str) -> bool:
        """Killed just before its N-th step on disk, routing, maps or pins; False when it ended before that."""
        command = self.command(*arguments)
        at = command.index(str(PROGRAM))
        watched = f"{self.edge.state_dir}"
        command[at:at] = [*steps.PYTHON, steps.__file__, str(step), watched, "", "9"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode in (0, -9, 137), done.stderr
        return done.returncode != 0


@contextmanager
def made(tmp_path: Path) -> Iterator[Host]:
    """Needs root."""
    if not BPF_FS.is_mount():
        subprocess.run(["mount", "-t", "bpf", "bpf", str(BPF_FS)], check=True)
    name = f"ste{os.getpid()}-{secrets.token_hex(3)}"
    with Edge.made(tmp_path) as edge:
        found = Host(edge, cgroup2() / name, BPF_FS / name)
        found.cgroup.mkdir()
        on_loopback(FAR, edge.peer)
        edge.batch(["route add 10.0.0.0/8 via 192.168.0.2", "route add fd77::/16 via fd00:0::2"])
        listening = ["ip", "netns", "exec", edge.peer, sys.executable, "-c", LISTEN, *FAR]
        with subprocess.Popen(listening, stdout=subprocess.PIPE, text=True) as peer:
            try:
                assert peer.stdout is not None
                assert peer.stdout.readline() == "ready\n"
                yield found
            finally:
                peer.kill()
                found.run("withdraw")
                if found.cgroup.exists():
                    found.cgroup.rmdir()
                assert not found.pins.exists(), "a withdrawal leaves nothing"

"""What clients can do to others of their entry: by losing, and by not answering."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from lab.lab import Lab
from lab.topology import Topology
from testkit import bpf
from testkit.bpf import Program
from testkit.starts import SERVER, Link, topology

pytestmark = pytest.mark.root

# The first one's queue takes no burst of more than ten segments.
NARROW, WIDE = Link("narrow", 20, 20, 12, 1), Link("wide", 200, 20, None, 2)
EVERYBODY = "10.73.0.0/16"
SIZE = 120_000
BRAKE = {"lost_permille": 400, "connections": 20, "half_life_s": 600}

# Answers each connection at once, or all that it has on demand; then says how often each has sent segments again.
SERVE = """
import socket, struct, sys, threading
open(sys.argv[3] + "/cgroup.procs", "w").write("0")
size, answer = int(sys.argv[1]), sys.argv[2] == "answer"
server = socket.create_server(("", 7000), backlog=256)
print("ready", flush=True)
held = []
def resent():
    return [struct.unpack_from("I", one.getsockopt(6, 11, 256), 100)[0] for one in held]
def serve():
    while True:
        one = server.accept()[0]
        if answer:
            one.sendall(bytes(size)); one.close()
        else:
            held.append(one)
threading.Thread(target=serve, daemon=True).start()
for line in sys.stdin:
    if line == "send\\n":
        for one in held:
            one.send(bytes(size))
    print(resent(), flush=True)
"""
# Connections from these addresses, one after another and read to their end.
FETCH = """
import socket, sys
for source in sys.argv[2:]:
    with socket.create_connection((sys.argv[1], 7000), 20, (source, 0)) as one:
        while one.recv(1 << 20):
            pass
"""
# Connections that are open while the addresses that they came from are taken away.
VANISH = """
import socket, subprocess, sys
kept = [socket.create_connection((sys.argv[1], 7000), 20, (source, 0)) for source in sys.argv[2:]]
for source in sys.argv[2:]:
    subprocess.run(["ip", "addr", "del", source + "/24", "dev", "wan0"], check=True)
print("gone", flush=True)
sys.stdin.read()
"""


@dataclass
class Net:
    """The program over a server's cgroup, and clients of many addresses behind two paths."""

    lab: Lab
    program: Program

    def client(self, link: Link, code: str, sources: Sequence[str]) -> subprocess.Popen[bytes]:
        address = str(self.lab.topology.edge(f"{SERVER}-1").addresses[0])
        command = [sys.executable, "-c", code, address, *sources]
        return self.lab.popen(f"{link.name}-1", command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @contextmanager
    def server(self, how: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-c", SERVE, str(SIZE), how, str(self.program.cgroup)]
        with self.lab.popen(f"{SERVER}-1", command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as serving:
            assert serving.stdout is not None
            assert serving.stdout.readline() == b"ready\n"
            try:
                yield serving
            finally:
                serving.kill()

    def fetch(self, *orders: tuple[Link, Sequence[str]]) -> None:
        """Each order's addresses one after another, the orders at once."""
        with self.server("answer"):
            running = [self.client(link, FETCH, sources) for link, sources in orders]
            for one in running:
                one.communicate(timeout=120)
                assert one.returncode == 0

    def entry(self) -> dict[str, Any]:
        found: dict[str, Any] = self.program.status()["prefixes"][0]
        return found


def addresses(link: Link, count: int) -> list[str]:
    return [f"10.73.{link.number}.{number}" for number in range(2, 2 + count)]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    text = topology((NARROW, WIDE)).model_dump(mode="json")
    for link in (NARROW, WIDE):
        text["pops"][link.name]["edges"][f"{link.name}-1"]["addresses"] += addresses(link, 60)
    with Lab.up(Topology.model_validate(text, strict=False), f"c{os.getpid()}") as found:
        yield found


@pytest.fixture
def net(lab: Lab) -> Iterator[Net]:
    with bpf.program(f"stc{os.getpid()}") as program:
        yield Net(lab, program)


def values(**more: Any) -> list[dict[str, Any]]:
    return [{"prefix": EVERYBODY, "initcwnd": 60, **more}]


def test_many_addresses_that_lose_brake_an_entry_within_fifty_connections(net: Net) -> None:
    net.program.apply({"brake": BRAKE, "entries": values()})
    net.fetch((NARROW, addresses(NARROW, 60)))
    found = net.entry()["entry"]
    assert found["brake_step"] == 2
    assert found["started"] <= 50


def test_one_address_that_loses_does_not_brake_the_entry_of_others(net: Net) -> None:
    """About every second connection is its, and nearly every one of those loses."""
    net.program.apply({"brake": BRAKE, "entries": values()})
    net.fetch((NARROW, addresses(NARROW, 1) * 40), (WIDE, addresses(WIDE, 40)))
    found = net.entry()["entry"]
    print(found)
    assert found["lost"] * 1000 > BRAKE["lost_permille"] * found["exposed"], "taken together they lose too much"
    assert (found["started"], found["brake_step"]) == (80, 0)


def test_an_address_that_is_alone_brakes_its_entry(net: Net) -> None:
    net.program.apply({"brake": BRAKE, "entries": values()})
    net.fetch((NARROW, addresses(NARROW, 1) * 60))
    assert net.entry()["entry"]["brake_step"] == 2


def test_who_never_answers_says_nothing_of_the_path_and_holds_no_place_in_the_budget(net: Net) -> None:
    net.program.apply({"brake": BRAKE, "entries": values(start_rate=10_000_000)})
    count = 40
    with net.server("later") as serving:
        assert serving.stdin is not None
        assert serving.stdout is not None
        with net.client(WIDE, VANISH, addresses(WIDE, count)) as gone:
            assert gone.stdout is not None
            assert gone.stdout.readline() == b"gone\n"
            resent, task = [0], b"send\n"
            while min(resent) == 0 or len(resent) < count:
                serving.stdin.write(task)
                serving.stdin.flush()
                resent, task = json.loads(serving.stdout.readline()), b"look\n"
            # Each has waited for its first answer once, and is open.
            assert net.entry()["in_first_flights"] == 0
            gone.kill()
    # Their server's end closes them.
    found = net.entry()
    assert found["entry"] == {"started": count, "untreated": 0, "exposed": 0, "lost": 0, "brake_step": 0}

"""Values that connections started with: from springtide-edge's eBPF program through the collector into the store."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lab.collector import binary, wait_until
from lab.connections import own_network
from testkit import bpf
from testkit.bpf import Program
from testkit.edge import Edge, bundle
from testkit.home import Home

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "collector/packaging/springtide-collector.service"
DROP_IN = ROOT / "collector/packaging/start-values.conf"

FIELDS = ("started_round", "started_window", "started_rate", "started_arm", "started_step")
UNKNOWN = (None,) * 5

# In the cgroup: on each line a command comes, and what the kernel itself says of each end is the answer.
HOLDER = """
import json, socket, struct, sys
held = []
def make(host):
    listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    opener = socket.create_connection(listener.getsockname()[:2])
    accepted = listener.accept()[0]
    listener.close()
    held.append((opener, accepted))
    return [[one.getsockname()[1], one.getpeername()[1], struct.unpack_from("I", one.getsockopt(6, 11, 256), 80)[0],
             one.getsockopt(1, 47) & 0xffffffff, one.fileno()] for one in (opener, accepted)]
for line in sys.stdin:
    print(json.dumps([make(host) for host in json.loads(line)]), flush=True)
"""


@dataclass(frozen=True)
class End:
    """One end of a connection, and what the kernel says of it right after its handshake."""

    port: int
    peer: int
    window: int
    rate: int
    descriptor: int


class Holder:
    """A process in the program's cgroup that keeps connections open."""

    def __init__(self, program: Program) -> None:
        self.process = program.popen(HOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def connect(self, *hosts: str) -> list[tuple[End, End]]:
        """Opens a connection to each host; gives the opener's end and the accepted one's."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(hosts).encode() + b"\n")
        self.process.stdin.flush()
        pairs = json.loads(self.process.stdout.readline())
        return [(End(*opener), End(*accepted)) for opener, accepted in pairs]

    def close(self) -> None:
        """Ends it, and every connection with it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


@pytest.fixture(scope="module")
def made() -> Iterator[Program]:
    with own_network(), bpf.program(f"stv{os.getpid()}") as found:
        yield found


@pytest.fixture
def program(made: Program) -> Iterator[Program]:
    yield made
    made.withdraw()


@pytest.fixture
def holder(program: Program) -> Iterator[Holder]:
    made = Holder(program)
    yield made
    if made.process.poll() is None:
        made.close()


def arguments(pins: Path | str) -> list[str]:
    return ["--netns", "own", "--start-values", str(pins)]


def once(
    program: Program, *before: str, path: str = "", pins: str | None = None
) -> tuple[dict[tuple[int, int], tuple[Any, ...]], dict[str, int]]:
    """Values that each connection started with, as one poll says, by its ports; and the counters."""
    command = [
        *before,
        path or str(binary()),
        "once",
        "--format",
        "json",
        "--stats",
        *arguments(program.pins if pins is None else pins),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    stats: dict[str, int] = json.loads(done.stderr.splitlines()[-1])
    assert len(rows) == stats["rows"]
    return {(row["src_port"], row["dst_port"]): started(row) for row in rows}, stats


def started(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in FIELDS)


BUNDLE: dict[str, Any] = {
    "round": 1_767_322_800,
    "excluded": ["127.0.8.0/24"],
    "entries": [
        # Peer of every accepted IPv4 end here.
        {"prefix": "127.0.0.1/32", "initcwnd": 30},
        {"prefix": "127.0.2.0/24", "initcwnd": 40, "start_rate": 5_000_000},
        {"prefix": "127.0.3.0/24", "initcwnd": 22, "trial": {"permille": 1000, "initcwnd": 33}},
        {"prefix": "127.0.4.0/24", "initcwnd": 22, "trial": {"permille": 1000}},
        {"prefix": "::1/128", "initcwnd": 60},
    ],
}


def test_samples_say_what_each_connection_started_with(program: Program, holder: Holder) -> None:
    # Nothing is pinned: nothing is known, and nothing is amiss.
    [old] = holder.connect("127.0.2.1")
    found, stats = once(program)
    assert found[old[0].port, old[0].peer] == UNKNOWN
    assert [stats[name] for name in ("start_values", "start_values_unreadable", "start_values_refused")] == [0, 0, 0]
    assert stats["attributes_skipped"] == 0

    program.apply(BUNDLE)
    hosts = ("127.0.2.1", "127.0.3.1", "127.0.4.1", "127.0.8.1", "127.0.9.1", "::1")
    ends = dict(zip(hosts, holder.connect(*hosts), strict=True))
    found, stats = once(program)
    assert stats["start_values_unreadable"] == stats["start_values_refused"] == 0

    def opener(host: str) -> tuple[Any, ...]:
        return found[ends[host][0].port, ends[host][0].peer]

    round_ = BUNDLE["round"]
    # Older than the program, excluded, without an entry: not known is not the kernel's default.
    for port, peer in ((old[0].port, old[0].peer), (old[1].port, old[1].peer)):
        assert found[port, peer] == UNKNOWN
    assert opener("127.0.8.1") == opener("127.0.9.1") == UNKNOWN
    # The kernel itself shows the window and the cap that were set.
    rated = ends["127.0.2.1"][0]
    assert (rated.window, 0 < rated.rate <= 5_000_000) == (40, True)
    assert opener("127.0.2.1") == (round_, rated.window, rated.rate, 0, 0)
    # All of the trial's arm; it has a window of its own, or the kernel's.
    assert opener("127.0.3.1") == (round_, ends["127.0.3.1"][0].window, 0, 1, 0) == (round_, 33, 0, 1, 0)
    assert opener("127.0.4.1") == (round_, 0, 0, 1, 0)
    assert ends["127.0.4.1"][0].window == 10
    # Both ends of both families.
    assert [found[end.port, end.peer] for end in ends["::1"]] == [(round_, 60, 0, 0, 0)] * 2
    for host in hosts[:-1]:
        accepted = ends[host][1]
        assert (accepted.window, found[accepted.port, accepted.peer]) == (30, (round_, 30, 0, 0, 0))
    known = 3 + len(hosts[:-1]) + 2
    assert (stats["start_values"], sum(one != UNKNOWN for one in found.values())) == (known, known)

    # A value of another layout, as another version would write it, is unknown and counted.
    change_layout(program, holder, ends["::1"][0])
    found, stats = once(program)
    assert opener("::1") == UNKNOWN
    assert (stats["start_values"], stats["start_values_unreadable"]) == (known - 1, 1)


def change_layout(program: Program, holder: Holder, end: End) -> None:
    """Writes another layout into a socket's storage, through a descriptor of this process for it."""
    libc = ctypes.CDLL(None, use_errno=True)

    def syscall(*arguments: int) -> int:
        result: int = libc.syscall(*(ctypes.c_long(one) for one in arguments))
        assert result >= 0, os.strerror(ctypes.get_errno())
        return result

    path = ctypes.create_string_buffer(str(program.pins / "v6/starts").encode())
    attributes = (ctypes.c_uint64 * 2)(ctypes.addressof(path), 0)
    bpf_call, pidfd_open, pidfd_getfd = 321, 434, 438
    pinned = syscall(bpf_call, 7, ctypes.addressof(attributes), 16)  # BPF_OBJ_GET
    process = syscall(pidfd_open, holder.process.pid, 0)
    key = ctypes.c_uint32(syscall(pidfd_getfd, process, end.descriptor, 0))
    value = ctypes.create_string_buffer(4096)
    element = (ctypes.c_uint64 * 4)(pinned, ctypes.addressof(key), ctypes.addressof(value), 0)
    syscall(bpf_call, 1, ctypes.addressof(element), 32)  # BPF_MAP_LOOKUP_ELEM
    assert value[19] == b"\6"
    value[19] = b"\7"
    syscall(bpf_call, 2, ctypes.addressof(element), 32)  # BPF_MAP_UPDATE_ELEM
    for descriptor in (pinned, process, key.value):
        os.close(descriptor)


def test_what_may_not_be_read_costs_no_sample(
    program: Program, holder: Holder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program.apply(BUNDLE)
    pairs = holder.connect("127.0.2.1", "::1")
    everything, _ = once(program)
    unprivileged = ["setpriv", "--bounding-set", "-bpf,-sys_admin", "--inh-caps", "-bpf,-sys_admin"]
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    for before in (unprivileged, nobody):
        found, stats = once(program, *before)
        assert found.keys() == everything.keys()
        assert set(found.values()) == {UNKNOWN}
        assert (stats["start_values"], stats["start_values_refused"]) == (0, 1)
        assert stats["sockets_duplicate"] == stats["polls_failed"] == 0
    # The rights that the service has are not enough, and those of its drop-in are.
    state = tmp_path_factory.mktemp("state")
    service = [sys.executable, "-m", "testkit.service", "--state", str(state), "--bring", str(binary())]
    for units, expected in (((UNIT,), 0), ((UNIT, DROP_IN), 4)):
        found, stats = once(program, *service, *map(str, units), "--", path="/srv/springtide-collector")
        assert found.keys() == everything.keys()
        assert (stats["start_values"], stats["start_values_refused"]) == (expected, expected == 0)
    assert found == everything

    # Not wanted: nothing is looked for, and nothing amiss.
    found, stats = once(program, pins="")
    assert set(found.values()) == {UNKNOWN}
    assert stats["start_values_refused"] == 0
    # Each poll counts it, the log has it once.
    command = [*unprivileged, str(binary()), "run", "--polls", "3", "--interval", "10ms", "--stats", "--print", "null"]
    done = subprocess.run([*command, *arguments(program.pins)], capture_output=True, text=True, check=True)
    *log, counters = done.stderr.splitlines()
    assert json.loads(counters)["start_values_refused"] == 3
    assert sum("what connections started with is not read" in line and "CAP_BPF" in line for line in log) == 1

    # Another map in its place.
    pin = program.pins / "v6/starts"
    pin.unlink()
    create = f"bpftool map create {pin} type array key 4 value 64 entries 1 name other"
    subprocess.run(create.split(), check=True)
    found, stats = once(program)
    assert set(found.values()) == {UNKNOWN}
    assert (stats["start_values"], stats["start_values_refused"]) == (0, 1)
    assert {(end.port, end.peer) for pair in pairs for end in pair} <= found.keys()


def test_a_running_collector_follows_the_pin_and_closes_have_the_values(
    program: Program, holder: Holder, home: Home
) -> None:
    command = [str(binary()), "run", "--stats", "--spool-dir", str(home.spool), "--host", "ams-1", "--pop", "ams"]
    often = ["--interval", "50ms", "--rotate-interval", "50ms"]
    collector = subprocess.Popen([*command, *often, *arguments(program.pins)], stderr=subprocess.PIPE, text=True)

    def samples() -> list[dict[str, Any]]:
        files = sorted(home.spool.glob("*.spool"))
        done = subprocess.run([binary(), "cat", *files], capture_output=True, text=True, check=bool(files))
        return [json.loads(line) for line in done.stdout.splitlines()]

    def until(port: int, kind: str, what: Any) -> None:
        wanted = (port, kind, what)
        wait_until(
            f"{kind} of {port} with {what}",
            lambda: any((row["src_port"], row["kind"], started(row)) == wanted for row in samples()),
        )

    try:
        [old] = holder.connect("127.0.2.1")
        until(old[0].port, "SAMPLE_KIND_POLL", UNKNOWN)
        program.apply(BUNDLE)
        [pair] = holder.connect("127.0.2.1")
        first = (BUNDLE["round"], 40, pair[0].rate, 0, 0)
        until(pair[0].port, "SAMPLE_KIND_POLL", first)
        # Another set of pins, with another map: what the old one knew is gone.
        program.withdraw()
        program.apply(BUNDLE)
        [later] = holder.connect("::1")
        values = (BUNDLE["round"], 60, 0, 0, 0)
        until(later[0].port, "SAMPLE_KIND_POLL", values)
        holder.close()
        for port, what in ((old[0].port, UNKNOWN), (pair[0].port, first), (later[0].port, values)):
            until(port, "SAMPLE_KIND_CLOSE", what)
    finally:
        collector.send_signal(signal.SIGTERM)
        _, log = collector.communicate(timeout=20)
    assert collector.returncode == 0, log
    assert json.loads(log.splitlines()[-1])["start_values_refused"] == 0

    expected = {row["cookie"]: started(row) for row in samples() if row["kind"] == "SAMPLE_KIND_CLOSE"}
    home.run("ingest", home.spool)
    stored = home.query(f"select cookie, {', '.join(FIELDS)} from tcp_samples final where kind = 'CLOSE'")
    assert {row["cookie"]: started(row) for row in stored} == expected


FAR, NEAR = ("10.77.2.1", "fd77:2::1"), ("192.168.0.1", "fd00:0::1")
LISTEN = """
import socket, sys
servers = [socket.create_server((address, 7000), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
           for address in sys.argv[1:]]
print("ready", flush=True)
held = [server.accept() for server in servers]
sys.stdin.read()
"""
CONNECT = """
import socket, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
held = [socket.create_connection((far, 7000), 10, (near, 0)) for near, far in zip(sys.argv[2:4], sys.argv[4:6])]
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_signed_bundle_shows_in_samples_of_its_edge(tmp_path: Path, program: Program) -> None:
    """The edge's own program in its network namespace, on the cgroup and with the pins of `program`, which is idle."""
    entries = [
        {"prefix": "10.77.2.0/24", "initcwnd": 60, "start_rate": 5_000_000},
        {"prefix": "fd77:2::/48", "initcwnd": 40},
    ]
    document = bundle({}, enforce={"by": "bpf"}, entries=entries)
    with Edge.made(tmp_path) as edge, ExitStack() as stack:
        # Not by `ip netns exec`, which hides what is mounted below /sys.
        def inside(namespace: str, *words: object) -> list[str]:
            return ["nsenter", f"--net=/run/netns/{namespace}", *map(str, words)]

        def ready(namespace: str, *words: object) -> None:
            command = inside(namespace, sys.executable, "-c", *words)
            process = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

        edge.batch([f"addr add {address} dev lo" for address in FAR], namespace=edge.peer)
        edge.batch(["route add 10.0.0.0/8 via 192.168.0.2", "route add fd77::/16 via fd00:0::2"])
        where = ["--cgroup", str(program.cgroup), "--pins", str(program.pins)]
        ready(edge.peer, LISTEN, *FAR)
        apply = inside(edge.name, *edge.command("apply", edge.write(document))[4:], *where)
        applied = json.loads(subprocess.run(apply, check=True, capture_output=True).stdout)
        assert applied["enforced_by"] == "bpf", applied
        ready(edge.name, CONNECT, program.cgroup, *NEAR, *FAR)
        command = inside(edge.name, binary(), "once", "--format", "json", *arguments(program.pins))
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows = {row["dst_ip"]: row for row in map(json.loads, done.stdout.splitlines())}
        subprocess.run(inside(edge.name, *edge.command("withdraw")[4:], *where), check=True, capture_output=True)
    four, six = (rows[address] for address in FAR)
    assert (four["started_window"], 0 < four["started_rate"] <= 5_000_000) == (60, True)
    # The kernel's own word.
    assert four["started_rate"] == four["max_pacing_rate"]
    assert (six["started_window"], six["started_rate"]) == (40, 0)
    round_ = int(datetime.fromisoformat(document["round"]).timestamp())
    assert {row["started_round"] for row in (four, six)} == {round_}
    assert {(row["started_arm"], row["started_step"]) for row in (four, six)} == {(0, 0)}

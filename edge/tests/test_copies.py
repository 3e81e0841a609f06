"""The beginning of connections leaves twice where a bundle says so: by the packets that leave the edge."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from testkit.host import FAR, NEAR, Host
from testkit.packets import SYN, syn

pytestmark = pytest.mark.root

# Bytes that are sent twice, of each connection's SIZE.
COPIED, SIZE = 20_000, 60_000
# Lower effort (RFC 8622).
DSCP = 1
# An address that its network drops all packets to, and nobody answers for.
SILENT = "10.77.2.50"
# One connection in ten is not copied: of 120 none is with odds of 3e-6, and fewer than 84 are with odds of 1e-9.
COUNT = 120
COPIES = [{"prefix": "10.77.2.0/24", "copied_bytes": COPIED}, {"prefix": "fd77:2::/48", "copied_bytes": COPIED}]
# The edge accepts connections, or opens them to an address, and sends so many bytes on each. What is printed, by both
# ports: how often each packet leaves, the SYN-ACK and segments by the number of their first byte; how many have a DSCP.
SEND = """
import collections, fcntl, json, socket, struct, sys, threading, time
group, size, count, address = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
open(group + "/cgroup.procs", "w").write("0")
tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
tap.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)
server = socket.create_server(("::", 7002), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
def send():
    try:
        for _ in range(count):
            one = socket.create_connection((address, 7000), 10) if address else server.accept()[0]
            one.sendall(bytes(size))
            while struct.unpack("i", fcntl.ioctl(one, 0x5411, bytes(4)))[0]:
                time.sleep(0.001)
            one.close()
    finally:
        over.set()
over = threading.Event()
threading.Thread(target=send, daemon=True).start()
print("ready", flush=True)
found, begins, quiet = collections.defaultdict(collections.Counter), {}, None
while quiet is None or time.monotonic() < quiet:
    if over.is_set() and quiet is None:
        quiet = time.monotonic() + 0.5
    tap.settimeout(0.1)
    try:
        packet, (_, _, kind, *_) = tap.recvfrom(70000)
    except TimeoutError:
        continue
    at = 20 if packet[0] >> 4 == 4 else 40
    if kind != 4 or packet[9 if at == 20 else 6] != 6:
        continue
    mine, theirs, sequence = struct.unpack_from("!HHI", packet, at)
    ends, data = f"{mine} {theirs}", len(packet) - at - (packet[at + 12] >> 4) * 4
    first, = struct.unpack_from("!H", packet)
    # Ones' complement: a correct header's sum is all ones.
    assert at == 40 or sum(struct.unpack_from("!10H", packet)) % 0xffff == 0, packet[:20]
    dscp = first >> (2 if at == 20 else 6) & 63
    found[ends]["marked"] += bool(dscp)
    assert dscp in (0, DSCP) and first >> (0 if at == 20 else 4) & 3 == 0, first
    if packet[at + 13] & 2:
        found[ends]["syn"] += 1
        begins[ends] = sequence + 1
    elif data:
        found[ends][(sequence - begins[ends]) & 0xffffffff] += 1
print(json.dumps(found))
""".replace("DSCP", str(DSCP))
TAKE = """
import socket, sys
address, first, count, size = sys.argv[1], *map(int, sys.argv[2:])
for number in range(count):
    one = socket.create_connection((address, 7002), 10, ("10.77.2.1", first + number))
    left = size
    while left:
        left -= len(one.recv(left))
    one.close()
"""
# A listener that soon answers with cookies. How many SYN-ACKs leave for each port before any is sent again.
BACKLOG = 16
FLOODED = """
import collections, json, socket, struct, sys, time
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
tap.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)
server = socket.create_server(("192.168.0.1", 7003), backlog=BACKLOG)
print("ready", flush=True)
found, end = collections.Counter(), None
while end is None or (left := end - time.monotonic()) > 0:
    tap.settimeout(10 if end is None else left)
    try:
        packet, (_, _, kind, *_) = tap.recvfrom(70000)
    except TimeoutError:
        break
    # IPv4 alone: a bare ARP packet of 28 octets has a random octet of its device at 9.
    if kind == 4 and packet[0] >> 4 == 4 and packet[9] == 6 and packet[33] & 18 == 18:
        end = end or time.monotonic() + 0.8
        found[struct.unpack_from("!H", packet, 22)[0]] += 1
print(json.dumps(found))
""".replace("BACKLOG", str(BACKLOG))
# Connections send a segment whose acknowledgement is lost, and after it was sent again 10 kB more.
LOSERS = 12
LOSING = """
import fcntl, socket, struct, sys, time
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
held = [socket.create_connection((sys.argv[2], 7000), 10) for _ in range(LOSERS)]
def step(line, size, done):
    print(line, flush=True)
    sys.stdin.readline()
    for one in held:
        one.sendall(bytes(size))
    while not all(map(done, held)):
        time.sleep(0.005)
step("connected", 1000, lambda one: struct.unpack_from("I", one.getsockopt(6, 11, 256), 100)[0])
step("lost", 10_000, lambda one: not struct.unpack("i", fcntl.ioctl(one, 0x5411, bytes(4)))[0])
print("sent", flush=True)
sys.stdin.readline()
""".replace("LOSERS", str(LOSERS))
# Two connections with one pair of ports would be one here.
PORTS = itertools.count(20_000, 1000)


def sent(host: Host, to: str = "") -> list[dict[str, Any]]:
    """Tell of each connection, from the peer or to its address, how often SYN or SYN-ACK left, and each segment."""
    command = [*host.inside(), sys.executable, "-c", SEND, str(host.cgroup), str(SIZE), str(COUNT), to]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sending:
        try:
            assert sending.stdout is not None
            assert sending.stdout.readline() == "ready\n"
            if not to:
                take = ["ip", "netns", "exec", host.edge.peer, sys.executable, "-c", TAKE, NEAR[0]]
                subprocess.run([*take, str(next(PORTS)), str(COUNT), str(SIZE)], check=True)
            found = json.loads(sending.communicate(timeout=60)[0])
        finally:
            sending.kill()
    assert len(found) == COUNT
    return [
        {"syn": one.pop("syn"), "marked": one.pop("marked"), "at": {int(at): times for at, times in one.items()}}
        for one in found.values()
    ]


def is_copied(one: dict[str, Any], syns: int, marked: bool) -> bool:
    """All of its beginning leaves twice, or nothing. `syns`: SYNs or SYN-ACKs of one that is copied."""
    twice = {at for at, times in one["at"].items() if times == 2}
    if not twice:
        assert (one["syn"], one["marked"], set(one["at"].values())) == (1, 0, {1}), one
        return False
    assert (one["syn"], max(one["at"].values())) == (syns, 2), one
    assert one["marked"] == marked * (len(twice) + syns - 1), one
    assert twice == {at for at in one["at"] if at < COPIED}, one
    return True


def copied(host: Host, to: str = "", marked: bool = False) -> int:
    """Count the copied ones of COUNT connections. No SYN leaves twice. `marked`: whether copies have DSCP."""
    return sum(is_copied(one, 1 if to else 2, marked) for one in sent(host, to))


def test_what_the_bundle_says_leaves_twice_of_nine_in_ten_and_nothing_else(host: Host) -> None:
    assert copied(host) == 0
    assert host.run("apply", host.document(COPIES, copies_permille=1000)).code == 0
    for address in ("", *FAR):
        assert 84 <= copied(host, address) < COUNT
    totals = host.run("status").report["program"]["totals"]
    assert totals["copies_refused"] == 0
    assert totals["copied_bytes"] > 3 * 84 * COPIED
    assert host.run("apply", host.document(COPIES, excluded=["10.77.2.0/24"])).code == 0
    assert copied(host, FAR[0]) == 0
    assert host.run("apply", host.document(COPIES, opted_out=[{"port": 7002}])).code == 0
    assert copied(host) == 0


def test_copies_alone_have_the_dscp_that_the_bundle_says(host: Host) -> None:
    assert host.run("apply", host.document(COPIES, copies_permille=1000, copies_dscp=DSCP)).code == 0
    for address in ("", *FAR):
        assert 84 <= copied(host, address, marked=True) < COUNT
    assert host.run("status").report["program"]["totals"]["copies_refused"] == 0


def test_nothing_is_copied_to_an_end_without_sack(host: Host) -> None:
    """A copy would draw duplicate acknowledgements, which then are a sign of loss."""
    assert host.run("apply", host.document(COPIES, copies_permille=1000)).code == 0
    off = ["ip", "netns", "exec", host.edge.peer, "sysctl", "-qw", "net.ipv4.tcp_sack=0"]
    subprocess.run(off, check=True)
    assert copied(host, FAR[0]) == 0


def test_nothing_is_copied_after_a_loss(host: Host) -> None:
    """Reports of later copies would undo the sender's response."""
    assert host.run("apply", host.document(COPIES, copies_permille=1000)).code == 0
    command = [*host.inside(), sys.executable, "-c", LOSING, str(host.cgroup), FAR[0]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sending:
        try:
            assert sending.stdin is not None
            assert sending.stdout is not None
            seen = []
            for line in ("connected", "lost", "sent"):
                assert sending.stdout.readline() == f"{line}\n"
                seen.append(host.run("status").report["program"]["totals"]["copies"])
                if line == "connected":
                    host.edge.ip("route", "add", "blackhole", NEAR[0], namespace=host.edge.peer)
                elif line == "lost":
                    host.edge.ip("route", "del", "blackhole", NEAR[0], namespace=host.edge.peer)
                sending.stdin.write("\n")
                sending.stdin.flush()
        finally:
            sending.kill()
    # The first segment of nearly each, and none of the seven after it.
    assert 0 < seen[1] - seen[0] <= LOSERS
    assert seen[2] == seen[1]


def test_copies_end_with_their_budget(host: Host) -> None:
    """Two bytes in a hundred of what is sent, and what each CPU may owe."""
    assert host.run("apply", host.document(COPIES)).code == 0
    sent(host)
    totals = host.run("status").report["program"]["totals"]
    # Headers and acknowledgements are sent as well: less than a tenth of the data.
    most = 0.02 * 1.1 * (COUNT * SIZE + totals["copied_bytes"]) + (os.cpu_count() or 1) * 256 * 1024
    assert 0 < totals["copied_bytes"] <= most
    assert totals["copies_refused"] > 0


def test_a_flood_of_syns_is_answered_twice_as_long_as_the_kernel_remembers_them(host: Host) -> None:
    """The kernel answers more half-open connections than its backlog with cookies, which nothing of ours sees."""
    host.edge.ip("route", "add", "blackhole", SILENT, namespace=host.edge.peer)
    assert host.run("apply", host.document(COPIES, copies_permille=1000)).code == 0
    command = [*host.inside(), sys.executable, "-c", FLOODED, str(host.cgroup)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        raw = ["ip", "netns", "exec", host.edge.peer, sys.executable, "-c", SYN]
        packets = " ".join(syn(SILENT, NEAR[0], 20_000 + number, 7003) for number in range(400))
        subprocess.run(raw, input=packets, check=True, text=True)
        answers = json.loads(server.communicate(timeout=60)[0])
    twice = sum(times == 2 for times in answers.values())
    assert len(answers) > 300
    assert 1 <= twice <= 2 * BACKLOG
    assert max(answers.values()) == 2


def test_others_at_the_same_device_stay_and_nothing_of_ours_does(host: Host) -> None:
    device = json.loads(host.edge.ip("-json", "route", "get", FAR[0]))[0]["dev"]

    def tc(*arguments: str) -> str:
        command = ["ip", "netns", "exec", host.edge.name, "tc", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def ours() -> int:
        return len(list(host.pins.glob("v*/copies-*")))

    devices, before = len(json.loads(host.edge.ip("-json", "link"))) - 1, ours()
    tc("qdisc", "add", "dev", device, "clsact")
    # A classic filter that takes every packet.
    tc("filter", "add", "dev", device, "egress", "bpf", "bytecode", "1,6 0 0 4294967295,", "flowid", "1:1")
    rules = tc("filter", "show", "dev", device, "egress")
    assert host.run("apply", host.document(COPIES, copies_permille=1000)).code == 0
    assert (before, ours()) == (0, devices)
    assert 84 <= copied(host, FAR[0]) < COUNT
    # Somebody takes it off: drift, which the next application mends.
    for pin in host.pins.glob("v*/copies-*"):
        pin.unlink()
    assert (host.run("status").code, ours()) == (3, 0)
    assert host.run("apply", host.document(COPIES, copies_permille=1000)).code == 0
    assert (host.run("status").code, ours()) == (0, devices)
    # A bundle without copies takes it off too.
    assert host.run("apply", host.document([{"prefix": "10.77.2.0/24", "initcwnd": 20}])).code == 0
    assert (host.run("status").code, ours()) == (0, 0)
    assert host.run("apply", host.document(COPIES, copies_permille=1000)).code == 0
    assert host.run("withdraw").code == 0
    assert ours() == 0
    assert tc("filter", "show", "dev", device, "egress") == rules
    assert copied(host, FAR[0]) == 0

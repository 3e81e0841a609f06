"""The beginning of connections leaves twice where a bundle says so: by the packets that leave the edge."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from typing import Any

import pytest

from testkit.host import FAR, NEAR, Host

pytestmark = pytest.mark.root

# Bytes that are sent twice, of each connection's SIZE. Packets of the emulated path have 1,448 bytes of data at most.
COPIED, SIZE, SEGMENT = 20_000, 60_000, 1448
# One connection in ten is not copied: of 120 none is with odds of 3e-6, and fewer than 84 are with odds of 1e-9.
COUNT = 120
COPIES = [{"prefix": "10.77.2.0/24", "copied_bytes": COPIED}, {"prefix": "fd77:2::/48", "copied_bytes": COPIED}]
# The edge accepts connections, or opens them to an address, and sends so many bytes on each. Of what leaves, by both ports:
# how often each packet does, the SYN-ACK and segments by the number of their first byte.
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
    if packet[at + 13] & 2:
        found[ends]["syn"] += 1
        begins[ends] = sequence + 1
    elif data:
        found[ends][(sequence - begins[ends]) & 0xffffffff] += 1
print(json.dumps(found))
"""
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
# Two connections with one pair of ports would be one here.
PORTS = itertools.count(20_000, 1000)


def sent(host: Host, to: str = "") -> list[dict[str, Any]]:
    """Of each connection, from the peer or to an address of it: how often SYN or SYN-ACK left, and each segment."""
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
    return [{"syn": one.pop("syn"), "at": {int(at): times for at, times in one.items()}} for one in found.values()]


def is_copied(one: dict[str, Any], syns: int) -> bool:
    """All of its beginning leaves twice, or nothing. `syns`: SYNs or SYN-ACKs of one that is copied."""
    twice = {at for at, times in one["at"].items() if times == 2}
    if not twice:
        assert (one["syn"], set(one["at"].values())) == (1, {1}), one
        return False
    assert (one["syn"], max(one["at"].values())) == (syns, 2), one
    assert twice == {at for at in one["at"] if at < COPIED}, one
    return True


def copied(host: Host, to: str = "") -> int:
    """Of COUNT connections. No SYN leaves twice."""
    return sum(is_copied(one, 1 if to else 2) for one in sent(host, to))


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

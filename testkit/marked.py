"""Reads an edge host's marks, for worked examples of a field that is the type of service of packets."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
from typing import Any

from testkit.host import LISTEN, Host

# Another address of the peer, which no bundle of a test names.
BESIDE = "192.168.0.2"
# Entries that every edge adds to a bundle: records of connections that it does not name, none to the host itself.
OF_EVERY_EDGE = ("0.0.0.0/0", "::/0", "127.0.0.0/8", "::1/128")
# Connects to each address: prints the socket's option, and the octet of a packet with data.
CONNECT = """
import json, socket, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
found = {}
tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003))
tap.settimeout(20)
for address in sys.argv[2:]:
    with socket.create_connection((address, 7000), 20, ("192.168.0.1", 0)) as one:
        one.sendall(bytes(1000))
        while True:
            packet = tap.recv(2048)
            if packet[0] >> 4 == 4 and packet[16:20] == socket.inet_aton(address) and len(packet) > 1000:
                break
        found[address] = [one.getsockopt(socket.IPPROTO_IP, socket.IP_TOS), packet[1]]
print(json.dumps(found))
"""


def octets(host: Host, *addresses: str) -> dict[str, list[int]]:
    """Octets of the socket and of a captured packet, for a connection to each address and to BESIDE."""
    beside = ["ip", "netns", "exec", host.edge.peer, sys.executable, "-c", LISTEN, BESIDE]
    with subprocess.Popen(beside, stdout=subprocess.PIPE, text=True) as listening:
        try:
            assert listening.stdout is not None
            listening.stdout.readline()
            command = [*host.inside(), sys.executable, "-c", CONNECT, str(host.cgroup), *addresses, BESIDE]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        finally:
            listening.kill()
    found: dict[str, list[int]] = json.loads(done.stdout)
    return found


def in_map(host: Host, member: str) -> dict[str, int]:
    """A byte of each prefix's entry in the map of the host's program, by the program's name for it."""
    [pins] = host.pins.glob("v*")
    [bundle] = _asked("map", "dump", "pinned", pins / "bundle")
    # The types that came with the program.
    types = _asked("btf", "dump", "id", _asked("map", "show", "pinned", pins / "states")["btf_id"])["types"]
    [entry] = [one for one in types if one.get("name") == "entry"]
    [at] = [one["bits_offset"] // 8 for one in entry["members"] if one["name"] == member]
    entries = _asked("map", "dump", "id", int.from_bytes(_bytes(bundle["value"]), sys.byteorder))
    return {_prefix(_bytes(one["key"])): _bytes(one["value"])[at] for one in entries}


def _prefix(key: bytes) -> str:
    """As a bundle has it; IPv4 is mapped."""
    network = ipaddress.IPv6Network((key[4:], int.from_bytes(key[:4], sys.byteorder)))
    mapped = network.network_address.ipv4_mapped
    return str(network) if mapped is None else f"{mapped}/{network.prefixlen - 96}"


def _bytes(words: list[str]) -> bytes:
    return bytes(int(word, 16) for word in words)


def _asked(*words: object) -> Any:
    command = ["bpftool", "-j", *map(str, words)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

"""Packets that no socket has: they come from a raw one."""

from __future__ import annotations

import socket
import struct

# Sends what comes on standard input, a packet a word.
SYN = """
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for packet in sys.stdin.read().split():
    one.sendto(bytes.fromhex(packet), ("192.168.0.1", 0))
"""


def syn(source: str, destination: str, source_port: int, port: int) -> str:
    """A SYN of IPv4."""
    ends = socket.inet_aton(source) + socket.inet_aton(destination)
    tcp = struct.pack("!HHIIBBHHH", source_port, port, 1, 0, 5 << 4, 2, 65535, 0, 0)
    pseudo = ends + struct.pack("!BBH", 0, 6, len(tcp)) + tcp
    total = sum(struct.unpack(f"!{len(pseudo) // 2}H", pseudo))
    total = (total & 0xFFFF) + (total >> 16)
    check = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    header = struct.pack("!BBHHHBBH", 0x45, 0, 40, source_port, 0, 64, 6, 0)
    return (header + ends + tcp[:16] + struct.pack("!H", check) + tcp[18:]).hex()

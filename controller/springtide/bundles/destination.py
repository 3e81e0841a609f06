"""Destinations that no bundle may name, since edges refuse the whole bundle for one of them."""

from __future__ import annotations

from ipaddress import IPv4Network

from springtide.fleet import Prefix

# A shorter prefix is most of the Internet: a default route by another name.
WIDEST = {4: 8, 6: 16}


def destination_problem(prefix: Prefix) -> str | None:
    """Why no bundle may name it, None where it may: as springtide-edge judges (edge/src/bundle/prefix.rs)."""
    widest = WIDEST[prefix.version]
    if prefix.prefixlen < widest:
        return f"is wider than /{widest}, the widest that an edge takes"
    packed = prefix.network_address.packed
    if isinstance(prefix, IPv4Network):
        special = packed[0] in (0, 127) or packed[0] >= 224 or packed[:2] == b"\xa9\xfe"
    else:
        special = packed[:2] == b"\0\0" or packed[0] == 0xFF or (packed[0] == 0xFE and packed[1] & 0xC0 == 0x80)
    return "is loopback, link-local, multicast or reserved space" if special else None

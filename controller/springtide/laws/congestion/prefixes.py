"""Client prefixes in columns: a million of them are arrays, not objects.

A prefix at a PoP is known by the PoP's name and its first address as two 64-bit halves (IPv4 mapped into IPv6).
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_network

import numpy as np
from numpy.typing import NDArray

from springtide.frame import Coded, Frame
from springtide.laws.columns import Keys, Table, coded
from springtide.policy import CLIENT_PREFIX_LENGTH

KEY = [("pop", "S64"), ("high", "<u8"), ("low", "<u8")]
_PACKED = np.dtype([("pop", "S64"), ("high", ">u8"), ("low", ">u8")])

# Columns that sql/congestion/evidence.sql gives for each prefix. -1 is unknown.
EVIDENCE = np.dtype(
    [
        *KEY,
        ("ip_version", "u1"),
        ("back_office", "u1"),
        ("measured_0", "<u8"),
        ("measured_1", "<u8"),
        ("low_0", "<u8"),
        ("low_1", "<u8"),
        ("rtt_us", "<f8"),
        ("retransmit_ratio", "<f8"),
        ("log2_rate", "<f8"),
        ("recent_log2_rate", "<f8"),
    ]
)


def keys(table: Table | Frame) -> Keys:
    """One sortable key a row: by PoP, IPv4 before IPv6, by address."""
    packed = np.zeros(len(table), _PACKED)
    for name in _PACKED.names or ():
        packed[name] = table[name]
    return packed.view("S80").reshape(len(table))


def addresses(table: Table | Frame) -> list[bytes]:
    """The 16 bytes of each prefix's first address."""
    packed = np.zeros(len(table), [("high", ">u8"), ("low", ">u8")])
    packed["high"], packed["low"] = table["high"], table["low"]
    raw = packed.tobytes()
    return [raw[at : at + 16] for at in range(0, len(raw), 16)]


def named(wanted: Keys) -> tuple[Coded, dict[str, NDArray[np.uint64]]]:
    """The PoPs of such keys, and the two halves of the addresses."""
    packed = wanted.view(_PACKED)
    return coded(packed["pop"]), {name: packed[name].astype(np.uint64) for name in ("high", "low")}


def halves(prefix: str) -> tuple[int, int]:
    """The two halves of a prefix's first address, IPv4 mapped."""
    network = ip_network(prefix)
    number = int(network.network_address) + (0xFFFF << 32 if network.version == 4 else 0)
    return number >> 64, number & 0xFFFF_FFFF_FFFF_FFFF


def prefix_text(address: IPv6Address) -> str:
    """A client prefix by its first address, as people write it."""
    if address.ipv4_mapped is not None:
        return f"{address.ipv4_mapped}/{CLIENT_PREFIX_LENGTH[4]}"
    return f"{address}/{CLIENT_PREFIX_LENGTH[6]}"

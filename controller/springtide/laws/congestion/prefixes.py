"""Client prefixes in columns: a million of them are arrays, not objects.

A prefix at a PoP is known by the PoP's name and its first address as two 64-bit halves (IPv4 mapped into IPv6).
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_network
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.laws import columns
from springtide.laws.columns import Bits, Keys, Table
from springtide.policy import CLIENT_PREFIX_LENGTH

KEY = [("pop", "S64"), ("high", "<u8"), ("low", "<u8")]

# What sql/congestion/evidence.sql gives of each prefix. -1 is unknown.
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


def keys(table: Table) -> Keys:
    """One sortable key a row: by PoP, IPv4 before IPv6, by address."""
    packed = np.zeros(len(table), [("pop", "S64"), ("high", ">u8"), ("low", ">u8")])
    for name in ("pop", "high", "low"):
        packed[name] = table[name]
    return packed.view("S80").reshape(len(table))


def addresses(table: Table) -> list[bytes]:
    """The 16 bytes of each prefix's first address."""
    packed = np.zeros(len(table), [("high", ">u8"), ("low", ">u8")])
    packed["high"], packed["low"] = table["high"], table["low"]
    raw = packed.tobytes()
    return [raw[at : at + 16] for at in range(0, len(raw), 16)]


def align(table: Table, wanted: Keys) -> tuple[Table, Bits]:
    """The table's row for each of the sorted keys `wanted` (zeros where it has none), and which it has."""
    return columns.align(table, keys(table), wanted)


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


def history(first: NDArray[np.uint64], second: NDArray[np.uint64], rounds: int) -> Bits:
    """Masks as (prefixes, rounds) flags, the newest round first."""
    raw = np.stack([first, second], axis=1).astype("<u8").view(np.uint8)
    return np.unpackbits(raw, axis=1, bitorder="little", count=rounds).astype(bool)


def state_changes(measured: Bits, low: Bits) -> NDArray[np.int64]:
    """How often a prefix became low or ceased to be, over its measured rounds: a gap is not a change."""
    count = np.zeros(len(measured), np.int64)
    state = np.full(len(measured), -1, np.int8)
    for column in range(measured.shape[1] - 1, -1, -1):
        now = low[:, column].astype(np.int8)
        count += measured[:, column] & (state >= 0) & (state != now)
        state = np.where(measured[:, column], now, state)
    return count


def excess(flags: Bits, measured: Bits, share: float) -> NDArray[np.float64]:
    """By how many rounds those flagged exceed `share` of the measured ones, over the newest rounds for which they do so
    most; 0 where they never do.

    Page's cumulative sum (Biometrika 41, 1954): what is clear is seen soon, what is less clear later, and what lies
    further back than a change is no longer in it. Sums are of integers in millionths.
    """
    steps = flags * np.int64(1_000_000) - measured * np.int64(round(share * 1_000_000))
    most: NDArray[np.float64] = np.maximum(np.cumsum(steps, axis=1).max(axis=1, initial=0), 0) / 1e6
    return most


def first_of(table: Table, order: NDArray[np.intp], group: NDArray[Any], room: NDArray[np.int64]) -> Bits:
    """Which rows are within the first `room[row]` of their group, in the order given."""
    chosen = np.zeros(len(table), bool)
    if not len(order):
        return chosen
    # Stable: within a group the order stays.
    by_group = order[np.argsort(group[order], kind="stable")]
    ordered = group[by_group]
    starts = np.r_[0, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1]
    rank = np.arange(len(by_group)) - np.repeat(starts, np.diff(np.r_[starts, len(by_group)]))
    chosen[by_group] = rank < room[by_group]
    return chosen

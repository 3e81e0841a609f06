"""Groups from which thin units borrow estimates: their names.

A pair of PoPs: the pair of their regions. A client prefix: those under one covering prefix (/16, /40) from its PoP, the
same from its PoP's region, those of one autonomous system from the region: the first in which enough units have
evidence of their own; else the widest."""

from __future__ import annotations

from collections.abc import Mapping
from socket import AF_INET6, inet_ntop

import numpy as np
from numpy.typing import NDArray

from springtide.frame import Coded, Frame
from springtide.laws.columns import Bits, Columns, Table, begins
from springtide.store import Store

Ints = NDArray[np.int64]

# Where a unit is: whether it is a client prefix, and the /16 or /40 and autonomous system of one; 0 is none. The /16 or
# /40 is a number without the zeros behind it (IPv4's as in IPv6).
PLACE = [("is_prefix", "u1"), ("covering", "<u8"), ("asn", "<u4")]
_PLACE = np.dtype(PLACE)
# The bits behind a covering prefix, as sql/start/evidence.sql has them.
BEHIND = {4: 16, 6: 88}
# Destinations in a question.
_ASKED = 10_000
_PLACES = f"""
with toIPv6OrDefault(substring(destination, 1, position(destination, '/') - 1)) as network
select
    position(destination, '/') > 0 as is_prefix,
    if(
        is_prefix,
        toUInt64(
            bitShiftRight(toUInt128(network), if(position(destination, ':') = 0, {BEHIND[4]}, {BEHIND[6]}))
        ),
        0
    ) as covering,
    if(is_prefix, dictGetOrDefault('asns', 'asn', network, 0), 0) as asn
from (select arrayJoin({{destinations:Array(String)}}) as destination)
"""
_PAIR, _FROM_POP, _FROM_REGION, _SYSTEM = range(4)
# Length of names in a column. Longer ones are cut, and distinguished by a hash.
_LONGEST, _CUT = 63, 46
_NO_REGION = "default"


def places(store: Store, destinations: list[str]) -> Table:
    """Where these are, which a round does not show, as rows of PLACE: by their names alone. Raises StoreError."""
    parts = range(0, len(destinations), _ASKED)
    found = [store.columns(_PLACES, _PLACE, {"destinations": destinations[at : at + _ASKED]}) for at in parts]
    return np.concatenate([np.zeros(0, _PLACE), *found])


def regions(store: Store) -> dict[bytes, str]:
    """Each PoP's. Raises StoreError."""
    return {row["pop"].encode(): row["region"] for row in store.query("select pop, region from fleet_regions")}


def named(store: Store, units: Frame, place: Columns, has_own: Bits, regions: Mapping[bytes, str], least: int) -> Coded:
    """Each unit's group, numbered as they first come: most of a group's units are near each other. `units` are sorted,
    `place` are the columns of PLACE; `has_own`: which have evidence of their own; `least`: how many of these are
    enough. The store is asked only for what shortens names. Raises StoreError."""
    if not len(has_own):
        return Coded(np.zeros(0, "S64"), np.zeros(0, np.uint32))
    of_pop = begins(units.columns["src_pop"])
    pops, src = units.columns["src_pop"][of_pop].tolist(), np.cumsum(of_pop) - 1
    texts = sorted({_NO_REGION, *regions.values()})
    number = {text: at for at, text in enumerate(texts)}
    known = {pop: number[region or _NO_REGION] for pop, region in regions.items()}
    default = number[_NO_REGION]
    # A pair goes to the other's region.
    to = place["covering"].copy()
    pairs = place["is_prefix"] == 0
    to[pairs] = [known.get(pop, default) for pop in units["destination"][pairs].tolist()]

    # Units in a row that differ in nothing that makes a group are looked at once.
    columns = [src, units["ip_version"], place["is_prefix"], to, place["asn"]]
    alike = np.cumsum(np.logical_or.reduce([begins(column) for column in columns])) - 1
    heads = np.flatnonzero(begins(alike))
    src, version, is_prefix, to, asn = (column[heads] for column in columns)
    own = np.add.reduceat(has_own, heads, dtype=np.int64)
    region = np.array([known.get(pop, default) for pop in pops])[src]
    pair = is_prefix == 0
    narrow = np.where(pair, _PAIR, _FROM_POP), np.where(pair, region, src), version, to
    regional = np.where(pair, _PAIR, _FROM_REGION), region, version, to
    widest = np.where(asn > 0, _SYSTEM, regional[0]), region, version, np.where(asn > 0, asn, to)
    chosen = widest
    for level in (regional, narrow):
        enough = _together(own, _numbered(*level)[0]) >= least
        chosen = tuple(np.where(enough, one, other) for one, other in zip(level, chosen, strict=True))
    which, first = _numbered(*chosen)
    found = []
    for kind, source, ip_version, whereto in zip(*(column[first].tolist() for column in chosen), strict=True):
        if kind == _PAIR:
            name = f"{texts[source]} to {texts[whereto]}, IPv{ip_version}"
        else:
            begin = pops[source].decode() if kind == _FROM_POP else f"region {texts[source]}"
            end = f"AS{whereto}, IPv{ip_version}" if kind == _SYSTEM else _covering(ip_version, whereto)
            name = f"{begin} to {end}"
        found.append(name)
    # Two that read the same are one.
    numbered: dict[bytes, int] = {}
    names = _shortened(store, found)
    numbers = np.empty(len(names), np.uint32)
    for at in np.argsort(first).tolist():
        numbers[at] = numbered.setdefault(names[at], len(numbered))
    return Coded(np.array(list(numbered), "S64"), numbers[which][alike])


def _numbered(*columns: NDArray[np.generic]) -> tuple[Ints, Ints]:
    """Rows' numbers, the same for the same, and of each number a row."""
    order = np.lexsort(columns)
    first = np.logical_or.reduce([begins(column[order]) for column in columns])
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(first) - 1
    return numbers, order[first]


def _together(counts: Ints, numbers: Ints) -> Ints:
    """The sum of the counts of all rows of one's number."""
    # Doubles hold such sums exactly.
    return np.bincount(numbers, counts)[numbers].astype(np.int64)


def _covering(ip_version: int, number: int) -> str:
    network = inet_ntop(AF_INET6, (number << BEHIND[ip_version]).to_bytes(16, "big"))
    return f"{network.removeprefix('::ffff:')}/16" if ip_version == 4 else f"{network}/40"


def _shortened(store: Store, names: list[str]) -> list[bytes]:
    found = [name.encode() for name in names]
    long = [at for at, name in enumerate(found) if len(name) > _LONGEST]
    if long:
        hashes = store.query(
            "select hex(cityHash64(arrayJoin({names:Array(String)}))) as hash", {"names": [names[at] for at in long]}
        )
        for at, row in zip(long, hashes, strict=True):
            found[at] = found[at][:_CUT] + b" " + row["hash"].encode()
    return found

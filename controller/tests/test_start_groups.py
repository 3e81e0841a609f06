"""Groups from which units borrow estimates, beside a model that counts one unit after the other."""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address
from typing import Any

import numpy as np
from numpy.typing import NDArray
from springtide.frame import Coded, Frame
from springtide.laws.columns import coded, same
from springtide.laws.start.evidence import OBSERVED
from springtide.laws.start.groups import PLACE, named
from springtide.laws.start.law import PREVIOUS, decide
from springtide.laws.units import UNIT_KEY
from springtide.store import Store

from testkit.start_law import ROUND, Loop, policy, proved, row

LONG = "Zürich " + "x" * 50
REGIONS = {b"ams": "europe", b"fra": "europe", b"nyc": "", b"zrh": LONG, b"gva": LONG + "y"}
POPS = [*REGIONS, b"sin"]

Columns = dict[str, NDArray[Any]]
Bits = NDArray[np.bool_]


def test_units_are_grouped_as_one_by_one(store: Store) -> None:
    source = np.random.default_rng(7)
    for least in (1, 3, 8):
        units, place, own = _units(source)
        # As the store gives rows, and as they may be made.
        columns = [{**units, "src_pop": src} for src in (coded(units["src_pop"]), units["src_pop"])]
        frames = [Frame(np.dtype(UNIT_KEY), one) for one in columns]
        found, other = (named(store, frame, place, own, REGIONS, least) for frame in frames)
        assert found.tolist() == other.tolist()
        assert [name.decode(errors="replace") for name in found.tolist()] == _model(store, units, place, own, least)


def test_no_units_have_no_groups(store: Store) -> None:
    units, place, own = _units(np.random.default_rng(7))
    nothing = {name: column[:0] for name, column in place.items()}
    assert len(named(store, Frame(np.dtype(UNIT_KEY), units)[:0], nothing, own[:0], REGIONS, 3)) == 0


def test_units_without_a_group_are_none_together() -> None:
    loop = Loop(policy())
    for _ in range(3):
        found = loop.round(*(proved(4e6, name) for name in "abcd"), row("thin", connections=1))
    assert set(found["group"].tolist()) == {b""}
    assert found[found["destination"] == b"thin"]["trial_window"][0] == 0


def test_a_frame_may_know_more_groups_than_it_has_rows() -> None:
    seen = proved(5e6)
    names = np.array([b"unused", b"", b"eu to us", b"other"], "S64")
    frame = Frame(OBSERVED, {**Frame.of(seen).columns, "group": Coded(names, np.array([2], np.uint32))})
    seen["group"] = b"eu to us"
    law, none = policy(), np.zeros(0, PREVIOUS)
    assert same(decide(ROUND, law, frame, none, frame).table(), decide(ROUND, law, seen, none, seen).table())


def _units(source: np.random.Generator) -> tuple[Columns, Columns, Bits]:
    """Pairs of PoPs, and prefixes of both versions under few covering ones."""
    listed = {(src, dst, 4): (0, 0, 0) for src in POPS for dst in POPS if src != dst}
    for number in range(400):
        src, covering = POPS[source.integers(len(POPS))], int(source.integers(5, 25))
        system = int(source.integers(3))
        if number % 3:
            listed[src, b"10.%d.%d.0/24" % (covering, number % 256), 4] = 1, 0xFFFF0A00 + covering, system
        else:
            listed[src, b"2001:db8:%x%02x::/56" % (covering, number % 256), 6] = 1, 0x20010DB800 + covering, system
    keys = sorted(listed)
    units = dict(zip(("src_pop", "destination", "ip_version"), map(np.array, zip(*keys, strict=True)), strict=True))
    place = dict(zip(("is_prefix", "covering", "asn"), np.array([listed[key] for key in keys]).T, strict=True))
    units = {name: units[name].astype(form) for name, form in UNIT_KEY}
    return units, {name: place[name].astype(form) for name, form in PLACE}, source.random(len(keys)) < 0.4


def _model(store: Store, units: Columns, place: Columns, own: Bits, least: int) -> list[str]:
    names = []
    for src, dst, version, is_prefix, covering, system in zip(
        *(column.tolist() for column in (*units.values(), *place.values())), strict=True
    ):
        region, other = (REGIONS.get(pop) or "default" for pop in (src, dst))
        if not is_prefix:
            names.append([f"{region} to {other}, IPv{version}"])
            continue
        network = ip_address(covering << (16 if version == 4 else 88))
        mapped = getattr(network, "ipv4_mapped", None)
        to = f"{mapped}/16" if mapped else f"{network}/40"
        names.append([f"{src.decode()} to {to}", f"region {region} to {to}"])
        names[-1] += [f"region {region} to AS{system}, IPv{version}"] if system else []
    counts = Counter(name for listed, has in zip(names, own.tolist(), strict=True) if has for name in listed)
    chosen = [next((name for name in listed[:2] if counts[name] >= least), listed[-1]) for listed in names]
    return [_cut(store, name) for name in chosen]


def _cut(store: Store, name: str) -> str:
    if len(name.encode()) <= 63:
        return name
    [row] = store.query("select hex(cityHash64({name:String})) as hash", {"name": name})
    return f"{name.encode()[:46].decode(errors='replace')} {row['hash']}"

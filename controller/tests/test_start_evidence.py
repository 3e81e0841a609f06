"""Units that the law of starts decides on, whose estimates they borrow, and each edge's part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from springtide.frame import Frame
from springtide.laws.start.evidence import bounded_parts, edge_parts, observe
from springtide.laws.start.groups import PLACE, places
from springtide.laws.start.interface import START
from springtide.laws.start.law import DECIDED, PREVIOUS, STARTS
from springtide.laws.units import placed
from springtide.observe.asn import Origin, publish_origins
from springtide.policy import MAX_HISTORY_S, EnforcePolicy, Policy, StartPolicy
from springtide.store import Store

from testkit.home import ROUND
from testkit.path_model import Gave
from testkit.path_traffic import INTERVAL, NONE, PEERS, SLOW, Traffic, mixed
from testkit.rolled import Rolled
from testkit.together import together

BOTH = (ROUND - INTERVAL, ROUND)


def listed(rolled: Rolled, most: int) -> set[str]:
    found = rolled.observe(StartPolicy(max_prefixes=most))
    return {name.decode() for name in found["destination"][found["listed"] > 0].tolist()}


@together
def test_prefixes_with_most_to_gain_are_seen_and_those_in_use() -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("fra-1", "fra-2")
    peers = {number: f"::ffff:192.0.{number}.1" for number in range(1, 7)}
    for number, peer in peers.items():
        PEERS[peer] = ""
        for host in ("fra-1", "fra-2"):
            traffic.connection(host, peer, 10**6, sent=40_000 * number**2)
    in_use = ("fra", "192.0.1.0/24", 4)
    yield (rolled := Rolled(traffic.rows, decided={ROUND - 300: {in_use: (SLOW, NONE)}}))
    assert listed(rolled, 3) == {"192.0.1.0/24", "192.0.6.0/24", "192.0.5.0/24"}
    assert len(listed(rolled, 100)) == 6
    assert listed(rolled, 0) == set()
    # A unit that is not listed may borrow: it has its group, and no evidence of its own.
    policy = Policy(start=StartPolicy(max_prefixes=3), enforce=EnforcePolicy(by="bpf"))
    every, _ = START.observe(rolled.opened(), policy, ROUND)
    seen = rolled.own(every)
    assert sorted(seen["destination"].tolist()) == [f"192.0.{number}.0/24".encode() for number in peers]
    assert set(seen["group"].tolist()) == {b"region europe to 192.0.0.0/16"}
    assert (seen["connections"] > 0).tolist() == [True, False, False, False, True, True]


@together
def test_a_host_that_invents_prefixes_leaves_half_of_the_places() -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-1", "ams-2", "ams-3")
    for number in range(1, 21):
        peer = f"::ffff:192.0.{number}.1"
        PEERS[peer] = ""
        for host in ("ams-1", "ams-2") if number <= 10 else ("ams-3",):
            traffic.connection(host, peer, 10**6, sent=100_000 if number <= 10 else 10**8)
    yield (rolled := Rolled(traffic.rows))
    found = listed(rolled, 10)
    assert len(found) == 10
    assert sum(int(destination.split(".")[2]) <= 10 for destination in found) == 5


@together
def test_a_destination_that_no_one_may_have_takes_no_other() -> Iterator[Rolled]:
    yield (rolled := Rolled(mixed(1)))
    wanted = rolled.observe()
    assert len(wanted)
    rolled.opened().execute(
        "insert into rollup_paths select * replace (repeat('x', 70) as destination) from rollup_paths "
        "where round = fromUnixTimestamp({round_s:UInt32}) and startsWith(src_pop, {prefix:String}) limit 1",
        {"round_s": ROUND, "prefix": rolled.prefix},
    )
    found = rolled.observe()
    assert found["destination"].tolist() == wanted["destination"].tolist()


@pytest.mark.parametrize("longest", ["x" * 63, "ffff:ffff:ffff:ff00::/56", "nyc"])
def test_destinations_of_any_length_are_remembered(store: Store, longest: str) -> None:
    names = sorted({longest, "10.0.0.0/24"})
    decided = Frame.of(np.zeros(len(names), DECIDED))
    decided["ip_version"][:], decided["window"][:] = 4, 20
    for at, name in enumerate(names):
        decided["src_pop"][at], decided["destination"][at] = b"ams", name.encode()
    STARTS.write_round(store, ROUND, decided, "0" * 12)
    last = STARTS.remembered(store, ROUND + INTERVAL)
    assert [name.decode() for name in last["destination"].tolist()] == names
    assert last["destination"].itemsize < 64 or len(longest) == 63
    # The round after that knows them as they are, also read in another width.
    units, (before, now) = placed(last, STARTS.read_round(store, ROUND))
    assert units is last
    assert before.tolist() == now.tolist() == list(range(len(names)))
    # And as they were read they are written.
    again = STARTS.read_round(store, ROUND)
    narrow = Frame(DECIDED, {**again.columns, "destination": last["destination"]})
    assert not STARTS.write_round(store, ROUND, narrow, "0" * 12)
    assert STARTS.write_round(store, ROUND + INTERVAL, narrow, "0" * 12)
    assert [name.decode() for name in STARTS.read_round(store, ROUND + INTERVAL)["destination"].tolist()] == names


def test_a_round_decided_again_is_remembered_as_it_was_decided_last(store: Store) -> None:
    store.execute("system stop merges")
    table = np.zeros(3, DECIDED)
    table["src_pop"], table["destination"], table["ip_version"] = b"ams", [b"a", b"b", b"c"], 4
    for windows in ([10, 20, 30], [10, 25, 30]):
        decided = Frame.of(table)
        decided["window"][:] = windows
        assert STARTS.write_round(store, ROUND, decided, "0" * 12)
        assert STARTS.remembered(store, ROUND + INTERVAL)["window"].tolist() == windows
        assert not STARTS.write_round(store, ROUND, decided, "0" * 12)


@contextmanager
def systems(store: Store, *origins: Origin) -> Iterator[None]:
    """For as long as it lasts, in a store that other cases have too: a roll-up asks for none."""
    publish_origins(store, list(origins))
    try:
        yield
    finally:
        publish_origins(store, [])


@together
def test_what_a_round_does_not_show_has_the_place_that_it_had() -> Iterator[Rolled]:
    yield (rolled := Rolled(mixed(1)))
    store = rolled.opened()
    with systems(store, Origin("192.0.0.0/15", 64500, "one"), Origin("2001:db8::/32", 64501, "two")):
        shown = observe(store, ROUND, StartPolicy())
        names = [name.decode() for name in shown["destination"].tolist()]
        # More than are asked for at once.
        many = names * (25_000 // len(names))
        found = places(store, many)
    assert {":" in name for name in names} == {"/" in name for name in names} == {False, True}
    for name, _ in PLACE:
        assert found[name].tolist() == shown[name].tolist() * (25_000 // len(names))


@together
def test_counters_of_a_broken_row_stop_at_their_highest() -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-1")
    traffic.connection("ams-1", "::ffff:10.77.2.9", 10**6)
    yield (rolled := Rolled(traffic.rows))
    counters = ("connections", "share_connections", "trains", "entry_flights", "entry_segments", "braked")
    broken = ", ".join(f"{2**32 + 5} as {name}" for name in counters)
    ams, nyc = f"'{rolled.prefix}ams'", f"'{rolled.prefix}nyc'"
    rolled.opened().execute(
        f"insert into rollup_paths select * replace ({broken}, {nyc} as destination, {nyc} as dst_pop) "
        f"from rollup_paths where src_pop = {ams} and dst_pop != '' order by round desc limit 1"
    )
    found = rolled.seen(("ams", "nyc", 4))
    for name in ("connections", "share_connections", "trains", "flights_0", "segments_0", "braked"):
        assert found[name] == 2**32 - 1


@together
def test_thin_units_are_grouped_by_region_covering_prefix_and_autonomous_system() -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-1", "fra-1")
    clients = {"192.0.1.1": 3, "192.0.2.1": 3, "192.1.3.1": 3, "192.1.4.1": 0, "203.0.113.9": 0, "198.18.0.1": 0}
    for client, count in clients.items():
        PEERS[f"::ffff:{client}"] = ""
        for host in ("ams-1", "fra-1") if client.startswith("192.0.") else ("ams-1",):
            traffic.connection(host, f"::ffff:{client}", 10**6, sent=100_000)
            for _ in range(count):
                traffic.connection(host, f"::ffff:{client}", 10**6)
    traffic.connection("ams-1", "::ffff:10.77.2.9", 10**6)
    traffic.connection("fra-1", "::ffff:10.77.3.9", 10**6)
    remembered: Gave = {("ams", "2001:db8::/56", 6): (SLOW, NONE)}
    yield (rolled := Rolled(traffic.rows, decided={ROUND - 300: remembered}))
    store = rolled.opened()

    def named(units: int) -> dict[str, str]:
        policy = Policy(start=StartPolicy(group_units=units), enforce=EnforcePolicy(by="bpf"))
        seen = rolled.own(START.observe(store, policy, ROUND)[0])
        columns = (seen[name].tolist() for name in ("src_pop", "destination", "group"))
        return {f"{src.decode()} {to.decode()}": name.decode() for src, to, name in zip(*columns, strict=True)}

    with systems(store, Origin("192.0.0.0/15", 64500, "one"), Origin("203.0.113.0/24", 64501, "two")):
        found, three, four = named(2), named(3), named(4)
    assert found["ams fra"] == "europe to europe, IPv4"
    assert found["fra nyc"] == "europe to america, IPv4"
    assert found["ams 192.0.1.0/24"] == found["ams 192.0.2.0/24"] == "ams to 192.0.0.0/16"
    # One of its own there: the whole autonomous system's, from the region.
    assert found["ams 192.1.4.0/24"] == found["ams 192.1.3.0/24"] == "region europe to AS64500, IPv4"
    assert found["ams 203.0.113.0/24"] == "region europe to AS64501, IPv4"
    assert found["ams 198.18.0.0/24"] == "region europe to 198.18.0.0/16"
    assert found["ams 2001:db8::/56"] == "region europe to 2001:db8::/40"
    # Two PoPs of the region know what one alone does not.
    assert four["ams 192.0.1.0/24"] == "region europe to 192.0.0.0/16"
    assert three["ams 192.1.3.0/24"] == "region europe to AS64500, IPv4"


@together
def test_quantiles_that_are_columns_are_the_sketches_own() -> Iterator[Rolled]:
    yield (rolled := Rolled(mixed(1)))
    merged = "toFloat32(arrayReduce('quantileTDigestWeightedMerge({})', [{}_state]))"
    columns = f"""
        share_sketch_p50_bytes_per_s != {merged.format(0.5, "share")} as share_differs,
        path_sketch_p90_bytes_per_s != {merged.format(0.9, "path")} as path_differs,
        share_connections > 0 and path_buckets > 0 as shows
    """
    found = [row for row in rolled.rows("round_paths", columns) if row["shows"]]
    assert len(found) >= 3
    assert not any(row["share_differs"] or row["path_differs"] for row in found)
    law = StartPolicy()
    assert (law.share_quantile, law.path_quantile) == (0.5, 0.9)


@together
def test_sketches_of_rounds_merge() -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("ams-1")
    rates = [100_000 * n for n in range(10, 30)]
    for rate in rates[:10]:
        traffic.connection("ams-1", "::ffff:10.77.2.9", rate, born=2, polls=4)
    for rate in rates[10:]:
        traffic.connection("ams-1", "::ffff:10.77.2.9", rate, born=12, polls=4)
    yield (rolled := Rolled(traffic.rows, rounds=BOTH))
    merges = "sum(share_connections) as n, quantileTDigestWeightedMerge(0.5)(share_state) as middle"
    [merged] = rolled.rows("round_paths", merges)
    assert merged["n"] == 20
    assert merged["middle"] == pytest.approx(1_950_000, rel=0.04)


def parts(rolled: Rolled, src: str, to: str, version: int) -> dict[str, float]:
    unit = (rolled.prefix + src, rolled.prefix + to, version)
    units = np.array([unit], [("src_pop", "S64"), ("destination", "S64"), ("ip_version", "u1")])
    [own] = edge_parts(rolled.opened(), ROUND, ROUND - 2 * INTERVAL, Frame.of(units)).values()
    return {edge.removeprefix(rolled.prefix): part for edge, part in own.items()}


@together
def test_an_edge_has_its_part_of_the_starts() -> Iterator[Rolled]:
    traffic = Traffic()
    traffic.hosts("fra-1", "fra-2")
    for host, count in (("fra-1", 6), ("fra-2", 2)):
        for n in range(count):
            traffic.connection(host, "::ffff:10.77.3.9", 10**6, born=1 + 10 * (n % 2), polls=3)
    yield (rolled := Rolled(traffic.rows, rounds=BOTH))
    # None of the first round: its hosts' first poll is of it.
    assert parts(rolled, "fra", "nyc", 4) == {"fra-1": 0.75, "fra-2": 0.25}
    # Nothing began there.
    assert parts(rolled, "fra", "ams", 6) == {"fra-1": 0.5, "fra-2": 0.5}
    assert parts(rolled, "nyc", "ams", 4) == {"nyc-1": 1.0}


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        ([5, 3], [5 / 8, 3 / 8]),
        ([10, 0], [1.0, 0.25]),
        ([10, 0, 0, 0], [0.5, 1 / 6, 1 / 6, 1 / 6]),
        ([10, 10, 10, 0], [1 / 3, 1 / 3, 1 / 3, 1 / 8]),
        ([1], [1.0]),
        ([0, 0, 0], [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_parts_have_a_floor_and_no_edge_has_more_than_half(starts: list[float], expected: list[float]) -> None:
    assert bounded_parts(np.array([starts], float))[0] == pytest.approx(expected)


def test_parts_are_bounded_whatever_begins(store: Store) -> None:
    source = np.random.default_rng(5)
    for count in (2, 3, 4, 12):
        found = bounded_parts(np.floor(source.pareto(0.3, (500, count))))
        assert found.sum(axis=1).min() >= 1 - 1e-9
        assert found.sum(axis=1).max() < 1.5
        assert found.min() >= 1 / (2 * count) - 1e-9
        assert found.max() <= (0.5 if count > 2 else 1.0) + 1e-9


def test_a_round_is_given_what_lasts_of_the_last_one_and_nothing_else(store: Store) -> None:
    lasting = ("window", "trial_permille", "share_weight", "measured_rounds", "harmful_rate")
    decided = np.zeros(2 ** len(lasting), DECIDED)
    decided["src_pop"], decided["ip_version"] = b"ams", 4
    for number, row in enumerate(decided):
        row["destination"] = f"pop{number:02}".encode()
        row["share_log2"], row["last_evidence"], row["learnt_rtt_us"] = 20.5 + number, ROUND - number, 1000 * number
        for bit, name in enumerate(lasting):
            row[name] = 2 + number if number >> bit & 1 else 0
        # Unknown is none, too.
        row["share_weight"] = row["share_weight"] or [0.0, np.nan][number % 2]
    older = decided.copy()
    older["src_pop"], older["window"] = b"fra", 99
    for moment, table in ((ROUND - 600, older), (ROUND - 300, decided), (ROUND, older)):
        assert STARTS.write_round(store, moment, Frame.of(table), "0123456789ab")

    found = STARTS.lasting(STARTS.remembered(store, ROUND))
    assert STARTS.last_round(store, ROUND) == ROUND - 300
    assert found["destination"].tolist() == [f"pop{number:02}".encode() for number in range(1, len(decided))]
    assert set(found["src_pop"].tolist()) == {b"ams"}
    assert set(found["round"].tolist()) == {ROUND - 300}
    for name in set(PREVIOUS.names or ()) - {"round"}:
        np.testing.assert_array_equal(found[name], decided[name][1:], err_msg=name)
    assert len(STARTS.remembered(store, ROUND - 600)) == 0
    assert len(STARTS.remembered(store, ROUND + MAX_HISTORY_S + 1)) == 0

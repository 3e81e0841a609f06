"""Values that the engine computes from a round's samples, compared with plain loops."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import closing
from ipaddress import IPv6Address
from typing import Any

import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from springtide.fleet import Fleet
from springtide.observe.enrich import publish_fleet
from springtide.observe.rollup import TABLES, rollup
from springtide.store import Row, Store

from testkit import round_model as model
from testkit.home import FLEET, ROUND, Home
from testkit.prefixes import rates_of
from testkit.rolled import NAMES, apart, back

INTERVAL = 300
# Three intervals: before the look-back, the look-back and the round; and then the future.
SLOTS = range(-3 * 3, 3)

KEYS = {
    "round_sockets": "host, boot_id, netns, cookie",
    "round_pairs": "src_pop, dst_pop, ip_version",
    "round_prefixes": "pop, ip_version, client_prefix, congestion_algorithm",
    "round_prefix_rates": "pop, ip_version, client_prefix",
    "round_outcomes": "host, src_pop, dst_pop, ip_version, size_class_bytes",
    "round_hosts": "host",
}


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Samples of a few sockets on three edges and an unknown host: polls 100 s apart, some missing or odd, some
    closed."""
    rows = []
    hosts = st.sampled_from(["ams-1", "ams-2", "fra-1", "ams-9"])
    sockets = draw(st.lists(st.tuples(hosts, st.integers(0, 9)), max_size=8, unique=True))
    for host, cookie in sockets:
        src = draw(st.sampled_from(["ams", "ams", "fra", ""]))
        dst = draw(st.sampled_from(["fra", "fra", "nyc", "ams", ""]))
        address = draw(st.sampled_from(["::ffff:10.0.0.2", "::ffff:192.0.2.77", "fd77:0:0:12::2"]))
        counters = {name: draw(st.integers(0, 10**6)) for name in model.COUNTERS}
        alive = sorted(draw(st.lists(st.sampled_from(list(SLOTS)), max_size=8, unique=True)))
        closes = draw(st.booleans())
        for slot in alive:
            for name in counters:
                counters[name] += draw(st.sampled_from([0, 0, 1000, 57_920, 10**6]))
            close = closes and slot == alive[-1]
            rows.append(
                {
                    "time_unix_us": (ROUND + 100 * slot) * 1_000_000 + cookie,
                    "host": host,
                    "pop": draw(st.sampled_from(["ams", "ams", ""])),
                    "boot_id": "boot",
                    "netns": 1,
                    "poll_sequence": 100 + slot - close,
                    "cookie": cookie,
                    "kind": "CLOSE" if close else "POLL",
                    "state": "CLOSE"
                    if close
                    else draw(st.sampled_from(["ESTABLISHED"] * 4 + ["CLOSE_WAIT", "LISTEN"])),
                    "src_ip": "::ffff:10.0.0.1",
                    "dst_ip": address,
                    "src_pop": src,
                    "dst_pop": dst,
                    "congestion_algorithm": None if close else draw(st.sampled_from(["bbr", "cubic", None])),
                    "snd_cwnd": draw(st.sampled_from([None, 0, 10, 40, 40, 90])),
                    "snd_mss": draw(st.sampled_from([None, 0, 1448, 1448, 1448])),
                    "snd_ssthresh": draw(st.sampled_from([None, 2**31 - 1, 700])),
                    "snd_wnd": draw(st.sampled_from([None, 65_535, 2**20])),
                    "rtt": draw(st.sampled_from([None, 0, 20_000, 80_000])),
                    "min_rtt": draw(st.sampled_from([None, 2**32 - 1, 19_000])),
                    "delivery_rate": draw(st.sampled_from([None, 0, 125_000, 10**6, 10**7])),
                    "dsack_dups": draw(st.sampled_from([None, 0, 1, 40])),
                    "total_rto": draw(st.sampled_from([None, 0, 2])),
                    "total_retrans": draw(st.sampled_from([None, 0, 1])),
                    "delivery_rate_app_limited": draw(st.sampled_from([None, True, False])),
                    "sample_weight": draw(st.sampled_from([None, None, 0, 10])),
                    **{
                        name: draw(st.sampled_from([value, value, value, None] if name != "bytes_sent" else [value]))
                        for name, value in counters.items()
                    },
                }
            )
    return rows


def drawn(count: int) -> list[list[Row]]:
    """So many histories. They are rolled up side by side, so that none is made smaller where one fails."""
    found: list[list[Row]] = []

    @settings(max_examples=count, phases=[Phase.generate])
    @given(histories())
    def collect(rows: list[Row]) -> None:
        found.append(rows)

    collect()
    return found


def fleet(sides: int) -> Fleet:
    """FLEET's hosts, and those of each side: ams-1 of ams is 7-ams-1 of 7-ams there."""
    made = yaml.safe_load(FLEET)
    for side in range(sides):
        for at, (host, pop) in enumerate(model.EDGES.items()):
            address = f"10.78.{side}.{at + 1}"
            about = made["pops"].setdefault(f"{side}-{pop}", {"prefixes": [f"{address}/32"], "edges": {}})
            about["edges"][f"{side}-{host}"] = {"address": address}
    return Fleet.model_validate(made)


def load(store: Store, batches: list[list[Row]], sides: int = 0) -> None:
    publish_fleet(store, fleet(sides))
    for table in ("tcp_samples", "rollups", *TABLES):
        store.execute(f"truncate table {table}")
    for batch in batches:
        store.insert("tcp_samples", batch)


def tables(store: Store) -> dict[str, list[Row]]:
    """Every round table to the byte, sketches included."""
    states = store.query(
        "select table, name from system.columns where database = currentDatabase() and type like 'AggregateFunction%'"
    )
    result = {}
    for table, key in KEYS.items():
        sketches = [row["name"] for row in states if row["table"] == table]
        replaced = f"* replace({', '.join(f'hex({name}) as {name}' for name in sketches)})" if sketches else "*"
        result[table] = store.query(f"select {replaced} from {table} order by round, {key}")
    return result


def sides_of(found: dict[str, list[Row]], sides: int) -> list[dict[str, list[Row]]]:
    """The tables of each side, by the history's own names."""
    result: list[dict[str, list[Row]]] = [{table: [] for table in found} for _ in range(sides)]
    for table, rows in found.items():
        for row in rows:
            [side] = {row[name].partition("-")[0] for name in NAMES if row.get(name)}
            result[int(side)][table].append(back(row, f"{side}-"))
    return result


def rolled(store: Store, batches: list[list[Row]]) -> dict[str, list[Row]]:
    load(store, batches)
    rollup(store, ROUND, INTERVAL, ROUND + 60)
    return tables(store)


def side_by_side(store: Store, histories: list[list[list[Row]]]) -> list[dict[str, list[Row]]]:
    """The tables of each history, which is given in batches."""
    batches: list[list[Row]] = [[] for _ in range(max(map(len, histories)))]
    for n, history in enumerate(histories):
        for batch, rows in zip(batches, history, strict=False):
            batch += [apart(row, f"{n}-") for row in rows]
    load(store, batches, len(histories))
    rollup(store, ROUND, INTERVAL, ROUND + 60)
    return sides_of(tables(store), len(histories))


def assert_same(found: list[Row], expected: list[dict[str, Any]]) -> None:
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        for name, value in wanted.items():
            got = str(IPv6Address(row[name]).exploded) if name == "client_prefix" else row[name]
            assert got == (pytest.approx(value) if isinstance(value, float) else value), (name, row, wanted)


def test_the_tables_match_the_definition(store: Store) -> None:
    listed = drawn(24)
    named = {table.removeprefix("round_"): KEYS[table].split(", ") for table in KEYS}
    for rows, found in zip(listed, side_by_side(store, [[rows] for rows in listed]), strict=True):
        sockets = model.sockets(rows, ROUND)
        expected = {
            "sockets": sockets,
            "pairs": model.pairs(sockets),
            "prefixes": model.prefixes(sockets),
            "prefix_rates": rates_of(sockets, 100_000),
            "outcomes": model.outcomes(sockets),
        }
        for name, wanted in expected.items():
            if name == "prefixes":
                wanted = sorted(wanted, key=lambda r: tuple(r[k] for k in named["prefixes"]))
            assert_same(found[f"round_{name}"], wanted)


def test_shuffled_doubled_and_split_rows_change_no_byte(store: Store) -> None:
    listed = drawn(24)
    chance = random.Random(len(listed[-1]))
    clean, mixed = [], []
    for rows in listed:
        shuffled = rows * 2
        chance.shuffle(shuffled)
        third = len(shuffled) // 3
        clean.append([rows])
        mixed.append([shuffled[:third], shuffled[third:], rows[:2]])
    found = side_by_side(store, clean + mixed)
    for one, other in zip(found[: len(listed)], found[len(listed) :], strict=True):
        assert one == other
    rollup(store, ROUND, INTERVAL, ROUND + 600)
    assert sides_of(tables(store), len(found)) == found


def test_the_future_does_not_matter(store: Store) -> None:
    listed = drawn(24)
    past = [[row for row in rows if row["time_unix_us"] < ROUND * 1_000_000] for rows in listed]
    assert listed != past
    found = side_by_side(store, [[rows] for rows in listed + past])
    for one, other in zip(found[: len(listed)], found[len(listed) :], strict=True):
        assert one == other


def poll(host: str, sequence: int, at: float, cookies: range) -> list[Row]:
    return [
        {
            "time_unix_us": int((ROUND + at) * 1_000_000) + cookie,
            "host": host,
            "pop": "ams",
            "boot_id": "boot",
            "netns": 1,
            "poll_sequence": sequence,
            "cookie": cookie,
            "kind": "POLL",
            "state": "ESTABLISHED",
            "dst_ip": "::ffff:192.0.2.1",
            "bytes_sent": 0,
        }
        for cookie in cookies
    ]


def test_missing_polls_and_silent_hosts_are_counted(store: Store) -> None:
    ten = range(10)
    whole = [row for n in range(-10, 0) for row in poll("ams-1", 50 + n, 60 * n + 1, ten)]
    gaps = [row for n in (-10, -7, -5, -2, -1) for row in poll("ams-2", 50 + n, 60 * n + 1, ten)]
    silent = [row for n in range(-10, -5) for row in poll("fra-1", 50 + n, 60 * n + 1, ten)]
    renumbered = [
        row for n in range(-5, 0) for row in poll("nyc-1", (10**6 if n > -3 else 0) + 50 + n, 60 * n + 1, ten)
    ]
    rolled(store, [whole, gaps, silent, renumbered])
    rows = store.query(
        "select host, polls_seen, polls_expected, rows_seen, rows_expected from round_hosts "
        "where round = {round:DateTime('UTC')}",
        {"round": ROUND},
    )
    found = {row["host"]: row for row in rows}
    assert (found["ams-1"]["polls_seen"], found["ams-1"]["polls_expected"]) == (5, 5)
    assert found["ams-1"]["rows_seen"] == found["ams-1"]["rows_expected"] > 0
    assert (found["ams-2"]["polls_seen"], found["ams-2"]["polls_expected"]) == (3, 6)
    assert found["ams-2"]["rows_expected"] == 60
    assert (found["fra-1"]["polls_seen"], found["fra-1"]["polls_expected"], found["fra-1"]["rows_seen"]) == (0, 5, 0)
    assert found["fra-1"]["rows_expected"] > 0
    assert (found["nyc-1"]["polls_seen"], found["nyc-1"]["polls_expected"]) == (5, 5)


# Values of a counter at each poll. The first of three or four is of the round before; the fourth is the close's.
FALLING = {
    "at the end": (9, 9, 1),
    "and grows again": (9, 9, 1, 20),
    "at its close": (0, 9, 12, 3),
    "between polls": (0, 9, 3, 30),
}
COUNTED = [(name, way) for name in model.COUNTERS for way in FALLING]


def counting(host: str, name: str, values: Iterable[int]) -> list[Row]:
    """A socket with these values of a counter."""
    rows = [
        dict.fromkeys(model.COUNTERS) | row | {name: value * 1_000_000}
        for n, value in enumerate(values)
        for row in poll(host, n + 1, -370 + 60 * n, range(1))
    ]
    ends = {"kind": "CLOSE", "state": "CLOSE"} if len(rows) == 4 else {}
    return [*rows[:-1], rows[-1] | ends]


@pytest.fixture(scope="module")
def impossible(shared: Home) -> set[str]:
    """The hosts with values that cannot be. Each of COUNTED has a side: it falls on ams-1, and grows on ams-2."""
    rows = []
    for side, (name, way) in enumerate(COUNTED):
        values = FALLING[way]
        both = counting("ams-1", name, values) + counting("ams-2", name, sorted(values))
        rows += [apart(row, f"{side}-") for row in both]
    with closing(shared.open()) as store:
        load(store, [rows], len(COUNTED))
        rollup(store, ROUND, INTERVAL, ROUND + 60)
        found = store.query("select host from rollup_rogues where why = 'impossible_values'")
    return {row["host"] for row in found}


@pytest.mark.parametrize(("name", "way"), COUNTED)
def test_a_socket_whose_counter_decreased_is_not_counted(impossible: set[str], name: str, way: str) -> None:
    """It is another's, or broken: neither what it lost nor what it seems to have gained is this socket's."""
    side = COUNTED.index((name, way))
    assert {f"{side}-ams-1", f"{side}-ams-2"} & impossible == {f"{side}-ams-1"}


@pytest.fixture(scope="module")
def bare(shared: Home) -> dict[bool, tuple[list[Row], list[Row], list[Row]]]:
    """Sockets of a host where records without values follow its polls and, where it closes, its close: without these
    records, with them, and in a round of nothing else."""
    seen = [
        row | {"bytes_acked": 2_000_000 * n, "rtt": 40_000 * n, "snd_cwnd": 45 * n}
        for n in range(3)
        for row in poll("ams-1", n + 1, -280 + 60 * n, range(1))
    ]
    kept = ("host", "pop", "boot_id", "netns", "cookie", "kind", "src_ip", "dst_ip", "src_pop", "dst_pop")
    bare = {name: seen[0][name] for name in kept if name in seen[0]} | {"state": "FIN_WAIT2"}
    moments = [(4, (ROUND - 100) * 10**6), (5, (ROUND - 40) * 10**6)]
    late = [bare | {"poll_sequence": number, "time_unix_us": moment} for number, moment in moments]
    ends = {"kind": "CLOSE", "state": "CLOSE", "time_unix_us": seen[-1]["time_unix_us"] + 10, "poll_sequence": 3}
    closed = [*seen, seen[-1] | ends]
    again = [one | {"time_unix_us": one["time_unix_us"] + 300 * 10**6} for one in late]
    with closing(shared.open()) as store:
        sides = [[seen], [seen, late], [closed], [closed, late]]
        of_round = [found["round_sockets"] for found in side_by_side(store, sides)]
        store.insert("tcp_samples", [apart(row, f"{side}-") for side in (1, 3) for row in again])
        rollup(store, ROUND + 300, INTERVAL, ROUND + 360)
        later = "select host from round_sockets where round = fromUnixTimestamp({round:UInt32})"
        after = store.query(later, {"round": ROUND + 300})
    of_next = [[row for row in after if row["host"] == f"{side}-ams-1"] for side in range(len(sides))]
    return {closes: (of_round[n], of_round[n + 1], of_next[n + 1]) for closes, n in ((False, 0), (True, 2))}


@pytest.mark.parametrize("closes", [False, True])
def test_a_record_without_values_changes_none(
    bare: dict[bool, tuple[list[Row], list[Row], list[Row]]], closes: bool
) -> None:
    """A server that closes first leaves a socket of the same cookie in FIN_WAIT2: only its addresses are known."""
    expected, [found], after = bare[closes]
    assert expected[0]["rtt_us"] == 80_000
    values = ("bytes_acked", "life_bytes_acked", "rtt_us", "snd_cwnd", "samples", "live", "closed")
    assert {name: found[name] for name in values} == {name: expected[0][name] for name in values}
    # In the next round nothing is left of it.
    assert after == []


REPEATED = [range(1, 21), range(1, 71), [1, 65, 129, 2], [2**63, 2**63 + 64]]


@pytest.fixture(scope="module")
def copied(shared: Home) -> list[list[Row]]:
    """Sockets of hosts whose polls of these numbers came up to three times."""
    sides = []
    for sequences in REPEATED:
        rows = [row for n, number in enumerate(sequences) for row in poll("ams-1", number, -290 + 4 * n, range(3))]
        sides.append([rows, rows[::2], rows])
    with closing(shared.open()) as store:
        return [found["round_sockets"] for found in side_by_side(store, sides)]


@pytest.mark.parametrize("side", range(len(REPEATED)), ids=lambda side: str(REPEATED[side]))
def test_copies_of_a_poll_are_counted_once_however_many_polls_there_are(copied: list[list[Row]], side: int) -> None:
    assert [row["samples"] for row in copied[side]] == [len(REPEATED[side])] * 3


def test_sockets_with_similar_numbers_are_distinguished(store: Store) -> None:
    [row] = poll("ams-1", 1, -100, range(1))
    numbers = [(namespace, cookie) for namespace in (5, 7) for cookie in (5, 7)]
    alike = [{**row, "netns": namespace, "cookie": cookie} for namespace, cookie in numbers]
    names = (("ams-1", "fra-1"), ("fra-1", "ams-1"))
    rolled(store, [[{**each, "host": host, "boot_id": boot} for each in alike for host, boot in names]])
    found = store.query("select host, boot_id, netns, cookie from round_sockets")
    assert {tuple(each.values()) for each in found} == {(*name, *each) for name in names for each in numbers}


def test_sketches_of_rounds_merge_into_longer_windows(store: Store) -> None:
    base = poll("ams-1", 1, -899, range(1000))
    rates = random.Random(7).sample(range(10_000, 1_000_000), 1000)
    rows = [
        {**row, "bytes_acked": 10 * n, "delivery_rate": rates[row["cookie"]], "src_pop": "ams"}
        for n in (1, 2)
        for row in poll("ams-1", 1 + n, -600 + 300 * (n - 1) + 5, range(500 * (n - 1), 500 * n))
    ]
    load(store, [[{**row, "bytes_acked": 0, "delivery_rate": None, "src_pop": "ams"} for row in base], rows])
    for moment in (ROUND - INTERVAL, ROUND):
        rollup(store, moment, INTERVAL, ROUND + 60)
    [merged] = store.query(
        "select sum(connections) as n, "
        "quantilesTDigestWeightedMerge(0.1, 0.25, 0.5, 0.75, 0.9)(delivery_rate_state) as quantiles from round_prefixes"
    )
    assert merged["n"] == 1000
    assert merged["quantiles"] == pytest.approx([sorted(rates)[n] for n in (99, 249, 499, 749, 899)], rel=0.02)

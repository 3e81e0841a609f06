"""`springtide decide congestion` and `explain` of a prefix, from round tables to rows."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from springtide import instants
from springtide.frame import Frame
from springtide.laws.congestion import rows as congestion_rows
from springtide.laws.congestion.rows import DECISIONS
from springtide.policy import CongestionPolicy, Policy
from springtide.store import Store

from testkit.home import FLEET, ROUND, Home
from testkit.prefixes import INTERVAL, Seen, random_rounds, read, store_rounds, units_of

pytestmark = pytest.mark.usefixtures("clock")

# Selection in the fifth round, and no more prefixes than a test can look at.
QUICK = """
congestion: {window_rounds: 10, min_rounds: 4, leave_duty: 0.4, benefit_rounds: 2, min_stay_s: 600, holdout_share: 0}
"""


# A fifth of 20.
SLOW = {4: 50.0, 9: 30.0, 11: 20.0, 13: 10.0}


def by_prefix(seen: Frame) -> dict[tuple[str, str], Any]:
    return {(row["src_pop"].decode(), row["destination"].decode()): row for row in seen}


@pytest.mark.parametrize(("window", "share"), [(72, 0.2), (12, 0.35)])
def test_the_evidence_matches_a_plain_implementation_of_the_law(store: Store, window: int, share: float) -> None:
    rows = random_rounds(seed=window, newest=ROUND + 3 * INTERVAL, rounds=80)
    store_rounds(store, rows)
    law = CongestionPolicy(window_rounds=window, low_share=share, min_rounds=4, benefit_rounds=5)
    found = by_prefix(congestion_rows.evidence(store, ROUND, Policy(congestion=law), 0, least_low=0))
    expected = read(rows, ROUND, law)
    assert found.keys() == expected.keys()
    for key, model in expected.items():
        row = found[key]

        def ages(name: str, row: Any = row) -> set[int]:
            mask = int(row[f"{name}_1"]) << 64 | int(row[f"{name}_0"])
            return {age for age in range(window) if mask >> age & 1}

        assert (ages("measured"), ages("low")) == (model.measured, model.low), key
        assert row["rtt_us"] == pytest.approx(model.rtt_us)
        assert row["retransmit_ratio"] == pytest.approx(model.retransmit_ratio)
        assert row["log2_rate"] == pytest.approx(model.log2_rate, abs=0.001)
        assert row["recent_log2_rate"] == pytest.approx(model.recent_log2_rate, abs=0.001)
        assert row["back_office"] == (key[1] == "192.0.3.0/24")


def test_the_order_of_rows_changes_no_bit_of_the_evidence(store: Store) -> None:
    rows = random_rounds(seed=5, newest=ROUND, rounds=20)
    store_rounds(store, rows)
    before = congestion_rows.evidence(store, ROUND, Policy(), 0, least_low=0)
    store.execute("truncate table rollup_prefix_rates")
    units = units_of(rows)
    random.Random(3).shuffle(units)
    for start in range(0, len(units), 500):
        store_rounds(store, [row for unit in units[start : start + 500] for row in unit])
    after = congestion_rows.evidence(store, ROUND, Policy(), 0, least_low=0)
    assert np.sort(before.table()).tobytes() == np.sort(after.table()).tobytes()


def fleet_of(slow: dict[int, float], rounds: int, newest: int = ROUND, **more: Any) -> list[Seen]:
    """20 prefixes of ams at 10 MB/s; those in `slow` at so many times less."""
    return [
        Seen(newest - age * INTERVAL, "ams", number, int(10_000_000 / slow.get(number, 1.0)) + number, **more)
        for age in range(rounds)
        for number in range(20)
    ]


def decided(home: Home, *arguments: object) -> dict[str, dict[str, Any]]:
    answer = home.json("decide", "congestion", *arguments)
    return {row["prefix"]: row for row in answer["decisions"]}


def stored(home: Home) -> list[dict[str, Any]]:
    return home.query(f"select * from {DECISIONS} order by round, pop, client_prefix")


def fill(home: Home, rows: list[Seen]) -> None:
    opened = home.open()
    store_rounds(opened, rows)
    opened.close()


def test_the_consistently_slow_are_chosen_and_again_gives_the_same_rows(home: Home) -> None:
    home.policy.write_text(QUICK)
    fill(home, fleet_of(SLOW, rounds=10))
    first = decided(home)
    assert set(first) == {f"192.0.{number}.0/24" for number in SLOW}
    assert {(row["action"], row["algorithm"], row["reason"]) for row in first.values()} == {
        ("enter", "bbr", "consistently_low")
    }
    before = stored(home)
    assert home.json("decide", "congestion")["written"] == 0
    assert stored(home) == before


def test_rounds_follow_each_other_and_backfilling_gives_the_same(home: Home) -> None:
    home.policy.write_text(QUICK)
    rows = fleet_of(SLOW, rounds=6, newest=ROUND - 6 * INTERVAL)
    fill(home, rows + fleet_of({4: 50.0}, rounds=6))
    moments = [instants.show(ROUND - age * INTERVAL) for age in range(8, -1, -1)]
    for moment in moments:
        home.run("decide", "congestion", "--round", moment)
    first = stored(home)
    reasons = [row["reason"] for row in first if row["client_prefix"] == "::ffff:192.0.9.0"]
    assert reasons[:3] == ["consistently_low"] * 3
    assert "recovered" in reasons
    begun, *later = [row["action"] for row in first if row["client_prefix"] == "::ffff:192.0.4.0"]
    assert (begun, set(later)) == ("enter", {"keep"})
    for moment in moments:
        home.run("decide", "congestion", "--round", moment)
    assert stored(home) == first


def test_later_rounds_never_leak_in(home: Home) -> None:
    home.policy.write_text(QUICK)
    fill(home, fleet_of({4: 50.0}, rounds=6, newest=ROUND - 2 * INTERVAL))
    middle = instants.show(ROUND - 2 * INTERVAL)
    before = decided(home, "--round", middle)
    fill(home, fleet_of({7: 50.0}, rounds=2))
    home.run("decide", "congestion")
    assert decided(home, "--round", middle) == before


def test_a_round_decided_differently_is_replaced_as_a_whole(home: Home) -> None:
    home.policy.write_text(QUICK)
    fill(home, fleet_of(SLOW, rounds=10))
    decided(home)
    home.policy.write_text(QUICK.replace("holdout_share: 0", "holdout_share: 0, low_share: 0.1"))
    assert decided(home).keys() == {"192.0.4.0/24", "192.0.9.0/24"}
    assert len(stored(home)) == 2


def test_dry_run_writes_nothing(home: Home) -> None:
    home.policy.write_text(QUICK)
    fill(home, fleet_of({4: 50.0}, rounds=10))
    assert decided(home, "--dry-run")
    assert stored(home) == []


def test_an_override_holds_until_its_end(home: Home) -> None:
    until = instants.show(ROUND + INTERVAL)
    home.policy.write_text(
        QUICK + "congestion_overrides:\n"
        f"  - {{pop: ams, prefix: 192.0.4.0/24, algorithm: default, until: '{until}', reason: on request}}\n"
        f"  - {{pop: fra, prefix: '2001:db8::/56', algorithm: bbr, until: '{until}', reason: trial}}\n"
    )
    fill(home, fleet_of({4: 50.0}, rounds=10))
    found = decided(home)
    assert (found["192.0.4.0/24"]["action"], found["192.0.4.0/24"]["reason"]) == ("none", "override")
    assert (found["2001:db8::/56"]["algorithm"], found["2001:db8::/56"]["pop"]) == ("bbr", "fra")


def explained(home: Home, pop: str, destination: str) -> dict[str, str]:
    """The only explanation of its algorithm."""
    [one] = home.json("explain", pop, destination)["congestion"]["explanations"]
    return dict(one)


def test_explain_shows_why_and_what_would_change_it(home: Home) -> None:
    home.policy.write_text(QUICK)
    fill(home, fleet_of({4: 50.0}, rounds=10))
    home.run("decide", "congestion")
    screen = home.run("explain", "ams", "192.0.4.17").stdout
    for text in (
        "192.0.4.0/24",
        "chosen for BBR since",
        "in force      the kernel's default: no publication",
        "low in 10 of 10 measured rounds",
        "40% of the newest",
    ):
        assert text in screen
    other = explained(home, "ams", "192.0.5.0/24")
    assert other["decided"] == "the kernel's default"
    assert "low in 0 of 10" in other["because"]
    nothing = explained(home, "fra", "203.0.113.0/24")
    assert nothing["because"] == "the last 10 rounds show no traffic to it that could be ranked"
    assert nothing["would_change"] == "more traffic to it"
    [line] = home.refused("explain", "ams", "192.0.0.0/16")
    assert "'192.0.0.0/16' is not a client prefix: clients are grouped by /24; write " in line
    for refused, why in (
        ("192.0.2.1/24", "has host bits set"),
        ("127.0.0.1", "loopback"),
        ("2001:db8::1%eth0", "zone"),
        ("2001:db8::/64", "grouped by /56"),
    ):
        [line] = home.refused("explain", "ams", refused)
        assert why in line
    assert explained(home, "ams", "::ffff:192.0.5.7") == other


def test_explain_shows_why_a_prefix_is_not_ranked(home: Home) -> None:
    """Prefix 1 is app-limited; 2 has small objects; 3 few bytes; 4 was rolled up for another size, and before that."""
    home.policy.write_text(QUICK)
    of = {number: [Seen(ROUND - age * INTERVAL, "ams", number, 10**6) for age in range(4)] for number in range(1, 5)}
    fill(home, [replace(row, eligible=2) for row in of[1]] + [replace(row, acting=2) for row in of[2]])
    fill(home, [replace(row, bytes_acked=1000) for row in of[3]])
    fill(home, [replace(row, acting_bytes=50_000) for row in of[4]])
    opened = home.open()
    opened.execute(f"delete from rollup_prefix_rates where round < {ROUND - INTERVAL} and acting_bytes = 50000")
    opened.close()
    found = {n: explained(home, "ams", f"192.0.{n}.7") for n in of}
    assert {n: one["because"] for n, one in found.items()} == {
        1: "not ranked: its connections were limited by the application (4 rounds)",
        2: "not ranked: too few connections above 100,000 bytes (4 rounds)",
        3: "not ranked: too few samples or bytes of its connections above 100,000 bytes (4 rounds)",
        4: "not ranked: the round was rolled up for connections above fewer than 100,000 bytes (2 rounds), "
        "the round was rolled up before such connections were distinguished (2 rounds)",
    }
    fill(home, [Seen(ROUND, "fra", 1, 10**6)])
    alone = explained(home, "fra", "192.0.1.7")["because"]
    assert alone == "not ranked: its PoP showed fewer than 10 prefixes that could be"
    assert found[1]["would_change"] == "more traffic to it that the path limits, and not the application"


def hosts(home: Home, moment: int, seen: dict[str, int]) -> None:
    """The round's hosts, each of which should have sent 100 rows."""
    opened = home.open()
    opened.execute("truncate table rollup_hosts")
    rows = [
        {"round": moment, "generation": 1, "host": host, "pop": "ams", "rows_seen": count, "rows_expected": 100}
        for host, count in seen.items()
    ]
    opened.insert("rollup_hosts", rows)
    opened.close()


@pytest.mark.parametrize(
    "seen", [{"ams-1": 100, "ams-2": 0}, {"ams-1": 0, "ams-2": 0}, {}], ids=["half missing", "silent", "not known"]
)
def test_where_too_much_is_missing_the_last_decisions_stay(home: Home, tmp_path: Path, seen: dict[str, int]) -> None:
    home.policy.write_text(QUICK)
    fill(home, fleet_of(SLOW, rounds=6, newest=ROUND - INTERVAL))
    first = decided(home, "--round", instants.show(ROUND - INTERVAL))
    # The samples that are there would let every one of them go, and choose others.
    fill(home, fleet_of({1: 50.0, 2: 50.0, 3: 50.0, 5: 50.0}, rounds=9, newest=ROUND + 8 * INTERVAL))
    fill(home, [Seen(ROUND, "fra", 0, 1000)])
    hosts(home, ROUND, seen)
    gauges = tmp_path / "congestion.prom"
    answer = home.json("decide", "congestion", "--metrics", gauges, code=3)
    kept = {row["prefix"]: row for row in answer["decisions"] if row["algorithm"] == "bbr"}
    assert kept.keys() == first.keys()
    assert {(row["action"], row["reason"]) for row in kept.values()} == {("keep", "held_incomplete_input")}
    assert list(answer["incomplete"]) == ["ams"]
    lines = gauges.read_text().splitlines()
    assert 'springtide_input_incomplete{law="congestion",pop="ams"} 1' in lines
    assert f'springtide_congestion_prefixes{{algorithm="bbr"}} {len(kept)}' in lines


def test_one_host_of_three_may_be_missing(home: Home) -> None:
    home.policy.write_text(QUICK)
    home.fleet.write_text(FLEET.replace("      ams-2:", "      ams-3: {address: 10.77.1.3}\n      ams-2:"))
    fill(home, fleet_of(SLOW, rounds=6))
    hosts(home, ROUND, {"ams-1": 100, "ams-2": 100, "ams-3": 0})
    assert len(decided(home)) == len(SLOW)


def test_two_controllers_at_once_give_one_set_of_decisions(home: Home) -> None:
    """Two processes that start together; the one that comes second finds its rows already there."""
    home.policy.write_text(QUICK)
    fill(home, fleet_of(SLOW, rounds=6))
    alone = home.json("decide", "congestion", "--dry-run")["decisions"]
    command = [
        str(Path(sys.executable).with_name("springtide")),
        *("decide", "congestion", "--round", instants.show(ROUND), "--store-wait", "120", "--json"),
    ]
    environment = {**os.environ, **home.environment}
    home.release()
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [json.loads(one.communicate(timeout=120)[0]) for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert [answer["decisions"] for answer in answers] == [alone, alone]
    assert sorted(answer["written"] for answer in answers) == [0, len(alone)]
    assert home.query("select count() as n from path_decisions") == [{"n": len(alone)}]

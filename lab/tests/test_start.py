"""The edge's eBPF program over emulated paths: round trips saved, nothing lost for it, and the brake where it harms."""

from __future__ import annotations

import os
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest

from lab.lab import Lab
from testkit import bpf
from testkit.bpf import Program
from testkit.starts import PATHS, SEGMENT, Measured, Order, topology, transfer

pytestmark = pytest.mark.root

FIFTY, SEVENTY = (next(path for path in PATHS if path.name == name) for name in ("fifty", "seventy"))
SIZE = 100_000


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.up(topology((FIFTY, SEVENTY)), f"s{os.getpid()}") as found:
        yield found


@pytest.fixture
def program() -> Iterator[Program]:
    with bpf.program(f"sts{os.getpid()}") as found:
        yield found


def test_a_first_flight_takes_one_round_trip_instead_of_three_and_loses_nothing(lab: Lab, program: Program) -> None:
    """Both families, both directions of opening: IPv4 is passive here and IPv6 active."""
    program.apply({"record_permille": 1000, "entries": FIFTY.entries() + SEVENTY.entries()})
    times = [0.2 + number for number in range(4)]
    orders = [Order(FIFTY, times, SIZE), Order(SEVENTY, [at + 0.5 for at in times], SIZE, family=6, active=True)]
    ways = [transfer(lab, orders, group) for group in (None, program.cgroup)]
    for order, default, ours in zip(orders, *ways, strict=True):
        resent = f"{default.resent} and {ours.resent} segments sent again"
        print(f"{order.path.name}: {default.p50():.0f} ms, with the program {ours.p50():.0f}; {resent}")
        assert not default.errors + ours.errors
        # It is 1.94 over the one and 2.9 over the other: two of four over the one are late by 90 ms with odds of one in
        # a million where one in 2,400 is. The latest of 192, half of them beside two busy processes, was late by 6 ms.
        assert (default.p50() - ours.p50()) / order.path.rtt_ms >= 1.5
        # A segment or two are the emulator's timer on a busy machine: none of those 192 lost any. Two of four lose as
        # many, over both paths, with odds of one in a million where one in 3,500 does.
        assert ours.resent <= default.resent + 2
    records = program.records()
    assert len(records) == 8
    for path in (FIFTY, SEVENTY):
        mine = [one for one in records if one["window"] == path.window()]
        assert len(mine) == 4
        assert {one["rate"] for one in mine} == {path.entries()[0]["start_rate"]}
        assert all(one["acked_100k_us"] >= one["acked_50k_us"] >= path.rtt_ms * 1000 for one in mine)
        assert median(one["min_rtt_us"] for one in mine) >= path.rtt_ms * 1000
        # A round trip (another one until who was connected to asks), and the rate's time for the bytes: not the round
        # trip in which the program looks next. Two of four are late by half a round trip, over both paths, with odds of
        # one in a million where one in 3,500 is.
        round_trips = 1 if path is FIFTY else 2
        needed_ms = round_trips * path.rtt_ms + SIZE * 1000 / path.entries()[0]["start_rate"]
        assert median(one["acked_100k_us"] for one in mine) < (needed_ms + path.rtt_ms / 2) * 1000


def test_connections_that_start_together_share_the_rate(lab: Lab, program: Program) -> None:
    program.apply({"record_permille": 1000, "entries": FIFTY.entries()})
    found = transfer(lab, [Order(FIFTY, [0.2] * 6, SIZE)], program.cgroup)[0]
    assert not found.errors
    records = sorted(program.records(), key=lambda one: one["at_once"])
    whole = FIFTY.entries()[0]["start_rate"]
    assert [one["at_once"] for one in records] == [1, 2, 3, 4, 5, 6]
    # Not quite equal shares, so that those that start together do not send at the same moments.
    assert records[0]["rate"] == whole
    for one in records[1:]:
        # Rates are whole bytes a second.
        assert 0.75 * whole - one["at_once"] <= one["rate"] * one["at_once"] <= 1.25 * whole
    assert len({one["rate"] * one["at_once"] // 1000 for one in records}) > 1
    assert program.status()["prefixes"][0]["in_first_flights"] == 0


def test_what_starts_as_the_kernel_does_is_judged_as_long_as_what_has_a_cap(lab: Lab, program: Program) -> None:
    """Its ten segments fit; what slow start makes of them afterwards does not, within the same megabyte."""
    entry = {"trial": {"permille": 1, "initcwnd": 20}, "initcwnd": None, "start_rate": None}
    program.apply({"record_permille": 1000, "lift_bytes": 1_000_000, "entries": FIFTY.entries(**entry)})
    found = transfer(lab, [Order(FIFTY, [0.2, 3.2, 6.2], 900_000)], program.cgroup)[0]
    assert not found.errors
    records = program.records()
    assert [one["window"] for one in records] == [None] * 3
    assert sum(one["resent"] for one in records) > 20
    assert all(one["first_resent"] == one["resent"] for one in records)


@pytest.mark.parametrize("given", ["the kernel's default", "half of the path's rate", "twice the path's rate"])
def test_every_connection_shows_what_the_path_carries(lab: Lab, program: Program, given: str) -> None:
    """Alone and four at once, whatever it was given and lost: its first segments leave at once."""
    entries = []
    for path in (FIFTY, SEVENTY):
        rate = path.entries()[0]["start_rate"]
        values: dict[str, Any] = {"initcwnd": path.window(), "start_rate": rate // 2 if "half" in given else 2 * rate}
        if "default" in given:
            values = {"initcwnd": None, "start_rate": None, "trial": {"permille": 1, "initcwnd": 20}}
        entries += path.entries(**values)
    program.apply({"record_permille": 1000, "entries": entries})
    times = [0.2 + 1.5 * number for number in range(4)] + [6.5] * 4
    found = transfer(lab, [Order(FIFTY, times, SIZE), Order(SEVENTY, times, SIZE, family=6)], program.cgroup)
    assert not found[0].errors + found[1].errors
    records = program.records()
    for path in (FIFTY, SEVENTY):
        mine = [one for one in records if one["prefix"] in path.prefixes() and one["train_bytes"]]
        rates = [8 * one["train_bytes"] / one["train_us"] for one in mine]
        lossy = sum(one["first_resent"] > 0 for one in mine)
        print(f"{path.name}: {median(rates):.1f} of {path.rate_mbit} Mbit/s, {len(mine)} trains, {lossy} lossy flights")
        assert len(mine) >= 6
        # Each packet of 1500 bytes has 1448 or 1428 of data.
        assert 0.85 * path.rate_mbit < median(rates) < 1.1 * path.rate_mbit


def test_an_application_that_writes_slowly_shows_nothing_of_the_path(lab: Lab, program: Program) -> None:
    program.apply({"record_permille": 1000, "entries": FIFTY.entries()})
    orders = [Order(FIFTY, [0.2 + number for number in range(4)], 40_000, pause_s=pause) for pause in (0.003, 0.0)]
    for order in orders:
        assert not transfer(lab, [order], program.cgroup)[0].errors
    trains = [one["train_bytes"] for one in program.records()]
    assert trains[:4] == [None] * 4
    assert None not in trains[4:]


def test_one_connection_gets_no_more_than_its_own_rate(lab: Lab, program: Program) -> None:
    whole = FIFTY.entries()[0]["start_rate"]
    program.apply({"record_permille": 1000, "entries": FIFTY.entries(connection_rate=whole // 4)})
    alone, together = (transfer(lab, [Order(FIFTY, [0.2] * count, SIZE)], program.cgroup)[0] for count in (1, 8))
    assert not alone.errors + together.errors
    records = program.records()
    first, others = records[0], records[1:]
    assert first["rate"] == whole // 4
    # Its first ten segments leave at once, the others at a quarter of the path's rate until the cap is lifted.
    paced = (60_000 - 10 * SEGMENT) / (whole // 4) * 1000
    print(f"alone {alone.p50():.0f} ms; a round trip and what is paced are {FIFTY.rtt_ms + paced:.0f} ms")
    assert alone.p50() >= FIFTY.rtt_ms + 0.8 * paced
    assert all(one["rate"] <= min(whole // 4, 1.25 * whole / one["at_once"]) for one in others)


def test_who_started_first_gives_way_before_its_first_acknowledgement(lab: Lab) -> None:
    """After quiet the first has the whole rate, the second a half, the third a third: together three times the rate.
    13 to 35 segments are sent again (n = 23), and 51 were once beside the other tests. What is above is measured again,
    with a program that knows nothing: three in a row are with odds of one in a million where one in a hundred is."""
    for _ in range(3):
        with bpf.program(f"sts{os.getpid()}") as program:
            program.apply({"entries": SEVENTY.entries(initcwnd=200)})
            found = transfer(lab, [Order(SEVENTY, [0.2] * 10, SIZE)], program.cgroup)[0]
        assert not found.errors
        print(f"{found.resent} of {10 * SIZE // 1448} segments sent again")
        # The ten bursts of ten that the kernel does not pace are what the queue holds.
        if found.resent < 50:
            break
    assert found.resent < 50


def test_the_brake_stops_harmful_starts_within_fifty_connections(lab: Lab, program: Program) -> None:
    """A window of 100 in one burst fits into the queue, until that shrinks to a tenth."""
    brake = {"lost_permille": 300, "connections": 10, "half_life_s": 600}
    entries = SEVENTY.entries(initcwnd=100, start_rate=None)

    def run(count: int) -> Measured:
        found = transfer(lab, [Order(SEVENTY, [0.2 + number * 0.15 for number in range(count)], SIZE)], program.cgroup)[
            0
        ]
        assert not found.errors
        return found

    program.apply({"round": 1, "brake": brake, "entries": entries})
    before = run(15)
    clean = program.status()["prefixes"][0]
    assert (clean["entry"]["started"], clean["entry"]["brake_step"]) == (15, 0)
    wide = lab.topology
    narrow = wide.model_dump(mode="json")
    narrow["paths"] = [path | {"queue_packets": max(1, path["queue_packets"] // 10)} for path in narrow["paths"]]
    lab.reshape(type(wide).model_validate(narrow, strict=False))
    try:
        braked = run(80)
        status = program.status()["prefixes"][0]
        harmful = status["entry"]["started"] - 15
        print(f"{before.resent} resent before, {braked.resent} with the brake; {harmful} of 80 started with our values")
        assert status["entry"]["brake_step"] == 2
        late = status["late"]
        assert status["entry"]["untreated"] + late == 80 - harmful
        assert harmful <= 50
        # Another round begins anew; without a brake nothing stops.
        program.apply({"round": 2, "entries": entries})
        unbraked = run(80)
        print(f"{unbraked.resent} without")
        again = program.status()["prefixes"][0]
        # Where the queue dropped an answer to a SYN, the program leaves the connection alone.
        started = again["entry"]["started"] - status["entry"]["started"]
        assert (again["entry"]["brake_step"], started + again["late"] - late) == (0, 80)
        assert braked.resent < unbraked.resent
    finally:
        lab.reshape(wide)

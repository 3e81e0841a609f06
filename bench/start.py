"""Fresh connections of 100 kB at the kernel's default and with the edge's eBPF program, over emulated paths.

First one after another over five paths, in both families and directions of opening; then several that start together.
Beside each stands what no sender can go below: a round trip, and the time that the link takes for all of them. Names of
paths: rate, round trip, queue in packets. All use CUBIC. The program's window is the path's rate for a round trip, or
200 segments where several start together. Connections in their first flights share 0.95 of the rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from bench.runner import Bench, BenchError, Run, progress
from lab.lab import Lab
from testkit import bpf
from testkit.bpf import Program
from testkit.starts import PATHS, Link, Measured, Order, topology, transfer

SIZE = 100_000
# Seconds between connections that follow one another: longer than any of them takes.
APART_S = 1.3
# Seconds between groups that start together; less than the 10 s in which the program remembers the most at once.
GROUPS_APART_S = 4.0
TOGETHER = ("fifty", "seventy", "twenty")
NAMES = {path.name: f"{path.rate_mbit:g} Mbit/s, {path.rtt_ms:g} ms, {path.queue or 'deep'}" for path in PATHS}


def after_another(lab: Lab, cgroup: Path | None, count: int, family: int, active: bool) -> list[Measured]:
    """Over all paths at once, which do not share a link."""
    orders = [
        Order(path, [0.3 + APART_S * (number + at / len(PATHS)) for number in range(count)], SIZE, family, active)
        for at, path in enumerate(PATHS)
    ]
    return checked(transfer(lab, orders, cgroup))


def at_once(lab: Lab, cgroup: Path | None, path: Link, together: int, groups: int) -> Measured:
    """Groups that start together. The first one follows quiet: it counts in what was sent again, not in the times."""
    times = [0.5 + GROUPS_APART_S * group for group in range(groups + 1) for _ in range(together)]
    found = checked(transfer(lab, [Order(path, times, SIZE)], cgroup))[0]
    return Measured(found.ms[together:], round(found.resent * groups / (groups + 1)))


def checked(found: list[Measured]) -> list[Measured]:
    if errors := [error for one in found for error in one.errors]:
        raise BenchError(f"{len(errors)} transfers failed: {errors[0]}")
    return found


def figures(run: Run, name: str, ways: Mapping[str, Measured], limit_ms: float, **labels: str | int) -> str:
    """The figures of one row, and the row."""
    cells = []
    for way, found in ways.items():
        run.figure(f"{name}_p50_ms", found.p50(), way=way, **labels)
        run.figure(f"{name}_p95_ms", found.p95(), way=way, **labels)
        run.figure(f"{name}_resent_per_connection", found.resent_each(), way=way, **labels)
        cells.append(f"{found.p50():.0f} / {found.p95():.0f} ({found.resent_each():.1f})")
    run.figure(f"{name}_p50_per_limit", ways["bpf"].p50() / limit_ms, **labels)
    return f"{' | '.join(cells)} | {limit_ms:.0f} | {ways['bpf'].p50() / limit_ms:.3f} | {len(ways['bpf'].ms)} |"


def rows_after_another(run: Run, lab: Lab, program: Program) -> list[str]:
    rows = []
    for family, active in product(run.sizes["families"], (False, True)):
        progress(f"one after another: IPv{family}, {'active' if active else 'passive'}")
        groups = {"default": None, "bpf": program.cgroup}
        count = run.sizes["connections"]
        found = {way: after_another(lab, group, count, family, active) for way, group in groups.items()}
        for index, path in enumerate(PATHS):
            ways = {way: measured[index] for way, measured in found.items()}
            opened = "active" if active else "passive"
            row = figures(run, "alone", ways, path.limit_ms(SIZE), path=NAMES[path.name], family=family, opened=opened)
            rows.append(f"| {NAMES[path.name]} | IPv{family} {opened} | {row}")
    return rows


def rows_at_once(run: Run, lab: Lab, program: Program) -> list[str]:
    rows = []
    for path, together in product((path for path in PATHS if path.name in TOGETHER), run.sizes["together"]):
        progress(f"at once: {together} over {NAMES[path.name]}")
        groups = {"default": None, "bpf": program.cgroup}
        ways = {way: at_once(lab, group, path, together, run.sizes["groups"]) for way, group in groups.items()}
        row = figures(run, "together", ways, path.limit_ms(SIZE, together), path=NAMES[path.name], at_once=together)
        rows.append(f"| {NAMES[path.name]} | {together} | {row}")
    return rows


def noted(title: str, second: str, rows: Sequence[str]) -> str:
    head = (
        f"| path | {second} | default | with the program | limit | p50 / limit | n |\n|---|---|---|---|---:|---:|---:|"
    )
    return "\n".join([f"{title}: p50 / p95 in ms (segments sent again per connection)", "", head, *rows])


def measure(run: Run) -> None:
    with bpf.program("springtide-bench") as program, Lab.up(topology(), "bench-program") as lab:
        program.apply({"entries": [entry for path in PATHS for entry in path.entries()]})
        alone = rows_after_another(run, lab, program)
        program.apply({"entries": [entry for path in PATHS for entry in path.entries(initcwnd=200)]})
        together = rows_at_once(run, lab, program)
        totals = program.status()["totals"]
    run.note(noted("One after another", "opened", alone))
    run.note(noted("At once", "connections", together))
    run.figure("started", totals["started"])
    run.figure("worst_alone_p50_per_limit", max(worst(run, "alone_p50_per_limit")))
    run.figure("worst_together_p50_per_limit", max(worst(run, "together_p50_per_limit")))


def worst(run: Run, name: str) -> list[float]:
    return [one["median"] for one in run.figures if one["name"] == name]


BENCH = Bench(
    name="start-program",
    summary="fresh connections with the edge's program beside the kernel's default, over five emulated paths",
    measure=measure,
    sizes={"connections": (12, 2), "families": ((4, 6), (4,)), "together": ((1, 4, 10, 30), (4,)), "groups": (4, 1)},
    seconds=660,
    turns=None,
    root=True,
)

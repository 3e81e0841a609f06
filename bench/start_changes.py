"""Paths that change while connections start: after how many connections and rounds that is safe, and a gain again.

The closed loop of `bench start` (collector, spool, ingest, decide, bundle, edge, all by command lines) learns six
paths; then three have a quarter of the rate and a tenth of the queue, and three four times the rate. Objects of 10 kB
to 1 MB go on the whole time, one or four at once, each also at the kernel's default, in turns. Safe are ten
connections, or a round, that send again at most 0.2 points more than the default does after the change; a gain is nine
tenths of what the default's 100 kB take beyond the limit.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path as File
from statistics import median

from bench.runner import Bench, BenchError, Run, progress
from bench.start_cells import LONGEST_MS, MORE_AGAIN, Cell, Group, Result, Results
from bench.start_clients import Client, Senders
from bench.start_closed import Closed
from bench.start_paths import Path, edge_of, topology
from lab.demo.starts import start_of
from lab.lab import Lab

WORSE = (Path("seventy", 77, 102, 97, 1), Path("india", 100.42, 54, 173, 2), Path("bloat", 20, 90, 333, 3))
BETTER = (Path("twenty", 20, 150, 80, 4), Path("twelve", 12, 54, 40, 5), Path("nineteen", 19.25, 102, 97, 6))
# Sizes and how many at once, in the order of a turn: what meets the path, and what users fetch.
SHAPES = ((100_000, 1), (1_000_000, 1), (100_000, 4), (10_000, 1), (100_000, 1), (50_000, 4))
ALONE = Cell(100_000, 1)
TOGETHER = 10
GAIN = 0.9
HEAD = (
    "100 kB alone, p50 in ms, and what all sizes sent again: default / springtide; the rate given is IPv4's",
    "",
    "| path | round | Mbit/s | given | 100 kB | limit | sent again | n |",
    "|---|---:|---:|---:|---:|---:|---:|---:|",
)


def changed(path: Path) -> Path:
    """The path as it is afterwards."""
    if path in WORSE:
        return replace(path, rate_mbit=path.rate_mbit / 4, queue=max(1, (path.queue or 20_000) // 10))
    return replace(path, rate_mbit=path.rate_mbit * 4)


@dataclass(frozen=True)
class Seen:
    """A group of connections in a round; rounds count from the change, 1 is the first after it."""

    round: int
    way: str
    cell: Cell
    result: Result


def traffic(client: Client, number: int, seconds: float, seen: list[Seen]) -> None:
    """One path's groups for so long, the ways in turns."""
    until = time.monotonic() + seconds
    for turn, (size, count) in enumerate(cycle(SHAPES)):
        for way in ("springtide", "default"):
            if time.monotonic() > until:
                return
            if client.path.limit_ms(size, count) <= LONGEST_MS / 2:
                cell, found = Cell(size, count), Results(Result)
                client.run(Group(cell, way, 6 if turn // len(SHAPES) % 2 else 4), found)
                seen += [Seen(number, way, cell, one) for one in found.values()]


def share(results: Iterable[Result]) -> float:
    """The share of segments that were sent again."""
    found = list(results)
    return sum(one.resent for one in found) / max(1, sum(one.segments for one in found))


def p50(seen: Iterable[Seen], way: str) -> float:
    """The median time of 100 kB alone, ms; NaN where there are none."""
    times = [ms for one in seen if one.way == way and one.cell == ALONE for ms in one.result.ms]
    return median(times) if times else float("nan")


def connections_until_safe(seen: Sequence[Seen]) -> int:
    """Connections begun after the change before ten in a row, by groups, send again no more than the default."""
    after = [one for one in seen if one.round >= 1]
    bound = share(one.result for one in after if one.way == "default") + MORE_AGAIN
    begun, rows = 0, [one for one in after if one.way == "springtide"]
    for at, one in enumerate(rows):
        some: list[Result] = []
        for other in rows[at:]:
            some.append(other.result)
            if sum(len(each.ms) + len(each.errors) for each in some) >= TOGETHER:
                break
        if share(some) <= bound:
            return begun
        begun += len(one.result.ms) + len(one.result.errors)
    return begun


def rounds_until(seen: Sequence[Seen], limit_ms: float, *, gain: bool) -> int:
    """After how many rounds the next one is safe, or has nine tenths of the gain; one more than were watched where none
    is."""
    by_round: defaultdict[int, list[Seen]] = defaultdict(list)
    for one in seen:
        if one.round >= 1:
            by_round[one.round].append(one)
    for number, some in sorted(by_round.items()):
        if not any(one.way == "springtide" for one in some):
            continue
        ours, theirs = (share(one.result for one in some if one.way == way) for way in ("springtide", "default"))
        saved = (p50(some, "default") - p50(some, "springtide")) / (p50(some, "default") - limit_ms)
        if saved >= GAIN if gain else ours <= theirs + MORE_AGAIN:
            return number - 1
    return len(by_round)


def rows_of(path: Path, seen: Sequence[Seen], rates: Sequence[float]) -> list[str]:
    """A path's rounds, for people."""
    lines = []
    for number in sorted({one.round for one in seen}):
        some = [one for one in seen if one.round == number]
        now = changed(path) if number >= 1 else path
        times = " / ".join(f"{p50(some, way):.0f}" for way in ("default", "springtide"))
        again = " / ".join(
            f"{share(one.result for one in some if one.way == way):.2%}" for way in ("default", "springtide")
        )
        rate = rates[number - min(one.round for one in seen)]
        count = sum(len(one.result.ms) for one in some if one.way == "springtide")
        limit = now.limit_ms(ALONE.size)
        lines.append(
            f"| {path.name} | {number} | {now.rate_mbit:g} | {rate:.1f} | {times} | {limit:.0f} | {again} | {count} |"
        )
    return lines


def measure(run: Run) -> None:
    paths = (*WORSE[: run.sizes["paths"]], *BETTER[: run.sizes["paths"]])
    before, after = run.sizes["rounds_before"], run.sizes["rounds_after"]
    seen: dict[str, list[Seen]] = {path.name: [] for path in paths}
    rates: dict[str, list[float]] = {path.name: [] for path in paths}
    with (
        tempfile.TemporaryDirectory(prefix="springtide-bench-") as directory,
        Lab.up(topology(paths), f"bench-changes-{os.getpid()}"[:31]) as lab,
    ):
        closed, senders = Closed(File(directory), before), Senders(lab)
        clients = [Client(lab, path, senders) for path in paths]
        with closed.running(lab), ThreadPoolExecutor(len(clients)) as pool:
            for number in range(1 - before, after + 1):
                if number == 1:
                    lab.reshape(topology([changed(path) for path in paths]))
                    for client in clients:
                        client.path = changed(client.path)
                    progress("the paths have changed")
                for path in paths:
                    entries = closed.entries.get(edge_of("springtide", 0), [])
                    start = start_of(entries, str(lab.topology.edge(path.edge()).addresses[0]))
                    rates[path.name].append((start.connection_rate or 0) * 8 / 1e6)

                def load(seconds: float, number: int = number) -> None:
                    for one in [
                        pool.submit(traffic, client, number, seconds, seen[client.path.name]) for client in clients
                    ]:
                        one.result()

                closed.one_round(lab, load)
                progress(f"round {number} of {after}")
    errors = [error for one in seen.values() for group in one for error in group.result.errors]
    total = sum(len(group.result.ms) for one in seen.values() for group in one) + len(errors)
    if len(errors) > total / 100:
        raise BenchError(f"{len(errors)} of {total} transfers failed: {errors[0]}")
    rows = [line for path in paths for line in rows_of(path, seen[path.name], rates[path.name])]
    run.note("\n".join([*HEAD, *rows]))
    for path in paths:
        found, limit = seen[path.name], changed(path).limit_ms(ALONE.size)
        if path in WORSE:
            run.figure("connections_until_safe", connections_until_safe(found), path=path.name)
            run.figure("rounds_until_safe", rounds_until(found, limit, gain=False), path=path.name)
        run.figure("rounds_until_gain", rounds_until(found, limit, gain=True), path=path.name)


BENCH = Bench(
    name="start-changes",
    summary="paths that become worse and better while connections start: until it is safe, until it is a gain",
    measure=measure,
    sizes={"paths": (3, 1), "rounds_before": (8, 1), "rounds_after": (10, 1)},
    seconds=1000,
    turns=None,
    root=True,
)

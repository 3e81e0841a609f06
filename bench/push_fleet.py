"""Costs of a push on a fleet: edges with routes each, through Ansible and real sshd in namespaces.

Whole runs of the plays, wave by wave, without gates.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.runner import Bench, BenchError, Run, in_turns, progress
from testkit.farm import Farm


def timed(farm: Farm, play: str, windows: int) -> float:
    """Seconds of a play; every edge must then have so many routes."""
    begin = time.perf_counter()
    played = farm.play(play)
    taken = time.perf_counter() - begin
    found = {len(routes) for routes in farm.windows().values()}
    if played.code != 0 or found != {windows}:
        raise BenchError(f"{play}: exit code {played.code}, routes {found}: {played.output[-2000:]}")
    progress(f"{play}: {taken:.1f} s")
    return taken


def measure(run: Run) -> None:
    count = run.sizes["routes"]
    routes = {f"10.{number >> 8}.{number & 255}.0/24": 50 for number in range(count)}
    with (
        tempfile.TemporaryDirectory(prefix="springtide-bench-") as directory,
        Farm.made(Path(directory), run.sizes["edges"]) as farm,
    ):
        published = 0

        def publish() -> None:
            nonlocal published
            farm.publish(farm.documents(routes, later=2 * published))
            published += 1

        def withdraw() -> float:
            publish()
            timed(farm, "rollout.yml", count)
            return timed(farm, "withdraw.yml", 0)

        works = {
            "apply_s": lambda: timed(farm, "rollout.yml", count),
            "unchanged_s": lambda: timed(farm, "rollout.yml", count),
            "rollback_s": lambda: timed(farm, "rollback.yml", 0),
            "withdraw_s": withdraw,
        }
        for name, spent in in_turns(run.turns, works, before=publish).items():
            run.figure(name, spent)


BENCH = Bench(
    name="push-fleet",
    summary="30 edges with 1,000 routes each, through Ansible and sshd",
    measure=measure,
    sizes={"edges": (30, 1), "routes": (1_000, 5)},
    seconds=150,
    turns=(1, 1),
    root=True,
)

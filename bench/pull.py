"""Costs of a round for a fleet whose edges fetch their bundles: from its offer until every edge has applied it.

Edges are real programs in namespaces of this machine, so that it also does their work; nginx serves the bundles.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from springtide.publication.offers import offer

from bench.runner import Bench, BenchError, Run, progress
from testkit.farm import Farm
from testkit.origin import Origin, pullers

# The edges share two cores: a bound for a machine that stands still.
LIMIT_S = 300


def used(who: int) -> float:
    """Processor seconds of this process or of its children that have ended."""
    found = resource.getrusage(who)
    return found.ru_utime + found.ru_stime


def waited(reports: dict[str, Path], rounds: int, since: float) -> list[float]:
    """Seconds since then until each edge has reported so many rounds, the quickest first."""
    give_up = time.monotonic() + LIMIT_S
    left = set(reports.values())
    while left:
        left = {path for path in left if path.read_bytes().count(b"\n") < rounds}
        if time.monotonic() > give_up:
            raise BenchError(f"{len(left)} edges have not applied round {rounds} within {LIMIT_S} s")
        time.sleep(0.1)
    return sorted(path.stat().st_mtime - since for path in reports.values())


@contextmanager
def many_neighbours() -> Iterator[None]:
    """The kernel keeps 1,024 neighbours of all namespaces together: a thousand edges and their publisher need more."""
    limit = Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3")
    before = limit.read_text()
    limit.write_text("8192")
    try:
        yield
    finally:
        limit.write_text(before)


def measure(run: Run) -> None:
    routes = {f"10.200.{number}.0/24": 50 for number in range(run.sizes["routes"])}
    publish_s, offer_s, server_s, taken_s, half_s, rollout_s = [], [], [], [], [], []
    with (
        many_neighbours(),
        tempfile.TemporaryDirectory(prefix="springtide-bench-") as directory,
        Farm.made(Path(directory), run.sizes["edges"]) as farm,
        Origin.made(farm.namespace, farm.directory, "10.99.0.1") as origin,
        pullers(farm, origin, run.sizes["interval_s"]) as reports,
    ):
        for turn in range(run.turns):
            documents = farm.documents(routes, later=6 * turn)
            before = used(resource.RUSAGE_SELF) + used(resource.RUSAGE_CHILDREN)
            publication = farm.publish(documents)
            publish_s.append(used(resource.RUSAGE_SELF) + used(resource.RUSAGE_CHILDREN) - before)
            before, served, begun = used(resource.RUSAGE_SELF), origin.processor_s(), time.time()
            offer(publication / "edges", farm.edges, origin.folder)
            offer_s.append(used(resource.RUSAGE_SELF) - before)
            found = waited(reports, 2 * turn + 1, begun)
            server_s.append(origin.processor_s() - served)
            taken_s.append(found[-1])
            half_s.append(found[len(found) // 2])
            farm.publish(farm.documents(routes, later=6 * turn + 3))
            signed = used(resource.RUSAGE_CHILDREN)
            wait_s = 3 * run.sizes["interval_s"]
            played = farm.play("rollout.yml", springtide_origin_dir=str(origin.folder), springtide_origin_wait_s=wait_s)
            if played.code:
                raise BenchError(f"rollout.yml: exit code {played.code}: {played.output[-2000:]}")
            waited(reports, 2 * turn + 2, begun)
            rollout_s.append(used(resource.RUSAGE_CHILDREN) - signed)
            progress(f"turn {turn + 1}: half of the edges after {half_s[-1]:.1f} s, all after {taken_s[-1]:.1f} s")
    run.figure("half_taken_s", half_s)
    run.figure("all_taken_s", taken_s)
    run.figure("offer_cpu_s", offer_s)
    run.figure("server_cpu_s", server_s)
    run.figure("sign_and_write_cpu_s", publish_s)
    # With its waves, and without a gate. Edges that are asked are among the children.
    run.figure("rollout_cpu_s", rollout_s)


BENCH = Bench(
    name="pull",
    summary="1,000 edges that fetch their bundles of 100 routes from nginx",
    measure=measure,
    sizes={"edges": (1_000, 2), "routes": (100, 2), "interval_s": (5, 1)},
    seconds=240,
    turns=(3, 1),
    root=True,
)

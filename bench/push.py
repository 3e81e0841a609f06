"""Costs of a push on one edge: signed routes applied, beside a bare `ip -batch` of the same routes.

The command is the one that the role routes installs. Both run in the same fresh network namespace, in turns.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

from bench.runner import Bench, BenchError, Run, in_turns
from testkit.edge import Edge, bundle


def bare(edge: Edge, lines: str) -> float:
    """Seconds that `ip -batch` takes; the table is empty again afterwards."""
    begin = time.perf_counter()
    command = ["ip", "netns", "exec", edge.name, "ip", "-batch", "-"]
    subprocess.run(command, input=lines.encode(), check=True)
    taken = time.perf_counter() - begin
    edge.ip("route", "flush", "table", "201")
    return taken


def applied(edge: Edge, path: str, routes: int) -> float:
    """Seconds that `apply` takes, signature, plan, read-back and record included; withdrawn again afterwards."""
    begin = time.perf_counter()
    outcome = edge.run("apply", path)
    taken = time.perf_counter() - begin
    if outcome.code != 0 or outcome.report["added"] != routes:
        raise BenchError(f"apply failed: {outcome.errors or outcome.report}")
    edge.run("withdraw")
    return taken


def measure(run: Run) -> None:
    count = run.sizes["routes"]
    routes = {f"10.{number >> 8}.{number & 255}.0/24": 50 for number in range(count)}
    owner = "table 201 proto 201 via 192.168.0.2 dev up0 scope 0 initcwnd 50"
    lines = "".join(f"route add {prefix} {owner}\n" for prefix in routes)
    with tempfile.TemporaryDirectory(prefix="springtide-bench-") as directory, Edge.made(Path(directory)) as edge:
        edge.ip("route", "add", "default", "via", "192.168.0.2")
        apply = partial(applied, edge, edge.write(bundle(routes)), count)
        found = in_turns(run.turns, {"ip_batch": partial(bare, edge, lines), "apply": apply})
    for name, spent in found.items():
        run.figure(f"{name}_s", spent)
    run.ratio("apply_per_ip_batch", found["apply"], found["ip_batch"])


BENCH = Bench(
    name="push",
    summary="10,000 routes applied on one edge beside a bare ip -batch",
    measure=measure,
    sizes={"routes": (10_000, 50)},
    seconds=30,
    turns=(9, 1),
    root=True,
)

"""Costs of the edge's eBPF program: connections a second on loopback, one stream, a swap of the bundle, memory.

A process of one thread opens connections to itself and resets them, in a network namespace of its own: inside a cgroup
that carries the program, and inside one that does not, in turns. `matched`: both ends of each connection match an entry
with a window and a rate; else none matches. The stream is watched for its whole life: its algorithm would change after
more bytes than it sends.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from ipaddress import IPv6Network
from pathlib import Path
from typing import Any

from bench.runner import Bench, Run, in_turns, progress
from lab.connections import own_network
from testkit import bpf
from testkit.bpf import Program


def entries(count: int) -> list[dict[str, Any]]:
    """As many /64 prefixes of documentation addresses, which no connection goes to."""
    values = {"initcwnd": 50, "start_rate": 6_000_000}
    places = (0x20010DB8 << 96 | (number & 0xFFFF) << 80 | number >> 16 << 64 for number in range(count))
    return [{"prefix": str(IPv6Network((place, 64))), **values} for place in places]


def loopback(**values: Any) -> list[dict[str, Any]]:
    return [{"prefix": "127.0.0.0/8", **values}]


def load(binary: Path, cgroup: Path, seconds: float, *how: str) -> float:
    """Runs edge/examples/connect.rs and returns what it prints: connections or bytes a second."""
    command = [str(binary), "--cgroup", str(cgroup), "--seconds", str(seconds), *how]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def trie_bytes() -> int:
    """Bytes of the largest trie of this kernel, as it accounts for it."""
    text = subprocess.run(["bpftool", "-j", "map", "show"], capture_output=True, text=True, check=True).stdout
    return max(int(one["bytes_memlock"]) for one in json.loads(text) if one["type"] == "lpm_trie")


def kept() -> int:
    """Bytes that the kernel keeps for itself: of a trie twice what it accounts for, as it has a node for each fork."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("SUnreclaim")).split()[1]) * 1024


def measure(run: Run) -> None:
    with own_network(), ExitStack() as stack:
        names = ("few", "many", "hit", "none")
        programs = {name: bpf.program(f"springtide-bench-{name}") for name in names}
        made = {name: stack.enter_context(one) for name, one in programs.items()}
        connect = bpf.binary("connect")
        fill(run, made)
        rates(run, connect, made)


def fill(run: Run, made: dict[str, Program]) -> None:
    """The bundles; the time of a swap, and the memory of a trie, on the way."""
    progress("filling")
    few, many = (entries(run.sizes[name]) for name in ("prefixes", "many_prefixes"))
    stays = {"congestion": {"algorithm": "reno", "from_bytes": 1 << 60}}
    made["few"].apply({"entries": few})
    made["hit"].apply({"entries": few + loopback(initcwnd=50, start_rate=1_000_000_000, **stays)})
    swapped = {"entries": entries(run.sizes["swapped_prefixes"])}
    taken = [made["few"].apply(swapped) for _ in range(run.turns)]
    run.figure("swap_s", [one["seconds"] for one in taken], prefixes=run.sizes["swapped_prefixes"])
    made["few"].apply({"entries": few})
    before = kept()
    made["many"].apply({"entries": many})
    # Bytes of so many prefixes to megabytes of a million.
    per_million = 1 / run.sizes["many_prefixes"]
    run.figure("trie_mb_per_million_prefixes", trie_bytes() * per_million)
    run.figure("memory_mb_per_million_prefixes", (kept() - before) * per_million)


def rates(run: Run, connect: Path, made: dict[str, Program]) -> None:
    seconds = run.sizes["load_seconds"]
    groups = {"none": "no program", "few": "none matched", "many": "none matched", "hit": "matched"}
    works: dict[str, Callable[[], float]] = {
        name: partial(load, connect, made[name].cgroup, seconds) for name in groups
    }
    progress("connections")
    found = in_turns(run.turns, works, warm_up=1)
    counts = {"none": 0, "few": run.sizes["prefixes"], "many": run.sizes["many_prefixes"], "hit": run.sizes["prefixes"]}
    for name, values in found.items():
        run.figure("connections_per_s", values, entries=counts[name], connections=groups[name])
        if name != "none":
            run.ratio("connect", values, found["none"], entries=counts[name], connections=groups[name])
    progress("one stream")
    streams = {name: partial(load, connect, made[name].cgroup, seconds, "--stream") for name in ("none", "hit")}
    carried = in_turns(run.turns, streams, warm_up=1)
    for name, values in carried.items():
        run.figure("stream_gbit_per_s", [value * 8 / 1e9 for value in values], connections=groups[name])
    run.ratio("stream", carried["hit"], carried["none"])


BENCH = Bench(
    name="edge",
    summary="connections a second on loopback with the edge's program beside none, one stream, swaps, memory",
    measure=measure,
    sizes={
        "prefixes": (10_000, 10),
        "many_prefixes": (1_000_000, 100),
        "swapped_prefixes": (100_000, 10),
        "load_seconds": (1.0, 0.1),
    },
    seconds=120,
    turns=(9, 1),
    root=True,
)

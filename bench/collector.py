"""What the collector costs beside the kernel's own floor and `ss` (`make bench-collector`).

Sockets are made in a network namespace of the bench's own, half of them IPv4 and half IPv6. The floor (dump, receive,
discard), the collector and `ss` take turns; each figure is the median over the turns, and every ratio is of one run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any

ROOT = Path(__file__).parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
COLLECTOR = TARGET / "springtide-collector"
NAMESPACE = f"stbench-{os.getpid()}"
CHURN_PER_S = 2000
CHURN_POLLS = 6


@dataclass(frozen=True)
class Cost:
    """Of one process: CPU in microseconds, bytes that it printed."""

    cpu_us: float
    out_bytes: int


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def inside(command: Sequence[str | Path]) -> list[str]:
    return ["ip", "netns", "exec", NAMESPACE, *map(str, command)]


def spend(command: Sequence[str | Path], out: IO[bytes] | None = None) -> Cost:
    """Runs a command in the namespace and takes the kernel's account of it."""
    with tempfile.TemporaryFile() as spare:
        target = spare if out is None else out
        process = subprocess.Popen(inside(command), stdout=target, stderr=subprocess.PIPE)
        complaint = process.stderr.read() if process.stderr else b""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(
                f"{' '.join(map(str, command))} ended with {process.returncode}: {complaint.decode()[-300:]}"
            )
        size = os.fstat(target.fileno()).st_size
    return Cost((usage.ru_utime + usage.ru_stime) * 1e6, size)


@contextlib.contextmanager
def namespace() -> Iterator[None]:
    subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
    try:
        subprocess.run(["ip", "-n", NAMESPACE, "link", "set", "lo", "up"], check=True)
        # One source address each: the widest range of local ports holds the connections.
        subprocess.run(inside(["sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535"]), check=True)
        yield
    finally:
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=False)


@contextlib.contextmanager
def sockets(count: int, churn: int = 0) -> Iterator[subprocess.Popen[str]]:
    """Holds this many sockets, and opens and closes `churn` connections a second beside them."""
    command = inside([TARGET / "examples/sockets", "--sockets", str(count), "--churn", str(churn)])
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if process.stdin is None or process.stdout is None:
        raise SystemExit("no pipe to the sockets' maker")
    try:
        if not process.stdout.readline().startswith("ready"):
            raise SystemExit(f"cannot make {count} sockets: is the limit of open files below {count}?")
        yield process
    finally:
        process.stdin.close()
        process.wait(120)


def costs(count: int, turns: int) -> dict[str, Any]:
    """Floor, null sink, zstd file and ss, in turn."""
    with sockets(count):
        found: defaultdict[str, list[Cost]] = defaultdict(list)
        for turn in range(turns + 1):
            measured = {
                "floor": spend([TARGET / "examples/floor", "--polls", "1"]),
                "null": spend([COLLECTOR, "once", "--netns", "own", "--format", "null"]),
                "zstd": spend([COLLECTOR, "once", "--netns", "own", "--format", "spool"]),
                "ss": spend(["ss", "-tinHa"]),
            }
            if turn:  # the first warms up
                for name, cost in measured.items():
                    found[name].append(cost)
        stats = stats_of([COLLECTOR, "once", "--netns", "own", "--format", "null", "--stats"])

    def us(name: str) -> float:
        return round(median(cost.cpu_us for cost in found[name]) / count, 3)

    def ratio(name: str, base: str) -> float:
        return round(median(a.cpu_us / b.cpu_us for a, b in zip(found[name], found[base], strict=True)), 3)

    return {
        "sockets": count,
        "floor_us": us("floor"),
        "collector_us": us("null"),
        "ratio_floor": ratio("null", "floor"),
        "zstd_us": us("zstd"),
        "ratio_zstd": ratio("zstd", "floor"),
        "ss_us": us("ss"),
        "ratio_ss": ratio("null", "ss"),
        "bytes_per_socket": round(stats["message_bytes"] / stats["rows"], 1),
        "bytes_per_socket_zstd": round(found["zstd"][0].out_bytes / count, 1),
    }


def stats_of(command: Sequence[str | Path]) -> dict[str, Any]:
    done = subprocess.run(inside(command), capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])
    return found


def completeness(count: int) -> dict[str, Any]:
    """Polls and close events while connections come and go: what is missing, what is double."""
    with tempfile.TemporaryDirectory() as directory, sockets(count, CHURN_PER_S) as maker:
        spool = Path(directory) / "spool"
        command: list[str | Path] = [
            COLLECTOR,
            "run",
            "--netns",
            "own",
            "--spool-dir",
            spool,
            "--polls",
            str(CHURN_POLLS),
        ]
        started = churned(maker)
        stats = stats_of([*command, "--interval", "2s", "--stats"])
        opened = churned(maker) - started
        cat = subprocess.Popen([COLLECTOR, "cat", *sorted(spool.glob("*.spool"))], stdout=subprocess.PIPE)
        polls: defaultdict[int, Counter[int]] = defaultdict(Counter)
        closes: Counter[int] = Counter()
        for line in cat.stdout or ():
            row = json.loads(line)
            if row["kind"] == "SAMPLE_KIND_CLOSE":
                closes[row["cookie"]] += 1
            else:
                polls[row["poll_sequence"]][row["cookie"]] += 1
        if cat.wait() != 0:
            raise SystemExit("the spool is damaged")
    order = sorted(polls)
    steady = polls[order[0]].keys() & polls[order[-1]].keys()
    missing = sum(len(steady - polls[poll].keys()) for poll in order)
    double = sum(seen - 1 for poll in order for seen in polls[poll].values()) + sum(n - 1 for n in closes.values())
    # A connection that a poll saw and no later one did has closed, and its close must be there.
    seen = set().union(*(polls[poll].keys() for poll in order[:-1]))
    unclosed = len(seen - polls[order[-1]].keys() - closes.keys())
    return {
        "lost": missing + unclosed,
        "duplicate_rows": double,
        "steady_sockets": len(steady),
        "polls": len(order),
        "connections_churned": opened,
        "close_records": sum(closes.values()),
        "close_overruns": stats["close_overruns"],
        "duplicates_left_out": stats["sockets_duplicate"],
    }


def churned(maker: subprocess.Popen[str]) -> int:
    if maker.stdin is None or maker.stdout is None:
        raise SystemExit("no pipe to the sockets' maker")
    maker.stdin.write("\n")
    maker.stdin.flush()
    return int(maker.stdout.readline().split()[-1])


def memory(count: int) -> float:
    """Peak memory of three polls with everything on, MB.

    As the kernel notes it for the program's own address space (VmHWM, proc(5)): what wait4 tells begins with the memory
    of this very script, from which the program was started.
    """
    with sockets(count), tempfile.TemporaryDirectory() as directory:
        command: list[str | Path] = [COLLECTOR, "run", "--netns", "own", "--spool-dir", Path(directory) / "spool"]
        process = subprocess.Popen(inside([*command, "--polls", "4", "--interval", "2s"]))
        status = Path(f"/proc/{process.pid}/status")
        peak_kb = 0
        while process.poll() is None:
            with contextlib.suppress(OSError, StopIteration):
                lines = status.read_text().splitlines()
                named = next(line for line in lines if line.startswith("Name:")).split()[1]
                if named.startswith("springtide"):
                    peak_kb = max(peak_kb, int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]))
            time.sleep(0.01)
        if process.returncode != 0 or peak_kb == 0:
            raise SystemExit(f"the collector ended with {process.returncode}")
        return round(peak_kb / 1024, 1)


def idle(count: int, seconds: float) -> dict[str, Any]:
    """CPU share of a core with few sockets and ten-second polls, the start left out (proc(5): schedstat)."""
    with sockets(count), tempfile.TemporaryDirectory() as directory:
        command: list[str | Path] = [COLLECTOR, "run", "--netns", "own", "--spool-dir", Path(directory) / "spool"]
        process = subprocess.Popen(inside([*command, "--interval", "10s"]), stderr=subprocess.DEVNULL)
        try:
            time.sleep(2)
            before, begin = cpu_ns(process.pid), time.monotonic()
            time.sleep(seconds)
            share = (cpu_ns(process.pid) - before) / (time.monotonic() - begin) / 1e7
        finally:
            process.terminate()
            process.wait(30)
        return {"sockets": count, "core_percent": round(share, 4)}


def cpu_ns(pid: int) -> int:
    """What all threads of a process have run, nanoseconds."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def startup(turns: int) -> float:
    """Milliseconds from exec to exit of `--version`, the median."""
    times = []
    for _ in range(turns):
        begin = time.perf_counter()
        subprocess.run([COLLECTOR, "--version"], check=True, capture_output=True)
        times.append((time.perf_counter() - begin) * 1000)
    return round(median(times), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[20_000, 100_000], help="sockets (default 20000 100000)"
    )
    parser.add_argument("--memory-sockets", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=9, help="runs of each program and size")
    parser.add_argument("--out", type=Path, default=ROOT / "out/bench/collector.json")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("make bench-collector needs root: it makes a network namespace; run it with sudo", file=sys.stderr)
        raise SystemExit(2)
    sizes = []
    with namespace():
        for count in options.sizes:
            say(f"== {count} sockets: the floor, the collector and ss take {options.turns} turns")
            row = costs(count, options.turns)
            say(f"== {count} sockets and {CHURN_PER_S} connections a second")
            row |= completeness(count)
            row["peak_rss_mb"] = memory(count)
            sizes.append(row)
            say(json.dumps(row))
        say(f"== memory at {options.memory_sockets} sockets")
        peak = memory(options.memory_sockets)
        say("== a minute of ten-second polls of 1000 sockets")
        report = {
            "sizes": sizes,
            "peak_rss_mb_at": {"sockets": options.memory_sockets, "peak_rss_mb": peak},
            "idle": idle(1000, 60),
            "binary_mb": round(COLLECTOR.stat().st_size / 1e6, 1),
            "startup_ms": startup(20),
        }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

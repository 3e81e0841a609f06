"""Measures what the collector costs beside the kernel's own floor and `ss`, and what it misses.

Sockets are made in a network namespace of the bench's own, half of them IPv4 and half IPv6, no two alike. Like is
compared with like: the floor queries as the collector does (one walk for both families, the same attributes) and throws
the answer away, the collector decodes, encodes and throws away; both do several polls in one process. `ss` and the
collector's `once --format json` both print all that they read, once. Costs are of whole processes with their start.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.runner import TARGET, Bench, BenchError, Run, in_turns, progress, seconds

COLLECTOR = TARGET / "springtide-collector"
CLONE_NEWNET = 0x40000000
# From here the maker of sockets connects over IPv6 (collector/examples/sockets.rs).
IPV6_CLIENTS = "fd77::/16"
STARTS = 20

Command = Sequence[str | Path]


def example(name: str) -> Path:
    """As `make bench-collector` builds it, or a set-up for tests."""
    built = TARGET / "examples" / name
    if not built.exists():
        raise BenchError(f"{built} is missing: make bench-collector builds it")
    return built


def spend(command: Command) -> float:
    """Microseconds of CPU of a command that prints to nowhere, by the kernel's account of it."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    complaint = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise BenchError(f"{command[0]} ended with {process.returncode}: {complaint.decode()[-300:].strip()}")
    return (usage.ru_utime + usage.ru_stime) * 1e6


@contextlib.contextmanager
def namespace() -> Iterator[None]:
    """This thread, and what it starts, in a network namespace that is gone with them."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open() as home:
        if libc.unshare(CLONE_NEWNET) != 0:
            raise BenchError(f"cannot make a network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            for command in (
                # The segments of a real path, not of 64 KB.
                ["ip", "link", "set", "lo", "up", "mtu", "1500"],
                ["ip", "-6", "route", "add", "local", IPV6_CLIENTS, "dev", "lo"],
                ["sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535"],
            ):
                subprocess.run(command, check=True)
            yield
        finally:
            libc.setns(home.fileno(), CLONE_NEWNET)


class Sockets:
    """Holds so many sockets while the context lasts; `held` are their cookies."""

    def __init__(self, count: int) -> None:
        command: Command = [example("sockets"), "--sockets", str(count), "--ipv6-clients"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.held = self._cookies("ready")
        if len(self.held) != count // 2 * 2:
            raise BenchError(f"cannot make {count} sockets: is the limit of open files below {count}?")

    def __enter__(self) -> Sockets:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=120)

    def churn(self, a_second: int) -> None:
        """Opens and closes connections beside those held."""
        self._command(a_second)

    def closed(self) -> set[int]:
        """Ends that; the cookies of both ends of each connection that came and went."""
        self._command(0)
        return self._cookies("churned")

    def _command(self, a_second: int) -> None:
        if self._process.stdin:
            self._process.stdin.write(f"churn {a_second}\n")
            self._process.stdin.flush()

    def _cookies(self, word: str) -> set[int]:
        line = self._process.stdout.readline().split() if self._process.stdout else []
        return {int(one) for one in line[1:]} if line[:1] == [word] else set()


def costs(run: Run, count: int) -> None:
    """The costs of a poll of `count` sockets. The programs take turns, the first turn warms up."""
    polls = run.sizes["polls"]
    many = ["--polls", str(polls)]
    reader: Command = [COLLECTOR, "run", "--netns", "own", "--interval", "1ms", *many]
    once: Command = [COLLECTOR, "once", "--netns", "own", "--format"]
    with Sockets(count), tempfile.TemporaryDirectory() as directory:
        spools = Path(directory)

        def spool() -> float:
            return spend([*reader, "--spool-dir", spools / str(time.monotonic_ns())])

        works: dict[str, Callable[[], float]] = {
            "floor": partial(spend, [example("floor"), *many]),
            "collector": partial(spend, [*reader, "--print", "null"]),
            "spool": spool,
            "json": partial(spend, [*once, "json"]),
            "ss": partial(spend, ["ss", "-tinHa"]),
        }
        found = in_turns(run.turns, works, warm_up=1)
        stats = counters(subprocess.run([*once, "null", "--stats"], capture_output=True, check=True).stderr)
        spooled = sum(path.stat().st_size for path in spools.rglob("*.spool"))
        floor_bytes = json.loads(subprocess.check_output([example("floor"), *many]))["bytes_per_poll"]
    for name, spent in found.items():
        times = 1 if name in ("json", "ss") else polls
        run.figure(f"{name}_cpu_us_per_socket", [one / times / count for one in spent], sockets=count)
    for ours, peer in (("collector", "floor"), ("spool", "floor"), ("json", "ss")):
        run.ratio(f"{ours}_per_{peer}", found[ours], found[peer], sockets=count)
    run.figure("floor_read_bytes_per_socket", floor_bytes / count, sockets=count)
    run.figure("collector_read_bytes_per_socket", stats["bytes_read"] / count, sockets=count)
    run.figure("bytes_per_row", stats["message_bytes"] / stats["rows"], sockets=count)
    run.figure("spool_bytes_per_row", spooled / (run.turns + 1) / polls / stats["rows"], sockets=count)


def counters(printed: bytes) -> dict[str, Any]:
    """The last line that `--stats` prints."""
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def completeness(run: Run, count: int) -> None:
    """Counts what polls and close events miss or have twice, while connections come and go.

    The maker of sockets knows the cookies. Every held socket has to be in every poll, the first and the last too. Every
    end of a connection that came and went between polls has to have its close record.
    """
    interval_s = run.sizes["interval_s"]
    with tempfile.TemporaryDirectory() as directory, Sockets(count) as maker:
        spool = Path(directory) / "spool"
        with started("--spool-dir", spool, "--interval", f"{int(interval_s * 1000)}ms", "--stats") as process:
            maker.churn(run.sizes["churn_per_s"])
            time.sleep(4 * interval_s)
            closed = maker.closed()
            # One poll more, from its beginning to its end.
            time.sleep(2 * interval_s)
            process.terminate()
            _, printed = process.communicate(timeout=60)
        stats = counters(printed)
        polls, closes = spooled_rows(spool)
    held = maker.held
    present = sum(len(held & poll.keys()) for poll in polls.values())
    seen = [*polls.values(), closes]
    for name, value in {
        "polls": stats["polls"],
        "churned_sockets": len(closed),
        "close_records": closes.total(),
        "lost_poll_rows": len(held) * stats["polls"] - present,
        "lost_close_records": len(closed - closes.keys()),
        "double_rows": sum(one.total() - len(one) for one in seen),
        "close_overruns": stats["close_overruns"],
        "duplicates_left_out": stats["sockets_duplicate"],
    }.items():
        run.figure(name, value, sockets=count)


def spooled_rows(spool: Path) -> tuple[dict[int, Counter[int]], Counter[int]]:
    """Counts each cookie in each poll, and its close records."""
    polls: defaultdict[int, Counter[int]] = defaultdict(Counter)
    closes: Counter[int] = Counter()
    with subprocess.Popen([COLLECTOR, "cat", *sorted(spool.glob("*.spool"))], stdout=subprocess.PIPE) as cat:
        for line in cat.stdout or ():
            row = json.loads(line)
            rows = closes if row["kind"] == "SAMPLE_KIND_CLOSE" else polls[row["poll_sequence"]]
            rows[row["cookie"]] += 1
    if cat.returncode != 0:
        raise BenchError("the spool is damaged")
    return polls, closes


@contextlib.contextmanager
def started(*options: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """The collector once its first poll is done, of which it notifies its service manager (sd_notify(3)); it gets a
    SIGTERM at the end, if it runs."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{directory}/notify")
        manager.settimeout(60)
        process = subprocess.Popen(
            [COLLECTOR, "run", "--netns", "own", *options],
            stderr=subprocess.PIPE,
            env={**os.environ, "NOTIFY_SOCKET": f"{directory}/notify"},
        )
        try:
            while b"READY=1" not in manager.recv(4096):
                pass
            yield process
        except TimeoutError as error:
            raise BenchError("the collector's first poll did not end within a minute") from error
        finally:
            process.terminate()
            process.communicate(timeout=60)


def memory(run: Run, count: int) -> None:
    """Peak memory after some polls with everything on, as the kernel notes it (VmHWM, proc(5))."""
    with Sockets(count), tempfile.TemporaryDirectory() as directory:
        with started("--spool-dir", Path(directory) / "spool", "--interval", "1s") as process:
            time.sleep(run.sizes["memory_s"])
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        peak_kb = int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    run.figure("peak_memory_mb", peak_kb / 1024, sockets=count)


def idle(run: Run, count: int) -> None:
    """CPU share of a core with few sockets and ten-second polls, the start left out."""
    with (
        Sockets(count),
        tempfile.TemporaryDirectory() as directory,
        started("--spool-dir", Path(directory) / "spool", "--interval", "10s") as process,
    ):
        before, begin = cpu_ns(process.pid), time.monotonic()
        time.sleep(run.sizes["idle_s"])
        share = (cpu_ns(process.pid) - before) / (time.monotonic() - begin) / 1e7
    run.figure("idle_core_percent", share, sockets=count)


def cpu_ns(pid: int) -> int:
    """Time that all threads of a process have run, nanoseconds (proc(5): schedstat)."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def measure(run: Run) -> None:
    with namespace():
        for count in run.sizes["sockets"]:
            progress(f"{count} sockets: the floor, the collector and ss take {run.turns} turns")
            costs(run, count)
            progress(f"{count} sockets, and {run.sizes['churn_per_s']} connections a second that come and go")
            completeness(run, count)
            memory(run, count)
        progress(f"memory at {run.sizes['memory_sockets']} sockets, then {run.sizes['idle_s']} s of ten-second polls")
        memory(run, run.sizes["memory_sockets"])
        idle(run, run.sizes["idle_sockets"])
    version = partial(subprocess.run, [COLLECTOR, "--version"], check=True, capture_output=True)
    run.figure("start_ms", [1000 * seconds(version) for _ in range(STARTS)])
    run.figure("binary_mb", COLLECTOR.stat().st_size / 1e6)


BENCH = Bench(
    name="collector",
    summary="the collector beside the kernel's floor and ss, and what it misses",
    measure=measure,
    sizes={
        "sockets": ((20_000, 100_000), (200,)),
        "polls": (5, 2),
        "churn_per_s": (2000, 100),
        "interval_s": (2.0, 0.25),
        "memory_sockets": (200_000, 400),
        "memory_s": (4, 1),
        "idle_sockets": (1000, 200),
        "idle_s": (60, 1),
    },
    seconds=420,
    turns=(9, 1),
    root=True,
)

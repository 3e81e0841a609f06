"""Processes by id and start time, and ended through a pidfd: a reused id is never mistaken for its former owner."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

NETNS_DIRECTORY = Path("/run/netns")


@dataclass(frozen=True)
class Process:
    """`start` is the start time in clock ticks after boot (proc(5), stat field 22)."""

    pid: int
    start: int


def find(pid: int) -> Process | None:
    """The process that has this id now; None when there is none, or it has ended and only its parent does not know."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command stands in parentheses and may hold any character; field 3, the state, follows the last one.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else Process(pid, int(fields[19]))


def inside(namespaces: Iterable[str]) -> list[Process]:
    """The processes whose network namespace is one of these names under /run/netns."""
    identities = set()
    for name in namespaces:
        with contextlib.suppress(OSError):
            identities.add(_identity(NETNS_DIRECTORY / name))
    return [process for process in _all() if _runs_in(process.pid, identities)]


def naming(arguments: Iterable[str]) -> list[Process]:
    """The processes whose command line has one of these as an argument."""
    wanted = {argument.encode() for argument in arguments}
    return [process for process in _all() if wanted.intersection(_arguments(process.pid))]


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _all() -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            process = find(int(entry.name))
            if process is not None:
                yield process


def _runs_in(pid: int, identities: set[tuple[int, int]]) -> bool:
    try:
        return _identity(Path(f"/proc/{pid}/ns/net")) in identities
    except OSError:
        return False


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def send_signal(process: Process, number: signal.Signals) -> bool:
    """Sends a signal to the process; False when it has ended."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(process.pid)
        try:
            # The handle pins whoever has the id; only then does the start time identify it.
            if find(process.pid) == process:
                signal.pidfd_send_signal(handle, number)
                return True
        finally:
            os.close(handle)
    return False


def end(processes: Iterable[Process], grace_s: float) -> int:
    """SIGTERM, and SIGKILL for what is left after `grace_s`; returns when all are gone. The number that were running.

    A process that ended meanwhile is left out, and so is another one that has its id.
    """
    handles: dict[int, int] = {}
    try:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(process.pid)
                if find(process.pid) == process:  # as in send_signal
                    handles[handle] = process.pid
                else:
                    os.close(handle)
        for number, patience in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
            left = _still_running(handles, 0)
            for handle in left:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)
            _still_running(left, patience)
        return len(handles)
    finally:
        for handle in handles:
            os.close(handle)


def _still_running(handles: Iterable[int], patience_s: float) -> list[int]:
    """The pidfds whose process has not ended within the time; a pidfd is readable once it has."""
    left = list(handles)
    deadline = time.monotonic() + patience_s
    while left:
        poll = select.poll()
        for handle in left:
            poll.register(handle, select.POLLIN)
        wait_ms = max(0, int((deadline - time.monotonic()) * 1000))
        ended = {handle for handle, _ in poll.poll(wait_ms)}
        left = [handle for handle in left if handle not in ended]
        if not ended:
            break
    return left

"""Begins and ends each fault. A fault that found nothing to break reports it and is not counted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from deploy.ansible.tests.chaos.fleet import Fleet, Playing, words
from deploy.ansible.tests.chaos.schedule import Fault
from testkit.farm import Node

CLOCK_STEP_S = 7200
# For how long a fault looks for the process that it is about.
LOOK_S = 5.0
HOLDER = (
    "import fcntl, os, signal, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, 2); os.kill(os.getpid(), signal.SIGSTOP)"
)

End = Callable[[], None]


def begin(fault: Fault, fleet: Fleet, playing: Playing) -> End | None:
    """Let it happen; how it ends, or None where there was nothing to break."""
    if fault.edge is None:
        return _on_publisher(fault.kind, fleet, playing)
    return _ON_EDGE[fault.kind](Victim(fleet, fault.edge, playing))


class Victim(NamedTuple):
    """An edge, and the play that is about to work on it."""

    fleet: Fleet
    edge: str
    playing: Playing

    @property
    def node(self) -> Node:
        return self.fleet.node(self.edge)

    def sshd(self, what: str = "sshd") -> list[int]:
        return [pid for pid in self.fleet.pids(self.edge) if words(pid).startswith(what)]

    def working(self) -> list[int]:
        """The processes in which the play works on the edge, once it does."""
        give_up = time.monotonic() + LOOK_S
        while not (found := self.fleet.working(self.edge)) and time.monotonic() < give_up and not self.playing.ended():
            time.sleep(0.02)
        return found


def _ssh_killed(victim: Victim) -> End | None:
    calls = [pid for pid in victim.fleet.publishers_pids() if victim.node.address in words(pid).split()]
    return _kill(calls + victim.sshd("sshd: root"))


def _link_lost(victim: Victim) -> End:
    """The kernel takes every route over the link with it, in each table."""
    return _link(victim.node.namespace, "wan0", lambda: victim.fleet.ways(victim.edge))


def _unreachable(victim: Victim) -> End:
    return _link(victim.fleet.farm.namespace, f"e{victim.fleet.edges.index(victim.edge)}", lambda: None)


def _login_hangs(victim: Victim) -> End:
    return _mark(victim.node.directory / "hangs", lambda: _signal(victim.sshd("sleep 1000"), signal.SIGKILL))


_ON_EDGE: dict[str, Callable[[Victim], End | None]] = {
    "disk full": lambda victim: _disk(victim.node.state_dir, "disk full"),
    "disk read-only": lambda victim: _disk(victim.node.state_dir, "disk read-only"),
    "lock held by a stopped process": lambda victim: _hold_lock(victim.node),
    "sshd hangs": lambda victim: _stop(victim.sshd()),
    "edge command hangs": lambda victim: _stop(victim.working()),
    "edge command killed": lambda victim: _kill(victim.working()),
    "ssh killed": _ssh_killed,
    "watcher killed": lambda victim: _kill_watcher(victim.fleet, victim.edge),
    "login shell hangs": _login_hangs,
    "no ip program": lambda victim: _mark(victim.node.directory / "no-ip"),
    "clock two hours ahead": lambda victim: _mark(victim.node.directory / "clock", text=str(CLOCK_STEP_S)),
    "clock two hours behind": lambda victim: _mark(victim.node.directory / "clock", text=str(-CLOCK_STEP_S)),
    "unreachable": _unreachable,
    "link lost": _link_lost,
}


def _on_publisher(kind: str, fleet: Fleet, playing: Playing) -> End | None:
    if kind == "play killed":
        if playing.ended():
            return None
        playing.kill()
        return lambda: None
    return _disk(fleet.farm.publish_dir, kind.removeprefix("publisher's "))


def _disk(folder: Path, kind: str) -> End | None:
    if kind == "disk full":
        filler = folder / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            for size in (65536, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)
        return lambda: filler.unlink(missing_ok=True)
    give_up = time.monotonic() + LOOK_S
    # A file that somebody has open for writing keeps the disk as it is.
    while subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=False, capture_output=True).returncode:
        if time.monotonic() > give_up:
            return None
        time.sleep(0.02)

    def end() -> None:
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)

    return end


def _hold_lock(node: Node) -> End:
    command = ["ip", "netns", "exec", node.namespace, sys.executable, "-c", HOLDER, str(node.state_dir / "lock")]
    holder = subprocess.Popen(command)

    def end() -> None:
        holder.kill()
        holder.wait()

    return end


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _stop(pids: list[int]) -> End | None:
    _signal(pids, signal.SIGSTOP)
    return (lambda: _signal(pids, signal.SIGCONT)) if pids else None


def _kill(pids: list[int]) -> End | None:
    _signal(pids, signal.SIGKILL)
    return (lambda: None) if pids else None


def _kill_watcher(fleet: Fleet, edge: str) -> End | None:
    watcher = fleet.watchers.get(edge)
    if watcher is None:
        return None
    watcher.kill()
    watcher.wait()
    return lambda: fleet.watch(edge)


def _mark(path: Path, after: End = lambda: None, text: str = "") -> End:
    path.write_text(text)

    def end() -> None:
        path.unlink(missing_ok=True)
        after()

    return end


def _link(namespace: str, link: str, after: End) -> End:
    subprocess.run(["ip", "-n", namespace, "link", "set", link, "down"], check=True)

    def end() -> None:
        subprocess.run(["ip", "-n", namespace, "link", "set", link, "up"], check=True)
        after()

    return end

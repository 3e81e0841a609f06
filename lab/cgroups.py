"""Gives an edge that enforces by eBPF its own cgroup, for its processes, and a place for the program's pins.

All pins of a lab stand in one BPF file system, mounted in the lab's directory: what is mounted nowhere any more pins
nothing. The cgroup has the name of the edge's namespace, directly below cgroup2's root, which itself is never used.
"""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from lab import host, processes, state
from lab.errors import InputError, LabError
from lab.topology import Topology
from lab.wan_config import namespace

_EMPTY_S = 5.0
# `0` is the process that writes, here the shell, which then becomes the command.
_ENTER = 'echo 0 > "$0/cgroup.procs" && exec "$@"'


def root() -> Path:
    """Where cgroup2 is mounted. Raises InputError."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    raise InputError("edges that enforce by bpf need cgroup2: run `mount -t cgroup2 cgroup2 /sys/fs/cgroup`")


def of(lab: str, edge: str) -> Path:
    """The cgroup of an edge. Raises InputError."""
    return root() / namespace(lab, edge)


def pins(lab: str, edge: str) -> Path:
    """Where the program of an edge is pinned; springtide-edge makes the directory."""
    return _bpffs(lab) / edge


def named(lab: str, topology: Topology) -> list[str]:
    """The cgroups that a lab has. Raises InputError where it needs some and cannot have them, or one exists."""
    found = [of(lab, edge) for edge in topology.edges() if topology.enforced_by(edge) == "bpf"]
    taken = [path for path in found if path.exists()]
    if taken:
        raise InputError(f"cgroup {taken[0]} exists already; remove it, or give the lab another name")
    return [str(path) for path in found]


def make(known: state.State) -> None:
    """The cgroups of a state file, and the file system for their pins. Raises LabError."""
    if not known.cgroups:
        return
    for path in known.cgroups:
        Path(path).mkdir()
    place = _bpffs(known.lab)
    place.mkdir(parents=True)
    host.run(["mount", "-t", "bpf", "-o", "mode=0700", "bpf", str(place)])


def entering(cgroup: Path, command: Sequence[str]) -> list[str]:
    """The command line that runs a command in a cgroup."""
    return ["sh", "-c", _ENTER, str(cgroup), *command]


def inside(paths: Iterable[str]) -> list[processes.Process]:
    """The processes in these cgroups."""
    lists = [Path(path, "cgroup.procs") for path in paths]
    numbers = [int(number) for one in lists if one.exists() for number in one.read_text().split()]
    return [found for number in numbers if (found := processes.find(number)) is not None]


def remove(known: state.State) -> int:
    """Pins, their file system and the cgroups, whose processes have ended; how many cgroups there were.

    Raises LabError when one cannot be removed.
    """
    place = _bpffs(known.lab)
    if place.is_mount():
        # One by one first: a file system that somebody stands in would keep its pins.
        for path in place.iterdir():
            # The kernel has files of its own there, and iproute2 leaves a link in any BPF file system that it finds.
            if path.is_symlink():
                path.unlink()
            elif path.is_dir():
                shutil.rmtree(path)
        host.run(["umount", "--lazy", str(place)])
    return sum(_remove(Path(path)) for path in known.cgroups)


def _remove(path: Path) -> bool:
    deadline = time.monotonic() + _EMPTY_S
    while path.exists():
        try:
            path.rmdir()
        except FileNotFoundError:
            return False
        except OSError as error:
            # A process leaves its cgroup a moment after it is seen to have ended.
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise LabError(
                    f"cgroup {path}: cannot be removed: {error.strerror}; empty it and clean again"
                ) from error
            time.sleep(0.02)
        else:
            return True
    return False


def _bpffs(lab: str) -> Path:
    return state.directory(lab) / "bpf"

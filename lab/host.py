"""Facts about this machine, and the commands that change it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lab.errors import InputError, LabError

ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
REPOSITORY = Path(__file__).resolve().parents[1]


def need_root(what: str) -> None:
    """Raises InputError without root or TUN devices."""
    if os.geteuid() != 0:
        raise InputError(f"{what} needs root: it makes network namespaces and TUN devices; run it with sudo")
    if not Path("/dev/net/tun").is_char_device():
        raise InputError(f"{what} needs /dev/net/tun: run `modprobe tun`, or give this container the device")


def nginx() -> str:
    """The nginx binary."""
    return _tool("nginx", "nginx-light")


def check_tools() -> None:
    """Raises InputError when a command that the lab calls is missing."""
    linux = {"ip": "iproute2", "ss": "iproute2", "nsenter": "util-linux", "chrt": "util-linux", "sysctl": "procps"}
    for command, package in linux.items():
        _tool(command, package)


def _tool(command: str, package: str) -> str:
    # Debian keeps daemons out of an ordinary user's PATH.
    found = shutil.which(command) or shutil.which(command, path="/usr/sbin:/sbin")
    if found is None:
        raise InputError(f"{command} is missing: apt-get install {package}")
    return found


def wan() -> Path:
    """The emulator's binary: SPRINGTIDE_WAN, or what cargo built."""
    named = os.environ.get("SPRINGTIDE_WAN")
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    path = Path(named) if named else target / "release" / "springtide-wan"
    if not os.access(path, os.X_OK):
        raise InputError(f"{path}: no such program: run `cargo build --release -p springtide-wan`")
    return path


def run(command: Sequence[str], text_in: str = "") -> str:
    """Runs the command and returns what it printed. Raises LabError with its last line of complaint.

    It inherits what its caller marked so: the lock of `state.locked`.
    """
    done = subprocess.run(command, input=text_in, capture_output=True, text=True, check=False, close_fds=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise LabError(f"{' '.join(command)} ended with exit code {done.returncode}: {lines[-1]}")
    return done.stdout


def inside(namespace: str, command: Sequence[str]) -> list[str]:
    """The command line that runs a command in a namespace; unlike `ip netns exec` it leaves /sys as it is."""
    return ["nsenter", f"--net=/run/netns/{namespace}", "--", *command]


def promptly(command: Sequence[str]) -> list[str]:
    """The command line that runs a command before all ordinary ones where this machine lets us (`sched(7)`, SCHED_RR):
    a path's delays and queues are then its own, not those of who else computes. Only for what sleeps most of the time.
    """
    asked = ["chrt", "--rr", "1"]
    allowed = subprocess.run([*asked, "true"], capture_output=True, check=False).returncode == 0
    return [*asked, *command] if allowed else list(command)


def namespaces() -> set[str]:
    """The named namespaces of this machine."""
    directory = Path("/run/netns")
    return {path.name for path in directory.iterdir()} if directory.is_dir() else set()

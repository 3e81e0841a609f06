"""This host's collector: its configuration, whether it answers, and which namespaces it may enter."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from springtide.doctor.finding import Finding, advice, fine, fix, unknown

PROGRAM = "springtide-collector"
# /proc/PID/comm keeps 15 characters.
COMM = PROGRAM[:15]
# linux/capability.h: what entering other processes' network namespaces takes.
CAP_SYS_PTRACE, CAP_SYS_ADMIN = 19, 21
TIMEOUT_S = 10


@dataclass(frozen=True)
class Collector:
    """`config_error`: None when the program is not installed. `health`: the problem that /healthz reports, None without
    an answer.

    `namespaces`: network namespaces of the processes that this process may inspect.
    """

    config: Path
    address: str
    config_error: str | None = None
    health: str | None = None
    running: bool = False
    sees_all: bool = False
    namespaces: int = 1


def gather(config: Path, address: str, proc: Path = Path("/proc")) -> Collector:
    running, capabilities, namespaces = _processes(proc)
    wanted = 1 << CAP_SYS_ADMIN | 1 << CAP_SYS_PTRACE
    return Collector(
        config=config,
        address=address,
        config_error=_config_error(config),
        health=_health(address),
        running=running,
        sees_all=capabilities & wanted == wanted,
        namespaces=namespaces,
    )


def check(seen: Collector) -> Iterator[Finding]:
    if seen.config_error is None and not seen.running:
        todo = "apt-get install ./springtide-collector_*.deb, or install it from `make package`"
        yield fix("collector", PROGRAM, "is not installed", todo)
        return
    if seen.config_error is None:
        yield unknown("collector configuration", str(seen.config), f"{PROGRAM} is not in PATH, so it is not checked")
    elif seen.config_error:
        yield fix("collector configuration", str(seen.config), "is refused", seen.config_error)
    else:
        yield fine("collector configuration", str(seen.config), "is accepted")
    if seen.health is None:
        todo = "systemctl enable --now springtide-collector; for the reason see journalctl -u springtide-collector"
        yield fix("collector", f"http://{seen.address}/healthz", "does not answer", todo)
    elif seen.health:
        yield fix("collector", f"http://{seen.address}/healthz", f"is unhealthy: {seen.health}", "see its log")
    else:
        yield fine("collector", f"http://{seen.address}/healthz", "is healthy")
    if seen.running and not seen.sees_all and seen.namespaces > 1:
        what = f"{seen.namespaces - 1} other network namespaces (containers) are not seen"
        todo = "if their connections count, install all-namespaces.conf from the package's documentation"
        yield advice("capabilities", PROGRAM, what, todo)


def _config_error(config: Path) -> str | None:
    if shutil.which(PROGRAM) is None:
        return None
    command = [PROGRAM, "run", "--check-config", "--config", str(config)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason is given"])[-1]


def _health(address: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=TIMEOUT_S):
            return ""
    except urllib.error.HTTPError as error:
        return (error.read(300).decode(errors="replace").strip().splitlines() or [f"status {error.code}"])[0]
    except (OSError, ValueError):
        return None


def _processes(proc: Path) -> tuple[bool, int, int]:
    """Whether a collector runs, its effective capabilities, and how many network namespaces processes are in."""
    running, capabilities, namespaces = False, 0, set()
    for folder in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or we may not inspect it
            namespaces.add((folder / "ns/net").readlink())
            if (folder / "comm").read_text().strip() == COMM:
                running = True
                status = (folder / "status").read_text()
                capabilities |= int(status.partition("CapEff:")[2].split()[0], 16)
    return running, capabilities, max(1, len(namespaces))

"""Programs that an edge needs besides Springtide's own."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping

from springtide.doctor.finding import Finding, fine, fix, unknown

# `ssh-keygen -Y verify` is of 8.2.
OLDEST_SSH = (8, 2)
TIMEOUT_S = 10


def gather() -> dict[str, str | None]:
    """Each program's version output; None for one that is not installed."""
    commands = {"ip": ["ip", "-V"], "ssh": ["ssh", "-V"], "ssh-keygen": None}
    return {name: _version_output(name, command) for name, command in commands.items()}


def check(seen: Mapping[str, str | None]) -> Iterator[Finding]:
    if seen["ip"] is None:
        yield fix("iproute2", "ip", "is not installed, so that routes cannot be applied", "apt-get install iproute2")
    else:
        yield fine("iproute2", "ip", "is installed")
    if seen["ssh-keygen"] is None:
        what = "is not installed, so that no bundle can be verified"
        yield fix("openssh", "ssh-keygen", what, "apt-get install openssh-client")
        return
    found = re.search(r"OpenSSH_(\d+)\.(\d+)", seen["ssh"] or "")
    if found is None:
        yield unknown("openssh", "ssh -V", "does not report its version")
    elif (int(found[1]), int(found[2])) < OLDEST_SSH:
        what = f"is {found[0]}, which cannot verify signatures"
        yield fix("openssh", "ssh-keygen", what, "install OpenSSH 8.2 or newer")
    else:
        yield fine("openssh", "ssh-keygen", f"is {found[0]}")


def _version_output(name: str, command: list[str] | None) -> str | None:
    if shutil.which(name) is None:
        return None
    if command is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr

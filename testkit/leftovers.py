"""Removes what a killed run of tests has left on this machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from lab import host, processes

# Namespaces of `testkit.edge` and `testkit.farm`: who made them, and six random digits.
NAMESPACE = re.compile(r"sprt-\w+-(?P<pid>\d+)-[0-9a-f]{6}")


def sweep() -> None:
    """Namespaces whose maker has ended, and the processes in them; mounts in folders that pytest gave up."""
    made = {name: NAMESPACE.fullmatch(name) for name in host.namespaces()}
    left = [name for name, found in made.items() if found and not Path(f"/proc/{found['pid']}").exists()]
    processes.end(processes.inside(left), 1.0)
    for name in left:
        # Another run that begins may remove it at the same time.
        if name in host.namespaces():
            host.run(["ip", "netns", "delete", name])
    for mount in Path("/proc/mounts").read_text().splitlines():
        source, target = mount.split()[:2]
        if source == "springtide-test" and "/garbage-" in target:
            # Another run that begins may take it away at the same time.
            subprocess.run(["umount", target], capture_output=True, check=False)

"""Addresses on a loopback device, ready to be connected to."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable


def on_loopback(addresses: Iterable[str], namespace: str = "") -> None:
    """Adds the addresses to `lo`, of a network namespace where one is named.

    Without `nodad` the kernel looks for an address's double first. With it, the kernel's worker still makes the route
    to an IPv6 address after `ip` has ended, and a connection before that fails. That takes 0.05 s; the bound is for a
    machine that stands still.
    """
    command = ["ip", *(["-n", namespace] if namespace else [])]
    for address in addresses:
        alone = ["nodad"] if ":" in address else []
        subprocess.run([*command, "addr", "add", address, "dev", "lo", *alone], check=True)
        give_up = time.monotonic() + 60
        while not _is_local(command, address):
            assert time.monotonic() < give_up, f"{address}: no local route after 60 s"
            time.sleep(0.01)


def _is_local(command: list[str], address: str) -> bool:
    asked = [*command, "route", "get", address]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.startswith("local ")

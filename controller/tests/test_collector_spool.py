"""The real collector's spool, of real sockets, in the store: every value as the collector itself reads it back."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

import pytest

from testkit.home import Home

COLLECTOR = Path(
    os.environ.get("SPRINGTIDE_COLLECTOR")
    or Path(__file__).resolve().parents[2] / "target/release/springtide-collector"
)


@pytest.fixture
def sockets() -> Iterator[None]:
    """Three connections of each IP version over loopback, each having sent something."""
    with ExitStack() as stack:
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            listener = stack.enter_context(socket.socket(family))
            listener.bind((address, 0))
            listener.listen()
            for size in (10, 1000, 40_000):
                near = stack.enter_context(socket.create_connection((address, listener.getsockname()[1])))
                far = stack.enter_context(listener.accept()[0])
                near.sendall(bytes(size))
                while size:
                    size -= len(far.recv(size))
        yield


def as_stored(name: str, value: Any) -> Any:
    """A value of `springtide-collector cat` as the table shows it."""
    if name in ("state", "kind"):
        return value.removeprefix("TCP_STATE_").removeprefix("SAMPLE_KIND_")
    if name in ("src_ip", "dst_ip"):
        address = ip_address(value)
        return value if isinstance(address, IPv6Address) else f"::ffff:{value}"
    return value


def identity(row: dict[str, Any]) -> tuple[Any, ...]:
    """The name of a sample within a host's boot."""
    return row["netns"], row["poll_sequence"], row["cookie"], row["kind"].removeprefix("SAMPLE_KIND_")


@pytest.mark.usefixtures("sockets")
def test_the_collectors_spool_arrives_value_by_value(home: Home) -> None:
    if not COLLECTOR.exists():
        pytest.fail(f"{COLLECTOR} is missing: run `cargo build --release`")
    # Only these sockets, and every one at every poll, changed or not.
    arguments = [
        *("--netns", "own", "--idle-interval", "1ms"),
        "--spool-dir",
        str(home.spool),
        "--polls",
        "3",
        "--interval",
        "250ms",
        "--host",
        "ams-1",
        "--pop",
        "ams",
    ]
    subprocess.run([COLLECTOR, "run", *arguments], check=True, capture_output=True)
    files = sorted(home.spool.glob("*.spool"))
    printed = subprocess.run([COLLECTOR, "cat", *files], check=True, capture_output=True, text=True).stdout
    expected = {identity(row): row for row in map(json.loads, printed.splitlines())}

    summary = home.json("ingest", home.spool)
    assert (summary["rows"], summary["rejected_records"]) == (len(expected), 0)
    assert home.json("ingest", home.spool)["rows"] == 0
    stored = {identity(row): row for row in home.query("select * from tcp_samples final")}
    assert stored.keys() == expected.keys()
    assert len({row["poll_sequence"] for row in stored.values()}) == 3
    compared = 0
    for key, row in expected.items():
        for name, value in row.items():
            assert stored[key][name] == as_stored(name, value), name
            compared += 1
        absent = {name for name, value in stored[key].items() if value is None}
        assert absent.isdisjoint(row)
    assert compared > 12 * 3 * 80

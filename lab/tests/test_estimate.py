"""Estimates of one host from its own connections, beside those of `springtide advise` from the same host's samples."""

from __future__ import annotations

import json
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.collector import Collector, binary
from lab.fleet import fleet
from lab.lab import Lab
from testkit.home import Home

pytestmark = pytest.mark.root

PORT = 8090
# The slow path's rate, by the topology.
SLOW_BYTES_PER_S = 5e6 / 8

SERVE = """
import socket, sys, threading
def answer(one):
    with one:
        one.recv(1)
        one.sendall(bytes(100_000))
with socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=100) as listener:
    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
"""
FETCH = """
import socket, sys, time
until = time.monotonic() + float(sys.argv[3])
while time.monotonic() < until:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) as one:
        began = time.monotonic()
        one.sendall(b"x")
        while one.recv(1 << 16):
            ended = time.monotonic()
    print((ended - began) * 1000)
"""


def by_destination(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {path["destination"]: path for path in document["paths"] if path["ip_version"] == 4}


@pytest.mark.parametrize(
    ("server", "rtts_ms"), [("nyc-1", {"ams": 20.0, "sin": 80.0}), ("sin-1", {"ams": 150.0, "nyc": 80.0})]
)
def test_one_host_says_of_its_own_connections_what_the_store_says_of_them(
    lab: Lab, tmp_path: Path, server: str, rtts_ms: dict[str, float]
) -> None:
    home = Home(tmp_path)
    home.policy.write_text("{}\n")
    home.fleet.write_text(yaml.safe_dump(fleet(lab.topology)))
    address = str(next(one for one in lab.topology.edge(server).addresses if one.version == 4))
    listening = lab.popen(server, [sys.executable, "-c", SERVE, address, str(PORT)])
    spool = tmp_path / "spool"
    command = [str(binary()), "estimate", "--for", "5m", "--netns", "own", "--fleet", str(home.fleet), "--json"]
    arguments = ("--host", server, "--pop", server[:3], "--spool-dir", spool)
    with Collector(tmp_path / "log", *arguments, inside=lab.command(server, [])) as collector:
        estimate = lab.popen(server, command, stdout=subprocess.PIPE)
        # Its first look is over: of what is there then nobody knows how it began.
        time.sleep(2)
        fetch = [sys.executable, "-c", FETCH, address, str(PORT), "12"]
        fetching = [(pop, lab.popen(f"{pop}-1", fetch, stdout=subprocess.PIPE)) for pop in rtts_ms for _ in range(2)]
        waited_ms: dict[str, list[float]] = {pop: [] for pop in rtts_ms}
        for pop, fetcher in fetching:
            waited_ms[pop] += map(float, fetcher.communicate(timeout=60)[0].split())
            assert fetcher.returncode == 0
        # Ctrl-C ends it with what it has.
        estimate.send_signal(signal.SIGINT)
        printed, _ = estimate.communicate(timeout=60)
        collector.stop()
    listening.kill()
    assert estimate.returncode == 0
    home.run("migrate")
    home.json("ingest", spool)
    ours, theirs = by_destination(json.loads(printed)), by_destination(home.json("advise"))
    assert set(ours) == set(theirs) == set(rtts_ms)
    for name, rtt_ms in rtts_ms.items():
        one, other = ours[name], theirs[name]
        assert one["rtt_ms"]["low"] >= rtt_ms
        assert one["basis"] == other["basis"]
        # The store takes what closed before a second look for old.
        assert one["fresh_connections"] == pytest.approx(other["fresh_connections"], abs=3)
        assert overlap(one["rate_bytes_per_s"], other["rate_bytes_per_s"])
        for mine, stored in zip(one["sizes"], other["sizes"], strict=True):
            assert mine["size_bytes"] == stored["size_bytes"]
            assert overlap(mine["saved_ms"], stored["saved_ms"])
        # The clients' waits; where a path delivers requests twice, they are taken for several.
        for found in (one, other):
            main = found["sizes"][2]
            assert main["default_is_measured"] == (name != "sin")
            if main["default_is_measured"]:
                waited = statistics.median(waited_ms[name])
                print(f"{name}: {main['default_ms']:.1f} ms, where clients waited {waited:.1f}")
                # By the same connections, so that no draw is in between: 2 % is usual.
                assert main["default_ms"] == pytest.approx(waited, rel=0.15)
    if server == "nyc-1":
        # The truth, of the path that is slow: what one of two gets is between half of it and all.
        assert 0.4 * SLOW_BYTES_PER_S < ours["ams"]["rate_bytes_per_s"]["estimate"] < 1.1 * SLOW_BYTES_PER_S
        assert ours["ams"]["basis"] == "met"
    else:
        # Three flights instead of one.
        assert ours["ams"]["sizes"][2]["saved_round_trips"]["estimate"] > 1


def overlap(one: dict[str, float], other: dict[str, float], part: float = 0.15) -> bool:
    """Whether two intervals of 95 % overlap, each a little wider."""
    return one["low"] * (1 - part) <= other["high"] * (1 + part) and other["low"] * (1 - part) <= one["high"] * (
        1 + part
    )


def test_the_how_tos_commands_are_taken_as_they_stand(lab: Lab, tmp_path: Path) -> None:
    """But for the ten minutes; nothing is sent where they run, and they say so."""
    page = (Path(__file__).parents[2] / "docs/how-to/see-what-you-would-gain.md").read_text()
    _, block = re.findall(r"```sh\n(.*?)```", page, re.S)
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(fleet(lab.topology)))
    (tmp_path / "origins.csv").write_text("prefix,asn,name\n192.0.2.0/24,64500,Test\n")
    lines = block.splitlines()
    assert len(lines) == 2
    for line in lines:
        _, *arguments = line.replace("10m", "200ms").split()
        done = lab.exec("ams-2", [str(binary()), *arguments, "--netns", "own"], check=False, cwd=tmp_path)
        assert done.returncode == 3
        assert "watch for longer" in done.stderr
        assert ("--json" in arguments) == bool(done.stdout)


def test_without_anything_sent_it_says_so(lab: Lab) -> None:
    done = lab.exec("ams-2", [str(binary()), "estimate", "--for", "200ms", "--netns", "own"], check=False)
    assert done.returncode == 3
    assert done.stdout == ""
    assert "watch for longer (--for)" in done.stderr

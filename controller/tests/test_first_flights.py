"""Outcomes of connections' first flights: from springtide-edge's eBPF program through the collector into the store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.collector import binary, wait_until
from lab.connections import own_network
from testkit import bpf
from testkit.bpf import Program
from testkit.home import Home

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "collector/packaging/springtide-collector.service"
DROP_IN = ROOT / "collector/packaging/start-values.conf"
KIND = "SAMPLE_KIND_FIRST_FLIGHT"
BUNDLE: dict[str, Any] = {
    "round": 1_767_322_800,
    "record_permille": 1000,
    "entries": [
        {"prefix": "127.0.2.0/24", "initcwnd": 40, "start_rate": 50_000_000},
        {"prefix": "127.0.3.0/24", "initcwnd": 22, "trial": {"permille": 1000, "initcwnd": 33}},
        {"prefix": "::1/128", "initcwnd": 60},
    ],
}
# In the cgroup: for each host and size the opener sends so many bytes and waits until the kernel says that all of them
# are acknowledged; then what the kernel says of it is the answer, and it closes.
SENDER = """
import json, os, socket, struct, sys, threading
def drain(listener):
    accepted = listener.accept()[0]
    while accepted.recv(1 << 20):
        pass
def one(host, size):
    listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    reader = threading.Thread(target=drain, args=(listener,))
    reader.start()
    opener = socket.create_connection(listener.getsockname()[:2])
    opener.sendall(b"x" * size)
    while (info := opener.getsockopt(6, 11, 256)) and struct.unpack_from("Q", info, 120)[0] <= size:
        pass
    said = {"src_port": opener.getsockname()[1], "dst_port": opener.getpeername()[1],
            "bytes_acked": struct.unpack_from("Q", info, 120)[0] - 1,
            "total_retrans": struct.unpack_from("I", info, 100)[0],
            "min_rtt": struct.unpack_from("I", info, 148)[0],
            "data_segs_out": struct.unpack_from("I", info, 156)[0]}
    opener.close()
    reader.join()
    listener.close()
    return said | {"netns": os.stat("/proc/self/ns/net").st_ino}
for line in sys.stdin:
    print(json.dumps([one(*each) for each in json.loads(line)]), flush=True)
"""


class Sender:
    """A process in the program's cgroup whose connections open, send and close."""

    def __init__(self, program: Program) -> None:
        self.process = program.popen(SENDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, *each: tuple[str, int]) -> list[dict[str, int]]:
        """Returns what the kernel said of each opener as it had sent everything."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(each).encode() + b"\n")
        self.process.stdin.flush()
        said: list[dict[str, int]] = json.loads(self.process.stdout.readline())
        return said

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


@pytest.fixture(scope="module")
def made() -> Iterator[Program]:
    with own_network(), bpf.program(f"ffl{os.getpid()}") as found:
        yield found


@pytest.fixture
def program(made: Program) -> Iterator[Program]:
    yield made
    made.withdraw()


@pytest.fixture
def sender(program: Program) -> Iterator[Sender]:
    made = Sender(program)
    yield made
    made.close()


class Collector:
    """One that runs, with what it writes."""

    def __init__(self, program: Program, spool: Path, *more: str) -> None:
        self.spool = spool
        command = [str(binary()), "run", "--stats", "--spool-dir", str(spool), "--host", "ams-1", "--pop", "ams"]
        often = ["--interval", "50ms", "--rotate-interval", "50ms", "--netns", "own", *more]
        pins = ["--start-values", str(program.pins)]
        self.process = subprocess.Popen([*command, *often, *pins], stderr=subprocess.PIPE, text=True)

    def flights(self) -> list[dict[str, Any]]:
        files = sorted(self.spool.glob("*.spool"))
        done = subprocess.run([binary(), "cat", *files], capture_output=True, text=True, check=bool(files))
        return [row for row in map(json.loads, done.stdout.splitlines()) if row["kind"] == KIND]

    def until(self, count: int) -> None:
        wait_until(f"{count} records", lambda: len(self.flights()) >= count)

    def stop(self) -> dict[str, int]:
        """Its counters."""
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, log
        stats: dict[str, int] = json.loads(log.splitlines()[-1])
        return stats


ROUND_TRIPS = ("first_acked_time", "acked_10k_time", "acked_50k_time", "acked_100k_time")


def test_a_record_is_one_row_and_agrees_with_the_kernel(program: Program, sender: Sender, home: Home) -> None:
    program.apply(BUNDLE)
    collector = Collector(program, home.spool)
    said = sender.send(("127.0.2.1", 300_000), ("127.0.3.1", 60_000), ("::1", 12_000), ("127.0.9.1", 12_000))
    # Both ends of a connection in the cgroup leave one, where an entry is for the peer; 127.0.9.1 has none.
    collector.until(4)
    stats = collector.stop()
    rows = {(row["src_port"], row["dst_port"]): row for row in collector.flights()}
    assert len(rows) == len(collector.flights()) == stats["flight_rows"]
    assert stats["flights_unreadable"] == stats["flights_filtered"] == 0
    mine = [rows.get((one["src_port"], one["dst_port"])) for one in said]
    assert mine[3] is None
    expected = [(40, 0, 24, 300_000), (33, 1, 24, 60_000), (60, 0, 128, 12_000)]
    for row, one, (window, arm, length, size) in zip(mine[:3], said[:3], expected, strict=True):
        assert row is not None
        assert [row[name] for name in ("started_round", "started_window", "started_arm")] == [
            BUNDLE["round"],
            window,
            arm,
        ]
        assert (row["started_step"], row["started_prefix_length"], row["netns"]) == (0, length, one["netns"])
        # The FIN counts as a byte.
        assert (row["bytes_acked"], one["bytes_acked"]) == (size + 1, size)
        assert (row["data_segs_out"], row["total_retrans"]) == (one["data_segs_out"], one["total_retrans"])
        assert row["first_flight_retrans"] <= row["total_retrans"]
        assert 0 < row["first_flight_segs"] <= row["data_segs_out"]
        assert row["state"] == "TCP_STATE_UNSPECIFIED"
        # Times rise, and are there for what was reached.
        reached = [
            name for name, bytes_ in zip(ROUND_TRIPS, (1, 10_000, 50_000, 100_000), strict=True) if size >= bytes_
        ]
        times = [row[name] for name in reached]
        assert times == sorted(times)
        assert times[0] > 0
        assert times[-1] <= row["lived_time"]
        assert not any(name in row for name in ROUND_TRIPS if name not in reached)
        assert abs(row["time_unix_us"] / 1e6 - time.time()) < 60
    # Only what has a rate shares it, and has a cap to lift.
    capped = [row for row in rows.values() if row["started_rate"]]
    assert [row["started_at_once"] for row in capped] == [1]
    assert {row["started_at_once"] for row in rows.values() if not row["started_rate"]} == {0}

    home.run("ingest", home.spool)
    [stored] = home.query(
        "select count() as n, uniqExact(cookie, netns) as sockets, sum(bytes_acked) as acked from tcp_samples final "
        "where kind = 'FIRST_FLIGHT'"
    )
    assert (stored["n"], stored["sockets"]) == (len(rows), len(rows))
    assert stored["acked"] == sum(row["bytes_acked"] for row in rows.values())


def test_what_was_sent_in_first_flights_is_not_what_a_long_connection_sent(
    program: Program, sender: Sender, home: Home
) -> None:
    """A cap is lifted long before 20 MB are acknowledged."""
    program.apply(BUNDLE)
    collector = Collector(program, home.spool)
    sender.send(("127.0.2.1", 20_000_000))
    collector.until(1)
    collector.stop()
    [row] = [one for one in collector.flights() if one["bytes_acked"] > 20_000_000]
    assert 0 < row["first_flight_segs"] < row["data_segs_out"] / 2


def test_a_collector_that_comes_back_reads_what_was_left_and_nothing_twice(
    program: Program, sender: Sender, home: Home
) -> None:
    program.apply(BUNDLE)
    first = Collector(program, home.spool)
    before = sender.send(*[("127.0.2.1", 20_000)] * 5)
    first.until(5)
    first.stop()
    meanwhile = sender.send(*[("127.0.2.1", 20_000)] * 7)
    second = Collector(program, home.spool)
    second.until(12)
    # New settings, and a new set of pins: what the old ring still holds is read.
    second.process.send_signal(signal.SIGHUP)
    after = sender.send(*[("::1", 20_000)] * 3)
    program.withdraw()
    program.apply(BUNDLE)
    last = sender.send(*[("127.0.3.1", 20_000)] * 4)
    second.until(12 + 2 * 3 + 4)
    second.stop()
    found = [row["cookie"] for row in second.flights()]
    assert len(found) == len(set(found))
    ports = {(row["src_port"], row["dst_port"]) for row in second.flights()}
    assert {(one["src_port"], one["dst_port"]) for one in [*before, *meanwhile, *after, *last]} <= ports


def test_what_may_not_be_read_is_said_and_costs_no_sample(
    program: Program, sender: Sender, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program.apply(BUNDLE)
    state = tmp_path_factory.mktemp("state")
    service = [sys.executable, "-m", "testkit.service", "--state", str(state), "--bring", str(binary())]
    run = ["run", "--polls", "2", "--interval", "100ms", "--stats", "--print", "null", "--netns", "own"]
    pins = ["--start-values", str(program.pins)]
    for units, expected in (((UNIT,), 0), ((UNIT, DROP_IN), 6)):
        sender.send(*[("127.0.2.1", 20_000)] * 3)
        command = [*service, *map(str, units), "--", "/srv/springtide-collector", *run, *pins]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        *log, counters = done.stderr.splitlines()
        assert json.loads(counters)["flight_rows"] == expected
        said = sum("how first flights went is not read" in line and "CAP_BPF" in line for line in log)
        assert said == (expected == 0), done.stderr
    # Nobody who is not root and has no such right gets there.
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    refused = subprocess.run(
        [*nobody, "cat", str(program.pins / "v6/records")], capture_output=True, text=True, check=False
    )
    assert "Permission denied" in refused.stderr


def test_sampling_and_other_namespaces_are_as_for_close_records(program: Program, sender: Sender, home: Home) -> None:
    program.apply(BUNDLE)
    collector = Collector(program, home.spool, "--sample", "4")
    # Each of 80 is taken with odds of a quarter: none is with odds of 1e-10.
    sender.send(*[("127.0.2.1", 2_000)] * 80)
    wait_until("80 records", lambda: program.status()["totals"]["records"] >= 80)
    collector.until(1)
    time.sleep(0.5)
    stats = collector.stop()
    assert 0 < stats["flight_rows"] < 80
    assert {row["sample_weight"] for row in collector.flights()} == {4}

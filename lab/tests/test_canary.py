"""A wave whose windows overflow a path ends at the canary: real sockets, samples, plays and gate."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.demo.edges import routing, start_collector
from lab.demo.product import CommandError, Springtide, make_publisher
from lab.demo.push import Push
from lab.fleet import fleet
from lab.lab import Lab
from lab.topology import Topology

# A burst of 100 segments does not fit the queue; what the kernel's default sends does.
TOPOLOGY = Topology.model_validate(
    {
        "name": "canary",
        "seed": 3,
        "pops": {
            "srv": {
                "region": "one",
                "prefixes": ["10.74.0.0/24"],
                "edges": {"srv-1": {"addresses": ["10.74.0.1"]}, "srv-2": {"addresses": ["10.74.0.2"]}},
            },
            "far": {
                "region": "two",
                "prefixes": ["10.74.1.0/24"],
                "edges": {"far-1": {"addresses": ["10.74.1.1"]}},
            },
            "near": {
                "region": "two",
                "prefixes": ["10.74.2.0/24"],
                "edges": {"near-1": {"addresses": ["10.74.2.1"]}},
            },
        },
        "rtt_ms": {"srv": {"far": 80, "near": 20}, "far": {"near": 50}},
        "paths": [{"src": "srv", "dst": "far", "rate_mbit": 50, "queue_packets": 41}],
        # Connections that stay, all to near.
        "traffic": {
            "kind": "small",
            "connections": 4,
            "requests_per_s": 1.0,
            "servers": ["srv"],
            "silent": [{"src": "srv", "dst": "far"}],
        },
    },
    strict=False,
)
INTERVAL = 20
POLICY = {
    "round": {"interval_s": INTERVAL},
    "gate": {"min_connections": 40, "before_s": 60, "max_silence_s": 30},
    "bundle": {"ttl_s": 900},
    "overrides": [
        {"src": "srv", "dst": "far", "initcwnd": 100, "until": "2100-01-01T00:00:00Z", "reason": "too much at once"}
    ],
}


@contextmanager
def beside(step: Callable[[], object]) -> Iterator[None]:
    """Does a step again and again until the block ends; what it raised is raised then."""
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            step()
            over.wait(5)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(repeat)
        try:
            yield
        finally:
            over.set()
            running.result(120)


@pytest.mark.root
@pytest.mark.proof
def test_windows_that_overflow_a_path_are_stopped_at_the_canary(tmp_path: Path) -> None:
    edges = TOPOLOGY.edges()
    product = Springtide(tmp_path / "store", tmp_path / "fleet.yaml", tmp_path / "policy.yaml", tmp_path / "publish")
    product.fleet.write_text(yaml.safe_dump(fleet(TOPOLOGY), sort_keys=False))
    product.policy.write_text(yaml.safe_dump(POLICY))
    product.text("migrate")
    make_publisher(tmp_path / "publisher", tmp_path / "allowed_signers")

    def ingest() -> None:
        product.json("ingest", str(tmp_path / "spool"))

    with Lab.up(TOPOLOGY, f"c{os.getpid()}") as lab, lab.load(600):
        push = Push(tmp_path, product, sorted(edges), lab.command)
        push.prepare()
        before = {edge: routing(lab, edge) for edge in edges}
        running = [start_collector(lab, edge, pop, tmp_path / "spool" / edge, "1s") for edge, pop in edges.items()]
        time.sleep(3)

        def fetch() -> None:
            assert all(one.ok for one in lab.probe(20, [100_000], [("srv", "far")], 0.2))

        with beside(fetch), beside(ingest):
            begun = int(time.time())
            # New connections from before the rollout, of a whole round.
            time.sleep(2 * INTERVAL + 3 - begun % INTERVAL)
            moment = datetime.fromtimestamp(int(time.time()) // INTERVAL * INTERVAL, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            product.json("decide", "initcwnd", "--round", moment, accept=(0, 3))
            product.json("publish", "--sign-key", str(tmp_path / "publisher"))
            with pytest.raises(CommandError):
                push.play("rollout.yml", springtide_gate_tries=20, springtide_gate_delay_s=4)
        for process in running:
            process.terminate()
        for process in running:
            process.wait(10)
        assert {edge: routing(lab, edge) for edge in edges} == before
    events = [json.loads(line) for line in (product.publish_dir / "journal.jsonl").read_text().splitlines()]
    gates = [event for event in events if event["event"] == "gate"]
    last: dict[str, Any] = gates[-1]
    print(len(gates), last["verdict"], last["reason"])
    assert last["verdict"] == "roll back"
    assert "lost of their first flight" in last["reason"]
    assert last["details"]["wave"] == 1
    [wave] = [event for event in events if event["event"] == "wave"]
    # One canary of srv; the other edge of it never had the window.
    [canary] = {"srv-1", "srv-2"} & set(wave["edges"])
    assert [event["verdict"] for event in events if event["event"] == "rollback"] == ["done"]
    shown = product.json(
        "sql",
        f"select countIf(has_lost) as lossy, count() as total from ("
        f"select cookie, max(total_retrans) > max(dsack_dups) as has_lost from tcp_samples "
        f"where host = '{canary}' and src_port = 80 and bytes_acked > 0 group by cookie having count() > 20)",
    )
    print(shown)
    # Those that were there before, seen at many polls, lost nothing; a busy machine sends again what was not lost.
    assert int(shown[0]["total"]) == 4
    assert int(shown[0]["lossy"]) == 0

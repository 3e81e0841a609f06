"""Edges that enforce by eBPF: a signed bundle that Ansible pushes acts on connections of that edge only."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from springtide.publication.folder import PublishFolder

from lab import cgroups, nginx, state
from lab.demo.edges import edge_command, routing
from lab.demo.product import Springtide, make_publisher
from lab.demo.push import Push
from lab.fleet import fleet
from lab.lab import Lab
from lab.topology import Topology
from testkit import published
from testkit.edge import enforcement, instant

NO_CAP = 0xFFFFFFFF
# Two edges of one PoP by eBPF, the third and the other PoP by routes.
TOPOLOGY = Topology.model_validate(
    {
        "name": "enforce",
        "pops": {
            "srv": {
                "prefixes": ["10.78.0.0/24", "fd78::/48"],
                "enforce": "bpf",
                "edges": {
                    "srv-1": {"addresses": ["10.78.0.1", "fd78::1"]},
                    "srv-2": {"addresses": ["10.78.0.2", "fd78::2"]},
                    "srv-3": {"addresses": ["10.78.0.3", "fd78::3"], "enforce": "routes"},
                },
            },
            "far": {
                "prefixes": ["10.78.1.0/24", "fd78:1::/48"],
                "edges": {"far-1": {"addresses": ["10.78.1.1", "fd78:1::1"]}},
            },
        },
        "rtt_ms": {"srv": {"far": 20}},
    },
    strict=False,
)
ENTRIES: dict[str, list[dict[str, Any]]] = {
    "srv-1": [{"prefix": "10.78.1.0/24", "initcwnd": 60, "start_rate": 5_000_000}],
    "srv-2": [{"prefix": "fd78:1::/48", "initcwnd": 40, "start_rate": 2_000_000}],
}
POLICY = {"enforce_overrides": [{"pop": "srv", "edges": ["srv-1", "srv-2"], "by": "bpf", "reason": "the lab's"}]}
# Window and pacing rate of a new connection to each address, right after the handshake.
CONNECT = """
import json, socket, struct, sys
found = []
for address in sys.argv[2:]:
    one = socket.create_connection((address, int(sys.argv[1])), 10)
    window = struct.unpack_from("=I", one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), 80)[0]
    found.append([window, one.getsockopt(1, 47) & 0xFFFFFFFF])
print(json.dumps(found))
"""


def connections(lab: Lab, edge: str) -> list[list[int]]:
    far = [str(address) for address in lab.topology.edge("far-1").addresses]
    found: list[list[int]] = json.loads(lab.exec(edge, [sys.executable, "-c", CONNECT, str(nginx.PORT), *far]).stdout)
    return found


def bundle(edge: str) -> dict[str, Any]:
    """Without its digest."""
    now = int(time.time())
    fields: dict[str, Any] = {
        "edge": edge,
        "pop": "srv" if edge.startswith("srv") else "far",
        "round": instant(now // 300 * 300),
        "policy_version": "0123456789ab",
        "created_at": instant(now),
        "expires_at": instant(now + 600),
    }
    by = "bpf" if edge in ENTRIES else "routes"
    return {"schema_version": 1, **fields, "enforce": enforcement(by), "entries": ENTRIES.get(edge, [])}


def test_an_edge_enforces_as_it_says_itself_or_its_pop_or_the_lab() -> None:
    assert [TOPOLOGY.enforced_by(edge) for edge in TOPOLOGY.edges()] == ["bpf", "bpf", "routes", "routes"]
    whole = TOPOLOGY.model_copy(update={"enforce": "bpf"})
    assert [whole.enforced_by(edge) for edge in whole.edges()] == ["bpf", "bpf", "routes", "bpf"]


@pytest.mark.root
def test_a_signed_bundle_reaches_connections_of_its_edge_only(tmp_path: Path) -> None:
    name = f"e{os.getpid()}"
    product = Springtide(tmp_path / "store", tmp_path / "fleet.yaml", tmp_path / "policy.yaml", tmp_path / "publish")
    product.fleet.write_text(yaml.safe_dump(fleet(TOPOLOGY), sort_keys=False))
    product.policy.write_text(yaml.safe_dump(POLICY))
    make_publisher(tmp_path / "publisher", tmp_path / "allowed_signers")
    bundles = {edge: bundle(edge) for edge in TOPOLOGY.edges()}
    published.publish(PublishFolder(product.publish_dir), bundles, tmp_path / "publisher", product.fleet.read_bytes())
    with Lab.up(TOPOLOGY, name) as lab:
        push = Push(tmp_path, product, sorted(TOPOLOGY.edges()), lab.command, lab.enforcing)
        push.prepare()
        before = {edge: routing(lab, edge) for edge in TOPOLOGY.edges()}
        assert connections(lab, "srv-1") == [[10, NO_CAP]] * 2
        push.play("rollout.yml", springtide_gate=False)
        [first, second, third, far] = [connections(lab, edge) for edge in TOPOLOGY.edges()]
        assert (first[0][0], first[1]) == (60, [10, NO_CAP])
        assert 0 < first[0][1] <= 5_000_000
        assert (second[0], second[1][0]) == ([10, NO_CAP], 40)
        assert 0 < second[1][1] <= 2_000_000
        assert [third, far[:1]] == [[[10, NO_CAP]] * 2, [[10, NO_CAP]]]
        # nginx was in the edge's cgroup before the program came: what it serves starts by the bundle too.
        assert lab.probe(1, [100_000], [("srv", "far")])[0].ok
        status = edge_command(lab, "srv-1", tmp_path / "edges/srv-1", "status")
        assert (status["drift"], status["program"]["totals"]["started"] >= 2) == ([], True)
        assert {edge: routing(lab, edge) for edge in TOPOLOGY.edges()} == before
        known = state.load(name)
        assert [Path(path).is_dir() for path in known.cgroups] == [True, True]
        pins = lab.pins("srv-1")
        assert pins is not None
        assert pins.is_dir()
        edge_command(lab, "srv-2", tmp_path / "edges/srv-2", "withdraw")
        assert connections(lab, "srv-2")[1] == [10, NO_CAP]
        assert connections(lab, "srv-1")[0][0] == 60
    assert not pins.exists()
    assert not any(Path(path).exists() for path in known.cgroups)


@pytest.mark.root
def test_a_cgroup_of_somebody_else_is_neither_taken_nor_removed() -> None:
    name = f"f{os.getpid()}"
    foreign = cgroups.of(name, "srv-2")
    foreign.mkdir()
    try:
        with pytest.raises(Exception, match=f"cgroup {foreign} exists already"):
            Lab.up(TOPOLOGY, name)
        assert name not in state.names()
    finally:
        foreign.rmdir()

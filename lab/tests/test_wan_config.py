"""Every valid topology is a network that the emulator accepts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab import host
from lab.topology import Topology
from lab.wan_config import render

share = st.floats(0, 1)
bursts = st.fixed_dictionaries({"enter_bad": share, "leave_bad": share}, optional={"loss_good": share})
shapes = st.fixed_dictionaries(
    {},
    optional={
        "jitter_ms": st.floats(0, 60_000),
        "loss": share | bursts,
        "rate_mbit": st.floats(0.001, 100_000),
        "poisson": st.booleans(),
        "queue_bytes": st.integers(1500, 1 << 30),
        "queue_packets": st.integers(1, 1_000_000),
        "policer": st.fixed_dictionaries(
            {"rate_mbit": st.floats(0.001, 100_000), "burst_bytes": st.integers(1500, 1 << 30)}
        ),
        "duplicate": share,
    },
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(1, 4), defaults=shapes, override=shapes, rtt=st.floats(0, 60_000), seed=st.integers(0, 2**63 - 1)
)
def test_what_the_lab_renders_the_emulator_accepts(
    tmp_path: Path, count: int, defaults: dict[str, object], override: dict[str, object], rtt: float, seed: int
) -> None:
    names = [f"p{index}" for index in range(count)]
    topology = Topology.model_validate(
        {
            "name": "any",
            "seed": seed,
            "pops": {
                name: {"prefixes": [f"10.9.{index}.0/24"], "edges": {f"{name}-1": {"addresses": [f"10.9.{index}.1"]}}}
                for index, name in enumerate(names)
            },
            "rtt_ms": {name: dict.fromkeys(names[index + 1 :], rtt) for index, name in enumerate(names)},
            "defaults": defaults,
            "paths": [{"src": "p0", "dst": "p1", **override}] if count > 1 else [],
        }
    )
    config = tmp_path / "wan.json"
    config.write_text(json.dumps(render(topology, "any")))
    done = subprocess.run([host.wan(), "--config", config, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"paths": []}, "wan.json: paths: has no path from ams to nyc; add it"),
        ({"seed": "x"}, "wan.json: seed: invalid type"),
        ({"nodes": []}, "wan.json: nodes: is empty"),
    ],
)
def test_a_wrong_file_is_refused_by_name_and_field(
    tmp_path: Path, topology: Topology, change: dict[str, object], message: str
) -> None:
    config = tmp_path / "wan.json"
    config.write_text(json.dumps(render(topology, "any") | change))
    done = subprocess.run([host.wan(), "--config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1

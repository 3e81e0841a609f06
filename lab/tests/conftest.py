"""A lab under a name of its own, so that tests and a person's lab do not meet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.lab import Lab
from lab.topology import Topology, load_topology

TOPOLOGY = Path(__file__).with_name("topology.yaml")


@pytest.fixture(scope="session")
def topology() -> Topology:
    return load_topology(TOPOLOGY)


@pytest.fixture(scope="module")
def lab(topology: Topology) -> Iterator[Lab]:
    """The test topology, up."""
    with Lab.up(topology, f"t{os.getpid()}") as found:
        yield found

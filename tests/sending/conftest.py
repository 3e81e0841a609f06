"""A network of its own for each test, with load on it, and a store that is ready."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.connections import connections, own_network
from testkit.home import FLEET, Home

CONNECTIONS = 500


@pytest.fixture
def network() -> Iterator[None]:
    """A network namespace with a loopback and nothing else."""
    with own_network():
        yield


@pytest.fixture
def load(network: None) -> Iterator[None]:
    """CONNECTIONS connections on it."""
    with connections(CONNECTIONS):
        yield


@pytest.fixture
def home(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A controller with a migrated store, and a fleet whose `ams` owns the loopback."""
    # The embedded engine keeps schemas that came with a request in a directory beside where it runs.
    monkeypatch.chdir(tmp_path)
    home = Home(tmp_path)
    home.fleet.write_text(FLEET.replace("10.77.1.0/24", "127.0.0.0/8"))
    home.policy.write_text("{}\n")
    home.spool.mkdir()
    shutil.copytree(template, home.path / "store", symlinks=True)
    return home

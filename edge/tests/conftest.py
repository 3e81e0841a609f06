"""A host that enforces bundles by the shipped command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit import host as hosts
from testkit.host import Host


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with hosts.made(tmp_path) as found:
        yield found

"""Network namespaces with a real kernel's routing tables, made for one test and deleted after it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.edge import Edge
from testkit.farm import Farm


@pytest.fixture(autouse=True)
def _root_where_marked(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("root") and os.geteuid() != 0:
        pytest.fail("this test makes network namespaces: run it as root", pytrace=False)


@pytest.fixture
def edge(tmp_path: Path, _root_where_marked: None) -> Iterator[Edge]:
    with Edge.made(tmp_path) as made:
        yield made


@pytest.fixture
def farm(tmp_path: Path, _root_where_marked: None) -> Iterator[Farm]:
    with Farm.made(tmp_path) as made:
        yield made

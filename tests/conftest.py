"""Fixtures that the tests across components share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _root_tests_say_so(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("root") and os.geteuid() != 0:
        pytest.fail("needs root: it makes network namespaces; run `sudo make test`", pytrace=False)

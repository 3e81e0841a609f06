"""How the tests share the machine's two cores."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent
# They fill emulated links, watch the whole machine's sockets or time what they see: one at a time.
ALONE = (ROOT / "lab/tests", ROOT / "tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need the machine to themselves go to one worker; the others fill the other one beside them."""
    for item in items:
        if any(folder in item.path.parents for folder in ALONE):
            item.add_marker(pytest.mark.xdist_group("machine"))

"""One fleet with two days behind it, for every query of every dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from springtide import instants
from springtide.store import Store

from testkit.history import lived
from testkit.home import ROUND, Home
from testkit.operated import operate


@pytest.fixture(scope="module")
def operated(history: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home, now = lived(history, tmp_path_factory.mktemp("operated")), [ROUND + 120]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instants, "now", lambda: now[0])
        operate(home, now)
    yield home
    home.release()


@pytest.fixture(scope="module")
def store(operated: Home) -> Iterator[Store]:
    opened = operated.open()
    yield opened
    opened.close()

"""One fleet with two days behind it, for every query of every dashboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from springtide import instants
from springtide.store import Store

from testkit.home import ROUND, Home
from testkit.operated import operate


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("operated"))
    now = [ROUND]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instants, "now", lambda: now[0])
        home.run("migrate")
        operate(home, now)
    return home


@pytest.fixture(scope="module")
def store(operated: Home) -> Iterator[Store]:
    opened = operated.open()
    yield opened
    opened.close()

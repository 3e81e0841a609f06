"""A fresh store, fleet, policy and spool for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from springtide import instants
from springtide.store import Store

from testkit import path_traffic, round_model
from testkit.home import FLEET, ROUND, Emptied, Home, Opened
from testkit.together import Together


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute past ROUND, for as long as the test takes."""
    monkeypatch.setattr(instants, "now", lambda: ROUND + 30)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute later than clock: ROUND's samples have had their time, and a decision does not roll it up again."""
    monkeypatch.setattr(instants, "now", lambda: ROUND + 90)


def installed(home: Home, store: Path | None = None) -> Home:
    """Fleet, default policy and empty spool; a copy of the store, where one is given."""
    home.fleet.write_text(FLEET)
    # Tests of one round expect its decision at once.
    home.policy.write_text("initcwnd: {duty_rounds: 1}\n")
    home.spool.mkdir()
    if store is not None:
        shutil.copytree(store, home.path / "store", symlinks=True)
    return home


@pytest.fixture
def bare_home(tmp_path: Path) -> Home:
    """An installation without a store."""
    return installed(Home(tmp_path))


@pytest.fixture(scope="session")
def emptied(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emptied]:
    yield Emptied(template, tmp_path_factory.mktemp("emptied"))
    Opened.release()


@pytest.fixture
def home(bare_home: Home, emptied: Emptied) -> Iterator[Home]:
    """As bare_home, with a migrated store, which stays open: commands of this process are lent it."""
    emptied.lend(bare_home)
    kept = bare_home.kept or {}
    yield bare_home
    if Opened.now is not emptied.opened and Opened.now in kept.values():
        Opened.release()


@pytest.fixture
def own_home(bare_home: Home, template: Path) -> Iterator[Home]:
    """As home, with a store that other processes may open."""
    Opened.release()
    shutil.copytree(template, bare_home.path / "store", symlinks=True)
    bare_home.kept = {}
    yield bare_home
    Opened.release()


@pytest.fixture
def each_opens(own_home: Home) -> None:
    """Each command opens the home's store, and closes it."""
    own_home.kept = None


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    opened = home.open()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def shared(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home for all tests of a file, with one store that stays open."""
    yield installed(Home(tmp_path_factory.mktemp("shared"), kept={}), template)
    Opened.release()


@pytest.fixture(scope="module")
def side_by_side(request: pytest.FixtureRequest, shared: Home) -> Together:
    """The cases of the file's tests that are selected, run in the file's store."""
    return Together((item for item in request.session.items if item.path == request.path), shared)


@pytest.fixture
def path_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's hosts are those of path_traffic.FLEET."""
    monkeypatch.setattr(round_model, "EDGES", path_traffic.EDGES)

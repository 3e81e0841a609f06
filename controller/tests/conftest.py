"""A fresh store, fleet, policy and spool for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from springtide import instants
from springtide.store import Store

from testkit import path_traffic, round_model
from testkit.home import FLEET, ROUND, Home
from testkit.together import Opened, Together


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated store, made once by the command that users run.

    What it says of migrations, a part of each, is made one part, as the engine does in time: they were three of four
    files of a copy, and a fifth of what opening it takes.
    """
    home = Home(tmp_path_factory.mktemp("template"))
    home.run("migrate")
    store = home.open()
    applied = store.query("select * from schema_migrations")
    store.execute("truncate table schema_migrations")
    store.insert("schema_migrations", applied)
    store.close()
    return home.path / "store"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute past ROUND, for as long as the test takes."""
    monkeypatch.setattr(instants, "now", lambda: ROUND + 30)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As clock, when ROUND's samples have had their time: a round that has its tables is not rolled up again."""
    monkeypatch.setattr(instants, "now", lambda: ROUND + 90)


@pytest.fixture
def bare_home(tmp_path: Path) -> Home:
    """Fleet, default policy and empty spool; no store yet."""
    Opened.release()
    home = Home(tmp_path)
    home.fleet.write_text(FLEET)
    # Tests of one round expect its decision at once.
    home.policy.write_text("initcwnd: {duty_rounds: 1}\n")
    home.spool.mkdir()
    return home


@pytest.fixture
def home(bare_home: Home, template: Path) -> Home:
    """As bare_home, with a migrated store."""
    shutil.copytree(template, bare_home.path / "store", symlinks=True)
    return bare_home


@pytest.fixture
def one_store(bare_home: Home) -> Iterator[None]:
    """What opens the home's store in this process is lent one that stays open."""
    bare_home.kept = {}
    yield
    Opened.release()


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    opened = home.open()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def shared(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """As home, with one store that stays open, for the tests of a file that share what it holds."""
    home = Home(tmp_path_factory.mktemp("shared"), kept={})
    home.fleet.write_text(FLEET)
    home.policy.write_text("initcwnd: {duty_rounds: 1}\n")
    home.spool.mkdir()
    shutil.copytree(template, home.path / "store", symlinks=True)
    yield home
    Opened.release()


@pytest.fixture(scope="module")
def side_by_side(
    request: pytest.FixtureRequest, template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Together]:
    """What the file's tests that are selected gave has been run, in a store of its own."""
    home = Home(tmp_path_factory.mktemp("together"))
    shutil.copytree(template, home.path / "store", symlinks=True)
    yield Together((item for item in request.session.items if item.path == request.path), Opened(home.open))
    Opened.release()


@pytest.fixture
def path_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's hosts are those of path_traffic.FLEET."""
    monkeypatch.setattr(round_model, "EDGES", path_traffic.EDGES)

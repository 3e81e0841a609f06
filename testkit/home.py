"""One installation of the controller in a folder, and its command line as a user has it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast
from unittest.mock import patch

from click.testing import CliRunner, Result
from springtide.cli import cli
from springtide.jobs import site
from springtide.store import Store, open_store
from springtide.store.migrations import require_current

# 2026-01-02T03:00:00Z
ROUND = 1_767_322_800

FLEET = """\
version: 1
pops:
  ams:
    region: europe
    prefixes: [10.77.1.0/24, "fd77:1::/48"]
    edges:
      ams-1: {address: 10.77.1.1}
      ams-2: {address: 10.77.1.2}
  fra:
    prefixes: [10.77.2.0/24, "fd77:2::/48"]
    edges:
      fra-1: {address: 10.77.2.1}
  nyc:
    prefixes: [10.77.3.0/24]
    edges:
      nyc-1: {address: 10.77.3.1}
"""


class Opened:
    """A store that is opened where it is asked for. The embedded engine opens one in a process: `release` closes it
    before another is opened."""

    now: ClassVar[Opened | None] = None

    def __init__(self, opens: Callable[[], Store]) -> None:
        self.opens = opens
        self.store: Store | None = None
        self.is_current = False

    def __call__(self) -> Store:
        if self.store is None:
            self.release()
            self.store, self.is_current, Opened.now = self.opens(), False, self
        return self.store

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
            self.store = None

    @classmethod
    def release(cls) -> None:
        if cls.now is not None:
            cls.now.close()
        cls.now = None


class Emptied:
    """One migrated store of this process, lent to test after test. It stays open, and each finds it empty: an open one
    is emptied in a tenth of the time that another takes to open."""

    def __init__(self, template: Path, folder: Path) -> None:
        self._template, self._store = template, folder / "store"
        self.opened = Opened(self._open)
        self._schema: Any = None

    def lend(self, home: Home) -> None:
        store = self.opened.store
        if store is None or not self._emptied(store):
            self.opened.close()
            shutil.rmtree(self._store, ignore_errors=True)
            shutil.copytree(self._template, self._store, symlinks=True)
        (home.path / "store").symlink_to(self._store)
        home.kept = {(home.store_url, None, 0): self.opened}

    def _open(self) -> Store:
        store = open_store(f"chdb://{self._store}", create=False, wait_s=10, on_wait=print)
        self._schema = self._schema or self._described(store)
        return store

    def _emptied(self, store: Store) -> bool:
        """Empties the store. False where a test changed more than rows, so that a fresh copy is needed."""
        if self._described(store) != self._schema:
            return False
        filled = store.query(
            """
            select distinct table from system.parts
            where database = 'springtide' and active and rows > 0 and table != 'schema_migrations'
            """
        )
        for row in filled:
            store.execute(f"truncate table {row['table']}")
        for row in store.query(
            "select name from system.dictionaries where database = 'springtide' and status = 'LOADED'"
        ):
            store.execute(f"system reload dictionary {row['name']}")
        # No table of the engine says whether a test has stopped them.
        store.execute("system start merges")
        return True

    @staticmethod
    def _described(store: Store) -> object:
        """Names and times of tables' definitions, functions, the applied migrations, and what the session has: its
        database, settings and temporary tables."""
        return store.query(
            """
            select
                (
                    select groupBitXor(cityHash64(name, metadata_modification_time)) from system.tables
                    where database = 'springtide' or is_temporary
                ) as tables,
                (select groupBitXor(cityHash64(name, create_query)) from system.functions) as functions,
                (select groupBitXor(cityHash64(*)) from springtide.schema_migrations) as migrations,
                (select groupBitXor(cityHash64(name)) from system.databases) as databases,
                (select groupBitXor(cityHash64(name, value)) from system.settings where changed) as settings,
                currentDatabase() as current
            """
        )


class Kept:
    """An open store that is lent: closing it leaves it open."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened(), name)

    def require_current(self) -> None:
        """Once for as long as it is open: it takes longer than most commands."""
        store = self._opened()
        if not self._opened.is_current:
            require_current(store)
            self._opened.is_current = True

    def close(self) -> None:
        pass


@dataclass
class Home:
    """One installation: its files, and `run` to use it.

    With `kept` (stores by how they are opened) each command in this process is lent a store that stays open. That one
    is closed when another is opened, and by `release`, which comes before another process opens it.
    """

    path: Path
    kept: dict[Any, Opened] | None = None

    @property
    def store_url(self) -> str:
        return f"chdb://{self.path / 'store'}"

    @property
    def fleet(self) -> Path:
        return self.path / "fleet.yaml"

    @property
    def policy(self) -> Path:
        return self.path / "policy.yaml"

    @property
    def spool(self) -> Path:
        return self.path / "spool"

    @property
    def publish_dir(self) -> Path:
        return self.path / "publish"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "SPRINGTIDE_STORE": self.store_url,
            "SPRINGTIDE_FLEET": str(self.fleet),
            "SPRINGTIDE_POLICY": str(self.policy),
            "SPRINGTIDE_PUBLISH_DIR": str(self.publish_dir),
        }

    def run(self, *arguments: object, code: int | None = 0) -> Result:
        """Run `springtide ARGUMENTS` and expect its exit code; None: any."""
        with patch.object(site, "open_store", self._open), patch.object(site, "require_current", self._require_current):
            result = CliRunner().invoke(cli, [str(argument) for argument in arguments], env=self.environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if code is not None and result.exit_code != code:
            raise AssertionError(f"exit code {result.exit_code} where {code} was expected:\n{result.output}")
        return result

    def json(self, *arguments: object, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def refused(self, *arguments: object) -> list[str]:
        """Run a command that ends with exit code 2; give back its one-line errors."""
        return self.run(*arguments, code=2).stderr.splitlines()

    def open(self) -> Store:
        return self._open(self.store_url, create=False, wait_s=10, on_wait=print)

    def _open(self, url: str, *, create: bool, **options: Any) -> Store:
        if self.kept is None or create:
            Opened.release()
            return open_store(url, create=create, **options)
        how = (url, options.get("limits"), str(options.get("engine")))
        return cast(Store, Kept(self.kept.setdefault(how, Opened(lambda: open_store(url, create=False, **options)))))

    @staticmethod
    def _require_current(store: Store) -> None:
        if isinstance(store, Kept):
            store.require_current()
        else:
            require_current(store)

    @staticmethod
    def release() -> None:
        Opened.release()

    def query(self, sql: str) -> list[dict[str, Any]]:
        store = self.open()
        try:
            return store.query(sql)
        finally:
            store.close()


def migrated(folder: Path) -> Path:
    """A migrated store for copies, made by the command that users run.

    Its rows of applied migrations are merged into one part, as the engine does in time: a part for each is two of five
    files of a copy.
    """
    home = Home(folder)
    home.run("migrate")
    store = home.open()
    applied = store.query("select * from schema_migrations")
    store.execute("truncate table schema_migrations")
    store.insert("schema_migrations", applied)
    store.close()
    return folder / "store"

"""The schema's files: cut short, run twice, and rendered for clusters."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from springtide.errors import InputError
from springtide.store import Param, Row, Store
from springtide.store.binary import Columns
from springtide.store.cluster import CREATE, SHARD_KEYS, render
from springtide.store.migrations import Migration, bookkeeping, migrate, read_migrations, status

from testkit.home import Home

MIGRATIONS = read_migrations()


class Killed(Exception):
    """The process is no more."""


class Mortal:
    """A store whose process dies after `life` changes."""

    def __init__(self, store: Store, life: int) -> None:
        self._store = store
        self._life = life
        self.url = store.url
        self.query = store.query
        self.columns = store.columns
        self.insert_messages = store.insert_messages
        self.parse_messages = store.parse_messages
        self.syntax = store.syntax
        self.close = store.close

    def execute(self, sql: str, params: Mapping[str, Param] | None = None) -> None:
        self._age()
        self._store.execute(sql, params)

    def insert(self, table: str, rows: Iterable[Row]) -> None:
        self._age()
        self._store.insert(table, rows)

    def insert_columns(self, table: str, columns: Columns) -> None:
        self._age()
        self._store.insert_columns(table, columns)

    def _age(self) -> None:
        if self._life == 0:
            raise Killed
        self._life -= 1


def schema(store: Store) -> list[Row]:
    return store.query(
        "select name, create_table_query from system.tables where database = currentDatabase() order by name"
    )


def test_a_migration_cut_short_anywhere_is_finished_by_the_next(bare_home: Home, store: Store) -> None:
    expected = schema(store)
    store.execute("create database again")
    store.execute("use again")
    life, deaths = 0, 0
    while True:
        try:
            migrate(Mortal(store, life), MIGRATIONS)
            break
        except Killed:
            life, deaths = life + 1, deaths + 1
    assert deaths > 10
    assert [state.state for state in status(store, MIGRATIONS)] == ["applied"] * len(MIGRATIONS)
    assert [
        {**row, "create_table_query": row["create_table_query"].replace("again.", "springtide.")}
        for row in schema(store)
    ] == expected


def test_two_at_once_both_end_well(bare_home: Home) -> None:
    command = [sys.executable, "-c", "from springtide.cli import main; main()", "migrate", "--json"]
    path = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, **bare_home.environment, "PYTHONPATH": path}
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(text.count(MIGRATIONS[0].path.name) for text in said) == 1
    assert {state["state"] for state in bare_home.json("migrate", "--status")} == {"applied"}


def test_every_statement_may_run_twice(store: Store) -> None:
    before = schema(store)
    for migration in MIGRATIONS:
        for statement in migration.statements:
            store.execute(statement)
    assert schema(store) == before


def test_names_that_are_no_migration_are_refused(tmp_path: Path) -> None:
    for name in ("1_x.sql", "xx_y.sql", "0001-x.sql"):
        (tmp_path / name).write_text("select 1;\n")
        with pytest.raises(InputError, match=r"call it NNNN_name\.sql"):
            read_migrations(tmp_path)
        (tmp_path / name).unlink()


def rendered() -> list[str]:
    return [*bookkeeping("main"), *(s for migration in MIGRATIONS for s in migration.rendered("main"))]


def test_the_engine_parses_every_rendered_statement(store: Store) -> None:
    for statement in rendered():
        [row] = store.query("select formatQuery({sql:String}) as text", {"sql": statement})
        assert "ON CLUSTER main" in row["text"]


@pytest.mark.parametrize("migration", MIGRATIONS, ids=lambda migration: migration.path.name)
def test_each_file_keeps_to_the_forms_that_clusters_know(migration: Migration) -> None:
    """When this fails for a new file: write it in one of the forms of store/cluster.py."""
    assert len(migration.rendered("main")) >= len(migration.statements)


def test_every_merge_tree_is_replicated_and_what_is_sharded_has_one_face() -> None:
    statements = rendered()
    made = {match["name"]: s for s in statements if (match := re.match(CREATE.pattern + " on cluster 'main'", s))}
    plain = {match["name"]: s for m in MIGRATIONS for s in m.statements if (match := CREATE.match(s))}
    for name, statement in plain.items():
        merge_tree = re.search(r"^engine = (\w*MergeTree)", statement, re.MULTILINE)
        if merge_tree is None:
            assert "MergeTree" not in made[name]
        elif name in SHARD_KEYS:
            assert f"engine = Replicated{merge_tree[1]}('/clickhouse/tables/{{shard}}/" in made[f"{name}_local"]
            assert f"Distributed('main', currentDatabase(), '{name}_local', {SHARD_KEYS[name]})" in made[name]
        else:
            assert f"engine = Replicated{merge_tree[1]}('/clickhouse/tables/all/" in made[name]
            assert f"{name}_local" not in made
    assert set(SHARD_KEYS) <= set(plain)
    assert not any(
        re.search(r"^engine = \w*(?<!Replicated)(?<!Replacing)(?<!Aggregating)MergeTree", s, re.M) for s in statements
    )


def test_a_shard_key_is_of_the_sorting_key(store: Store) -> None:
    """Then two copies of a sample, which agree in it, meet on one shard."""
    for table, key in SHARD_KEYS.items():
        query = "select sorting_key as k from system.tables where name = {t:String} and database = currentDatabase()"
        [row] = store.query(query, {"t": table})
        columns = re.findall(r"\w+", key.partition("(")[2])
        assert columns
        assert set(columns) <= set(re.findall(r"\w+", row["k"]))


MERGE_TREE = "create table if not exists x (a UInt8)\nengine = "


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("alter table tcp_samples modify ttl a", ["alter table tcp_samples_local on cluster 'c' modify ttl a"]),
        (
            "alter table tcp_samples\nadd column if not exists a UInt8",
            [
                "alter table tcp_samples_local on cluster 'c'\nadd column if not exists a UInt8",
                "alter table tcp_samples on cluster 'c'\nadd column if not exists a UInt8",
            ],
        ),
        ("drop view if exists v", ["drop view if exists v on cluster 'c'"]),
        (
            MERGE_TREE + "ReplacingMergeTree(a)\norder by a",
            [
                "create table if not exists x on cluster 'c' (a UInt8)\nengine = ReplicatedReplacingMergeTree("
                "'/clickhouse/tables/all/{database}/x', '{shard}-{replica}', a)\norder by a"
            ],
        ),
        (MERGE_TREE + "Kafka", ["create table if not exists x on cluster 'c' (a UInt8)\nengine = Kafka"]),
    ],
)
def test_each_form(statement: str, expected: Sequence[str]) -> None:
    assert render([statement], "c", "file") == expected


@pytest.mark.parametrize(
    "statement",
    [
        "insert into x values (1)",
        "create table x (a UInt8) engine = Memory",
        "create table if not exists x (a UInt8) engine = MergeTree order by a",
        MERGE_TREE + "TinyLog",
        MERGE_TREE + "MergeTree(f(a))\norder by a",
        "alter table x delete where 1",
    ],
)
def test_a_form_that_clusters_do_not_know_is_refused_by_file(statement: str) -> None:
    with pytest.raises(InputError, match=r"^0009_x\.sql: statement: .*; see the forms in store/cluster\.py$"):
        render([statement], "c", "0009_x.sql")


def test_the_command_renders_for_a_cluster_and_applies_only_to_servers(bare_home: Home) -> None:
    listed = bare_home.json("migrate", "--dry-run", "--cluster", "main")
    assert [s for file in listed for s in file["statements"]] == rendered()[1:]
    assert "on cluster 'main'" in bare_home.run("migrate", "--dry-run", "--cluster", "main").stdout
    assert "has no clusters" in bare_home.refused("migrate", "--cluster", "main")[0]
    assert "no name of a cluster" in bare_home.refused("migrate", "--cluster", "a'b", "--dry-run")[0]


def test_a_missing_number_is_refused(tmp_path: Path) -> None:
    for name in ("0001_a.sql", "0002_b.sql", "0004_d.sql"):
        (tmp_path / name).write_text("select 1;\n")
    with pytest.raises(InputError, match=r"0004_d\.sql: number: follows 0002_b\.sql: 0003 is missing"):
        read_migrations(tmp_path)
    (tmp_path / "0001_a.sql").unlink()
    with pytest.raises(InputError, match=r"0002_b\.sql: number: is the first one"):
        read_migrations(tmp_path)

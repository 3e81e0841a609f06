"""The migrations: interrupted, run twice, and rendered for clusters."""

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
from springtide.store.cluster import SHARD_KEYS, holes, render
from springtide.store.migrations import (
    bookkeeping,
    functions,
    functions_to_create,
    migrate,
    read_migrations,
    require_current,
    status,
)

from testkit import keeper
from testkit.home import Home

MIGRATIONS = read_migrations()


class Killed(Exception):
    """The process was killed."""


class Mortal:
    """A store whose process dies after `life` changes."""

    def __init__(self, store: Store, life: int) -> None:
        self._store = store
        self._life = life
        self.url = store.url
        self.query = store.query
        self.columns = store.columns
        self.frame = store.frame
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


def test_a_migration_interrupted_anywhere_is_finished_by_the_next(bare_home: Home, store: Store) -> None:
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


def test_two_at_once_both_succeed(bare_home: Home) -> None:
    command = [sys.executable, "-c", "from springtide.cli import main; main()", "migrate", "--json"]
    path = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, **bare_home.environment, "PYTHONPATH": path}
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(text.count(MIGRATIONS[0].path.name) for text in outputs) == 1
    assert {state["state"] for state in bare_home.json("migrate", "--status")} == {"applied"}


def test_every_statement_may_run_twice(store: Store) -> None:
    before = schema(store)
    for migration in MIGRATIONS:
        for statement in migration.rendered(None):
            store.execute(statement)
    assert schema(store) == before


def test_functions_are_created_where_they_are_missing_or_differ(store: Store) -> None:
    assert functions_to_create(store, None) == []
    assert functions_to_create(store, "main") == functions("main")
    assert all(" on cluster 'main' as " in statement for statement in functions("main"))
    store.execute("drop function springtide_prefix_text")
    with pytest.raises(InputError, match="lacks 1 functions, springtide_prefix_text first; run `springtide migrate`"):
        require_current(store)
    store.execute("create or replace function springtide_quantiles as (state) -> 1")
    # As another version might.
    store.execute("create function springtide_more as (x) -> x")
    assert len(functions_to_create(store, None)) == 2
    assert migrate(store, MIGRATIONS) == []
    assert functions_to_create(store, None) == []
    require_current(store)
    networks = "values('v UInt8, a String', (4, '::ffff:192.0.2.0'), (6, '2001:db8::'))"
    shown = f"select springtide_prefix_text(v, toIPv6(a)) as p from {networks}"
    assert [row["p"] for row in store.query(shown)] == ["192.0.2.0/24", "2001:db8::/56"]


def test_names_that_are_not_a_migrations_are_refused(tmp_path: Path) -> None:
    for name in ("1_x.sql", "xx_y.sql", "0001-x.sql"):
        (tmp_path / name).write_text("select 1;\n")
        with pytest.raises(InputError, match=r"call it NNNN_name\.sql"):
            read_migrations(tmp_path)
        (tmp_path / name).unlink()


def rendered() -> list[str]:
    return [*bookkeeping("main"), *(s for migration in MIGRATIONS for s in migration.rendered("main"))]


def test_the_engine_reads_every_statement_as_one_for_the_whole_cluster(store: Store) -> None:
    """By the engine's own formatting: on the cluster, and with an engine that replicates or has no rows."""
    for statement in rendered():
        [row] = store.query("select formatQuery({sql:String}) as text", {"sql": statement})
        assert "ON CLUSTER main" in row["text"]
        if row["text"].startswith("CREATE TABLE"):
            engine = row["text"].partition("ENGINE = ")[2]
            assert engine.startswith(("Replicated", "Distributed")), statement


def test_paths_of_replicated_tables_do_not_change(store: Store, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The paths of existing clusters: by name, and those of a shard with its number."""
    on_cluster = holes(keeper.CLUSTER)["on_cluster"]
    made = [s.replace(on_cluster, "") for s in rendered() if s.startswith(("create table", "create dictionary"))]
    found = keeper.replicas(tmp_path_factory.mktemp("keeper"), made)
    tables = store.query(
        "select name from system.tables where database = currentDatabase() and engine like '%MergeTree'"
    )
    expected = {row["name"]: (f"/clickhouse/tables/all/springtide/{row['name']}", "s1-r1") for row in tables}
    for name in SHARD_KEYS:
        del expected[name]
        expected[f"{name}_local"] = (f"/clickhouse/tables/s1/springtide/{name}", "r1")
    assert found == expected


def test_a_shard_key_is_part_of_the_sorting_key(store: Store) -> None:
    """Then two copies of a sample, which are equal in it, are on the same shard."""
    for table, key in SHARD_KEYS.items():
        query = "select sorting_key as k from system.tables where name = {t:String} and database = currentDatabase()"
        [row] = store.query(query, {"t": table})
        columns = re.findall(r"\w+", key.partition("(")[2])
        assert columns
        assert set(columns) <= set(re.findall(r"\w+", row["k"]))


WHOLE = "'/clickhouse/tables/all/{database}/{table}', '{shard}-{replica}'"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (
            "alter table tcp_samples$local$on_cluster modify ttl a;",
            ["alter table tcp_samples_local on cluster 'c' modify ttl a"],
        ),
        (
            "alter table tcp_samples$both$on_cluster\nadd column if not exists a UInt8; -- a\n",
            [
                "alter table tcp_samples_local on cluster 'c'\nadd column if not exists a UInt8",
                "alter table tcp_samples on cluster 'c'\nadd column if not exists a UInt8",
            ],
        ),
        ("drop view if exists v$on_cluster;", ["drop view if exists v on cluster 'c'"]),
        (
            "create table x$on_cluster (a UInt8) engine = ${replicated}ReplacingMergeTree(${replica_and}a);",
            [f"create table x on cluster 'c' (a UInt8) engine = ReplicatedReplacingMergeTree({WHOLE}, a)"],
        ),
        (
            "create table x$on_cluster (a UInt8) engine = ${replicated}MergeTree$replica order by a;",
            [f"create table x on cluster 'c' (a UInt8) engine = ReplicatedMergeTree({WHOLE}) order by a"],
        ),
        (
            "create table http_requests$local$on_cluster (a UInt8)"
            " engine = ${replicated}MergeTree$http_requests_replica;$http_requests_distributed\n",
            [
                "create table http_requests_local on cluster 'c' (a UInt8) engine = ReplicatedMergeTree"
                "('/clickhouse/tables/{shard}/{database}/http_requests', '{replica}')",
                "create table if not exists http_requests on cluster 'c' as http_requests_local\n"
                "engine = Distributed('c', currentDatabase(), 'http_requests_local', cityHash64(host, request_id))",
            ],
        ),
        ("select 1$on_cluster where a = '$$'", ["select 1 on cluster 'c' where a = '$'"]),
    ],
)
def test_each_hole(template: str, expected: Sequence[str]) -> None:
    assert render(template, "c", "file") == expected
    # For one server it is the same text without holes, as one statement.
    [bare] = render(template, None, "file")
    assert "_local" not in bare
    assert "luster" not in bare
    assert "eplica" not in bare


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("insert into x values (1);", "write $on_cluster"),
        ("create table x (a UInt8) engine = Memory;", "write $on_cluster"),
        ("create view if not exists v as select 1;", "write $on_cluster"),
        ("alter table x add column a UInt8;", "write $on_cluster"),
        ("drop view if exists v;\ndrop view if exists w$on_cluster;", "write $on_cluster"),
        ("create table x$on_cluster (a UInt8) engine = MergeTree order by a;", "write engine = ${replicated}MergeTree"),
        # The server would take a place of its own choice, where each shard has a table of its own.
        ("create table x$on_cluster (a UInt8) engine = ${replicated}MergeTree order by a;", "MergeTree$replica"),
        ("create table x$on_cluster (a UInt8) engine = ${replicated}ReplacingMergeTree(a);", "${replica_and}"),
        (
            "create table tcp_samples$local$on_cluster (a UInt8) engine = ${replicated}MergeTree$replica;\n",
            "write $tcp_samples_replica",
        ),
        ("alter table tcp_samples$on_cluster add column a UInt8;", "write tcp_samples$both$on_cluster"),
        ("drop table http_requests$on_cluster;", "write http_requests$both$on_cluster"),
    ],
)
def test_a_migration_that_lacks_a_hole_is_refused_with_its_file(tmp_path: Path, template: str, problem: str) -> None:
    (tmp_path / "0001_x.sql").write_text(template)
    [migration] = read_migrations(tmp_path)
    with pytest.raises(InputError, match=r"0001_x\.sql: statement: .* does not reach every table") as refused:
        migration.rendered("c")
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drop view v$on_custer;", r"\$on_custer is not a known hole; known are \$on_cluster,"),
        ("select '$'", "write \\$\\$"),
    ],
)
def test_a_hole_that_is_not_known_is_refused_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "0001_x.sql").write_text(text)
    with pytest.raises(InputError, match=rf"0001_x\.sql: hole: .*{message}"):
        read_migrations(tmp_path)


def test_the_command_renders_for_a_cluster_and_applies_only_to_servers(bare_home: Home) -> None:
    listed = bare_home.json("migrate", "--dry-run", "--cluster", "main")
    assert [s for file in listed for s in file["statements"]] == [*functions("main"), *rendered()[1:]]
    assert "on cluster 'main'" in bare_home.run("migrate", "--dry-run", "--cluster", "main").stdout
    assert "has no clusters" in bare_home.refused("migrate", "--cluster", "main")[0]
    assert "is not a valid name of a cluster" in bare_home.refused("migrate", "--cluster", "a'b", "--dry-run")[0]


def test_a_missing_number_is_refused(tmp_path: Path) -> None:
    for name in ("0001_a.sql", "0002_b.sql", "0004_d.sql"):
        (tmp_path / name).write_text("select 1;\n")
    with pytest.raises(InputError, match=r"0004_d\.sql: number: follows 0002_b\.sql: 0003 is missing"):
        read_migrations(tmp_path)
    (tmp_path / "0001_a.sql").unlink()
    with pytest.raises(InputError, match=r"0002_b\.sql: number: is the first one"):
        read_migrations(tmp_path)

"""A cluster of two shards has the same results as one server: the same commands, the same tables byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from springtide import instants
from springtide.learn.questions import questions
from springtide.observe.rollup import TABLES
from springtide.store import engine as loaded
from springtide.store import open_store
from springtide.store.cluster import SHARD_KEYS
from springtide.store.embedded import EmbeddedStore
from springtide.store.migrations import migrate, read_migrations

from testkit.history import ROUNDS, fill
from testkit.home import FLEET, ROUND, Home
from testkit.sharded import CLUSTER, WithoutKeeper, engine_of_two_shards, written_once

pytestmark = pytest.mark.proof


def history_in(path: Path, make_store: Callable[[Home], object]) -> Home:
    """Two days of history, a third of it delivered twice, its rounds and their decisions."""
    home = Home(path, kept={})
    home.fleet.write_text(FLEET)
    home.policy.write_text("{}\n")
    make_store(home)
    fill(home)
    store = home.open()
    for table in SHARD_KEYS:
        store.execute(f"insert into {table} select * from {table} where time_unix_us % 3 = 0")
    store.close()
    home.run("rollup", "--from", instants.show(ROUNDS[0]), "--to", instants.show(ROUNDS[2]))
    home.run("rollup", "--from", instants.show(ROUNDS[3]), "--to", instants.show(ROUND))
    # Replaces the first run's rows; and counts late samples.
    home.run("rollup", "--round", instants.show(ROUND))
    for moment in ROUNDS[-4:]:
        home.run("decide", "initcwnd", "--round", instants.show(moment))
    home.run("downsample")
    return home


def two_shards(home: Home) -> None:
    Home.release()
    store = open_store(home.store_url, create=True, wait_s=1, on_wait=print)
    try:
        migrate(WithoutKeeper(store), read_migrations(), CLUSTER)
    finally:
        store.close()


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instants, "now", lambda: ROUND + 120)
        yield patch


@pytest.fixture(scope="module")
def single(patch: pytest.MonkeyPatch, template: Path, tmp_path_factory: pytest.TempPathFactory) -> Home:
    def copied(home: Home) -> None:
        shutil.copytree(template, home.path / "store", symlinks=True)

    return history_in(tmp_path_factory.mktemp("single"), copied)


@pytest.fixture(scope="module")
def shards(single: Home, patch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """Created after `single`: the engine's configuration stays for the rest of the module, and has no effect there."""
    engine = engine_of_two_shards(tmp_path_factory.mktemp("engine"))
    patch.setattr(loaded, "engine_file", lambda **_: engine)
    patch.setattr(EmbeddedStore, "_write", written_once(EmbeddedStore._write))
    yield history_in(tmp_path_factory.mktemp("shards"), two_shards)
    Home.release()


def test_samples_are_on_both_shards_and_each_socket_on_one(shards: Home) -> None:
    for table, key in SHARD_KEYS.items():
        counts = shards.query(f"select shardNum() as shard, count() as n from {table} group by shard order by shard")
        assert [row["shard"] for row in counts] == [1, 2], table
        assert min(row["n"] for row in counts) > 100, table
        apart = f"select uniqExact(shardNum()) as shards from {table} group by {key.removeprefix('cityHash64')}"
        assert shards.query(f"select max(shards) as n from ({apart})") == [{"n": 1}], table


def test_a_distributed_table_has_the_columns_of_its_local_table_and_of_one_server(single: Home, shards: Home) -> None:
    """Fails for a migration that alters only one of the two."""
    columns = (
        "select name, type, default_kind, default_expression, compression_codec from system.columns "
        "where database = currentDatabase() and table = '{}' order by position"
    )
    # One store after the other: only one is open at a time.
    expected = {table: single.query(columns.format(table)) for table in SHARD_KEYS}
    for table, columns_of_one in expected.items():
        assert columns_of_one
        assert shards.query(columns.format(table)) == columns_of_one
        assert shards.query(columns.format(f"{table}_local")) == columns_of_one


def test_the_tables_are_the_same_byte_for_byte(single: Home, shards: Home) -> None:
    sketches = single.query(
        "select table, groupArray(name) as names from system.columns "
        "where database = currentDatabase() and type like 'AggregateFunction%' group by table"
    )
    states = {row["table"]: row["names"] for row in sketches}
    names = [table.replace("rollup_", "round_") for table in TABLES]
    queries = {}
    for name in [*names, "round_late", "pair_hours", "prefix_hours", "path_decisions"]:
        as_text = ", ".join(f"hex({state}) as {state}" for state in states.get(name, []))
        queries[name] = f"select * {f'replace ({as_text})' if as_text else ''} from {name}"
    one, two = (
        {name: sorted(map(repr, home.query(query))) for name, query in queries.items()} for home in (single, shards)
    )
    # This history has no late samples and no rogues, and no edge paces.
    empty = ("round_late", "round_rogues", "round_paths", "round_path_starts", "round_flights")
    for name in queries:
        assert (len(one[name]) > 0) == (name not in empty), name
        assert one[name] == two[name], name


def test_every_question_has_the_same_answer(single: Home, shards: Home) -> None:
    names = [question.name for question in questions()]
    answers = [[answer(home, name) for name in names] for home in (single, shards)]
    for name, one, two in zip(names, *answers, strict=True):
        assert one, name
        assert [named for named, _ in one] == [named for named, _ in two], name
        # Means of doubles depend on the order in which they are added up, and a digit is where one is rounded to.
        assert [measured for _, measured in two] == [pytest.approx(measured, abs=0.11) for _, measured in one]


def test_advice_is_the_same(single: Home, shards: Home) -> None:
    one, two = (home.json("advise") for home in (single, shards))
    assert one["paths_known"] == 12
    assert one == two


def answer(home: Home, question: str) -> list[tuple[str, list[float]]]:
    """Each row's texts, counts and nulls; and its doubles."""
    rows = [
        (
            repr([(name, value) for name, value in row.items() if not isinstance(value, float)]),
            [value for value in row.values() if isinstance(value, float)],
        )
        for row in home.json("sql", question)
    ]
    return sorted(rows)

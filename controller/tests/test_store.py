"""The store: schema, parameters, and one process at a time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from springtide.errors import InputError, StoreError
from springtide.store import Store, open_store
from springtide.store.migrations import migrate, read_migrations, refuse_differences, status

from testkit.home import Emptied, Home

# Examples share a store on purpose: opening one for each would be all the test did.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
SHARED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_migrate_applies_once_and_reports_its_state(bare_home: Home) -> None:
    names = [migration.path.name for migration in read_migrations()]
    assert bare_home.refused("migrate", "--status")
    assert not (bare_home.path / "store").exists()
    assert [n for n in names if f"-- {n}" in bare_home.run("migrate", "--dry-run").stdout] == names
    assert not (bare_home.path / "store").exists()
    assert bare_home.json("migrate") == {"applied": names}
    assert bare_home.json("migrate") == {"applied": []}
    assert [(s["name"], s["state"]) for s in bare_home.json("migrate", "--status")] == [(n, "applied") for n in names]
    assert bare_home.run("migrate", "--dry-run").stdout == ""


def edited(folder: Path, name: str | None = None, text: str = "") -> Path:
    """A copy of the schema, with one file changed or added."""
    folder.mkdir()
    for migration in read_migrations():
        (folder / migration.path.name).write_text(migration.sql)
    if name:
        (folder / name).write_text(text)
    return folder


def test_a_changed_file_is_refused_by_name_before_anything_is_applied(store: Store, tmp_path: Path) -> None:
    name = read_migrations()[1].path.name
    folder = edited(tmp_path / "sql", name, "select 1;\n")
    (folder / "0099_x.sql").write_text("create table x (a UInt8) engine = Memory;\n")
    (folder / "0099_x.sql").rename(folder / f"{read_migrations()[-1].number + 1:04}_x.sql")
    with pytest.raises(InputError, match=rf"{re.escape(name)}: checksum: differs from what was applied"):
        migrate(store, read_migrations(folder))
    assert store.query("select 1 from system.tables where name = 'x'") == []


def test_a_store_of_a_newer_version_is_refused(store: Store) -> None:
    with pytest.raises(InputError, match="which this version of springtide does not have"):
        refuse_differences(store, status(store, read_migrations()[:-1]))


def test_a_new_file_is_applied_and_a_half_applied_one_again(store: Store, tmp_path: Path) -> None:
    number = read_migrations()[-1].number + 1
    text = "create table if not exists a (x UInt8) engine = Memory; -- one;\ncreate table if not exists b (x Nope);\n"
    folder = edited(tmp_path / "sql", f"{number:04}_more.sql", text)
    with pytest.raises(StoreError, match="Nope"):
        migrate(store, read_migrations(folder))
    (folder / f"{number:04}_more.sql").write_text(text.replace("Nope", "UInt8").replace(");\n", ") engine = Memory;\n"))
    assert [migration.number for migration in migrate(store, read_migrations(folder))] == [number]
    assert len(store.query("select name from system.tables where name in ('a', 'b')")) == 2


def test_a_number_used_twice_is_refused(tmp_path: Path) -> None:
    for name in ("0001_a.sql", "0002_b.sql", "0002_c.sql"):
        (tmp_path / name).write_text("select 1;\n")
    with pytest.raises(InputError, match=r"0002_c\.sql: number: has the number of 0002_b\.sql; use the next free one"):
        read_migrations(tmp_path)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("chdb://relative/path", "is not a store; write chdb:///DIRECTORY, or clickhouse://"),
        ("/var/lib/store", "is not a store"),
        ("chdb:///", "is not a store"),
        ("chdb:///nowhere/at/all", "run `springtide migrate` first"),
    ],
)
def test_urls_that_are_not_a_store(bare_home: Home, url: str, message: str) -> None:
    [line] = bare_home.refused("decide", "initcwnd", "--store", url)
    assert message in line


@given(text=TEXT, items=st.lists(TEXT, max_size=5))
@SHARED
def test_text_parameters_arrive_as_they_are(store: Store, text: str, items: list[str]) -> None:
    [row] = store.query("select {t:String} as t, {a:Array(String)} as a", {"t": text, "a": items})
    assert row == {"t": text, "a": items}


@given(st.floats(allow_nan=False, allow_infinity=False))
@SHARED
def test_doubles_come_back_bit_for_bit(store: Store, value: float) -> None:
    store.execute("create table if not exists doubles (x Float64) engine = Memory")
    store.execute("truncate table doubles")
    store.insert("doubles", [{"x": value}])
    [row] = store.query("select x, {x:Float64} = x as same from doubles", {"x": value})
    assert (float(row["x"]), row["same"]) == (value, 1)


def test_integers_beyond_doubles_and_nulls(store: Store) -> None:
    [row] = store.query("select {n:UInt64} as n, {m:Nullable(UInt8)} as m, nan as x", {"n": 2**64 - 1, "m": None})
    assert row == {"n": 2**64 - 1, "m": None, "x": None}


@pytest.mark.parametrize("read", ["query", "columns"])
def test_what_a_failed_statement_gave_is_in_no_other_ones_result(store: Store, read: str) -> None:
    late = "select number from numbers(300000) where throwIf(number = 290000, 'late') = 0 settings max_block_size = 999"
    with pytest.raises(StoreError, match="late"):
        store.query(late) if read == "query" else store.columns(late, np.dtype([("number", "<u8")]))
    assert store.query("select 1 as n") == [{"n": 1}]
    assert store.columns("select toUInt8(1) as n", np.dtype([("n", "u1")])).tolist() == [(1,)]


def test_an_engine_error_is_one_line_with_its_code(store: Store) -> None:
    with pytest.raises(StoreError, match="UNKNOWN_TABLE") as caught:
        store.query("select *\nfrom nowhere")
    assert caught.value.code == 60
    assert "\n" not in str(caught.value)


def test_a_lent_store_has_nothing_of_the_test_before(template: Path, tmp_path: Path) -> None:
    lender = Emptied(template, tmp_path)

    def lent() -> Store:
        home = Home(tmp_path / str(len(list(tmp_path.iterdir()))))
        home.path.mkdir()
        lender.lend(home)
        return home.open()

    for left, asked in (
        ("insert into late_samples (host) values ('a')", "count() from late_samples"),
        ("set max_threads = 3", "getSetting('max_threads') = 3"),
        ("create temporary table kept (n UInt8)", "count() from system.tables where name = 'kept'"),
        ("create database other", "count() from system.databases where name = 'other'"),
        ("use default", "currentDatabase() = 'default'"),
    ):
        lent().execute(left)
        [found] = lent().query(f"select {asked}")
        assert not any(found.values()), left
    lent().execute("system stop merges")
    store = lent()
    for host in "ab":
        store.insert("late_samples", [{"host": host}])
    store.execute("optimize table late_samples final")


HOLDER = """
import sys
from springtide.store import open_store
store = open_store(sys.argv[1], create=False, wait_s=10, on_wait=print)
print("open", flush=True)
sys.stdin.readline()
store.close()
"""


def holder(home: Home) -> subprocess.Popen[str]:
    """Another process that has the store open until a line is sent to it, or it is killed."""
    command = [sys.executable, "-c", HOLDER, home.store_url]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


@pytest.mark.parametrize("zone", ["Nowhere/Atall", "../x"])
def test_a_bad_time_zone_of_the_environment_is_ignored(own_home: Home, zone: str) -> None:
    springtide = str(Path(sys.executable).with_name("springtide"))
    command = [springtide, "sql", "select timezone() as zone", "--json"]
    environment = {**os.environ, **own_home.environment, "TZ": zone}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)[0]["zone"] == "UTC"


def test_a_held_store_is_waited_for_and_its_holder_named(own_home: Home) -> None:
    process = holder(own_home)
    holders: list[str] = []

    def on_wait(who: str) -> None:
        holders.append(who)
        process.communicate("close\n")

    store = open_store(own_home.store_url, create=False, wait_s=30, on_wait=on_wait)
    assert store.query("select 1 as one") == [{"one": 1}]
    store.close()
    assert holders == [f"pid {process.pid} (-c {own_home.store_url})"]


def test_waiting_ends_with_the_holders_name(own_home: Home) -> None:
    process = holder(own_home)
    try:
        result = own_home.run("decide", "initcwnd", "--store-wait", 0.2, code=1)
    finally:
        process.communicate("close\n")
    assert f"held by pid {process.pid}" in result.stderr.splitlines()[-1]
    assert "waited 0.2 s" in result.stderr.splitlines()[-1]


def test_a_store_is_made_where_a_link_leads(bare_home: Home) -> None:
    (bare_home.path / "store").symlink_to("disk/store")
    bare_home.run("migrate")
    assert (bare_home.path / "disk/store.lock").exists()
    assert bare_home.json("migrate") == {"applied": []}


def test_a_store_that_is_a_link_to_itself_is_told_in_one_line(bare_home: Home) -> None:
    (bare_home.path / "store").symlink_to("store")
    result = bare_home.run("migrate", code=1)
    assert len(result.stderr.splitlines()) == 1, result.stderr


def test_a_killed_process_holds_no_lock(own_home: Home) -> None:
    process = holder(own_home)
    process.kill()
    process.communicate()
    own_home.run("rollup", "--store-wait", 0)


def test_a_crash_of_an_engines_thread_ends_the_process_and_frees_the_store(own_home: Home) -> None:
    """As a library that the engine loads would crash; without ours the engine's own handler waits forever."""
    crash = """
import ctypes, sys, threading
from springtide.store import open_store
opened = open_store(sys.argv[1], create=False, wait_s=9, on_wait=print)
threading.Thread(target=ctypes.CDLL(None).abort).start()
threading.Event().wait()
"""
    command = [sys.executable, "-c", crash, own_home.store_url]
    done = subprocess.run(command, env={**os.environ, **own_home.environment}, timeout=60, check=False)
    assert done.returncode == -signal.SIGABRT
    own_home.run("rollup", "--store-wait", 0)


@pytest.mark.parametrize("expression", ["toUInt32(number)", "toNullable(toUInt8(1))", "toInt8(-1)", "'a'"])
def test_a_column_of_another_type_is_refused_and_not_read_as_other_values(store: Store, expression: str) -> None:
    with pytest.raises(StoreError, match=r"column a is of type .*, not UInt8"):
        store.columns(f"select {expression} as a from numbers(4)", np.dtype([("a", "u1")]))

"""An insert without an error is stored, in every table: many days, limits, and a disk that is full."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from springtide.errors import StoreError
from springtide.frame import Coded
from springtide.store import Store, binary, open_store

from testkit.home import Home
from testkit.spool import record, write_spool
from testkit.traffic import Socket


def days(count: int) -> list[dict[str, object]]:
    """One request on each of that many days."""
    common = {"host": "h", "client_ip": "::1", "server_ip": "::1", "method": "GET", "status": 200}
    first = 1_767_322_800_000_000
    return [{"time_unix_us": first + 86_400_000_000 * n, "request_id": str(n), **common} for n in range(count)]


def test_an_insert_over_many_days_is_stored(store: Store) -> None:
    """A day is a partition, of which the engine accepts a hundred in one insert by default."""
    store.insert("http_requests", days(150))
    assert store.query("select count() as n from http_requests final") == [{"n": 150}]


def test_columns_that_end_before_their_last_row_are_an_error_with_its_cause(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine reads from a pipe, and takes its end for the end of the rows."""
    whole = binary._block

    def first(columns: binary.Columns, structure: Sequence[tuple[str, str]], rows: slice) -> Iterator[object]:
        if rows.start:
            raise MemoryError("no more")
        return whole(columns, structure, rows)

    monkeypatch.setattr(binary, "_BLOCK_ROWS", 10)
    monkeypatch.setattr(binary, "_block", first)
    store.execute("create table numbered (d Int64) engine = MergeTree order by d")
    with pytest.raises(MemoryError, match="no more"):
        store.insert_columns("numbered", {"d": np.arange(25)})
    monkeypatch.undo()
    store.insert_columns("numbered", {"d": np.arange(25)})


def test_texts_of_which_few_are_different_are_read_as_they_were_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written in several blocks, each with all texts; and read as one, whatever number of rows was expected."""
    monkeypatch.setattr(binary, "_BLOCK_ROWS", 10)
    store.execute("create table coded (d Int64, t LowCardinality(String)) engine = MergeTree order by d")
    texts = np.array([b"", b"first", b"x" * 200])
    numbers = (np.arange(35) * 7 % 3).astype(np.uint16)
    store.insert_columns("coded", {"d": np.arange(35), "t": Coded(texts, numbers)})
    form = np.dtype([("d", "<i8"), ("t", "S200")])
    for expected in (0, 12, 35, 100):
        found = store.frame(
            "select d, toFixedString(t, 200) as t from coded order by d settings max_block_size = 10",
            form,
            expected=expected,
        )
        assert found["d"].tolist() == list(range(35))
        assert found["t"].tolist() == texts[numbers].tolist()


@pytest.mark.parametrize("expected", [0, 120, 1000])
def test_texts_of_blocks_that_number_them_each_in_its_own_way_are_read(store: Store, expected: int) -> None:
    sql = """
        select number as d, toFixedString(toLowCardinality(toString(number % 3 + intDiv(number, 50) * 2)), 8) as t
        from numbers(200) settings max_block_size = 50
    """
    found = store.frame(sql, np.dtype([("d", "<u8"), ("t", "S8")]), expected=expected)
    assert found["d"].tolist() == list(range(200))
    assert found["t"].tolist() == [str(number % 3 + number // 50 * 2).encode() for number in range(200)]


def test_texts_take_no_more_room_than_a_statement_gives_them(store: Store) -> None:
    sql = "select toFixedString('abc', {width:UInt8}) as t from numbers(3)"
    for width in (3, 8):
        found = store.frame(sql, np.dtype([("t", "S8")]), {"width": width})
        assert found["t"].tolist() == [b"abc"] * 3
    with pytest.raises(StoreError, match="FixedString"):
        store.frame(sql, np.dtype([("t", "S8")]), {"width": 9})


def test_an_insert_that_the_engine_refuses_is_an_error(store: Store) -> None:
    store.execute("create table narrow (d Int64) engine = MergeTree partition by d order by d")
    store.execute("alter table narrow add constraint small check d < 5")
    with pytest.raises(StoreError, match="Constraint `small`"):
        store.insert("narrow", [{"d": 1}, {"d": 9}])
    with pytest.raises(StoreError, match="Constraint `small`"):
        store.insert_columns("narrow", {"d": np.array([1, 9])})
    store.insert("narrow", [{"d": 1}, {"d": 2}])
    store.insert_columns("narrow", {"d": np.array([3, 4])})
    assert store.query("select count() as n from narrow") == [{"n": 4}]


@pytest.fixture
def small_disk(tmp_path: Path, template: Path) -> Iterator[Path]:
    """A file system of its own for the store, without free space where `full`."""
    Home.release()
    at = tmp_path / "disk"
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(at)], check=True)
    try:
        shutil.copytree(template, at / "store", symlinks=True)
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """No free space, whatever is freed meanwhile: once open, the engine removes parts that migrations have merged."""
    path, filled, ended = disk / "filled", threading.Event(), threading.Event()

    def fill() -> None:
        with path.open("wb", buffering=0) as file:
            while not ended.is_set():
                with suppress(OSError):
                    while file.write(bytes(4096)):
                        pass
                filled.set()
                ended.wait(0.001)

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        filled.wait()
        yield
    finally:
        ended.set()
        thread.join()
        path.unlink()


DECIDED = {"round": 1_767_322_800, "src_pop": "ams", "destination": "fra"}
WRITERS: dict[str, Callable[[Store], None]] = {
    "http_requests": lambda store: store.insert("http_requests", days(1)),
    "ingest_ledger": lambda store: store.insert("ingest_ledger", [{"digest": "d" * 32, "outcome": "loaded"}]),
    "audit": lambda store: store.insert("audit", [{"at": 1_767_322_800, "event": "publish"}]),
    "path_decisions": lambda store: store.insert("path_decisions", [DECIDED]),
    "rollups": lambda store: store.insert_columns(
        "rollups", {"round": np.array([1_767_322_800], "u4"), "generation": np.array([1], "u8")}
    ),
    "rollup_hosts": lambda store: store.execute(
        "insert into rollup_hosts (round, generation, host) select 1767322800, 1, 'h'"
    ),
}


@pytest.mark.root
def test_on_a_full_disk_every_writer_fails_and_says_why(small_disk: Path) -> None:
    store = open_store(f"chdb://{small_disk}/store", create=False, wait_s=10, on_wait=print)
    try:
        with full(small_disk):
            for write in WRITERS.values():
                with pytest.raises(StoreError, match=r"not enough space|No space left"):
                    write(store)
        for write in WRITERS.values():
            write(store)
    finally:
        store.close()


@pytest.mark.root
def test_ingest_on_a_full_disk_fails_and_loads_everything_once_there_is_room(small_disk: Path, bare_home: Home) -> None:
    (bare_home.path / "store").symlink_to(small_disk / "store")
    rows = [Socket("ams-1", n, "10.77.1.1", "10.77.2.2").at(1_767_322_800, 1, n) for n in range(50)]
    write_spool(bare_home.spool, "a", [record(rows)])
    with full(small_disk):
        assert "space" in bare_home.run("ingest", bare_home.spool, "--delete", code=1).stderr
        assert (bare_home.spool / "a.spool").exists()
    assert bare_home.json("ingest", bare_home.spool, "--delete")["rows"] == 50
    assert bare_home.query("select count() as n from tcp_samples final") == [{"n": 50}]


def test_rows_survive_a_power_cut_once_offsets_are_committed_and_files_deleted(store: Store) -> None:
    rows = store.query("select name, engine_full from system.tables where database = currentDatabase()")
    engines = {row["name"]: row["engine_full"] for row in rows}
    for table in ("tcp_samples", "http_requests", "rejected_messages", "ingest_ledger"):
        assert "fsync_after_insert = 1" in engines[table], table
        assert "fsync_part_directory = 1" in engines[table], table

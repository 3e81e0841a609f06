"""Bytes that a sample takes on disk after merges: by the schema's codecs, and what other codecs would take."""

from __future__ import annotations

import re

from springtide.store import Store

from bench.pipeline.traffic import INTERVAL_S
from bench.runner import Run

# For every type on which the engine takes them; the others keep what they have.
CANDIDATES = ("ZSTD(1)", "Delta, ZSTD(1)", "DoubleDelta, ZSTD(1)", "T64, ZSTD(1)", "ZSTD(3)")
NUMBERS = re.compile(r"U?Int|Enum|Bool|DateTime")


def measure_storage(run: Run, store: Store) -> None:
    """Bytes a row of tcp_samples as it is, of its active rows alone, and of the ten biggest columns."""
    store.execute("optimize table tcp_samples final")
    columns = column_bytes(store, "tcp_samples")
    rows, size = _size(store, "tcp_samples")
    # An idle socket's last data is older than the poll before.
    store.execute("create table active as tcp_samples")
    store.execute(
        "insert into active select * from tcp_samples where last_data_sent < {ms:UInt32}", {"ms": 1000 * INTERVAL_S}
    )
    store.execute("optimize table active final")
    active_rows, active_size = _size(store, "active")
    store.execute("drop table active")
    biggest = sorted(columns.items(), key=lambda item: -item[1])[:10]
    run.figure("bytes_per_row", size / rows)
    run.figure("active_rows", active_rows)
    run.figure("bytes_per_active_row", active_size / active_rows)
    for name, taken in biggest:
        run.figure("column_bytes_per_row", taken / rows, column=name)


def measure_codecs(run: Run, store: Store) -> None:
    """Bytes a row that each column takes under each candidate, over the rows of tcp_samples."""
    described = store.query(
        "select name, type, default_kind from system.columns "
        "where database = currentDatabase() and table = 'tcp_samples' and default_kind != 'ALIAS' order by position"
    )
    [made] = store.query("select sorting_key as key from system.tables where name = 'tcp_samples'")
    for candidate in CANDIDATES:
        columns = ", ".join(
            f"{row['name']} {row['type']} codec ({candidate if _takes(row['type'], candidate) else 'ZSTD(1)'})"
            for row in described
        )
        store.execute(f"create table tried ({columns}) engine = MergeTree order by ({made['key']})")
        names = ", ".join(row["name"] for row in described)
        store.execute(f"insert into tried ({names}) select {names} from tcp_samples")
        store.execute("optimize table tried final")
        rows, _ = _size(store, "tried")
        for name, taken in column_bytes(store, "tried").items():
            run.figure("codec_bytes_per_row", taken / rows, column=name, codec=candidate)
        store.execute("drop table tried sync")


def column_bytes(store: Store, table: str) -> dict[str, int]:
    """Bytes of each column on disk, its marks too."""
    rows = store.query(
        "select column, sum(column_bytes_on_disk) as n from system.parts_columns "
        "where database = currentDatabase() and table = {table:String} and active group by column",
        {"table": table},
    )
    return {row["column"]: int(row["n"]) for row in rows}


def _size(store: Store, table: str) -> tuple[int, int]:
    [row] = store.query(
        "select sum(rows) as n, sum(bytes_on_disk) as size from system.parts "
        "where database = currentDatabase() and table = {table:String} and active",
        {"table": table},
    )
    return int(row["n"]), int(row["size"])


def _takes(kind: str, candidate: str) -> bool:
    if candidate.startswith("ZSTD"):
        return True
    return bool(NUMBERS.match(re.sub(r"^Nullable\((.*)\)$", r"\1", kind)))

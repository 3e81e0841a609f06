"""A store whose samples are on two shards, as those of a cluster are, in one engine.

The schema is the one that is rendered for clusters, without what needs a Keeper (`on cluster`, Replicated). Both shards
are the engine of this process: it uses a server of its own address and port without a connection, but by the same plan.
Their rows are in one local table, of which a filter shows each shard those that the Distributed table sent to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from springtide.store import Store
from springtide.store.base import Param
from springtide.store.cluster import SHARD_KEYS, holes
from springtide.store.embedded import EmbeddedStore
from springtide.store.files import engine_file

CLUSTER = "two"
PORT = 9000
# Text that only a cluster with a Keeper accepts.
KEEPER = [text for hole, text in holes(CLUSTER).items() if hole == "on_cluster" or "repli" in hole]


def engine_of_two_shards(folder: Path) -> Path:
    """Write the engine's own configuration with the cluster added; returns the file to start it with."""
    shards = "".join(
        f"<shard><replica><host>{host}</host><port>{PORT}</port></replica></shard>"
        for host in ("127.0.0.1", "localhost")
    )
    filters = {f"springtide.{name}_local": f"{key} % 2 = shardNum() - 1" for name, key in SHARD_KEYS.items()}
    added = {
        "engine.xml": (
            "<clickhouse>",
            f"<tcp_port>{PORT}</tcp_port><remote_servers><{CLUSTER}>{shards}</{CLUSTER}></remote_servers>",
        ),
        "users.xml": (
            "<default>",
            "<distributed_foreground_insert>1</distributed_foreground_insert>"
            f"<additional_table_filters>{escape(repr(filters))}</additional_table_filters>",
        ),
    }
    for name, (after, text) in added.items():
        original = (engine_file().parent / name).read_text()
        if after not in original:
            raise ValueError(f"{name} has no {after}")
        (folder / name).write_text(original.replace(after, after + text, 1))
    return folder / "engine.xml"


def written_once(
    write: Callable[[EmbeddedStore, str, str, int | None], int],
) -> Callable[[EmbeddedStore, str, str, int | None], int]:
    """Instead of EmbeddedStore._write: where one process is both shards, rows of a sharded table are written twice,
    into its Distributed table and into the local table behind it."""

    def counted(store: EmbeddedStore, table: str, statement: str, rows: int | None = None) -> int:
        times = 2 if table.partition(" ")[0] in SHARD_KEYS else 1
        return write(store, table, statement, None if rows is None else rows * times) // times

    return counted


class WithoutKeeper:
    """A store that runs statements rendered for CLUSTER without a Keeper; everything else is delegated to it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def execute(self, sql: str, params: Mapping[str, Param] | None = None) -> None:
        for text in KEEPER:
            sql = sql.replace(text, "")
        self._store.execute(sql, params)

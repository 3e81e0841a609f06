"""Where SQL and the protobuf contract are."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from springtide.shipped import shipped


def migrations_folder() -> Path:
    return shipped("sql/migrations")


def analysis_folder() -> Path:
    return shipped("sql/analysis")


def engine_file(*, reading: bool = False) -> Path:
    """The engine's own configuration; with `reading`, that of the read-only user."""
    return shipped("sql/reader.xml" if reading else "sql/engine.xml")


def proto_file() -> Path:
    return shipped("proto/springtide/v1/tcp_sample.proto")


@cache
def sql(name: str) -> str:
    """The text of sql/NAME.sql, for instance `sql("rollup/1_sockets")`."""
    return shipped(f"sql/{name}.sql").read_text()

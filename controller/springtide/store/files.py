"""Where SQL and the protobuf contract are: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def _folder(packaged: str, in_checkout: str) -> Path:
    wheel = PACKAGE / packaged
    return wheel if wheel.is_dir() else PACKAGE.parent.parent / in_checkout


def migrations_folder() -> Path:
    return _folder("_sql", "sql") / "migrations"


def analysis_folder() -> Path:
    return _folder("_sql", "sql") / "analysis"


def engine_file(*, reading: bool = False) -> Path:
    """The engine's own configuration; with `reading`, that of the read-only user."""
    return _folder("_sql", "sql") / ("reader.xml" if reading else "engine.xml")


def proto_file() -> Path:
    return _folder("_proto", "proto") / "springtide" / "v1" / "tcp_sample.proto"


@cache
def sql(name: str) -> str:
    """The text of sql/NAME.sql, for instance `sql("rollup/1_sockets")`."""
    return (_folder("_sql", "sql") / f"{name}.sql").read_text()

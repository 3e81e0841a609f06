"""Where rows live. The URL chooses the engine; the SQL is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from springtide.errors import InputError, Problem
from springtide.store.base import Param, Row, Store
from springtide.store.embedded import EmbeddedStore

__all__ = ["Param", "Row", "Store", "exists", "open_store"]


def exists(url: str) -> bool:
    """Whether there is a store at a chdb:// URL; raises InputError for a URL that is none."""
    return _directory(url).is_dir()


def open_store(url: str, *, create: bool, wait_s: float, on_wait: Callable[[str], None]) -> Store:
    """Open chdb:///DIR. With `create` false, a directory that is not there is an InputError and is not made.

    `on_wait` is called once with the holder's name when another process has the store. Raises StoreError after
    `wait_s` seconds of waiting.
    """
    directory = _directory(url)
    if not create and not directory.is_dir():
        raise InputError([Problem(url, "store", "does not exist", "run `springtide migrate` first")])
    return EmbeddedStore(directory, wait_s, on_wait)


def _directory(url: str) -> Path:
    parts = urlsplit(url)
    if parts.scheme == "clickhouse":
        message = "ClickHouse servers come with the server support, which this version lacks"
        raise InputError([Problem("--store", "url", message, "use chdb:///DIRECTORY")])
    if parts.scheme != "chdb" or parts.netloc or parts.query or parts.fragment or parts.path in ("", "/"):
        raise InputError([Problem("--store", "url", f"{url!r} is not a store", "write chdb:///DIRECTORY")])
    return Path(parts.path)

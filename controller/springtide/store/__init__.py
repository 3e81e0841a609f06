"""Where rows are stored. The URL selects the engine; the SQL is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from springtide.errors import InputError, Problem
from springtide.store import address
from springtide.store.base import Param, Row, Store
from springtide.store.embedded import EmbeddedStore
from springtide.store.engine import Engine
from springtide.store.reading import Limits
from springtide.store.server import ServerStore

__all__ = ["Engine", "Limits", "Param", "Row", "Store", "exists", "open_store"]


def exists(url: str) -> bool:
    """Whether a store exists that can be queried; true for every server. Raises InputError for an invalid URL."""
    if _is_server(url):
        address.parse(url)
        return True
    return _directory(url).is_dir()


def open_store(
    url: str,
    *,
    create: bool,
    wait_s: float,
    on_wait: Callable[[str], None],
    limits: Limits | None = None,
    engine: Engine | None = None,
) -> Store:
    """Open chdb:///DIR or clickhouse://USER@HOST:PORT/DATABASE.

    With `create` false, a missing directory is an InputError and is not created, and a missing database a StoreError.
    `on_wait` is called once with the holder's name when another process has a chDB directory open.
    With `limits` nothing can be written, and they bound each query.
    `engine` is what an engine in this process gets. Raises StoreError after `wait_s` seconds of waiting.
    """
    if _is_server(url):
        return ServerStore(address.parse(url), create=create, limits=limits)
    directory = _directory(url)
    if not create and not directory.is_dir():
        raise InputError([Problem(url, "store", "does not exist", "run `springtide migrate` first")])
    return EmbeddedStore(directory, wait_s, on_wait, limits, engine)


def _is_server(url: str) -> bool:
    return url.startswith("clickhouse:")


def _directory(url: str) -> Path:
    parts = urlsplit(url)
    if parts.scheme != "chdb" or parts.netloc or parts.query or parts.fragment or parts.path in ("", "/"):
        # A text with an @ may have a password before it.
        shown = "what was given" if "@" in url else repr(url)
        fix = f"write chdb:///DIRECTORY, or {address.FORM.removeprefix('write ')}"
        raise InputError([Problem("--store", "url", f"{shown} is not a store", fix)])
    return Path(parts.path)

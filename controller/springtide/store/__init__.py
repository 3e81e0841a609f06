"""Where rows live. The URL chooses the engine; the SQL is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from springtide.errors import InputError, Problem
from springtide.store import address
from springtide.store.base import Param, Row, Store
from springtide.store.embedded import EmbeddedStore
from springtide.store.reading import Limits
from springtide.store.server import ServerStore

__all__ = ["Limits", "Param", "Row", "Store", "exists", "open_store"]


def exists(url: str) -> bool:
    """Whether a store is there to be asked; raises InputError for a URL that is none. A server always is."""
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
    memory_bytes: int = 0,
) -> Store:
    """Open chdb:///DIR or clickhouse://USER@HOST:PORT/DATABASE.

    With `create` false, a directory that is not there is an InputError and is not made, and a database that is not
    there a StoreError. `on_wait` is called once with the holder's name when another process has a chDB directory.
    With `limits` nothing can be written, and each query is held to them.
    `memory_bytes` bounds an engine in this process. Raises StoreError after `wait_s` seconds of waiting.
    """
    if _is_server(url):
        return ServerStore(address.parse(url), create=create, limits=limits)
    directory = _directory(url)
    if not create and not directory.is_dir():
        raise InputError([Problem(url, "store", "does not exist", "run `springtide migrate` first")])
    return EmbeddedStore(directory, wait_s, on_wait, limits, memory_bytes)


def _is_server(url: str) -> bool:
    return url.startswith("clickhouse:")


def _directory(url: str) -> Path:
    parts = urlsplit(url)
    if parts.scheme != "chdb" or parts.netloc or parts.query or parts.fragment or parts.path in ("", "/"):
        # What has an @ in it may have a password before it.
        shown = "what was given" if "@" in url else repr(url)
        fix = f"write chdb:///DIRECTORY, or {address.FORM.removeprefix('write ')}"
        raise InputError([Problem("--store", "url", f"{shown} is not a store", fix)])
    return Path(parts.path)

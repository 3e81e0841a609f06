"""Lists samples by identity, from what a collector wrote and from what a store holds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from springtide.store import Store

from lab.collector import binary


class Identity(NamedTuple):
    """The identity of a sample, within one host and boot."""

    poll_sequence: int
    netns: int
    cookie: int
    kind: str


def records(files: Iterable[Path]) -> list[tuple[str, Identity]]:
    """The host and identity of each record of spool files, as the collector reads them back."""
    paths = [str(path) for path in files]
    if not paths:
        return []
    done = subprocess.run([str(binary()), "cat", *paths], capture_output=True, text=True, check=True)
    return [_named(json.loads(line)) for line in done.stdout.splitlines()]


def _named(row: dict[str, Any]) -> tuple[str, Identity]:
    kind = row["kind"].removeprefix("SAMPLE_KIND_")
    return row["host"], Identity(int(row["poll_sequence"]), int(row["netns"]), int(row["cookie"]), kind)


def in_spool(files: Iterable[Path]) -> set[Identity]:
    """The identities of all records of one host's spool files."""
    return {identity for _, identity in records(files)}


def in_store(store: Store) -> set[Identity]:
    """The identities of all rows of tcp_samples, each counted once however often it was delivered."""
    rows = store.query("select distinct poll_sequence, netns, cookie, kind from tcp_samples")
    return {Identity(row["poll_sequence"], row["netns"], row["cookie"], row["kind"]) for row in rows}


def balanced(counters: dict[str, Any], sink: str) -> bool:
    """Whether the counters of a run account for every row of the sink."""
    book: dict[str, Any] = counters["sinks"][sink]
    came: int = counters["rows_read"] + book["rows_recovered"]
    went: int = book["rows_delivered"] + book["rows_spooled"] + sum(book["rows_dropped"].values())
    return came == went

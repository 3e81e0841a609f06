"""Records that ingest has processed, by digest of the bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from springtide.observe.folder import shown
from springtide.observe.spool import Damage, Record
from springtide.store import Row, Store

Outcome = Literal["loaded", "rejected"]


def known(store: Store, digests: Sequence[str]) -> dict[str, Outcome]:
    """Those of `digests` that were processed before, and how."""
    if not digests:
        return {}
    rows = store.query(
        "select digest, outcome from ingest_ledger final "
        "where digest in (select arrayJoin({digests:Array(FixedString(32))}))",
        {"digests": list(digests)},
    )
    return {row["digest"]: row["outcome"] for row in rows}


def record_loaded(store: Store, records: Iterable[Record]) -> None:
    store.insert("ingest_ledger", [_row(r.digest, "loaded", r.file, r.position, r.size, r.rows, "") for r in records])


def record_rejected(store: Store, items: Iterable[tuple[Record | Damage, str]]) -> None:
    """`items` with the reason of each."""
    rows = []
    for item, reason in items:
        size, count = (item.size, item.rows) if isinstance(item, Record) else (len(item.data), 0)
        rows.append(_row(item.digest, "rejected", item.file, item.position, size, count, reason))
    store.insert("ingest_ledger", rows)


def _row(digest: str, outcome: Outcome, file: str, position: int, size: int, rows: int, reason: str) -> Row:
    place = {"file": shown(file), "position": position, "bytes": size, "row_count": rows}
    return {"digest": digest, "outcome": outcome, **place, "reason": reason}

"""How long each table keeps its rows: the policy's days against the engine's TTL."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from springtide.store import cluster as clusters
from springtide.store.base import Store

if TYPE_CHECKING:
    from springtide.policy import RetentionPolicy

SAMPLE_TIME = "toDateTime(intDiv(time_unix_us, 1000000))"

# Table, the instant that a row belongs to, and the policy's key. What is not here is kept for ever: it does not grow
# with traffic, or (the ledger) its loss would count something twice.
TABLES = (
    ("tcp_samples", SAMPLE_TIME, "samples_days"),
    ("http_requests", SAMPLE_TIME, "samples_days"),
    ("rollup_polls", "round", "sockets_days"),
    ("rollup_records", "round", "sockets_days"),
    ("rollup_starts", "round", "sockets_days"),
    ("rollup_sockets", "round", "sockets_days"),
    ("rollup_pairs", "round", "rounds_days"),
    ("rollup_prefixes", "round", "rounds_days"),
    ("rollup_prefix_rates", "round", "rounds_days"),
    ("rollup_outcomes", "round", "rounds_days"),
    ("rollup_hosts", "round", "rounds_days"),
    ("rollup_goodput", "round", "rounds_days"),
    ("rollup_rogues", "round", "rounds_days"),
    ("rollup_treatments", "round", "rounds_days"),
    ("rollups", "round", "rounds_days"),
    ("pair_hours", "since", "hours_days"),
    ("prefix_hours", "since", "hours_days"),
    ("pair_days", "since", "days_days"),
    ("prefix_days", "since", "days_days"),
    ("audit", "at", "decisions_days"),
    # By when it was kept: what a message says of its time is its sender's.
    ("rejected_messages", "kept_at", "rejected_days"),
)


@dataclass(frozen=True)
class Kept:
    """One table: `wanted` and `set` are TTL expressions, bytes are on disk and of this server."""

    table: str
    days: int
    wanted: str
    set: str | None
    rows: int
    bytes: int
    partitioned: bool

    @property
    def agrees(self) -> bool:
        return self.wanted == self.set


def ruled(present: Iterable[str]) -> list[tuple[str, str, str]]:
    """As TABLES, with those of the laws' decisions: every table that is there and whose name says so."""
    decisions = sorted(name for name in present if name.endswith("_decisions"))
    return [*TABLES, *((name, "round", "decisions_days") for name in decisions)]


def status(store: Store, policy: RetentionPolicy) -> list[Kept]:
    """What the policy says beside what the store does. Raises StoreError."""
    rows = store.query(
        "select name, engine_full, coalesce(total_rows, 0) as rows, coalesce(total_bytes, 0) as bytes, "
        "partition_key != '' as partitioned "
        "from system.tables where database = currentDatabase()"
    )
    present = {row["name"]: row for row in rows}
    found = []
    for table, instant, key in ruled(present):
        row = present.get(f"{table}_local") or present[table]
        days = int(getattr(policy, key))
        ttl = row["engine_full"].partition(" TTL ")[2].partition(" SETTINGS ")[0]
        wanted = f"{instant} + toIntervalDay({days})"
        found.append(Kept(table, days, wanted, ttl or None, row["rows"], row["bytes"], bool(row["partitioned"])))
    return found


def apply(store: Store, policy: RetentionPolicy, cluster: str | None = None) -> list[str]:
    """Make the store keep what the policy says; the tables that were changed. Raises StoreError.

    A part goes when all of its rows are past their time: tables are partitioned by time, so that nothing is rewritten.
    The one that is not has old rows beside new ones in every part, which merges leave out.
    """
    changed = []
    for kept in status(store, policy):
        if kept.agrees:
            continue
        alter = f"alter table {kept.table}{'$local' if kept.table in clusters.SHARD_KEYS else ''}$on_cluster modify"
        template = f"{alter} setting ttl_only_drop_parts = {int(kept.partitioned)};\n{alter} ttl {kept.wanted};\n"
        for statement in clusters.render(template, cluster, "retention"):
            store.execute(statement)
        changed.append(kept.table)
    return changed

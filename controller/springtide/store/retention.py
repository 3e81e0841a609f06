"""Time that each table keeps its rows: the policy's days against the engine's TTL."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from springtide.store import cluster as clusters
from springtide.store.base import Store

if TYPE_CHECKING:
    from springtide.policy import RetentionPolicy

SAMPLE_TIME = "toDateTime(intDiv(time_unix_us, 1000000))"

# Table, the time that a row's age is counted from, and the policy's key. Other tables are kept forever: they do not
# grow with traffic, or (the ledger) their loss would count something twice.
TABLES = (
    ("tcp_samples", SAMPLE_TIME, "samples_days"),
    ("http_requests", SAMPLE_TIME, "samples_days"),
    ("probes", SAMPLE_TIME, "rounds_days"),
    ("rollup_polls", "round", "sockets_days"),
    ("rollup_records", "round", "sockets_days"),
    ("rollup_starts", "round", "sockets_days"),
    ("rollup_sockets", "round", "sockets_days"),
    ("rollup_flights", "round", "sockets_days"),
    ("rollup_busy", "round", "sockets_days"),
    ("rollup_units", "round", "sockets_days"),
    ("rollup_path_hosts", "round", "sockets_days"),
    ("rollup_pairs", "round", "rounds_days"),
    ("rollup_prefixes", "round", "rounds_days"),
    ("rollup_prefix_rates", "round", "rounds_days"),
    ("rollup_paths", "round", "rounds_days"),
    ("rollup_path_starts", "round", "rounds_days"),
    ("rollup_outcomes", "round", "rounds_days"),
    ("rollup_slices", "round", "rounds_days"),
    ("rollup_hosts", "round", "rounds_days"),
    ("rollup_goodput", "round", "rounds_days"),
    ("rollup_rogues", "round", "rounds_days"),
    ("rollup_treatments", "round", "rounds_days"),
    ("rollups", "round", "rounds_days"),
    ("pair_hours", "since", "hours_days"),
    ("prefix_hours", "since", "hours_days"),
    ("path_hours", "since", "hours_days"),
    ("pair_days", "since", "days_days"),
    ("prefix_days", "since", "days_days"),
    ("path_days", "since", "days_days"),
    ("audit", "at", "decisions_days"),
    ("benefits", "until", "decisions_days"),
    # By when it was stored: a message's own time is chosen by its sender.
    ("rejected_messages", "kept_at", "rejected_days"),
)


@dataclass(frozen=True)
class Kept:
    """One table: `wanted` and `set` are TTL expressions, bytes are those on this server's disk."""

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
    """As TABLES, with the laws' decisions: every table in `present` whose name ends in `_decisions`."""
    decisions = sorted(name for name in present if name.endswith("_decisions"))
    return [*TABLES, *((name, "round", "decisions_days") for name in decisions)]


def status(store: Store, policy: RetentionPolicy) -> list[Kept]:
    """The policy's days beside the TTLs of the store. Raises StoreError."""
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
    """Set the TTLs of the policy; returns the tables that were changed. Raises StoreError and InputError.

    A part is dropped when all of its rows have expired: tables are partitioned by time, so that nothing is rewritten.
    A table without partitions has old rows beside new ones in every part, which merges remove.
    """
    if cluster is not None:
        clusters.check_server(store.url)
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

"""Whether the engine's Kafka consumers make progress: what they read must be stored and committed in a bounded time.

A consumer that cannot store what it has read reads it again and again: counts of messages grow, but nothing is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from springtide.observe import kafka
from springtide.store import Store


@dataclass(frozen=True)
class Reader:
    """One consumer: messages read and commits so far, partitions that it has, and what it last complained of, if that
    is later than its last commit."""

    id: str
    read: int
    commits: int
    partitions: int
    complaint: str


def readers(store: Store, database: str) -> list[Reader]:
    """The consumers of the tables in `database`. Raises StoreError."""
    rows = store.query(
        "select consumer_id, num_messages_read as read, num_commits as commits, "
        "length(assignments.partition_id) as partitions, arrayMax(exceptions.time) as complained, "
        "if(complained > last_commit_time, exceptions.text[-1], '') as complaint "
        "from system.kafka_consumers where database = {database:String}",
        {"database": database},
    )
    return [
        Reader(
            str(row["consumer_id"]),
            int(row["read"]),
            int(row["commits"]),
            int(row["partitions"]),
            one_line(str(row["complaint"])),
        )
        for row in rows
    ]


def one_line(complaint: str) -> str:
    """Without the engine's stack, and what librdkafka says of each attempt."""
    return kafka.text(" ".join(complaint.partition("Stack trace")[0].split()).rstrip(", "))


class Watch:
    """Watches the consumers' counters; `stuck_s` is for how long one of them has made no progress."""

    def __init__(self) -> None:
        # By consumer: commits, what had been read when they last grew, and since when more has been read than that.
        self._known: dict[str, tuple[int, int, float | None]] = {}
        self._unassigned_since: float | None = None
        self._now = 0.0
        self.cause = ""

    def see(self, found: Sequence[Reader], now: float) -> None:
        """`now` is of a monotonic clock, seconds."""
        self._now = now
        known: dict[str, tuple[int, int, float | None]] = {}
        for reader in found:
            commits, read, since = self._known.get(reader.id, (0, 0, None))
            if reader.commits != commits or reader.read <= read:
                known[reader.id] = (reader.commits, reader.read, None)
            else:
                known[reader.id] = (commits, read, now if since is None else since)
        self._known = known
        # Without a complaint another process of the group has all partitions, and this one is idle.
        away = not any(reader.partitions for reader in found) and any(reader.complaint for reader in found)
        self._unassigned_since = (self._unassigned_since or now) if away else None
        stuck = [reader.complaint for reader in found if known[reader.id][2] is not None or away]
        self.cause = max(stuck, key=len, default="")

    def stored(self) -> int:
        """Messages that had been read when the consumers last made progress."""
        return sum(read for _, read, _ in self._known.values())

    def behind(self) -> set[tuple[str, int]]:
        """Consumers that have read more than they stored, each with its commits so far."""
        return {(name, commits) for name, (commits, _, since) in self._known.items() if since is not None}

    @property
    def stuck_s(self) -> float:
        """For how long some consumer has read what it could not store, or none has had a partition; 0: all make
        progress."""
        since = [begun for _, _, begun in self._known.values() if begun is not None]
        if self._unassigned_since is not None:
            since.append(self._unassigned_since)
        return self._now - min(since) if since else 0.0

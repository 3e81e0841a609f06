"""Kafka topics into tcp_samples, http_requests and rejected_messages, by the engine's own Kafka tables.

The engine parses, inserts and then commits the offsets: what dies in between comes again, and the sample's identity
makes that harmless. A message that is none of ours goes to rejected_messages with its offset, and holds nothing up.

In chDB a Kafka table that lies in the directory keeps it from being opened again. So these tables live in a database in
memory, and only as long as this process: the broker remembers how far the group has read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from springtide.errors import StoreError
from springtide.fleet import Fleet
from springtide.observe.enrich import publish_fleet
from springtide.observe.kafka_tables import Source, embedded_statements
from springtide.store.embedded import EmbeddedStore

DATABASE = "springtide_kafka"

# chDB answers every CREATE of a Kafka table with this code ("Shutdown was called"), and makes it.
CHDB_SHUTDOWN_CODE = 49


@dataclass(frozen=True)
class Progress:
    """Since the consumer was started; `messages` includes the rejected ones."""

    seconds: float
    messages: int
    rejected: int


class Consumer:
    """Consumes while the context lasts; the engine's threads do the work. Raises StoreError."""

    def __init__(self, store: EmbeddedStore, fleet: Fleet, source: Source) -> None:
        self._store = store
        self._fleet = fleet
        self._source = source
        self._began = time.monotonic()
        self._rejected_before = 0

    def __enter__(self) -> Consumer:
        publish_fleet(self._store, self._fleet)
        self._rejected_before = self._rejected()
        self._store.execute(f"drop database if exists {DATABASE}")
        self._store.execute(f"create database {DATABASE} engine = Memory")
        for statement in embedded_statements(self._store, self._source, DATABASE):
            try:
                self._store.execute(statement)
            except StoreError as error:
                if error.code != CHDB_SHUTDOWN_CODE:
                    raise
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._store.execute(f"drop database if exists {DATABASE}")

    def progress(self) -> Progress:
        [row] = self._store.query(
            "select sum(num_messages_read) as n from system.kafka_consumers where database = {database:String}",
            {"database": DATABASE},
        )
        return Progress(time.monotonic() - self._began, int(row["n"]), self._rejected() - self._rejected_before)

    def complaints(self) -> list[str]:
        """What the consumers last had to say: a broker that is away, a topic that is missing."""
        rows = self._store.query(
            "select distinct arrayJoin(exceptions.text) as text from system.kafka_consumers "
            "where database = {database:String}",
            {"database": DATABASE},
        )
        return [" ".join(str(row["text"]).split()) for row in rows]

    def _rejected(self) -> int:
        [row] = self._store.query(
            "select count() as n from rejected_messages final where topic in ({topic:String}, {requests:String})",
            {"topic": self._source.topic, "requests": self._source.requests},
        )
        return int(row["n"])

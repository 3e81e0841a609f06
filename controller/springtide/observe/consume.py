"""A Kafka topic into tcp_samples and rejected_messages, by the engine's own Kafka tables.

The engine parses, inserts and then commits the offsets: what dies in between comes again, and the sample's identity
makes that harmless. A message that is no envelope goes to rejected_messages with its offset, and holds nothing up.

In chDB a Kafka table that lies in the directory keeps it from being opened again. So these tables live in a database in
memory, and only as long as this process: the broker remembers how far the group has read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from springtide.errors import StoreError
from springtide.fleet import Fleet
from springtide.observe.enrich import publish_fleet
from springtide.observe.ingest import tables_of_samples
from springtide.store import Store
from springtide.store.embedded import EmbeddedStore
from springtide.store.files import proto_file

TOPIC = "springtide.tcp_samples"
GROUP = "springtide"
DATABASE = "springtide_kafka"

# An insert is one part: larger blocks are fewer. A block waits for at most as long as the flush interval.
BLOCK_ROWS = 262_144
FLUSH_MS = 2_000

# chDB answers every CREATE of a Kafka table with this code ("Shutdown was called"), and makes it.
_SHUTDOWN_CODE = 49


@dataclass(frozen=True)
class Source:
    """Where the messages are: brokers as host:port,..., and as whom they are read."""

    brokers: str
    topic: str = TOPIC
    group: str = GROUP
    consumers: int = 1


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
        for statement in statements(self._store, self._source):
            try:
                self._store.execute(statement)
            except StoreError as error:
                if error.code != _SHUTDOWN_CODE:
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
            "select count() as n from rejected_messages final where topic = {topic:String}",
            {"topic": self._source.topic},
        )
        return int(row["n"])


def statements(store: Store, source: Source) -> list[str]:
    """A Kafka table, and a view from it into each of the two tables."""
    columns, select, structure = tables_of_samples(store)
    settings = {
        "kafka_broker_list": _quoted(source.brokers),
        "kafka_topic_list": _quoted(source.topic),
        "kafka_group_name": _quoted(source.group),
        "kafka_format": "'ProtobufList'",
        "kafka_schema": _quoted(f"{proto_file()}:TcpSample"),
        "kafka_handle_error_mode": "'stream'",
        "kafka_num_consumers": str(source.consumers),
        "kafka_thread_per_consumer": "1" if source.consumers > 1 else "0",
        "kafka_max_block_size": str(BLOCK_ROWS),
        "kafka_poll_max_batch_size": str(BLOCK_ROWS),
        "kafka_flush_interval_ms": str(FLUSH_MS),
    }
    listed = ", ".join(f"{name} = {value}" for name, value in settings.items())
    table = f"{DATABASE}.samples"
    return [
        f"drop database if exists {DATABASE}",
        f"create database {DATABASE} engine = Memory",
        f"create table {table} ({structure}) engine = Kafka settings {listed}",
        f"create materialized view {DATABASE}.rejected to rejected_messages as "
        "select _topic as topic, _partition as kafka_partition, _offset as kafka_offset, _key as message_key, "
        "_error as error, _raw_message as message, coalesce(_timestamp, now()) as message_time "
        f"from {table} where _error != ''",
        f"create materialized view {DATABASE}.loaded to {columns} as {select} from {table} where _error = ''",
    ]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

"""Finds a message that is too large for the engine's memory, keeps it in rejected_messages, and moves the group's
offset past it.

The engine's Kafka source copies a message's key and headers into each of its rows, wanted or not: 100,000 rows of
two bytes beside a header of 20 kB are a message of 220 kB, and gigabytes in memory.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Received

from springtide.errors import StoreError
from springtide.observe import kafka
from springtide.observe.kafka_tables import Source
from springtide.store import Store

# Bytes that a row of a sample takes in the engine besides, about: its columns and, where it does not fit, its text.
ROW_BYTES = 1_000
# A message is put aside only if it may take this share of the engine's memory.
LEAST_SHARE = 16
KEPT_BYTES = 8_000_000
# A member that left without notice is removed after 6 seconds; until then the group accepts no offsets of others.
ANSWER_S = 30.0
_POLL_S = 0.5
# No byte, or an envelope of length 0: no row in the engine, so that the group does not get beyond it by itself.
_NOTHING = re.compile(rb"(\x80*\x00)?")

T = TypeVar("T")


@dataclass(frozen=True)
class Message:
    """`rows`: into how many the engine makes it at most: each sample of an envelope begins with a newline's byte, each
    line ends with it. `head`: bytes of its key and headers, which each row has."""

    topic: str
    partition: int
    offset: int
    time: int
    key: bytes
    value: bytes
    head: int

    @property
    def rows(self) -> int:
        return max(1, self.value.count(b"\n"))

    @property
    def footprint(self) -> int:
        """Bytes in the engine, about."""
        return len(self.value) + self.rows * (self.head + ROW_BYTES)

    def __str__(self) -> str:
        return f"{self.topic}, partition {self.partition}, offset {self.offset}"


def put_aside(store: Store, source: Source, memory_bytes: int, why: str) -> Message:
    """Puts aside the message that takes the most memory of those next in the group's partitions. No consumer of this
    process may be in the group. Raises StoreError where none takes much, or the group has other members."""
    reader = kafka.consumer(source.client)
    try:
        places = _retried(source, "the group's offsets", lambda: _places(reader, source))
        found = [message for place in places if (message := next_message(reader, source, place)) is not None]
        heaviest = max(found, key=lambda message: message.footprint, default=None)
        if heaviest is None or heaviest.footprint * LEAST_SHARE < memory_bytes:
            where = f"the next message is {heaviest}" if heaviest else "no message is left"
            raise StoreError(
                f"{source.brokers}: the engine has not enough memory: {why}; {where}; give --max-memory-mb"
            )
        _keep(store, heaviest)
        behind = TopicPartition(heaviest.topic, heaviest.partition, heaviest.offset + 1)

        def commit() -> None:
            [now] = reader.committed([TopicPartition(heaviest.topic, heaviest.partition)], timeout=_POLL_S * 10)
            # Another consumer of the group may have put it aside too, and be further.
            if now.offset < behind.offset:
                reader.commit(offsets=[behind], asynchronous=False)

        _retried(source, f"to move group {source.group}, whose other consumers must end, past {heaviest}", commit)
        return heaviest
    finally:
        reader.close()


def _places(reader: Consumer, source: Source) -> list[TopicPartition]:
    """Where the group will read on, by partition."""
    partitions = []
    for topic in filter(None, (source.topic, source.requests)):
        numbers = reader.list_topics(topic, timeout=_POLL_S * 10).topics[topic].partitions
        partitions += [TopicPartition(topic, number) for number in numbers]
    found = reader.committed(partitions, timeout=_POLL_S * 10)
    lows = {}
    for place in found:
        low, _ = reader.get_watermark_offsets(place, timeout=_POLL_S * 10)
        lows[place.topic, place.partition] = low
    return [TopicPartition(one.topic, one.partition, max(one.offset, lows[one.topic, one.partition])) for one in found]


def next_message(reader: Consumer, source: Source, place: TopicPartition) -> Message | None:
    """The first message from there on that has a row; those before it are nothing. None at the end."""
    reader.assign([place])
    deadline = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline:
        received = reader.poll(_POLL_S)
        if received is None:
            continue
        error = received.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return None
            continue
        message = _message(received)
        if not _NOTHING.fullmatch(message.value):
            return message
    raise StoreError(f"{source.brokers}: {place.topic}, partition {place.partition}: no message came; run it again")


def _message(received: Received) -> Message:
    key, value = _bytes(received.key()), _bytes(received.value())
    found = received.headers() or []
    headers = found.items() if isinstance(found, dict) else found
    head = len(key) + sum(len(name) + len(_bytes(text)) for name, text in headers)
    where = (received.topic() or "", received.partition() or 0, received.offset() or 0)
    return Message(*where, received.timestamp()[1] // 1000, key, value, head)


def _keep(store: Store, message: Message) -> None:
    cut = f", of which the first {KEPT_BYTES} are kept" if len(message.value) > KEPT_BYTES else ""
    error = (
        f"takes more memory to read than there is: up to {message.rows} rows with {message.head} bytes of key and "
        f"headers each, in {len(message.value)} bytes{cut}; headers are not kept"
    )
    store.execute(
        "insert into rejected_messages "
        "(topic, kafka_partition, kafka_offset, message_key, error, message, sample_hash, message_time) "
        "select {topic:String}, {partition:UInt64}, {offset:UInt64}, unhex({key:String}), {error:String}, "
        "unhex({value:String}), 0, toDateTime({time:Int64}, 'UTC')",
        {
            "topic": message.topic,
            "partition": message.partition,
            "offset": message.offset,
            "key": message.key[:KEPT_BYTES].hex(),
            "error": error,
            "value": message.value[:KEPT_BYTES].hex(),
            "time": max(0, message.time),
        },
    )


def _retried(source: Source, what: str, query: Callable[[], T]) -> T:
    deadline = time.monotonic() + ANSWER_S
    while True:
        try:
            return query()
        except KafkaException as error:
            if time.monotonic() > deadline:
                reason = error.args[0].str() if error.args else error
                raise StoreError(f"{source.brokers}: cannot query {what}: {reason}; run it again") from error
            time.sleep(_POLL_S)


def _bytes(part: str | bytes | None) -> bytes:
    return part.encode() if isinstance(part, str) else part or b""

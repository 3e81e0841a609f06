"""A topic of a test's own, and all that a topic holds, read once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, TopicPartition

from testkit.kafka.broker import Broker

_WAIT_S = 30.0  # for an answer of the broker's: only for a machine that stands still
# One attempt of a query that is made again: one that the client has given up for lost may block for all of its time.
_TRY_S = 5.0
T = TypeVar("T")


@dataclass(frozen=True)
class Message:
    """One message of a topic."""

    partition: int
    offset: int
    key: str
    payload: bytes


@dataclass(frozen=True)
class Feed:
    """A topic of a name that no other has, and the group that reads it: tests share a broker, and nothing on it."""

    broker: Broker
    topic: str

    @classmethod
    def of(cls, broker: Broker, settings: dict[str, str] | None = None) -> Feed:
        """The topic is there."""
        feed = cls(broker, f"samples-{uuid4().hex}")
        broker.topic(feed.topic, settings=settings)
        return feed

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def consumer(self) -> tuple[str, ...]:
        """Options of `springtide consume`."""
        return "--kafka", self.bootstrap, "--topic", self.topic, "--group", self.topic

    def messages(self) -> list[Message]:
        """All that it holds."""
        return read_topic(self.bootstrap, self.topic)


def rows_in(payload: bytes) -> int:
    """Rows of a message as collectors make it: its length, then each row behind a tag and a length."""
    _, position = _varint_at(payload, 0)
    rows = 0
    while position < len(payload):
        length, start = _varint_at(payload, position + 1)
        position = start + length
        rows += 1
    return rows


def _varint_at(data: bytes, position: int) -> tuple[int, int]:
    """A base-128 varint, and where it ends."""
    value = shift = 0
    while data[position] >= 0x80:
        value |= (data[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return value | data[position] << shift, position + 1


def read_topic(bootstrap: str, topic: str) -> list[Message]:
    """Every message up to the end as it is now, by partition and offset.

    Raises KafkaException when the broker does not give them.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        found = consumer.list_topics(topic, timeout=_WAIT_S).topics[topic]
        messages = []
        for partition in sorted(found.partitions):
            low, high = _range(consumer, TopicPartition(topic, partition))
            consumer.assign([TopicPartition(topic, partition, low)])
            # Offsets have gaps where the broker keeps marks of its own.
            while consumer.position([TopicPartition(topic, partition)])[0].offset < high and low < high:
                message = consumer.poll(_WAIT_S)
                if message is None or message.error():
                    raise KafkaException(message.error() if message else f"{topic}: no message within {_WAIT_S} s")
                key = message.key() or b""
                text = key.decode() if isinstance(key, bytes) else key
                messages.append(Message(partition, message.offset() or 0, text, message.value() or b""))
        return messages
    finally:
        consumer.close()


def _range(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """The offsets that a partition has."""
    return _patiently(lambda: consumer.get_watermark_offsets(partition, timeout=_TRY_S))


def _patiently(query: Callable[[], T]) -> T:
    """A broker that has just come back needs a moment until it leads its partitions and groups."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            return query()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def behind(bootstrap: str, topic: str, group: str) -> int:
    """Messages that the group has not committed yet.

    Raises KafkaException when the broker does not say.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        numbers = consumer.list_topics(topic, timeout=_WAIT_S).topics[topic].partitions
        left = 0
        places = [TopicPartition(topic, number) for number in numbers]
        for place in _patiently(lambda: consumer.committed(places, timeout=_TRY_S)):
            low, high = _range(consumer, TopicPartition(topic, place.partition))
            # A group that has committed nothing begins with the first message (a negative offset).
            left += high - max(low, place.offset)
        return left
    finally:
        consumer.close()

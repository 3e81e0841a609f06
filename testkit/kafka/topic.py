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

    def read(consumer: Consumer) -> list[Message]:
        messages = []
        for partition in _partitions(consumer, topic):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TRY_S)
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

    return _patiently(bootstrap, "reader", read)


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    """Their numbers. Raises KafkaException while one has no leader."""
    found = consumer.list_topics(topic, timeout=_WAIT_S).topics[topic].partitions
    if any(one.leader < 0 for one in found.values()):
        raise KafkaException(f"{topic}: a partition has no leader")
    return sorted(found)


def _patiently(bootstrap: str, group: str, query: Callable[[Consumer], T]) -> T:
    """A broker that has just come back needs a moment until it leads its partitions and groups. A consumer that
    knows of no leader may go on to say so for longer than that: each try has its own."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
        try:
            return query(consumer)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        finally:
            consumer.close()


def behind(bootstrap: str, topic: str, group: str) -> int:
    """Messages that the group has not committed yet.

    Raises KafkaException when the broker does not say.
    """

    def count(consumer: Consumer) -> int:
        left = 0
        places = [TopicPartition(topic, number) for number in _partitions(consumer, topic)]
        for place in consumer.committed(places, timeout=_TRY_S):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, place.partition), timeout=_TRY_S)
            # A group that has committed nothing begins with the first message (a negative offset).
            left += high - max(low, place.offset)
        return left

    return _patiently(bootstrap, group, count)

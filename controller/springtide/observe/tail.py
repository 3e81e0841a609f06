"""Samples as they pass through a Kafka topic. Nothing is committed, so consumers are not affected."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException, TopicPartition

from springtide.errors import SpringtideError, StoreError
from springtide.fleet import Prefix
from springtide.observe import contract, kafka
from springtide.store.messages import parsed_columns

_ANSWER_S = 10.0

Sample = dict[str, Any]


def payloads(settings: Mapping[str, Any], topic: str, *, beginning: bool, seconds: float | None) -> Iterator[bytes]:
    """Messages from the topic's beginning or from now on, for `seconds` or without end.

    Raises SpringtideError when the brokers do not answer or have no such topic.
    """
    own = {"group.id": "springtide-tail", "enable.auto.commit": False}
    consumer = kafka.consumer({**settings, **own})
    try:
        try:
            found = consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
        except KafkaException as error:
            reason = error.args[0].str() if error.args else error
            raise SpringtideError(f"topic {topic} cannot be read: {reason}; are the brokers up?") from error
        if found.error is not None:
            raise SpringtideError(f"topic {topic} cannot be read: {found.error.str()}; `springtide topics` makes it")
        start = OFFSET_BEGINNING if beginning else OFFSET_END
        consumer.assign([TopicPartition(topic, number, start) for number in found.partitions])
        deadline = None if seconds is None else time.monotonic() + seconds
        while deadline is None or time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                yield message.value() or b""
    finally:
        consumer.close()


def samples(payload: bytes) -> list[Sample]:
    """The rows of one message, by the contract's names: enums by name, absent fields left out.

    Raises StoreError for a message that is not an envelope of samples.
    """
    length = _length(payload)
    structure = ", ".join(f"{name} {kind}" for name, kind in contract.columns().items())
    names, columns = parsed_columns(structure, [payload[length:]])
    enums = contract.enums()
    return [
        {
            name: enums[name].get(value, value) if name in enums else _shown(value)
            for name, value in zip(names, row, strict=True)
            if value is not None
        }
        for row in zip(*columns, strict=True)
    ]


def belongs(sample: Sample, host: str | None, prefix: Prefix | None) -> bool:
    """Whether the sample is of this host, and its peer of this prefix."""
    if host is not None and sample["host"] != host:
        return False
    return prefix is None or ip_address(sample["dst_ip"]) in prefix


def _shown(value: Any) -> Any:
    """An IPv4-mapped address as people write it."""
    if isinstance(value, str) and value.startswith("::ffff:"):
        mapped = IPv6Address(value).ipv4_mapped
        return value if mapped is None else str(mapped)
    return value


def _length(payload: bytes) -> int:
    """Number of bytes that the leading length takes; raises StoreError when there is none."""
    for index, byte in enumerate(payload[:10]):
        if byte < 0x80:
            return index + 1
    raise StoreError("a message does not begin with its length")

"""Kafka topics as topics.yaml describes them: created, given partitions and set, never shrunk or deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from confluent_kafka import KafkaException

# The package's types leave out what it re-exports.
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pydantic import BaseModel, ConfigDict, Field

from springtide.document import load, validate
from springtide.errors import SpringtideError

# A broker that is up answers within a second.
TIMEOUT_S = 10.0


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Topic(_Frozen):
    """Settings that one topic should have."""

    # A consumer reads 275,000 rows a second from one partition and no more than one consumer reads it.
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 12
    replication: Annotated[int, Field(ge=1, le=9)] = 3
    # Long enough for a weekend's outage of the store.
    retention_hours: Annotated[int, Field(ge=1, le=8760)] = 72
    # Collectors compress; the broker stores what it gets.
    compression: Literal["producer", "zstd", "lz4", "snappy", "gzip", "uncompressed"] = "producer"
    # A collector's message holds up to 1,000 rows, 500 KB at most; ten times that cannot be samples.
    max_message_bytes: Annotated[int, Field(ge=1_000, le=100_000_000)] = 5_000_000

    def settings(self) -> dict[str, str]:
        """As the broker names them."""
        return {
            "retention.ms": str(self.retention_hours * 3_600_000),
            "compression.type": self.compression,
            "max.message.bytes": str(self.max_message_bytes),
        }


class Topics(_Frozen):
    """topics.yaml."""

    version: Literal[1] = 1
    topics: Annotated[dict[str, Topic], Field(min_length=1)] = {
        "springtide.tcp_samples": Topic(),
        "springtide.http_requests": Topic(),
    }


@dataclass(frozen=True)
class Difference:
    """One setting that differs from the file. `refused`: why it is left as it is."""

    topic: str
    what: str
    wanted: str
    found: str
    refused: str | None = None

    def __str__(self) -> str:
        text = f"{self.topic}: {self.what} is {self.found}, should be {self.wanted}"
        return f"{text}; {self.refused}" if self.refused else text


def load_topics(path: Path | None) -> Topics:
    """Raises InputError with every problem of the file; without one, the defaults."""
    return Topics() if path is None else validate(load(path), Topics)


def differences(admin: AdminClient, wanted: Topics) -> list[Difference]:
    """Changes that `apply` would make, topic by topic. Raises SpringtideError when the brokers do not answer."""
    try:
        present = admin.list_topics(timeout=TIMEOUT_S).topics
        named = [name for name in wanted.topics if name in present]
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in named]
        answers = admin.describe_configs(resources) if resources else {}
        settings = {resource.name: answer.result(TIMEOUT_S) for resource, answer in answers.items()}
    except KafkaException as error:
        raise _unanswered("cannot be read", error) from error
    return [
        difference
        for name, topic in wanted.topics.items()
        for difference in (
            _of_present(name, topic, len(present[name].partitions), _replicas(present[name]), settings[name])
            if name in present
            else [Difference(name, "topic", f"{topic.partitions} partitions", "missing")]
        )
    ]


def apply(admin: AdminClient, wanted: Topics) -> list[Difference]:
    """Make the brokers' topics match, and wait until they show it; returns what was different. Doing it twice does
    nothing."""
    found = differences(admin, wanted)
    todo = [difference for difference in found if difference.refused is None]
    try:
        new = [
            NewTopic(d.topic, topic.partitions, topic.replication, config=topic.settings())
            for d in todo
            if d.what == "topic" and (topic := wanted.topics[d.topic])
        ]
        _all(admin.create_topics(new) if new else {})
        wider = [NewPartitions(d.topic, int(d.wanted)) for d in todo if d.what == "partitions"]
        _all(admin.create_partitions(wider) if wider else {})
        changed = {d.topic for d in todo if d.what not in ("topic", "partitions")}
        resources = [
            ConfigResource(
                ConfigResource.Type.TOPIC,
                name,
                incremental_configs=[
                    ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                    for key, value in wanted.topics[name].settings().items()
                ],
            )
            for name in sorted(changed)
        ]
        _all(admin.incremental_alter_configs(resources) if resources else {})
    except KafkaException as error:
        raise _unanswered("cannot be changed", error) from error
    # A broker takes a change before it shows it.
    until = time.monotonic() + TIMEOUT_S
    while todo and time.monotonic() < until and any(one.refused is None for one in differences(admin, wanted)):
        time.sleep(0.1)
    return found


def _of_present(
    name: str, topic: Topic, partitions: int, replication: int, settings: Mapping[str, Any]
) -> Iterator[Difference]:
    if partitions != topic.partitions:
        # A key's messages would move to another partition, and the old ones stay where they are.
        refused = "partitions cannot be removed" if partitions > topic.partitions else None
        yield Difference(name, "partitions", str(topic.partitions), str(partitions), refused)
    if replication != topic.replication:
        refused = "move the replicas with Kafka's own kafka-reassign-partitions"
        yield Difference(name, "replication", str(topic.replication), str(replication), refused)
    for key, value in topic.settings().items():
        found = str(settings[key].value)
        if found != value:
            yield Difference(name, key, value, found)


def _replicas(topic: Any) -> int:
    return min(len(partition.replicas) for partition in topic.partitions.values())


def _all(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(TIMEOUT_S)


def _unanswered(what: str, error: KafkaException) -> SpringtideError:
    return SpringtideError(f"topics {what}: {error.args[0].str() if error.args else error}; are the brokers up?")

"""Whether brokers answer, and whether topics are as topics.yaml describes them."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from springtide.doctor.finding import Finding, fine, fix, unknown
from springtide.errors import SpringtideError
from springtide.observe.kafka import admin
from springtide.observe.topics import Difference, differences, load_topics

TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Kafka:
    """`brokers` is empty when none was given; `unreachable` are those that refuse a connection, and why."""

    brokers: str
    unreachable: Mapping[str, str]
    error: str = ""
    topics: tuple[Difference, ...] = ()


def gather(options: Mapping[str, Any], topics: Path | None) -> Kafka:
    """`options` are librdkafka's; without brokers nothing is checked. Raises InputError for a topics file that is
    wrong."""
    brokers = str(options.get("bootstrap.servers") or "")
    if not brokers:
        return Kafka("", {})
    wanted = load_topics(topics)
    unreachable = {broker: why for broker in brokers.split(",") if (why := _refusal(broker))}
    if len(unreachable) == len(brokers.split(",")):
        return Kafka(brokers, unreachable)
    try:
        found = differences(admin(options), wanted)
    except SpringtideError as error:
        return Kafka(brokers, unreachable, str(error))
    return Kafka(brokers, unreachable, topics=tuple(found))


def check(seen: Kafka) -> Iterator[Finding]:
    if not seen.brokers:
        yield unknown("kafka", "--kafka", "no broker is given", "give one, if samples come through Kafka")
        return
    for broker, why in seen.unreachable.items():
        yield fix("kafka", broker, f"cannot be reached: {why}", "start the broker, or correct name, port and firewall")
    if len(seen.unreachable) == len(seen.brokers.split(",")):
        yield unknown("topics", seen.brokers, "not checked: no broker answers")
        return
    if seen.error:
        yield fix("kafka", seen.brokers, seen.error, "see --kafka-option for TLS and passwords")
        return
    yield fine("kafka", seen.brokers, "answers")
    for one in seen.topics:
        todo = one.refused or "`springtide topics apply`"
        yield fix("topics", one.topic, f"{one.what} is {one.found}, should be {one.wanted}", todo)
    if not seen.topics:
        yield fine("topics", seen.brokers, "are as the file describes them")


def _refusal(broker: str) -> str:
    """Why no connection can be made; empty when one can."""
    host, _, port = broker.strip().rpartition(":")
    try:
        with socket.create_connection((host.strip("[]") or "localhost", int(port)), TIMEOUT_S):
            return ""
    except ValueError:
        return "is not HOST:PORT"
    except OSError as error:
        return error.strerror or str(error)

"""The intake of an embedded store: what Kafka holds, taken before a round is decided on it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from springtide.jobs.site import Site, seconds
from springtide.observe import kafka
from springtide.observe.consume import MB, Consumer, memory_mb, take
from springtide.observe.kafka_tables import TOPIC, Source
from springtide.observe.lag import Ends
from springtide.store import Engine
from springtide.store.embedded import EmbeddedStore

# Enough of a round of five minutes is left to decide it; the next run takes what is over.
LIMIT_S = 120.0


def source(environment: Mapping[str, str] = os.environ) -> Source | None:
    """By SPRINGTIDE_KAFKA (brokers), _KAFKA_TOPIC, _KAFKA_REQUESTS and _KAFKA_OPTIONS_FILE; None without brokers."""
    brokers = environment.get("SPRINGTIDE_KAFKA")
    if not brokers:
        return None
    topic = environment.get("SPRINGTIDE_KAFKA_TOPIC") or TOPIC
    requests = environment.get("SPRINGTIDE_KAFKA_REQUESTS", "")
    return Source(brokers, topic, requests=requests, properties=client_properties(environment))


def client_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Librdkafka's, by SPRINGTIDE_KAFKA_OPTIONS_FILE. Raises InputError."""
    file = environment.get("SPRINGTIDE_KAFKA_OPTIONS_FILE")
    return kafka.properties(Path(file)) if file else {}


def consume(site: Site, environment: Mapping[str, str] = os.environ, print_line: Callable[[str], None] = print) -> int:
    """As `springtide consume --until-caught-up`, for SPRINGTIDE_KAFKA_SECONDS at most; the messages that it took.

    Nothing without Kafka, and nothing on a server, which consumes by itself. Raises SpringtideError.
    """
    wanted = source(environment)
    if wanted is None:
        print_line("SPRINGTIDE_KAFKA is not set: samples come by `springtide ingest`")
        return 0
    limit_s = seconds(environment, "SPRINGTIDE_KAFKA_SECONDS", LIMIT_S)
    memory_bytes = memory_mb() * MB
    with site.open(engine=Engine(memory_bytes, wanted.properties)) as store:
        if not isinstance(store, EmbeddedStore):
            print_line(f"{store.url} consumes by itself, once `springtide consume` has set it up")
            return 0
        with Ends(wanted) as ends, Consumer(store, site.fleet(), wanted, memory_bytes, print_line) as consumer:
            taken = take(consumer, threading.Event(), seconds=limit_s, ends=ends, report=print_line)
    found = taken.progress
    left = "an unknown number" if taken.left is None else taken.left
    print_line(f"{wanted.topic}: {found.messages} messages taken, {found.rejected} of them rejected, {left} left")
    return found.messages

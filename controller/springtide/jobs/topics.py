"""Whether Kafka's topics are as they should be."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from springtide.errors import SpringtideError
from springtide.jobs.consume import client_properties
from springtide.observe import kafka
from springtide.observe.topics import differences, load_topics


def check(environment: Mapping[str, str] = os.environ) -> bool:
    """By SPRINGTIDE_KAFKA (brokers), _KAFKA_OPTIONS_FILE and SPRINGTIDE_TOPICS (topics.yaml); False without brokers.

    Raises SpringtideError with every difference.
    """
    brokers = environment.get("SPRINGTIDE_KAFKA")
    if not brokers:
        return False
    file = environment.get("SPRINGTIDE_TOPICS")
    found = differences(
        kafka.admin({"bootstrap.servers": brokers, **client_properties(environment)}),
        load_topics(Path(file) if file else None),
    )
    if found:
        found_text = "; ".join(f"{one.topic}: {one.what} is {one.found}, should be {one.wanted}" for one in found)
        raise SpringtideError(f"{found_text}; run `springtide topics apply`")
    return True

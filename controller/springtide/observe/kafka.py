"""Clients of Kafka that say nothing by themselves: what fails is a line of ours.

librdkafka writes a line of its own to standard error for each attempt, and raises two kinds of errors for a property.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from springtide.errors import InputError, Problem

# In front of the text: its thread, then the client's name. Behind it: for how long, and how often.
_HEAD = re.compile(r"^(\[thrd:[^\]]*\]: )?(\S+#(consumer|producer)-\d+: )?")
_TAIL = re.compile(r" \((after \d+ms in state \w+|\d+ identical error).*\)$")

T = TypeVar("T")


def admin(settings: Mapping[str, Any]) -> AdminClient:
    """Raises InputError where librdkafka does not take the settings."""
    return _made(AdminClient, settings)


def consumer(settings: Mapping[str, Any]) -> Consumer:
    """Raises InputError where librdkafka does not take the settings."""
    return _made(Consumer, settings)


def text(complaint: str) -> str:
    """librdkafka's complaint without what makes each attempt's another: its thread, its client, its times."""
    return _TAIL.sub("", _HEAD.sub("", complaint))


def _made(kind: Callable[[dict[str, Any]], T], settings: Mapping[str, Any]) -> T:
    try:
        return kind({"log_level": 0, "error_cb": lambda _: None, **settings})
    except (KafkaException, TypeError, ValueError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        fix = "see librdkafka's CONFIGURATION.md for names and values"
        raise InputError([Problem("--kafka-option", "property", reason, fix)]) from error

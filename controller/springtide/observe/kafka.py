"""Clients of Kafka that say nothing by themselves: what fails is a line of ours.

librdkafka writes a line of its own to standard error for each attempt, and raises two kinds of errors for a property.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from springtide.errors import InputError, Problem

_NAME = re.compile(r"\s*[a-z][a-z0-9._]*\s*")
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


def properties(path: Path) -> dict[str, str]:
    """librdkafka's properties of a file with KEY=VALUE lines, as the collector reads it. Raises InputError."""
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text in UTF-8"
        raise InputError([Problem(str(path), "file", f"cannot be read: {reason}", "write KEY=VALUE lines")]) from error
    return pairs(str(path), [line for line in lines if line and not line.startswith("#")])


def pairs(where: str, given: Iterable[str]) -> dict[str, str]:
    """KEY=VALUE each. Raises InputError."""
    found = [one.partition("=") for one in given]
    # A wrong line may be a password: it is not shown.
    if wrong := [number for number, (key, equals, _) in enumerate(found, 1) if not (equals and _NAME.fullmatch(key))]:
        raise InputError([Problem(where, f"property {wrong[0]}", "is not KEY=VALUE", "write security.protocol=ssl")])
    return {key.strip(): value.strip() for key, _, value in found}


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

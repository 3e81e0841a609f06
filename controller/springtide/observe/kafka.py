"""Clients of Kafka that say nothing by themselves: what fails is a line of ours.

librdkafka writes a line of its own to standard error for each attempt, and raises two kinds of errors for a property.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from springtide.errors import InputError, Problem

_NAME = re.compile(r"[a-z][a-z0-9._]*")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Properties whose values nobody else may see; the collector's list (collector/src/sinks/kafka/options.rs).
SECRETS = (
    *("sasl.password", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config", "oauthbearer_token"),
    *("ssl.key.password", "ssl.key.pem", "ssl.keystore.password"),
)
# Properties that have an option of their own, or that librdkafka itself does not have; and what to do.
NOT_TAKEN = {
    **dict.fromkeys(("bootstrap.servers", "metadata.broker.list"), "give --kafka, or SPRINGTIDE_KAFKA"),
    **dict.fromkeys(("log.queue", "logger", "default.topic.config"), "leave it out: it is of the Python client"),
}
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
        # Windows' editors begin a file with a mark.
        lines = enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text in UTF-8"
        raise InputError([Problem(str(path), "file", f"cannot be read: {reason}", "write KEY=VALUE lines")]) from error
    given = [(f"line {number}", line.strip()) for number, line in lines]
    return _pairs(str(path), [(at, line) for at, line in given if line and not line.startswith("#")])


def options(given: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE each, as everybody may see them who sees the command line. Raises InputError."""
    found = _pairs("--kafka-option", [(f"option {number}", one) for number, one in enumerate(given, 1)])
    if secret := next((key for key in found if key in SECRETS), None):
        fix = "put it into the file of --kafka-options-file"
        raise InputError([Problem("--kafka-option", secret, "is a secret, which the list of processes shows", fix)])
    return found


def _pairs(where: str, given: Iterable[tuple[str, str]]) -> dict[str, str]:
    found = {}
    for at, one in given:
        key, equals, value = (part.strip() for part in one.partition("="))
        # A wrong line may be a password: it is not shown.
        if not (equals and _NAME.fullmatch(key)) or _CONTROL.search(value):
            fix = "write it as security.protocol=ssl, with the key in small letters"
            raise InputError([Problem(where, at, "is not KEY=VALUE", fix)])
        if key in NOT_TAKEN:
            raise InputError([Problem(where, key, "is not taken", NOT_TAKEN[key])])
        found[key] = value
    return found


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

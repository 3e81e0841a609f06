"""Whatever a message or a row holds: everything else is loaded, and it is kept with its offset."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from testkit.home import Home
from testkit.kafka import Feed, Message
from testkit.proto import FIELDS, Value, message, row, varint
from testkit.traffic import Socket

SPRINGTIDE = Path(sys.executable).with_name("springtide")
# A run ends once all is stored: after 13 s, beside seven busy processes on two processors. Its minute is for a machine
# that stands still. A consumer that was killed keeps its partitions for six seconds.
RUNS = 5
GOOD = 40_000
NOW = int(time.time()) - 3600
DAY = 86_400
LARGE = 10_000_000


def sample(cookie: int, **changed: Value) -> dict[str, Value]:
    return {**Socket("ams-1", cookie, "10.77.1.1", "10.77.2.2", "ams").at(NOW, poll=1, bytes_acked=cookie), **changed}


@dataclass(frozen=True)
class Poison:
    """`rows` of `payload` are to be loaded; the rest of it, or all, is to be kept with its offset."""

    payload: bytes
    rows: int = 0
    refused_rows: int = 0


def extreme(number: int) -> dict[str, Value]:
    """Every number of the contract at once, but for what names the sample."""
    names = {"time_unix_us", "poll_sequence", "cookie", "netns"}
    kinds = ("uint32", "uint64", "int64", "TcpState", "SampleKind")
    return {name: number for name, field in FIELDS.items() if field.type in kinds and name not in names}


# A row that is bad in one field, and a good one beside it in the same message.
BAD_ROWS: dict[str, dict[str, Value]] = {
    "a state of a newer kernel": {"state": 14},
    "an unknown kind": {"kind": 2**31 - 1},
    "a negative state": {"state": -1},
    "not UTF-8": {"host": b"\xff\xfe"},
    "NUL in a name": {"congestion_algorithm": "cu\0bic"},
    "an endless name": {"pop": "p" * 70_000},
    "no host": {"host": ""},
    "an address of four bytes": {"src_ip": b"\x0a\x4d\x01\x01"},
    "an address of 17 bytes": {"dst_ip": bytes(17)},
    "no address": {"dst_ip": b""},
    "a port of 17 bits": {"dst_port": 65_536},
    "the largest number everywhere": extreme(2**32 - 1),
    "the time of 1969": {"time_unix_us": -1},
    "the first time of all": {"time_unix_us": -(2**63)},
    "the last time of all": {"time_unix_us": 2**63 - 1},
    "the day after tomorrow": {"time_unix_us": (NOW + 3 * DAY) * 1_000_000},
}


def poisons() -> dict[str, Poison]:
    chance = random.Random(12)
    plain = message([row(sample(1))])
    rows = {
        name: Poison(message([row(sample(900_000 + n, **bad)), row(sample(950_000 + n))]), 1, 1)
        for n, (name, bad) in enumerate(BAD_ROWS.items())
    }
    days = [row(sample(990_000 + day, time_unix_us=(NOW - day * DAY) * 1_000_000)) for day in range(120)]
    return {
        **rows,
        # Ninety days before now are loaded; NOW is an hour before.
        "rows over 120 days": Poison(message(days), 90, 30),
        "random bytes": Poison(chance.randbytes(500)),
        "truncated": Poison(plain[:-7]),
        "cut in the middle of its length": Poison(b"\xff"),
        "bytes after its end": Poison(plain + b"\x99\x99"),
        "JSON": Poison(b'{"row": []}'),
        "another type: a number": Poison(varint(2) + b"\x10\x05"),
        "another type: a text": Poison(varint(7) + b"\x0a\x05hello"),
        "another type: a field unknown": Poison(varint(4) + b"\xa0\x1f\x2a\x00"),
        "a number that is longer than its type": Poison(message([row(sample(1, snd_cwnd=2**64 - 1, state=2**63))])),
        "a length that promises exabytes": Poison(b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
        "10 MB of zeros": Poison(bytes(LARGE)),
        "10 MB of random bytes": Poison(chance.randbytes(LARGE)),
        "10 MB in one name": Poison(message([row(sample(980_000, host="h" * LARGE)), row(sample(980_001))]), 1, 1),
        "100,000 rows of two bytes": Poison(varint(200_000) + b"\x0a\x00" * 100_000, 0, 100_000),
    }


# They hold no byte that could be kept.
EMPTY = (b"", None, b"\0")


def produce(feed: Feed, payloads: list[bytes | None]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": feed.bootstrap,
            "message.max.bytes": 2 * LARGE,
            "queue.buffering.max.kbytes": 1 << 20,
            "compression.type": "lz4",
        }
    )
    for number, payload in enumerate(payloads):
        producer.produce(feed.topic, payload, partition=number % 2)
    assert producer.flush(60) == 0


def until(home: Home, feed: Feed, done: Callable[[], bool]) -> dict[str, int]:
    """Runs of the command, until it is done; the sums of their counts."""
    sums = {"messages": 0, "rejected": 0, "rejected_rows": 0}
    for _ in range(RUNS):
        found = home.json("consume", *feed.consumer, "--until-caught-up", "--seconds", 60)
        sums = {name: number + found[name] for name, number in sums.items()}
        if done():
            return sums
    raise AssertionError(f"the samples did not arrive: {sums}")


def committed(feed: Feed) -> int:
    """Messages that the group has behind it; the half minute for the answer is only for a machine that stands still."""
    reader = Consumer({"bootstrap.servers": feed.bootstrap, "group.id": feed.topic})
    try:
        places = reader.committed([TopicPartition(feed.topic, number) for number in (0, 1)], timeout=30)
    finally:
        reader.close()
    return sum(max(0, place.offset) for place in places)


def counts(home: Home) -> tuple[int, int, int]:
    """Samples, whole messages refused, and samples refused."""
    [found] = home.query(
        "select (select count() from tcp_samples final) as loaded, countIf(sample_hash = 0) as messages, "
        "countIf(sample_hash != 0) as samples from rejected_messages final"
    )
    return int(found["loaded"]), int(found["messages"]), int(found["samples"])


def place(held: list[Message], payload: bytes) -> tuple[int, int]:
    [found] = [(one.partition, one.offset) for one in held if one.payload == payload]
    return found


@pytest.mark.proof
def test_forty_thousand_good_messages_with_every_poison_between_them(feed: Feed, home: Home) -> None:
    bad = poisons()
    payloads: list[bytes | None] = [message([row(sample(cookie))]) for cookie in range(1, GOOD + 1)]
    chance = random.Random(7)
    for payload in (*EMPTY, *(poison.payload for poison in bad.values())):
        payloads.insert(chance.randrange(len(payloads)), payload)
    produce(feed, payloads)

    loaded = GOOD + sum(poison.rows for poison in bad.values())
    whole = [name for name, poison in bad.items() if not poison.refused_rows]
    # Those of the hundred thousand are all alike: one is kept, with their number.
    refused = sum(min(poison.refused_rows, 30) for poison in bad.values()) - 29
    wanted = (loaded, len(whole), refused)
    sums = until(home, feed, lambda: counts(home)[0] >= loaded)
    assert counts(home) == wanted
    assert sums == {"messages": len(payloads), "rejected": len(whole), "rejected_rows": refused}
    assert committed(feed) == len(payloads)

    [sums] = home.query(
        "select count() as n, sum(bytes_acked) as bytes, uniqExact(cookie) as cookies from tcp_samples final "
        f"where cookie <= {GOOD} settings output_format_json_quote_64bit_integers = 0"
    )
    assert sums == {"n": GOOD, "bytes": GOOD * (GOOD + 1) // 2, "cookies": GOOD}
    beside = home.query("select cookie from tcp_samples final where cookie between 950000 and 989999 order by cookie")
    assert [int(one["cookie"]) for one in beside] == [*range(950_000, 950_000 + len(BAD_ROWS)), 980_001]

    held = feed.messages()
    kept = home.query(
        "select kafka_partition, kafka_offset, any(error) as error, count() as n, any(sample_hash) as sample "
        "from rejected_messages final group by all"
    )
    by_place = {(int(one["kafka_partition"]), int(one["kafka_offset"])): one for one in kept}
    assert len(by_place) == len(bad)
    for name, poison in bad.items():
        found = by_place[place(held, poison.payload)]
        assert found["error"], name
        assert bool(int(found["sample"])) == bool(poison.refused_rows), name
        if poison.refused_rows == 30:
            assert int(found["n"]) == 30
    reasons = {str(one["error"]) for one in kept}
    assert any(reason.startswith("state: is none of the contract's values") for reason in reasons)
    assert any("of 100000, of which 1000 are kept" in reason for reason in reasons), reasons
    # Bytes as they were, and a row as it can be read.
    [random_bytes] = home.query(f"select cityHash64(unhex('{bad['random bytes'].payload.hex()}')) as hash")
    [same] = home.query(
        f"select count() as n from rejected_messages final where cityHash64(message) = {random_bytes['hash']}"
    )
    assert int(same["n"]) == 1
    partition, offset = place(held, bad["a state of a newer kernel"].payload)
    [new_state] = home.query(
        f"select message from rejected_messages final where kafka_partition = {partition} and kafka_offset = {offset}"
    )
    shown = json.loads(new_state["message"])
    assert (int(shown["state"]), int(shown["cookie"]), shown["host"]) == (14, 900_000, "ams-1")


def refuse(home: Home, table: str) -> None:
    store = home.open()
    store.execute(f"alter table {table} add constraint shut check length(topic) > 1000")
    store.close()


def allow(home: Home, table: str) -> None:
    store = home.open()
    store.execute(f"alter table {table} drop constraint shut")
    store.close()


def test_what_cannot_be_kept_is_not_committed_and_stops_with_its_cause(feed: Feed, home: Home) -> None:
    """The rejected message cannot be written, though samples of its block can: a kill in between, and an error."""
    good = [message([row(sample(cookie))]) for cookie in range(1, 201)]
    produce(feed, [*good[:100], b"\x99none", *good[100:]])
    refuse(home, "rejected_messages")
    command = [str(SPRINGTIDE), "consume", *feed.consumer]
    environment = {**os.environ, **home.environment}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert "Constraint `shut`" in line
            assert "Stack trace" not in line
        finally:
            process.send_signal(signal.SIGKILL)
    before = committed(feed)
    # The partition without the bad message may be behind it.
    assert before <= 101

    # It gives up within fifteen seconds: the hundred are for a machine that stands still.
    last = home.run("consume", *feed.consumer, "--stall", 3, "--seconds", 100, code=1).stderr.splitlines()[-1]
    assert "nothing of what was read could be stored for" in last
    assert "Constraint `shut`" in last
    assert committed(feed) <= 101

    allow(home, "rejected_messages")
    until(home, feed, lambda: counts(home) == (200, 1, 0))
    assert committed(feed) == 201


def test_a_large_message_refused_by_producer_or_broker_is_reported(feed: Feed, home: Home) -> None:
    """Nothing of it comes into the topic: the size is a limit of theirs, and no message of a collector is near it."""
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        Producer({"bootstrap.servers": feed.bootstrap}).produce(feed.topic, bytes(LARGE))
    errors: list[Any] = []
    large = random.Random(1).randbytes(3 * LARGE)
    producer = Producer({"bootstrap.servers": feed.bootstrap, "message.max.bytes": 4 * LARGE})
    producer.produce(feed.topic, large, on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert [error.name() for error in errors] == ["MSG_SIZE_TOO_LARGE"]
    assert feed.messages() == []

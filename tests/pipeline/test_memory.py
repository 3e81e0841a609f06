"""A message that takes more memory to read than there is: the others are loaded, and it is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from springtide.observe.kafka_tables import GROUP, TOPIC

from testkit.home import Home
from testkit.kafka import Broker
from testkit.proto import message, row, varint
from testkit.traffic import Socket

SPRINGTIDE = Path(sys.executable).with_name("springtide")
NOW = int(time.time()) - 3600
PATIENCE_S = 300.0  # for a run that ends after 120 seconds, if not before: only for a machine that stands still
GOOD = 300
ROWS = 30_000
# In every row once more: 1.5 GB.
HEADER = bytes(50_000)
BOMB = varint(2 * ROWS) + b"\x0a\x00" * ROWS


def sample(cookie: int) -> bytes:
    socket = Socket("ams-1", cookie, "10.77.1.1", "10.77.2.2", "ams")
    return message([row(socket.at(NOW, poll=1, bytes_acked=cookie))])


def committed(broker: Broker) -> list[int]:
    """The group's offsets; the half minute for the answer is only for a machine that stands still."""
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP})
    try:
        return [one.offset for one in reader.committed([TopicPartition(TOPIC, n) for n in (0, 1)], timeout=30)]
    finally:
        reader.close()


@pytest.mark.proof
def test_a_message_too_large_for_memory_is_kept_aside_and_blocks_nothing(broker: Broker, home: Home) -> None:
    """It comes after empty messages and unknown bytes."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for cookie in range(1, GOOD + 1):
        producer.produce(TOPIC, sample(cookie), partition=cookie % 2)
        if cookie == 100:
            for other in (b"\x99none", b"", None, b"\0"):
                producer.produce(TOPIC, other, partition=0)
            producer.produce(TOPIC, BOMB, key=b"\xffkey", partition=0, headers=[("h", HEADER)])
    assert producer.flush(30) == 0
    line = [str(SPRINGTIDE), "consume", "--kafka", broker.bootstrap, "--max-memory-mb", "1000"]
    environment = {**os.environ, **home.environment}
    # A run ends once all is stored. It took three minutes beside seven busy processes on two processors, so that it may
    # be interrupted and go on: the five of two minutes are for a machine that stands still.
    for _ in range(5):
        done = subprocess.run(
            [*line, "--until-caught-up", "--seconds", "120", "--json"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        print(done.stderr)
        assert done.returncode == 0
        found = json.loads(done.stdout)
        assert found["rejected"] <= 2
        if found["left"] == 0:
            break
    assert sum(committed(broker)) == GOOD + 5
    [loaded] = home.query("select count() as n, uniqExact(cookie) as cookies from tcp_samples final")
    assert (int(loaded["n"]), int(loaded["cookies"])) == (GOOD, GOOD)
    kept = home.query(
        "select kafka_offset, hex(message_key) as k, error, hex(message) as bytes, sample_hash, topic, kafka_partition "
        "from rejected_messages final order by kafka_offset settings output_format_json_quote_64bit_integers = 0"
    )
    places = [(one["topic"], one["kafka_partition"], one["kafka_offset"]) for one in kept]
    assert places == [(TOPIC, 0, 50), (TOPIC, 0, 54)]
    bomb = kept[1]
    assert (bytes.fromhex(bomb["bytes"]), bomb["k"], bomb["sample_hash"]) == (BOMB, "FF6B6579", 0)
    assert f"up to {ROWS} rows with {len(HEADER) + 5} bytes of key and headers" in bomb["error"]

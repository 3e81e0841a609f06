"""From a real broker into the store: every sample counts once, and what is not a sample is kept in a table of its
own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from springtide import instants

from lab.collector import wait_until
from testkit.home import Home
from testkit.kafka import Broker, Feed
from testkit.proto import message, row
from testkit.spool import record, write_spool
from testkit.traffic import MSS, Socket

SPRINGTIDE = Path(sys.executable).with_name("springtide")
GARBAGE = b"\x99not an envelope"
PATIENCE_S = 120.0  # until a consumer has ended, or all samples are there: only for a machine that stands still
# Yesterday: a topic's samples are refused when they are too far from now.
ROUND = (int(time.time()) - 86_400) // 300 * 300
Samples = list[dict[str, Any]]


def batches(count: int, rows: int = 50) -> list[Samples]:
    """Messages of one host: 6 polls of one round, each with some connections of their own that fill their windows."""
    found = []
    for number in range(count):
        poll = number % 6
        sockets = [
            Socket("ams-1", 1 + number // 6 * rows + n, "10.77.1.1", f"10.77.2.{2 + n % 200}", "ams", 40 + n % 7)
            for n in range(rows)
        ]
        moment = ROUND - 290 + 50 * poll
        found.append([socket.at(moment, poll=100 + poll, bytes_acked=40 * MSS * poll) for socket in sockets])
    return found


def produce(feed: Feed, payloads: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": feed.bootstrap, "acks": "all"})
    for number, payload in enumerate(payloads):
        producer.produce(feed.topic, payload, key="ams-1" if number % 2 else "fra-1")
    assert producer.flush(30) == 0


def payload(samples: Samples) -> bytes:
    return message(row(sample) for sample in samples)


@contextmanager
def consume(home: Home, feed: Feed) -> Iterator[subprocess.Popen[bytes]]:
    """The command, which does not outlive the block: it would run forever where the test fails within."""
    with subprocess.Popen([SPRINGTIDE, "consume", *feed.consumer], env={**os.environ, **home.environment}) as process:
        try:
            yield process
        finally:
            process.kill()


def until(home: Home, feed: Feed, done: Callable[[], bool], *arguments: str) -> None:
    """Runs of the command, until it is done."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "the samples did not arrive"
        # A consumer that was killed keeps its partitions until the broker misses it: the next one waits as long.
        home.run("consume", *feed.consumer, "--until-caught-up", "--seconds", 60, *arguments)


def committed(feed: Feed) -> int:
    """Messages that the group has behind it."""
    reader = Consumer({"bootstrap.servers": feed.bootstrap, "group.id": feed.topic})
    places: list[TopicPartition] = []

    def answered() -> bool:
        # A broker that has just started may be reading its groups, or not yet lead any.
        with suppress(KafkaException):
            places[:] = reader.committed([TopicPartition(feed.topic, number) for number in (0, 1)], timeout=10)
        return bool(places)

    try:
        wait_until("answer of the group's coordinator", answered)
    finally:
        reader.close()
    return sum(max(0, place.offset) for place in places)


def distinct(home: Home) -> list[dict[str, Any]]:
    """Everything that tcp_samples holds, in one order."""
    return home.query(
        "select * from tcp_samples final order by host, boot_id, netns, cookie, poll_sequence, kind "
        "settings output_format_json_quote_64bit_integers = 0"
    )


def round_tables(home: Home) -> list[dict[str, Any]]:
    moment = instants.show(ROUND)
    home.run("rollup", "--round", moment)
    return home.query(
        "select * except (cwnd_state, rtt_state), hex(cwnd_state) as cwnds, hex(rtt_state) as rtts from round_pairs"
    )


def count(home: Home, table: str = "tcp_samples") -> int:
    return int(home.query(f"select count() as n from {table} final")[0]["n"])


def test_garbage_is_kept_with_its_offset_and_blocks_nothing(feed: Feed, home: Home) -> None:
    good = batches(120)
    payloads = [payload(samples) for samples in good]
    for place in (3, 50, 110):
        payloads.insert(place, GARBAGE)
    produce(feed, payloads)
    summary = home.json("consume", *feed.consumer, "--seconds", 5)
    until(home, feed, lambda: count(home) == sum(map(len, good)) and count(home, "rejected_messages") == 3)
    assert summary["complaints"] == []
    rejected = home.query("select topic, kafka_offset, error, message from rejected_messages final")
    assert [r["message"].encode("latin-1", errors="replace")[-15:] for r in rejected] == [GARBAGE[-15:]] * 3
    assert all(r["topic"] == feed.topic and r["error"] for r in rejected)
    assert len({r["kafka_offset"] for r in rejected}) >= 2
    assert home.query("select distinct src_pop, dst_pop from tcp_samples") == [{"src_pop": "ams", "dst_pop": "fra"}]


@pytest.mark.proof
def test_redelivery_and_kills_change_no_byte_of_the_round_tables(broker: Broker, home: Home, clean: Home) -> None:
    feed, good = Feed.of(broker), batches(240)
    payloads = [payload(samples) for samples in good]
    # A tenth comes twice.
    payloads += payloads[::10]
    produce(feed, payloads[:130])
    with consume(home, feed) as process:
        wait_until("commit of the consumer", lambda: committed(feed) > 0)
        # These are in flight, or read and not committed, when it is killed.
        produce(feed, payloads[130:200])
        time.sleep(1)
        process.kill()
    broker.kill()
    broker.start()
    with consume(home, feed) as process:
        before = committed(feed)
        wait_until("commit of the next consumer", lambda: committed(feed) > before)
        broker.kill()
        broker.start()
        produce(feed, payloads[200:])
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
    until(home, feed, lambda: count(home) == sum(map(len, good)))
    through_kafka, tables = distinct(home), round_tables(home)

    write_spool(clean.spool, "all", [record(samples) for samples in good])
    clean.run("ingest", clean.spool)
    assert distinct(clean) == through_kafka
    assert round_tables(clean) == tables
    assert tables[0]["connections_earned"] > 0


def test_older_and_newer_collectors_are_understood(feed: Feed, home: Home) -> None:
    """An older one lacks fields; a newer one has a field that this contract does not know."""
    [first, second] = batches(2, rows=3)
    lacking = [{name: value for name, value in sample.items() if name != "snd_cwnd"} for sample in first]
    # Field 500, a varint: tag (500 << 3 | 0) = 4000.
    unknown = bytes([0xA0, 0x1F, 42])
    newer = message(row(sample) + unknown for sample in second)
    produce(feed, [payload(lacking), newer])
    until(home, feed, lambda: count(home) == 6)
    rows = home.query(
        "select poll_sequence, countIf(snd_cwnd is null) as nulls from tcp_samples group by all order by 1"
    )
    assert [row["nulls"] for row in rows] == [3, 0]
    assert count(home, "rejected_messages") == 0


def test_an_unreachable_broker_is_reported(home: Home) -> None:
    done = home.run("consume", "--kafka", "127.0.0.1:9", "--seconds", 4, code=1)
    assert "nothing of what was read could be stored at the end" in done.stderr.splitlines()[-1]
    assert "brokers are down" in done.stderr


def test_one_message_in_a_thousand_is_garbage_and_the_consumer_never_stalls(feed: Feed, home: Home) -> None:
    good = batches(2997, rows=2)
    payloads = [payload(samples) for samples in good]
    for place in (0, 1500, 2999):
        payloads.insert(place, GARBAGE)
    produce(feed, payloads)
    until(home, feed, lambda: count(home) == 2 * len(good) and count(home, "rejected_messages") == 3)
    held = {(m.partition, m.offset) for m in feed.messages() if m.payload == GARBAGE}
    rejected = home.query("select kafka_partition, kafka_offset from rejected_messages final")
    assert {(r["kafka_partition"], r["kafka_offset"]) for r in rejected} == held


def request_line(n: int, **changed: Any) -> str:
    given = {
        "time": ROUND - 200 + n / 1000,
        "host": "ams-1",
        "request_id": f"{n:032x}",
        "client": "192.0.2.7" if n % 2 else "2001:db8::7",
        "server": "10.77.1.1",
        "method": "GET",
        "status": 200,
        "bytes": 125_000 + n,
        "request_time": (n + 1) / 10,
    }
    return json.dumps({**given, **changed})


BAD_LINES = {
    "not json": "is not a JSON object",
    "[1]": "is not a JSON object",
    request_line(1, client="nobody"): "client: is not an IP address",
    request_line(1, request_id="xyz"): "request_id: is not 32 hexadecimal digits",
    request_line(1, status="200"): "status: is not a whole number from 0 to 999",
    request_line(1, bytes=-1): "bytes: is not a whole number",
    request_line(1, time=None): "time: is not a number",
    request_line(1, host=""): "host: is not a text",
    request_line(1, time=1e9): "time: is too far from now",
    request_line(1, time=3.9e9): "time: is too far from now",
    "[" * 5000: "is not a JSON object",
    '{"a":' * 5000: "is not a JSON object",
}


# Lines that a careful reader and a careless one take differently.
ODD_LINES = [
    *(request_line(200 + n, status=value) for n, value in enumerate([200.0, -0, 999, 1000, True, None])),
    *(request_line(210 + n).replace("200", text, 1) for n, text in enumerate(["2e2", "1e5", "009", "000", "0200"])),
    *(request_line(220 + n, bytes=value) for n, value in enumerate([200.7, 1000.5, 2**63, 2**63 + 1, 2**64, 1e3])),
    request_line(230).replace('"method"', '"method": "POST", "method"'),
    request_line(231).replace('"bytes"', '"bytes": 7, "bytes"'),
    *(
        request_line(240 + n, client=value)
        for n, value in enumerate(
            [
                "198.051.100.7",
                "::ffff:198.51.100.7",
                "fe80::1%eth0",
                " 192.0.2.1",
                "192.0.2",
                "unix:",
                "UNIX:",
                "",
                "::1",
            ]
        )
    ),
    request_line(250, unread="\ud800"),
    request_line(251, unread="\U0001f600", more={"deep": [1]}),
    request_line(252, host="\ud800"),
    *(
        request_line(260 + n, method=value)
        for n, value in enumerate(["", "x" * 255, "x" * 256, "\u00e9" * 255, None, 1])
    ),
    request_line(270, request_time=float("nan")),
    request_line(271, request_time=1e9 + 1),
    *(request_line(280 + n, request_time=value) for n, value in enumerate([0, 454, True, "1.0"])),
    *(
        request_line(290 + n, request_time_ms=value).replace('"request_time":', '"elapsed":')
        for n, value in enumerate([0, 454, -1, 1.5, 10**13, None])
    ),
    request_line(272) + " ",
    "\ufeff" + request_line(273),
    request_line(274) + "\r",
    request_line(275) + " more",
    request_line(276, request_id=f"{276:032X}"),
    request_line(277, unread="x" * 65_536),
    request_line(278, host="a\0b"),
    "",
    " ",
]


def test_each_line_is_judged_alike_by_both_ways(feed: Feed, home: Home, clean: Home) -> None:
    """Lines that nginx writes of requests that it could not parse are taken as well."""
    topic = Feed.of(feed.broker).topic
    of_nginx = Path(__file__).with_name("nginx-lines.json").read_text().splitlines()
    of_nginx = [re.sub(r'"time":[0-9.]+', f'"time":{ROUND - 100}', line) for line in of_nginx]
    log = home.path / "nginx.json"
    log.write_text("\n".join(of_nginx) + "\n")
    assert home.json("ingest-logs", log)["rows"] == len(of_nginx)
    odd = home.path / "odd.json"
    odd.write_text("\n".join(ODD_LINES) + "\n")
    home.run("ingest-logs", odd, code=2)
    by_file = home.query("select * from http_requests final order by request_id")
    refused = odd.with_name("odd.json.rejected").read_text().removesuffix("\n").split("\n")
    assert len(by_file) + len(refused) == len(of_nginx) + len(ODD_LINES) - 1

    producer = Producer({"bootstrap.servers": feed.bootstrap})
    for line in [*of_nginx, *ODD_LINES]:
        producer.produce(topic, line.encode(), key="ams-1")
    assert producer.flush(30) == 0
    assert clean.json("consume", *feed.consumer, "--requests", topic, "--until-caught-up", "--seconds", 60)["left"] == 0
    assert clean.query("select * from http_requests final order by request_id") == by_file
    rejected = clean.query("select message from rejected_messages final")
    assert sorted(row["message"] for row in rejected) == sorted(refused)


def test_access_logs_come_through_kafka_as_they_come_from_files(feed: Feed, home: Home, clean: Home) -> None:
    topic = Feed.of(feed.broker).topic
    lines = [request_line(n) for n in range(40)]
    # One line a message, and several; a line that comes twice; bad ones alone and between good ones.
    messages = [*lines[:10], "\n".join(lines[8:30]), *BAD_LINES, "\n".join([*lines[30:], "broken"])]
    # Beside each of its lines such a message would take 80 GB; these lines lie on 120 days.
    messages.append("\n".join(["x"] * 200_000))
    messages.append("\n".join(request_line(100 + day, time=ROUND - 86_400 * day) for day in range(120)))
    producer = Producer({"bootstrap.servers": feed.bootstrap})
    for text in messages:
        producer.produce(topic, text.encode(), key="ams-1")
    assert producer.flush(30) == 0

    def arrived() -> bool:
        loaded, refused = count(home, "http_requests"), count(home, "rejected_messages")
        return loaded >= len(lines) + 89 and refused >= len(BAD_LINES) + 3

    until(home, feed, arrived, "--requests", topic)
    rejected = {r["message"]: r["error"] for r in home.query("select message, error from rejected_messages final")}
    assert set(rejected) == {*BAD_LINES, *messages[-3:]}
    assert all(error.startswith(BAD_LINES.get(message, ("is not", "time: "))) for message, error in rejected.items())
    assert count(home, "http_requests") == len(lines) + 89
    few = f"where time_unix_us > {(ROUND - 3600) * 1_000_000} and reinterpretAsUInt64(request_id) < 100"
    through_kafka = home.query(f"select * from http_requests final {few} order by request_id")
    assert {row["pop"] for row in through_kafka} == {"ams"}

    log = clean.path / "access.json"
    log.write_text("\n".join(lines) + "\n")
    clean.run("ingest-logs", log)
    assert len(through_kafka) == len(lines)
    assert clean.query("select * from http_requests final order by request_id") == through_kafka

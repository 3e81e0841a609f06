"""One fleet, its samples through Kafka and through spools: the same windows, byte for byte; and runs that end by
themselves once they have caught up."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from springtide import instants
from springtide.errors import SpringtideError
from springtide.jobs.consume import consume
from springtide.jobs.site import Site
from springtide.observe.kafka_tables import TOPIC, Source
from springtide.observe.lag import Ends

from lab.collector import wait_until
from testkit.history import INTERVAL, made
from testkit.home import Home
from testkit.kafka import Broker, Feed
from testkit.proto import Value, message, row
from testkit.spool import record, write_spool

SPRINGTIDE = str(Path(sys.executable).with_name("springtide"))
BATCH = 40
PATIENCE_S = 240  # A run takes five seconds.
# A topic's samples must not be far from now; these rounds are closed.
LAST = instants.latest_round(int(time.time()) - 3600, INTERVAL)
ROUNDS = range(LAST - 5 * INTERVAL, LAST + 1, INTERVAL)
# The fleet of a test has few connections, few prefixes and few rounds.
POLICY = """\
initcwnd: {duty_rounds: 1, min_connections: 2}
congestion:
  {window_rounds: 10, min_rounds: 3, benefit_rounds: 2, min_stay_s: 600, holdout_share: 0, low_share: 0.4,
   min_prefixes: 3, min_connections: 1, min_samples: 2, min_bytes: 1000, min_object_bytes: 10000}
"""
Samples = list[dict[str, Value]]


def batches(samples: Samples) -> list[tuple[str, Samples]]:
    """As collectors send them: a message has rows of one host, which is its key."""
    hosts: dict[str, Samples] = {}
    for sample in samples:
        hosts.setdefault(str(sample["host"]), []).append(sample)
    return [(host, rows[at : at + BATCH]) for host, rows in hosts.items() for at in range(0, len(rows), BATCH)]


def produce(broker: Broker, topic: str, messages: list[tuple[str, bytes]]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for key, payload in messages:
        producer.produce(topic, payload, key=key)
    assert producer.flush(30) == 0


def payloads(samples: Samples) -> list[tuple[str, bytes]]:
    return [(host, message(row(sample) for sample in rows)) for host, rows in batches(samples)]


def run(home: Home, feed: Feed, *arguments: str) -> dict[str, Any]:
    """`springtide consume`, to its own end, which comes before its time is over."""
    began = time.monotonic()
    bounded = ("--until-caught-up", "--seconds", PATIENCE_S, *arguments)
    found: dict[str, Any] = home.json("consume", *feed.consumer, *bounded)
    assert time.monotonic() - began < PATIENCE_S
    return found


def outcome(home: Home, name: str) -> tuple[dict[str, list[dict[str, Any]]], dict[str, bytes]]:
    """Both laws' decisions of every round, all columns, and the last round's bundles as edges get them."""
    home.kept = {}
    for moment in ROUNDS:
        at = ("--round", instants.show(moment))
        home.run("rollup", *at)
        for law in ("initcwnd", "congestion"):
            # 3: a PoP whose input is thin keeps what it had, which both stores must find alike.
            home.run("decide", law, *at, code=None)
    tables = {
        part: home.query(f"select * from path_decisions final where part = '{part}' order by all")
        for part in ("initcwnd", "congestion")
    }
    out = home.path / name
    home.run("bundle", "--round", instants.show(LAST), "--out", out)
    return tables, {path.name: path.read_bytes() for path in sorted(out.glob("*.json"))}


@pytest.mark.proof
def test_through_kafka_and_through_spools_the_same_windows_are_decided(
    feed: Feed, home: Home, clean: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of the topic come in another order, a tenth of them twice, some again after a kill of their consumer."""
    home.policy.write_text(POLICY)
    samples, lines = made(ROUNDS)
    messages = payloads(samples)
    random.Random(3).shuffle(messages)
    requests = Feed.of(feed.broker)
    produce(feed.broker, feed.topic, messages[: len(messages) // 2])
    line = [SPRINGTIDE, "consume", *feed.consumer]
    with subprocess.Popen(line, env={**os.environ, **home.environment}) as killed:
        try:
            with Ends(Source(feed.bootstrap, feed.topic, feed.topic)) as ends:
                wait_until("commit", lambda: ends.left() == 0)
            produce(feed.broker, feed.topic, messages[len(messages) // 2 :] + messages[::10])
            time.sleep(1)
        finally:
            killed.kill()
    produce(feed.broker, requests.topic, [("logs", text.encode()) for text in lines])
    taken = run(home, feed, "--requests", requests.topic)
    assert taken["left"] == 0

    clean.policy.write_text(POLICY)
    write_spool(clean.spool, "all", [record(rows) for _, rows in batches(samples)])
    clean.run("ingest", clean.spool)
    log = clean.path / "access.json"
    log.write_text("".join(lines))
    clean.run("ingest-logs", log)

    # One moment for both, within the life of the last round's bundles: what is written down of it is no decision.
    monkeypatch.setattr(instants, "now", lambda: LAST + 120)
    tables, bundles = outcome(home, "bundles")
    expected_tables, expected_bundles = outcome(clean, "bundles")
    assert tables == expected_tables
    assert bundles == expected_bundles
    # And it is not that neither has decided anything.
    assert {row["initcwnd"] for row in tables["initcwnd"] if row["action"] == "set"} - {0}
    assert tables["congestion"]
    assert any(json.loads(content)["entries"] for content in bundles.values())


def test_it_ends_by_itself_with_all_that_was_there_when_it_began(feed: Feed, home: Home) -> None:
    first, second = made(ROUNDS[:1])[0], made(ROUNDS[1:2])[0]
    produce(feed.broker, feed.topic, payloads(first))
    # A sender that goes on does not keep it from ending.
    ended = threading.Event()

    def send_on() -> None:
        while not ended.wait(0.2):
            produce(feed.broker, feed.topic, payloads(second[:BATCH]))

    sender = threading.Thread(target=send_on)
    sender.start()
    try:
        taken = run(home, feed)
    finally:
        ended.set()
        sender.join()
    assert taken["left"] == 0
    assert taken["messages"] >= len(payloads(first))
    [found] = home.query(f"select count() as n from tcp_samples final where time_unix_us < {ROUNDS[0] * 1_000_000}")
    assert int(found["n"]) == len(first)
    # A group that lacks nothing ends too, and so does one whose topic is empty.
    run(home, feed)
    assert run(home, feed)["messages"] == 0
    assert run(home, Feed.of(feed.broker))["left"] == 0


def test_what_its_time_does_not_suffice_for_is_left_and_reported(feed: Feed, home: Home) -> None:
    samples = made(ROUNDS[:1])[0]
    produce(feed.broker, feed.topic, payloads(samples))
    source = Source(feed.bootstrap, feed.topic, feed.topic)
    with Ends(source) as ends:
        assert ends.left() == len(payloads(samples))
    # A second is not enough for a first block, which waits for two.
    short = run(home, feed, "--seconds", "1")
    assert short["left"] == len(payloads(samples))
    assert run(home, feed)["left"] == 0


def test_a_round_takes_what_kafka_holds_and_fails_without_a_broker(
    broker: Broker, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in home.environment.items():
        monkeypatch.setenv(name, value)
    samples = made(ROUNDS[:1])[0]
    produce(broker, TOPIC, payloads(samples))
    printed: list[str] = []
    assert consume(Site.of(), {}, printed.append) == 0
    assert "is not set" in printed[-1]
    environment = {"SPRINGTIDE_KAFKA": broker.bootstrap}
    assert consume(Site.of(), environment, printed.append) == len(payloads(samples))
    assert printed[-1].endswith("0 left")
    assert int(home.query("select count() as n from tcp_samples final")[0]["n"]) == len(samples)
    with pytest.raises(SpringtideError, match=r"topic none cannot be read: .*`springtide topics` makes it"):
        consume(Site.of(), {**environment, "SPRINGTIDE_KAFKA_TOPIC": "none"}, printed.append)
    broker.kill()
    with pytest.raises(SpringtideError, match="could be stored at the end"):
        consume(Site.of(), {**environment, "SPRINGTIDE_KAFKA_SECONDS": "4"}, printed.append)

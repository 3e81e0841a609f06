"""Samples from the kernel through a real Kafka broker into a store, whatever dies on the way."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from lab.collector import Collector, wait_until
from lab.connections import own_network
from testkit.certificate import Certificate, make_certificate
from testkit.home import Home
from testkit.kafka import Broker, Feed, Message, rows_in
from testkit.spool import frame, write_spool
from testkit.witness import Identity, balanced, in_spool, in_store

pytestmark = pytest.mark.root

# The engine and shells put something in place of a part of it where nothing keeps them from it.
PASSWORD = "ti${kafka.sasl_username}de$#=1"  # noqa: S105 (of a broker that ends with the tests)
SOCKETS = 1001  # of the load: both ends of each connection, and the listener


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    """One for all tests of this file, and for their broker."""
    with own_network():
        yield


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def shared(network: None, certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """With a port for those who know its certificate, and one for those who have a password, too."""
    directory = tmp_path_factory.mktemp("kafka")
    with Broker(directory, certificate=certificate.served, user=("collector", PASSWORD)) as running:
        yield running


@pytest.fixture
def feed(shared: Broker) -> Iterator[Feed]:
    """A feed of a broker that runs, and does again for the next test."""
    yield Feed.of(shared)
    shared.resume()
    if shared.pid is None:
        shared.start()


def collector(
    directory: Path,
    feed: Feed,
    *arguments: object,
    bootstrap: str | None = None,
    interval: str = "200ms",
    queue: Path | None = None,
) -> Collector:
    to = ("--kafka", bootstrap or feed.bootstrap, "--kafka-topic", feed.topic)
    sinks = (*to, "--queue-dir", queue or directory / "queue")
    fast = ("--interval", interval, "--no-closes", "--host", "ams-1", "--pop", "ams")
    return Collector(directory / "collector.log", *sinks, *fast, *arguments)


def arrived(home: Home, messages: list[Message]) -> set[Identity]:
    """The identities in tcp_samples after `springtide ingest` of the messages."""
    folder = home.path / "from-kafka"
    write_spool(folder, "from-kafka", [frame(message.payload, rows_in(message.payload), 0) for message in messages])
    summary = home.json("ingest", folder)
    assert summary["rejected_records"] == 0, summary
    store = home.open()
    try:
        return in_store(store)
    finally:
        store.close()


def held(directory: Path) -> int:
    """Bytes in the queue's segments."""
    size = 0
    for path in directory.glob("*.spool"):
        with suppress(FileNotFoundError):  # removed meanwhile
            size += path.stat().st_size
    return size


def polls(running: Collector) -> int:
    """Polls so far, by its metrics."""
    [port] = re.findall(r"http://127.0.0.1:(\d+)/metrics", running.text())
    with closing(HTTPConnection("127.0.0.1", int(port))) as connection:
        connection.request("GET", "/metrics")
        said = connection.getresponse().read().decode()
    [number] = re.findall(r"^springtide_collector_polls_total (\d+)$", said, re.MULTILINE)
    return int(number)


def more_than(feed: Feed, count: int) -> Callable[[], bool]:
    return lambda: len(feed.messages()) > count


def holds_more_than(directory: Path, size: int) -> bool:
    return held(directory) > size


def delivered(counters: dict[str, Any]) -> tuple[int, int, int]:
    book = counters["sinks"]["kafka"]
    assert balanced(counters, "kafka")
    return book["rows_delivered"], book["rows_spooled"], sum(book["rows_dropped"].values())


def test_every_row_is_in_the_topic_once_and_keyed_by_host(load: None, feed: Feed, home: Home) -> None:
    spool = ("--spool-dir", home.spool)
    with collector(home.path, feed, *spool) as running:
        wait_until("message", lambda: len(feed.messages()) > 10)
        counters = running.stop()
    assert delivered(counters) == (counters["rows_read"], 0, 0)
    messages = feed.messages()
    assert {message.key for message in messages} == {"ams-1"}
    assert len({message.partition for message in messages}) == 1
    # A healthy broker gets everything exactly once.
    assert sum(rows_in(message.payload) for message in messages) == counters["rows_read"]
    assert arrived(home, messages) == in_spool(home.spool.glob("*.spool"))
    # Acknowledged messages do not stay on disk.
    assert held(home.path / "queue") == 0


def test_a_killed_broker_and_a_killed_collector_cost_nothing(load: None, feed: Feed, home: Home) -> None:
    queue = home.path / "queue"
    running = collector(home.path, feed, "--spool-dir", home.spool).start()
    try:
        wait_until("message", lambda: len(feed.messages()) > 5)
        feed.broker.kill()
        before = held(queue)
        wait_until("row that waits for the broker", lambda: held(queue) > before + 1_000_000)
        running.kill()
        running.start()
        wait_until("row of the next life", lambda: held(queue) > before + 2_000_000)
        feed.broker.start()
        so_far = len(feed.messages())
        wait_until("message after the outage", lambda: len(feed.messages()) > so_far)
        running.kill()
        running.start()
        so_far = len(feed.messages())
        wait_until("message of the last life", lambda: len(feed.messages()) > so_far + 5)
        counters = running.stop()
        # A busy machine has more left than a stop waits for: the next life sends it.
        for _ in range(10):
            if not delivered(counters)[1]:
                break
            running.start()
            wait_until("message of one more life", more_than(feed, len(feed.messages()) + 5))
            counters = running.stop()
    finally:
        running.kill()
    assert delivered(counters) == (counters["rows_read"] + counters["sinks"]["kafka"]["rows_recovered"], 0, 0)
    found = arrived(home, feed.messages())
    # A row is read when the queue has it; the spool, which is written behind the queue, may lack the last message
    # before each of the two kills, and nothing else.
    witness = in_spool(home.spool.glob("*.spool"))
    assert witness <= found
    assert len({identity.poll_sequence for identity in found - witness}) <= 2
    # And independently of both: every poll saw every socket of the load, but for the two that were killed.
    polls = Counter(identity.poll_sequence for identity in found)
    first, last = min(polls), max(polls)
    thin = [poll for poll in range(first, last + 1) if polls[poll] < SOCKETS]
    assert len(thin) <= 2, thin
    stable = set.intersection(
        *({i.cookie for i in found if i.poll_sequence == poll} for poll in polls if polls[poll] >= SOCKETS)
    )
    assert len(stable) >= SOCKETS


def test_a_broker_that_accepts_nothing_stops_no_poll_and_fills_no_memory(load: None, feed: Feed, home: Home) -> None:
    queue = home.path / "queue"
    limit = 1 << 20
    with collector(home.path, feed, "--queue-bytes", "1MiB", "--http-listen", 0, interval="50ms") as running:
        wait_until("message", lambda: len(feed.messages()) > 5)
        feed.broker.pause()
        memory, before = running.memory_kib(), polls(running)
        largest, made, last = 0, before, time.monotonic()
        # Five seconds where the machine keeps up; the longest between two was 0.1 s, beside twelve busy processes.
        while made < before + 100:
            if (now := polls(running)) > made:
                made, last = now, time.monotonic()
            assert time.monotonic() < last + 3
            largest = max(largest, held(queue))
            time.sleep(0.02)
        grown = running.memory_kib() - memory
        counters = running.stop()
    sent, waiting, lost = delivered(counters)
    assert counters["sinks"]["kafka"]["rows_dropped"]["queue_bytes"] == lost > 10_000
    assert waiting > 0
    # A removed segment may be there a moment longer.
    assert largest < 2 * limit, largest
    # In flight are 16 messages at most, which librdkafka holds twice: as they are and compressed.
    assert grown < 24 * 1024, f"{grown} KiB"
    feed.broker.resume()
    with collector(home.path, feed) as running:
        # It listens for signals only then; and what the broker still had of the first life is in the topic before.
        wait_until("second life", lambda: running.text().count("polling as ") == 2)
        so_far = len(feed.messages())
        wait_until("end of the old rows", lambda: len(feed.messages()) > so_far + 5)
        after = running.stop()
    recovered = after["sinks"]["kafka"]["rows_recovered"]
    assert 0 < recovered <= waiting
    assert delivered(after) == (after["rows_read"] + recovered, 0, 0)
    found = arrived(home, feed.messages())
    read = counters["rows_read"] + after["rows_read"]
    # Messages in flight at the end, and not in the queue any more, may have reached the broker or not.
    assert sent + recovered + after["rows_read"] <= len(found) <= read - lost


@contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


def test_a_full_disk_stops_no_poll_and_what_is_lost_is_counted(load: None, feed: Feed, home: Home) -> None:
    with (
        small_disk(home.path / "disk") as disk,
        collector(home.path, feed, interval="50ms", queue=disk / "queue") as running,
    ):
        wait_until("message", lambda: len(feed.messages()) > 5)
        feed.broker.pause()
        wait_until("complaint", lambda: "No space left on device" in running.text())
        time.sleep(3)  # 4 MiB of memory are full then
        feed.broker.resume()
        so_far = len(feed.messages())
        wait_until("message after it", lambda: len(feed.messages()) > so_far + 10)
        counters = running.stop()
    sent, waiting, lost = delivered(counters)
    assert counters["sinks"]["kafka"]["rows_dropped"]["disk_unavailable"] == lost > 0
    assert (waiting, counters["polls_failed"]) == (0, 0)
    assert len(arrived(home, feed.messages())) == sent == counters["rows_read"] - lost


def test_sigterm_ends_in_time_though_the_broker_does_not_answer(load: None, feed: Feed, home: Home) -> None:
    """Its five seconds, four of them the sink's: 4.1 are usual. An end that a busy machine delays by the fifth is done
    again; three in a row are late with odds of one in a million where one in a hundred is."""
    queue, read = home.path / "queue", 0
    for life in range(3):
        with collector(home.path, feed) as running:
            if life == 0:
                wait_until("message", lambda: len(feed.messages()) > 5)
                feed.broker.pause()
            enough = held(queue) + 1_000_000
            wait_until("row that waits", partial(holds_more_than, queue, enough))
            begun = time.monotonic()
            counters = running.stop()
            took = time.monotonic() - begun
        _, waiting, lost = delivered(counters)
        assert waiting > 0
        assert lost == 0
        read += counters["rows_read"]
        if took < 5:
            break
    assert took < 5
    feed.broker.resume()
    with collector(home.path, feed, "--polls", "1") as running:
        read += running.ended()["rows_read"]
    assert len(arrived(home, feed.messages())) == read


def test_a_message_that_is_too_large_is_kept_aside_and_the_others_go_on(load: None, shared: Broker, home: Home) -> None:
    # A poll is one message of a thousand rows, which is too large, and one of the few that are left.
    feed = Feed.of(shared, {"max.message.bytes": "20000"})
    with collector(home.path, feed, "--kafka-option", "compression.codec=none") as running:
        wait_until("message", lambda: len(feed.messages()) > 5)
        counters = running.stop()
    messages = feed.messages()
    sent, waiting, lost = delivered(counters)
    assert counters["sinks"]["kafka"]["rows_dropped"]["too_large"] == lost > 0
    assert waiting == 0
    aside = in_spool((home.path / "queue" / "rejected").glob("*.spool"))
    found = arrived(home, messages)
    assert len(aside) == lost
    assert not aside & found
    assert len(found) == sent == counters["rows_read"] - lost


def test_a_missing_topic_is_reported_and_its_rows_wait(load: None, shared: Broker, home: Home) -> None:
    feed = Feed(shared, home.path.name)
    options = ("--kafka-option", "topic.metadata.propagation.max.ms=500")
    with collector(home.path, feed, *options) as running:
        wait_until("complaint", lambda: f"topic {feed.topic} does not take messages" in running.text())
        shared.topic(feed.topic)
        wait_until("message", lambda: len(feed.messages()) > 5)
        counters = running.stop()
    assert delivered(counters) == (counters["rows_read"], 0, 0)
    assert len(arrived(home, feed.messages())) == counters["rows_read"]


def test_tls_is_verified(load: None, feed: Feed, certificate: Certificate, home: Home) -> None:
    options = home.path / "kafka.properties"
    options.write_text("# What the collector may know\nsecurity.protocol=ssl\n")
    secure = ("--kafka-options-file", options)
    there = feed.broker.bootstrap_tls
    with collector(home.path, feed, *secure, bootstrap=there) as running:
        wait_until("complaint", lambda: "certificate verify failed" in running.text())
        counters = running.stop()
    assert delivered(counters) == (0, counters["rows_read"], 0)
    trusted = ("--kafka-option", f"ssl.ca.location={certificate.trusted}")
    with collector(home.path, feed, *secure, *trusted, bootstrap=there) as running:
        wait_until("message", lambda: len(feed.messages()) > 2)
        running.stop()


def test_password_authentication_works(load: None, feed: Feed, certificate: Certificate, home: Home) -> None:
    passwords = {"right": PASSWORD, "wrong": "ebb"}

    def run(which: str) -> Collector:
        options = home.path / f"{which}.properties"
        options.write_text(
            "security.protocol=sasl_ssl\nsasl.mechanism=PLAIN\nsasl.username=collector\n"
            f"sasl.password={passwords[which]}\nssl.ca.location={certificate.trusted}\n"
        )
        return collector(home.path, feed, "--kafka-options-file", options, bootstrap=feed.broker.bootstrap_sasl)

    with run("wrong") as running:
        wait_until("complaint", lambda: "Authentication failed" in running.text())
        counters = running.stop()
    assert delivered(counters) == (0, counters["rows_read"], 0)
    assert "ebb" not in running.text()
    with run("right") as running:
        wait_until("message", lambda: len(feed.messages()) > 2)
        running.stop()

    def consume(which: str, seconds: int) -> subprocess.CompletedProcess[str]:
        """In a process of its own, as the engine reads its configuration once."""
        given = {
            "SPRINGTIDE_KAFKA": feed.broker.bootstrap_sasl,
            "SPRINGTIDE_KAFKA_TOPIC": feed.topic,
            "SPRINGTIDE_KAFKA_OPTIONS_FILE": str(home.path / f"{which}.properties"),
        }
        command = [
            "springtide",
            "consume",
            "--group",
            feed.topic,
            "--until-caught-up",
            "--seconds",
            str(seconds),
            "--json",
        ]
        environment = {**os.environ, **home.environment, **given}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)

    refused = consume("wrong", 5)
    assert refused.returncode == 1
    assert "Authentication failed" in refused.stderr
    assert "ebb" not in refused.stdout + refused.stderr
    taken = consume("right", 60)
    assert (taken.returncode, taken.stderr) == (0, "")
    assert json.loads(taken.stdout) == {
        **{"messages": len(feed.messages()), "rejected": 0, "rejected_rows": 0},
        **{"left": 0, "complaints": []},
    }
    assert home.query("select count() > 2 as several from tcp_samples final") == [{"several": True}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kafka-option", "no.such=1"], "No such configuration property"),
        (["--kafka-option", "nonsense"], "'nonsense' is not a property: use KEY=VALUE"),
        (["--kafka-options-file", "/nowhere"], "/nowhere: cannot read it"),
        (["--queue-bytes", "1KiB"], "too small for a queue"),
    ],
)
def test_a_wrong_option_is_reported_before_anything_is_changed(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    running = collector(tmp_path, Feed(Broker(tmp_path / "kafka"), "none"), *arguments).start()
    wait_until("end", lambda: not running.running())
    assert message in running.text()
    assert not (tmp_path / "queue").exists()

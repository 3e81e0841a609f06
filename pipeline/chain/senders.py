"""Collectors on the edges, the broker that they reach, and the books of what they sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from springtide.observe.kafka_tables import TOPIC
from springtide.store import open_store

from lab.collector import Collector, wait_until
from lab.lab import Lab
from lab.processes import NETNS_DIRECTORY
from lab.wan_config import namespace
from pipeline.chain.books import Books, Name, Socket, balance, dropped, invented, unrecorded
from pipeline.chain.relay import Relay
from pipeline.chain.witness import Closes
from testkit.kafka import Broker, read_topic, rows_in
from testkit.spool import frame, write_spool
from testkit.witness import Identity, balanced, records

AWAY_S = 2.0  # a collector that was killed: as long as systemd waits
DOWN_S = 5.0  # a broker: collectors queue meanwhile
# Fresh connections of each size on each pair, so that some close at any moment.
PROBES, SPACING_S = 12, 0.5
EMPTIES_S = 3.0
Claims = dict[str, bool]


class Senders:
    """On every edge of `lab`, while `running` lasts; files below `out`."""

    def __init__(self, out: Path, lab: Lab) -> None:
        self.out, self.lab = out, lab
        self.edges = lab.topology.edges()
        self.broker = Broker(out / "kafka")
        self.collectors: dict[str, Collector] = {}
        self.announced: set[Socket] = set()

    @contextmanager
    def running(self) -> Iterator[None]:
        """The broker with its topic, which each edge reaches at the address that it has here, and the collectors."""
        places = [NETNS_DIRECTORY / namespace(self.lab.name, edge) for edge in self.edges]
        with ExitStack() as stack:
            stack.enter_context(self.broker)
            self.broker.topic(TOPIC)
            stack.enter_context(Relay(places, self.broker.port))
            (self.out / "logs").mkdir(exist_ok=True)
            for edge, pop in self.edges.items():
                self.collectors[edge] = stack.enter_context(self._collector(edge, pop))
            yield

    def _collector(self, edge: str, pop: str) -> Collector:
        """To Kafka; and into a spool of its own, which nothing reads but the books."""
        sinks = ("--kafka", self.broker.bootstrap, "--queue-dir", self.out / "queue" / edge)
        witness = ("--spool-dir", self._spool(edge), "--rotate-interval", "3s")
        about = ("--interval", "1s", "--host", edge, "--pop", pop)
        log = self.out / f"logs/collector-{edge}.log"
        return Collector(log, *sinks, *witness, *about, inside=self.lab.command(edge, []))

    def _spool(self, edge: str) -> Path:
        return self.out / "witness" / edge

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Fresh connections open and close, for some ten seconds at least."""
        thread = threading.Thread(target=lambda: self.lab.probe(PROBES, spacing_s=SPACING_S))
        thread.start()
        try:
            yield
        finally:
            thread.join()

    def kill_collector(self, edge: str) -> None:
        """SIGKILL, and a new one after AWAY_S; what the kernel announces meanwhile is noted."""
        collector = self.collectors[edge]
        lives = collector.text().count("polling as")
        with Closes(self.lab, edge) as closes:
            time.sleep(1)
            collector.kill()
            time.sleep(AWAY_S)
            collector.start()
            wait_until("next life of the collector", lambda: collector.text().count("polling as") > lives)
            time.sleep(AWAY_S)
        self.announced |= closes.sockets()

    def kill_broker(self) -> None:
        """SIGKILL, and a start after DOWN_S."""
        self.broker.kill()
        time.sleep(DOWN_S)
        self.broker.start()

    def stop(self) -> list[dict[str, Any]]:
        """The collectors' counters, once nothing waits in their queues, or after a few tries."""
        return [self._stopped(collector) for collector in self.collectors.values()]

    def _stopped(self, collector: Collector) -> dict[str, Any]:
        counters = collector.stop()
        for _ in range(5):
            if not counters["sinks"]["kafka"]["rows_spooled"]:
                break
            collector.start()
            time.sleep(EMPTIES_S)
            counters = collector.stop()
        return counters

    def settle(self, counters: list[dict[str, Any]], store_url: str) -> tuple[Books, Claims]:
        """The books after `stop`, and what else must hold. The broker still runs, and nobody has the store open."""
        recorded = set(records(path for edge in self.edges for path in sorted(self._spool(edge).glob("*.spool"))))
        sent = self._sent()
        stored, counted = _stored(store_url)
        silent = unrecorded(self.announced, recorded | set(sent) | stored)
        books = balance(recorded, sent, stored, dropped(counters, "kafka"), len(silent))
        return books, {
            f"the books do not balance: {books}": books.balanced(),
            "the store has samples that no collector read": not invented(recorded, sent, stored),
            f"the store counts {counted} rows for {len(stored)} samples": counted == len(stored),
            "a collector's own books do not balance": all(balanced(each, "kafka") for each in counters),
            "samples are left in a collector's queue": not any(_kafka(each)["rows_spooled"] for each in counters),
        }

    def _sent(self) -> list[Name]:
        """Every copy in the topic."""
        messages = read_topic(self.broker.bootstrap, TOPIC)
        frames = [frame(each.payload, rows_in(each.payload), 0) for each in messages]
        return records([write_spool(self.out / "topic", "topic", frames)])


def _kafka(counters: Mapping[str, Any]) -> Mapping[str, Any]:
    book: Mapping[str, Any] = counters["sinks"]["kafka"]
    return book


def _stored(url: str) -> tuple[set[Name], int]:
    """Names in the store, and how many rows it counts for them."""
    store = open_store(url, create=False, wait_s=60, on_wait=print)
    try:
        rows = store.query("select host, poll_sequence, netns, cookie, kind from tcp_samples final")
    finally:
        store.close()
    names = {(row["host"], Identity(row["poll_sequence"], row["netns"], row["cookie"], row["kind"])) for row in rows}
    return names, len(rows)

"""Collectors on the edges, the broker that they reach, and the books of what they sent."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from springtide.observe.kafka_tables import GROUP, TOPIC
from springtide.store import open_store

from lab.collector import Collector, wait_until
from lab.lab import Lab
from lab.processes import NETNS_DIRECTORY
from lab.wan_config import namespace
from pipeline.chain.books import Books, Name, Polled, balance, dropped, invented, polled_of
from pipeline.chain.relay import Relay
from pipeline.chain.witness import Trace
from testkit.kafka import Broker, behind, read_topic, rows_in
from testkit.spool import frame, write_spool
from testkit.witness import Identity, balanced, records

AWAY_S = 2.0  # a collector that was killed: as long as systemd waits
HELD_S = 4.0  # before that the broker does not answer: longer than rows wait in memory
DOWN_S = 5.0  # a broker: collectors queue meanwhile
# Fresh connections of each size on each pair, so that some close at any moment.
PROBES, SPACING_S = 12, 0.5
EMPTIES_S = 3.0
# A collector gives its sinks 4 s at its end; the rest is for a busy machine.
ENDS_S = 60.0
Claims = dict[str, bool]


class Senders:
    """On every edge of `lab`, while `running` lasts; files below `out`."""

    def __init__(self, out: Path, lab: Lab) -> None:
        self.out, self.lab = out, lab
        self.edges = lab.topology.edges()
        self.broker = Broker(out / "kafka")
        self.collectors: dict[str, Collector] = {}
        self.traces = {edge: Trace(out / f"logs/given-{edge}.strace") for edge in self.edges}
        # Counters of every life that ended by itself, in their order.
        self.counters: dict[str, list[dict[str, Any]]] = {edge: [] for edge in self.edges}
        self.victims: list[str] = []

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
        sinks = ("--kafka", self.broker.bootstrap, "--queue-dir", self.out / "queue" / edge)
        about = ("--interval", "1s", "--host", edge, "--pop", pop)
        log = self.out / f"logs/collector-{edge}.log"
        return Collector(log, *sinks, *about, inside=self.lab.command(edge, self.traces[edge].command()))

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Fresh connections open and close, for some ten seconds at least."""
        with ThreadPoolExecutor(1) as pool:
            probes = pool.submit(self.lab.probe, PROBES, spacing_s=SPACING_S)
            yield
            probes.result()

    def kill_collector(self, edge: str) -> None:
        """SIGKILL while rows wait in its queue for a broker that does not answer; a new one after AWAY_S."""
        collector = self.collectors[edge]
        lives = collector.text().count("polling as")
        self.broker.pause()
        time.sleep(HELD_S)
        collector.kill()
        self.victims.append(edge)
        self.broker.resume()
        time.sleep(AWAY_S)
        collector.start()
        wait_until("next life of the collector", lambda: collector.text().count("polling as") > lives)

    def kill_broker(self) -> None:
        """SIGKILL, and a start after DOWN_S."""
        self.broker.kill()
        time.sleep(DOWN_S)
        self.broker.start()

    def untaken(self) -> int:
        """Messages in the topic that the store has not taken for good."""
        return behind(self.broker.bootstrap, TOPIC, GROUP)

    def stop(self) -> None:
        """Once nothing waits in the collectors' queues, or after a few tries."""
        for edge, collector in self.collectors.items():
            self.counters[edge].append(collector.stop(ENDS_S))
            for _ in range(5):
                if not _kafka(self.counters[edge][-1])["rows_spooled"]:
                    break
                collector.start()
                time.sleep(EMPTIES_S)
                self.counters[edge].append(collector.stop(ENDS_S))

    def settle(self, store_url: str) -> tuple[Books, Claims]:
        """The books after `stop`, and what else must hold. The broker still runs, and nobody has the store open."""
        polled, in_memory = self._polled()
        stored, counted = _stored(store_url)
        last = [lives[-1] for lives in self.counters.values()]
        every = [life for lives in self.counters.values() for life in lives]
        recovered = [_kafka(self.counters[edge][0])["rows_recovered"] for edge in self.victims]
        books = balance(polled, in_memory, self._sent(), stored, dropped(every, "kafka"))
        return books, {
            f"the books do not balance: {books}": books.balanced(),
            "the store has samples that no kernel gave": not invented(polled, stored),
            f"the store counts {counted} rows for {len(stored)} samples": counted == len(stored),
            "a collector's own books do not balance": all(balanced(each, "kafka") for each in every),
            "samples are left in a collector's queue": not any(_kafka(each)["rows_spooled"] for each in last),
            "the collector had nothing in its queue as it was killed": all(recovered),
        }

    def _polled(self) -> tuple[Counter[Polled], Counter[Polled]]:
        polled: Counter[Polled] = Counter()
        in_memory: Counter[Polled] = Counter()
        for edge, trace in self.traces.items():
            wait_until(f"end of the trace of {edge}", trace.whole)
            every, young = polled_of(edge, trace.given())
            polled, in_memory = polled + every, in_memory + young
        return polled, in_memory

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

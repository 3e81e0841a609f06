"""Kafka topics into tcp_samples, http_requests and rejected_messages, by the engine's own Kafka tables.

The engine parses, inserts and then commits the offsets: what is lost in between is read again, and the sample's
identity makes that harmless. A message that cannot be decoded, or an invalid sample, goes to rejected_messages with its
offset, and blocks nothing. What does block (a full disk, a broken table) is an error after a while.

In chDB a Kafka table in the directory keeps it from being opened again. So these tables are in a database in
memory, and exist only as long as this process: the broker remembers how far the group has read.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from springtide.errors import StoreError
from springtide.fleet import Fleet
from springtide.observe.aside import put_aside
from springtide.observe.enrich import publish_fleet
from springtide.observe.kafka_tables import SAMPLE_BLOCK, Source, embedded_statements
from springtide.observe.lag import Ends
from springtide.observe.stall import Watch, one_line, readers
from springtide.store.embedded import EmbeddedStore

DATABASE = "springtide_kafka"

# chDB answers every CREATE of a Kafka table with this code ("Shutdown was called"), and makes it.
CHDB_SHUTDOWN_CODE = 49


# Long compared with a slow disk or a broker's restart; short compared with a day without samples.
STALL_S = 60.0
POLL_S = 0.2
# Between two looks at the counters.
LOOK_S = 0.5

MB = 1_000_000
LEAST_MEMORY_MB = 512
MEMORY = "memory limit exceeded"
MEMORY_CODE = 241
# Messages read at once, ever fewer while the engine has not the memory for a block of them: those before one that is
# too large are stored, until the group reaches that one.
BLOCKS = (SAMPLE_BLOCK, 512, 1)
# With small blocks nothing failed for so long: large ones again.
CALM_S = 30.0

T = TypeVar("T")


def memory_mb() -> int:
    """Memory that the engine may use by default: the rest is for the system and other processes."""
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 // MB
    return max(LEAST_MEMORY_MB, min(half, 8000))


@dataclass(frozen=True)
class Progress:
    """Since the consumer was started; `messages` includes the rejected ones. `rejected_rows` are single samples of
    messages that are loaded otherwise."""

    seconds: float
    messages: int
    rejected: int
    rejected_rows: int


@dataclass(frozen=True)
class Taken:
    """A run at its end; `left` is how many messages it leaves of those that it was to take, None where the brokers did
    not say, or nobody asked. `complaints` are the consumers' own."""

    progress: Progress
    left: int | None
    complaints: list[str]


class Consumer:
    """Consumes while the context lasts; the engine's threads do the work. Raises StoreError.

    `store` was opened with `memory_bytes`; `report` gets a line for each message that takes more, and is put aside.
    """

    def __init__(
        self,
        store: EmbeddedStore,
        fleet: Fleet,
        source: Source,
        memory_bytes: int = memory_mb() * MB,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._source = source
        self._began = time.monotonic()
        self._rejected_before = (0, 0)
        self._watch = Watch()
        self._memory_bytes = memory_bytes
        self._report = report
        # The place in BLOCKS, and since when; messages of the tables before these.
        self._level = 0
        self._since = 0.0
        self._read_before = 0
        self._aside: set[tuple[str, int, int]] = set()

    def __enter__(self) -> Consumer:
        publish_fleet(self._store, self._fleet)
        self._rejected_before = self._rejected()
        self._start(0)
        self._began = time.monotonic()
        return self

    def _start(self, level: int) -> None:
        """Tables that read by BLOCKS[level]; those of before are taken away."""
        _retried(lambda: self._remake(level))

    def _remake(self, level: int) -> None:
        self._level, self._since = level, time.monotonic()
        self._read_before += self._watch.stored()
        self._watch = Watch()
        self._store.execute(f"drop database if exists {DATABASE}")
        self._store.execute(f"create database {DATABASE} engine = Memory")
        for statement in embedded_statements(self._store, self._source, DATABASE, BLOCKS[level]):
            try:
                self._store.execute(statement)
            except StoreError as error:
                if error.code != CHDB_SHUTDOWN_CODE:
                    raise

    def __exit__(self, *_: object) -> None:
        self._store.execute(f"drop database if exists {DATABASE}")

    def progress(self, stall_s: float = STALL_S) -> Progress:
        """Raises StoreError, with the engine's own cause, once nothing that was read has been stored for `stall_s`."""
        return _retried(lambda: self._progress(stall_s))

    def _progress(self, stall_s: float) -> Progress:
        self._relieve()
        found = readers(self._store, DATABASE)
        self._watch.see(found, time.monotonic())
        if self._watch.stuck_s >= stall_s:
            raise self._stalled(f"for {self._watch.stuck_s:.0f} s")
        rejected, rejected_rows = self._rejected()
        before, rows_before = self._rejected_before
        read = self._read_before + sum(reader.read for reader in found)
        return Progress(time.monotonic() - self._began, read, rejected - before, rejected_rows - rows_before)

    def finish(self, stall_s: float = STALL_S) -> Progress:
        """As progress, once what has been read is stored: a run whose time ends within its first block stores it too.
        A consumer that complains and does not get on is an error at once."""
        progress = self.progress(stall_s)
        behind = self._watch.behind()
        # The message that takes all memory is about to be put aside: no reason to give up.
        while self._level or MEMORY in self._watch.cause or (behind & self._watch.behind() and not self._watch.cause):
            time.sleep(POLL_S)
            progress = self.progress(stall_s)
            behind &= self._watch.behind()
        if self._watch.stuck_s and self._watch.cause:
            raise self._stalled("at the end")
        return progress

    def _relieve(self) -> None:
        """Where a block takes more memory than there is: smaller ones, and in the end its message aside."""
        short = next((text for text in self.complaints() if MEMORY in text), "")
        if not short:
            if self._level and not self._watch.stuck_s and time.monotonic() - self._since > CALM_S:
                self._start(0)
        elif self._level < len(BLOCKS) - 1:
            self._start(self._level + 1)
        else:
            self._store.execute(f"drop database if exists {DATABASE}")
            message = put_aside(self._store, self._source, self._memory_bytes, short)
            place = (message.topic, message.partition, message.offset)
            if place in self._aside:
                raise StoreError(
                    f"{self._source.brokers}: {message}: was put aside before, and came again; run it again"
                )
            self._aside.add(place)
            self._report(
                f"{message}: takes more memory to read than --max-memory-mb: kept in rejected_messages, passed over"
            )
            self._read_before += 1
            self._start(0)

    def _stalled(self, when: str) -> StoreError:
        cause = self._watch.cause or "the engine gives no reason"
        fix = "offsets stay where they were: fix the cause, then run it again"
        return StoreError(f"{self._source.brokers}: nothing of what was read could be stored {when}: {cause}; {fix}")

    def complaints(self) -> list[str]:
        """The consumers' last errors: a broker that is down, a topic that is missing."""
        rows = _retried(
            lambda: self._store.query(
                "select distinct arrayJoin(exceptions.text) as text from system.kafka_consumers "
                "where database = {database:String}",
                {"database": DATABASE},
            )
        )
        return [one_line(str(row["text"])) for row in rows]

    def _rejected(self) -> tuple[int, int]:
        """Whole messages, and single samples."""
        [row] = self._store.query(
            "select countIf(sample_hash = 0) as messages, countIf(sample_hash != 0) as samples "
            "from rejected_messages final where topic in ({topic:String}, {requests:String})",
            {"topic": self._source.topic, "requests": self._source.requests},
        )
        return int(row["messages"]), int(row["samples"])


def take(
    consumer: Consumer,
    ended: threading.Event,
    *,
    stall_s: float = STALL_S,
    seconds: float | None = None,
    ends: Ends | None = None,
    report: Callable[[str], None] = lambda _: None,
    show: Callable[[Progress], None] = lambda _: None,
) -> Taken:
    """Consume until `ended` is set, `seconds` are over, or the group has come to `ends`, whichever is first.

    `report` gets each complaint once, `show` the counts. Raises StoreError, SpringtideError.
    """
    seen: set[str] = set()
    left = None
    while not ended.wait(LOOK_S if seconds is None else min(LOOK_S, seconds)):
        for complaint in set(consumer.complaints()) - seen:
            seen.add(complaint)
            report(complaint)
        progress = consumer.progress(stall_s)
        show(progress)
        left = None if ends is None else ends.left()
        if left == 0 or (seconds is not None and progress.seconds >= seconds):
            break
    # On a signal it stops at once: what is not committed is read again by the next run.
    progress = consumer.progress(stall_s) if ended.is_set() else consumer.finish(stall_s)
    return Taken(progress, left, sorted(seen))


def _retried(query: Callable[[], T]) -> T:
    """Run a query again while a block takes all memory: it leaves none for queries until it fails."""
    deadline = time.monotonic() + STALL_S
    while True:
        try:
            return query()
        except StoreError as error:
            if error.code != MEMORY_CODE or time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)

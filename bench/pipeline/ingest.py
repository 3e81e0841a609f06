"""Rows a second from Kafka into tcp_samples, beside inserting the same rows from ProtobufList files; bytes on the disk.

Each turn is a process of its own with an empty store: its CPU time is its own, and merges of the turn before do not run
in it. Kafka's side is what `springtide consume` does.

Its clock starts with nothing in flight. The consumers have their partitions and have stored a first message of each.
All other messages are in the topic, in a transaction whose commit starts the clock. It ends when the last row can be
read: a last block that is not full waits for up to two seconds.

The broker's CPU time is not counted: it is another machine's in a real fleet. Here it takes its share of the same
cores, which counts against us.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from springtide.fleet import Fleet, load_fleet
from springtide.observe.consume import Consumer
from springtide.observe.enrich import publish_fleet
from springtide.observe.kafka_tables import Source
from springtide.observe.samples import of_files
from springtide.store import open_store
from springtide.store.embedded import EmbeddedStore
from springtide.store.files import proto_file
from springtide.store.migrations import migrate, read_migrations

from bench.pipeline.storage import measure_codecs, measure_storage
from bench.pipeline.traffic import POPS, replay
from bench.runner import ROOT, Bench, BenchError, Run, in_turns, progress
from testkit.kafka import Broker
from testkit.proto import varint

THREADS = 2
POLLS = 60
LENGTH_BYTES = 5
PATIENCE_S = 600.0
# A transaction that takes longer is aborted by the broker.
TRANSACTION_MS = 600_000

# Where an Envelope stands: its file's number, where in it, how long it is, its rows.
Place = tuple[int, int, int, int]


def write(folder: Path, rows: int) -> list[Place]:
    """The replayed messages, one file a thread; where each stands is in messages.json, too."""
    # The engine reads one Envelope a file, whose length stands first: five bytes are kept for it.
    files = [(folder / f"{number}.pb").open("wb") for number in range(THREADS)]
    places: list[Place] = []
    try:
        for file in files:
            file.write(bytes(LENGTH_BYTES))
        for number, batch in enumerate(replay(max(1, rows // POLLS), POLLS)):
            file = files[number % THREADS]
            places.append((number % THREADS, file.tell(), len(batch.envelope), batch.rows))
            file.write(batch.envelope)
        for file in files:
            length = file.tell() - LENGTH_BYTES
            file.seek(0)
            file.write(
                bytes(length >> 7 * n & 0x7F | (0x80 if n < LENGTH_BYTES - 1 else 0) for n in range(LENGTH_BYTES))
            )
    finally:
        for file in files:
            file.close()
    (folder / "messages.json").write_text(json.dumps(places))
    return places


def send(producer: Producer, topic: str, folder: Path, places: Sequence[Place]) -> None:
    """As collectors send: a message is a batch of rows already. What is sent can be read once it is committed."""
    files = [(folder / f"{number}.pb").open("rb") for number in range(THREADS)]
    try:
        producer.begin_transaction()
        for number, start, length, _ in places:
            files[number].seek(start)
            producer.produce(topic, varint(length) + files[number].read(length), partition=number)
            # librdkafka holds 100,000 messages or 1 GB.
            while len(producer) > 500:
                producer.poll(0.1)
        if producer.flush(60):
            raise BenchError("the broker did not take all messages")
    finally:
        for file in files:
            file.close()


def fleet_file(folder: Path) -> Path:
    path = folder / "fleet.yaml"
    lines = ["version: 1", "pops:"]
    for pop in range(POPS):
        lines.append(f"  pop{pop}: {{prefixes: [10.77.{pop}.0/24], edges: {{edge-{pop}: {{address: 10.77.{pop}.1}}}}}}")
    path.write_text("\n".join(lines) + "\n")
    return path


def new_store(folder: Path) -> EmbeddedStore:
    store = open_store(f"chdb://{folder}/store", create=True, wait_s=1, on_wait=print)
    if not isinstance(store, EmbeddedStore):
        raise TypeError("the bench measures the embedded engine")
    migrate(store, read_migrations())
    return store


def from_kafka(store: EmbeddedStore, fleet: Fleet, source: Source, folder: Path) -> tuple[int, float, float]:
    """Rows, seconds and CPU seconds from the moment at which they can be read from the topic."""
    places: list[Place] = json.loads((folder / "messages.json").read_text())
    first, others = places[:THREADS], places[THREADS:]
    producer = Producer(
        {
            "bootstrap.servers": source.brokers,
            "compression.type": "zstd",
            "batch.num.messages": "1",
            "acks": "all",
            # A broker that is just up answers the first requests with "not yet".
            "log_level": "3",
            "transactional.id": source.group,
            "transaction.timeout.ms": str(TRANSACTION_MS),
        }
    )
    producer.init_transactions(60)
    with Consumer(store, fleet, source):
        send(producer, source.topic, folder, first)
        producer.commit_transaction(60)
        warm = sum(rows for *_, rows in first)
        await_rows(store, warm)
        send(producer, source.topic, folder, others)
        began, before = time.monotonic(), _cpu()
        producer.commit_transaction(60)
        seen = await_rows(store, sum(rows for *_, rows in places))
        return seen - warm, time.monotonic() - began, _cpu() - before


def await_rows(store: EmbeddedStore, rows: int) -> int:
    """Waits until so many can be read; how many there are."""
    deadline, seen = time.monotonic() + PATIENCE_S, 0
    while time.monotonic() < deadline:
        [row] = store.query("select total_rows as n from system.tables where name = 'tcp_samples'")
        seen = int(row["n"])
        if seen >= rows:
            return seen
        # A look takes 2 ms of processor time, in the process that is measured.
        time.sleep(0.2)
    raise BenchError(f"only {seen} of {rows} rows came within {PATIENCE_S:.0f} s")


def from_files(store: EmbeddedStore, fleet: Fleet, folder: Path) -> tuple[int, float, float]:
    """Rows, seconds and CPU seconds of one insert from the files, on as many threads."""
    publish_fleet(store, fleet)
    samples = of_files(store, time.time())
    quoted = samples.structure.replace("'", "\\'")
    began, before = time.monotonic(), _cpu()
    store.execute(
        f"insert into {samples.table} {samples.select} "
        f"from (select * from file('{folder}/*.pb', 'ProtobufList', '{quoted}')"
        f" where {samples.problem} = '') "
        f"settings format_schema = '{proto_file()}:TcpSample', max_threads = {THREADS}, "
        f"max_insert_threads = {THREADS}, max_insert_block_size = 262144"
    )
    spent, cpu = time.monotonic() - began, _cpu() - before
    [row] = store.query("select count() as n from tcp_samples")
    rows = sum(rows for *_, rows in json.loads((folder / "messages.json").read_text()))
    if int(row["n"]) != rows:
        raise BenchError(f"{row['n']} of {rows} rows came from the files")
    return rows, spent, cpu


def turn(way: str, folder: Path, brokers: str, topic: str) -> dict[str, float]:
    """One measurement, in this process."""
    with tempfile.TemporaryDirectory(prefix="springtide-bench-", dir=folder) as scratch:
        store = new_store(Path(scratch))
        fleet = load_fleet(fleet_file(Path(scratch)))
        if way == "kafka":
            source = Source(brokers, topic, f"bench-{os.getpid()}", THREADS)
            rows, elapsed, cpu = from_kafka(store, fleet, source, folder)
        else:
            rows, elapsed, cpu = from_files(store, fleet, folder)
        store.close()
    return {"rows_per_s": rows / elapsed, "cpu_s_per_million_rows": cpu / rows * 1e6}


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def compare(run: Run, broker: Broker, folder: Path) -> None:
    """Both ways in turns; each turn from Kafka has a topic of its own, which is empty."""
    topics = iter(range(run.turns))

    def apart(way: str) -> dict[str, float]:
        topic = "-"
        if way == "kafka":
            topic = f"samples-{next(topics)}"
            broker.topic(topic, THREADS)
        command = [sys.executable, "-m", "bench.pipeline.ingest", way, str(folder), broker.bootstrap, topic]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"the turn from {way} failed: see above")
        found: dict[str, float] = json.loads(done.stdout)
        progress(f"  {way}: {found['rows_per_s']:,.0f} rows/s")
        return found

    works: dict[str, Callable[[], dict[str, float]]] = {way: partial(apart, way) for way in ("files", "kafka")}
    found = in_turns(run.turns, works)
    for way, turns in found.items():
        for name in turns[0]:
            run.figure(f"{way}_{name}", [one[name] for one in turns])
    # As `springtide size` names them.
    run.figure("consumer_rows_per_s", [one["rows_per_s"] / THREADS for one in found["kafka"]])
    run.figure("ingest_cpu_s_per_million_rows", [one["cpu_s_per_million_rows"] for one in found["kafka"]])
    for name in ("rows_per_s", "cpu_s_per_million_rows"):
        kafka, files = ([one[name] for one in found[way]] for way in ("kafka", "files"))
        run.ratio(f"kafka_per_files_{name}", kafka, files)


def measure(run: Run) -> None:
    """With a broker and stores of its own that are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="springtide-bench-") as name:
        folder = Path(name)
        progress(f"replaying about {run.sizes['rows']:,} rows")
        places = write(folder, run.sizes["rows"])
        made, size = (sum(place[part] for place in places) for part in (3, 2))
        with Broker(folder / "kafka", heap="1g") as broker:
            progress(f"{made:,} rows; from files and from Kafka in turns")
            compare(run, broker, folder)
            wire = sum(path.stat().st_size for path in (folder / "kafka").rglob("samples-*/*.log"))
        run.figure("rows", made)
        run.figure("message_bytes_per_row", size / made)
        run.figure("wire_bytes_per_row", wire / run.turns / made)
        progress("merging, and measuring the disk")
        (folder / "disk").mkdir()
        store = new_store(folder / "disk")
        try:
            from_files(store, load_fleet(fleet_file(folder)), folder)
            measure_storage(run, store)
            if run.sizes["codecs"]:
                progress("trying other codecs")
                measure_codecs(run, store)
        finally:
            store.close()


BENCH = Bench(
    name="pipeline",
    summary="Kafka into the store beside files, and bytes on the disk",
    measure=measure,
    sizes={"rows": (5_000_000, 6_000), "codecs": (False, True)},
    seconds=900,
)


if __name__ == "__main__":
    way, folder, *kafka = sys.argv[1:]
    print(json.dumps(turn(way, Path(folder), *kafka)))

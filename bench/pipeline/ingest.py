"""Rows a second from Kafka into tcp_samples, beside inserting the same rows from ProtobufList files.

Each turn is a process of its own with an empty store, so that its CPU time is its own and merges of the turn before do
not run in it. Kafka's side is what `springtide consume` does. The broker's CPU time is not counted: it is another
machine's in a real fleet, though here it takes its share of the same cores, which counts against us.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

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

from bench.pipeline.traffic import POPS, replay
from testkit.kafka import Broker

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "springtide.tcp_samples"
THREADS = 2
LENGTH_BYTES = 5
PATIENCE_S = 600.0


def produce(broker: Broker, sockets: int, polls: int, folder: Path) -> tuple[int, int]:
    """The replayed messages into the topic and into one file a thread; rows, and bytes before compression."""
    producer = Producer(
        # As the collector sends: a message is a batch of rows already.
        {"bootstrap.servers": broker.bootstrap, "compression.type": "zstd", "batch.num.messages": "1", "acks": "all"}
    )
    rows = size = 0
    # The engine reads one Envelope a file, whose length stands first: five bytes are kept for it.
    files = [(folder / f"{number}.pb").open("wb") for number in range(THREADS)]
    for file in files:
        file.write(bytes(LENGTH_BYTES))
    try:
        for number, batch in enumerate(replay(sockets, polls)):
            producer.produce(TOPIC, batch.payload, partition=number % THREADS)
            # librdkafka holds 100,000 messages or 1 GB.
            while len(producer) > 500:
                producer.poll(0.1)
            files[number % THREADS].write(batch.envelope)
            rows += batch.rows
            size += len(batch.envelope)
        if producer.flush(60):
            raise SystemExit("the broker did not take all messages")
        for file in files:
            length = file.tell() - LENGTH_BYTES
            file.seek(0)
            file.write(
                bytes(length >> 7 * n & 0x7F | (0x80 if n < LENGTH_BYTES - 1 else 0) for n in range(LENGTH_BYTES))
            )
    finally:
        for file in files:
            file.close()
    return rows, size


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


def from_kafka(store: EmbeddedStore, fleet: Fleet, brokers: str, rows: int) -> tuple[int, float]:
    """Rows and seconds of the steady state: from the first block that can be seen to the last.

    Rows so few that one block holds them have no steady state: those count from the beginning.
    """
    first: tuple[int, float] | None = None
    began = time.monotonic()
    deadline = time.monotonic() + PATIENCE_S
    with Consumer(store, fleet, Source(brokers, TOPIC, f"bench-{os.getpid()}", THREADS)):
        while time.monotonic() < deadline:
            [row] = store.query("select total_rows as n from system.tables where name = 'tcp_samples'")
            seen, now = int(row["n"]), time.monotonic()
            if seen and first is None:
                first = (seen, now)
            if first == (seen, now) and seen >= rows:
                return seen, now - began
            if first and seen >= rows:
                return seen - first[0], now - first[1]
            time.sleep(0.02)
    raise SystemExit(f"only {seen} of {rows} rows came within {PATIENCE_S:.0f} s")


def from_files(store: EmbeddedStore, fleet: Fleet, folder: Path, rows: int) -> tuple[int, float]:
    """Rows and seconds of one insert from the files, on as many threads."""
    publish_fleet(store, fleet)
    samples = of_files(store, time.time())
    quoted = samples.structure.replace("'", "\\'")
    began = time.monotonic()
    store.execute(
        f"insert into {samples.table} {samples.select} "
        f"from (select * from file('{folder}/*.pb', 'ProtobufList', '{quoted}')"
        f" where {samples.problem} = '') "
        f"settings format_schema = '{proto_file()}:TcpSample', max_threads = {THREADS}, "
        f"max_insert_threads = {THREADS}, max_insert_block_size = 262144"
    )
    spent = time.monotonic() - began
    [row] = store.query("select count() as n from tcp_samples")
    if int(row["n"]) != rows:
        raise SystemExit(f"{row['n']} of {rows} rows came from the files")
    return rows, spent


def turn(way: str, source: str, rows: int, fleet: Path) -> dict[str, float]:
    """One measurement, in this process."""
    with tempfile.TemporaryDirectory(prefix="springtide-bench-", dir=fleet.parent) as folder:
        store = new_store(Path(folder))
        before = _cpu()
        if way == "kafka":
            counted, seconds = from_kafka(store, load_fleet(fleet), source, rows)
        else:
            counted, seconds = from_files(store, load_fleet(fleet), Path(source), rows)
        spent = _cpu() - before
        store.close()
    return {"rows_per_s": counted / seconds, "cpu_s_per_million_rows": spent / rows * 1e6}


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def compare(broker: Broker, folder: Path, rows: int, turns: int) -> dict[str, Any]:
    """Both ways in turns; the medians, and the median of the turns' ratios."""
    fleet = fleet_file(folder)
    found: dict[str, list[dict[str, float]]] = {"kafka": [], "files": []}
    for _ in range(turns):
        for way, source in (("files", str(folder)), ("kafka", broker.bootstrap)):
            command = [sys.executable, "-m", "bench.pipeline.ingest", way, source, str(rows), str(fleet)]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
            found[way].append(json.loads(done.stdout))
            print(f"  {way}: {found[way][-1]['rows_per_s']:,.0f} rows/s", file=sys.stderr, flush=True)
    ratios = [k["rows_per_s"] / f["rows_per_s"] for k, f in zip(found["kafka"], found["files"], strict=True)]
    result: dict[str, Any] = {"ingest_ratio": round(median(ratios), 3), "ingest_ratios": [round(r, 3) for r in ratios]}
    for way, measured in found.items():
        for name in measured[0]:
            result[f"{way}_{name}"] = round(median(one[name] for one in measured), 2)
    return result


if __name__ == "__main__":
    print(json.dumps(turn(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))))

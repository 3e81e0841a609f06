"""The size of an installation: arithmetic on measured figures, each with its source."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from springtide.errors import InputError, Problem
from springtide.policy import RetentionPolicy

PIPELINE = "`make bench-pipeline`"
SIZES = "`python -m bench sizes`"
CONTROLLER = "`python -m bench controller --pops 34 --prefixes 170000 --rounds 24`"


@dataclass(frozen=True)
class Measured:
    """Bytes are on disk after merges, per row; rates are of one core at full work."""

    bytes_per_row: float = 26.5
    wire_bytes_per_row: float = 107.6
    ingest_cpu_s_per_million_rows: float = 8.7
    consumer_rows_per_s: float = 118_000.0
    rollup_s_per_million_rows: float = 1.95
    bytes_per_socket: float = 26.1
    bytes_per_pair: float = 1311.1
    bytes_per_prefix: float = 80.0
    bytes_per_pair_period: float = 2896.0
    bytes_per_prefix_period: float = 322.9
    bytes_per_pair_decision: float = 13.5
    bytes_per_prefix_decision: float = 33.4
    bytes_per_path: float = 299.1
    bytes_per_start_decision: float = 130.1


SOURCES = {
    "bytes_per_row": f"{PIPELINE}: replayed captures, half of the connections idle",
    "wire_bytes_per_row": f"{PIPELINE}: zstd level 1, a thousand rows a message",
    "ingest_cpu_s_per_million_rows": f"{PIPELINE}: Kafka engine to MergeTree, two consumers on two cores",
    "consumer_rows_per_s": f"{PIPELINE}: half of what two consumers take, with the broker on the same two cores",
    "rollup_s_per_million_rows": f"{SIZES}: a socket to five rows, six sockets to a prefix, two cores",
    "bytes_per_socket": SIZES,
    "bytes_per_pair": f"{SIZES}: sketches of 2,000 connections each",
    "bytes_per_prefix": SIZES,
    "bytes_per_pair_period": f"{SIZES}: merged sketches",
    "bytes_per_prefix_period": f"{SIZES}: merged sketches",
    "bytes_per_pair_decision": CONTROLLER,
    "bytes_per_prefix_decision": CONTROLLER,
    "bytes_per_path": f"{CONTROLLER}: sketches of forty connections",
    "bytes_per_start_decision": CONTROLLER,
}

# Two thirds idle: a day's peak is about twice its mean, and a node that was down must catch up.
BUSY_SHARE = 1 / 3
# One node of a cluster: its cores, and the samples that one can merge, and restore within hours.
NODE_CORES, SHARD_TB = 16, 4.0
# Merges need free space besides what they merge.
FULL = 0.7
# A topic whose consumers were down over a weekend has lost nothing.
KAFKA_HOURS = 72
# A round must be computed long before the next one closes.
ROLLUP_SHARE = 0.2
REPLICAS = 2
# congestion.low_share: the share of prefixes that are slow in a round.
LOW_SHARE = 0.2


@dataclass(frozen=True)
class Traffic:
    """`connections` open on an edge at a time; `closes_per_s` on an edge; `prefixes` active at a PoP in a round.
    `start_prefixes`: of those, at a PoP, how many the law of starts decides on at most; None where no edge paces.
    """

    pops: int
    edges: int
    connections: int = 5_000
    closes_per_s: float = 50.0
    poll_s: float = 30.0
    prefixes: int = 5_000
    interval_s: int = 300
    start_prefixes: int | None = None


@dataclass(frozen=True)
class Size:
    """Resources. Terabytes are of one copy; `node_tb` is a node's disk; 1 in `sampling` connections is watched."""

    pops: int
    edges: int
    sampling: int
    rows_per_s: int
    kafka_mb_per_s: float
    kafka_partitions: int
    kafka_tb: float
    samples_tb: float
    rounds_tb: float
    periods_tb: float
    decisions_tb: float
    ingest_cores: float
    rollup_cores: float
    shards: int
    node_tb: float
    nodes: int


def read_measured(paths: Sequence[Path]) -> dict[str, float]:
    """Figures in place of ours, by name: medians of benches' JSON, or mappings; of two the last counts. Every file must
    have one.

    Raises InputError."""
    names = [field.name for field in fields(Measured)]
    own: dict[str, float] = {}
    for path in paths:
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise InputError([Problem(str(path), "file", f"cannot be read: {error}", "name a bench's JSON")]) from error
        found = {key: value for key, value in _by_name(content).items() if key in names}
        if not found:
            known = ", ".join(sorted(names))
            raise InputError([Problem(str(path), "file", "has none of the figures", f"known are {known}")])
        for key, value in found.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise InputError([Problem(str(path), key, f"{value!r} is not a positive number", "measure it again")])
        own |= found
    return {name: own[name] for name in names if name in own}


def _by_name(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        return {}
    figures = content.get("figures")
    if not isinstance(figures, list):
        return content
    plain = [one for one in figures if isinstance(one, dict) and "labels" not in one]
    return {str(one.get("name")): one.get("median") for one in plain}


def size(traffic: Traffic, measured: Measured, keep: RetentionPolicy, max_shards: int) -> Size:
    """The smallest sampling, as a power of two, that stays within `max_shards`; 1 keeps every connection."""
    sampling = 1
    while (found := _size(traffic, measured, keep, sampling)).shards > max_shards and sampling < 1 << 20:
        sampling *= 2
    return found


def _size(traffic: Traffic, measured: Measured, keep: RetentionPolicy, sampling: int) -> Size:
    polled = traffic.edges * traffic.connections / sampling
    rows_per_s = polled / traffic.poll_s + traffic.edges * traffic.closes_per_s / sampling
    day = 86_400
    rounds_a_day = day / traffic.interval_s
    sockets = polled + traffic.edges * traffic.closes_per_s * traffic.interval_s / sampling
    # Both IP versions of every ordered pair; a prefix in a round has at least one connection.
    pairs = 2 * traffic.pops * (traffic.pops - 1)
    prefixes = min(traffic.pops * traffic.prefixes, sockets)

    samples = rows_per_s * day * keep.samples_days * measured.bytes_per_row
    rounds = rounds_a_day * (
        sockets * measured.bytes_per_socket * keep.sockets_days
        + (pairs * measured.bytes_per_pair + prefixes * measured.bytes_per_prefix) * keep.rounds_days
    )
    a_period = pairs * measured.bytes_per_pair_period + prefixes * measured.bytes_per_prefix_period
    periods = a_period * (24 * keep.hours_days + keep.days_days)

    # Prefixes that are low now, or were, are decided on: by its definition as many as are low in a round.
    decisions = rounds_a_day * keep.decisions_days * pairs * measured.bytes_per_pair_decision
    decisions += rounds_a_day * keep.decisions_days * LOW_SHARE * prefixes * measured.bytes_per_prefix_decision
    if traffic.start_prefixes is not None:
        units = pairs + min(prefixes, traffic.pops * traffic.start_prefixes)
        rounds += rounds_a_day * keep.rounds_days * (pairs + prefixes) * measured.bytes_per_path
        decisions += rounds_a_day * keep.decisions_days * units * measured.bytes_per_start_decision

    ingest_cores = rows_per_s / 1e6 * measured.ingest_cpu_s_per_million_rows
    # Seconds of two cores for each million of a round's rows, spread over the share of an interval that it may take.
    rollup_cores = 2 * rows_per_s / 1e6 * measured.rollup_s_per_million_rows / ROLLUP_SHARE
    # Samples are divided among shards; what is made of them is whole on every node.
    cores = ingest_cores / BUSY_SHARE + rollup_cores
    shards = max(1, math.ceil(cores / NODE_CORES), math.ceil(samples / 1e12 / SHARD_TB))
    node_tb = (samples / shards + rounds + periods + decisions) / 1e12 / FULL
    wire = rows_per_s * measured.wire_bytes_per_row
    return Size(
        pops=traffic.pops,
        edges=traffic.edges,
        sampling=sampling,
        rows_per_s=round(rows_per_s),
        kafka_mb_per_s=round(wire / 1e6, 1),
        # As many as consumers that catch up with what a third of their time brought, and one for every shard.
        kafka_partitions=max(2, shards, math.ceil(rows_per_s / BUSY_SHARE / measured.consumer_rows_per_s)),
        kafka_tb=round(wire * 3600 * KAFKA_HOURS / 1e12, 2),
        samples_tb=round(samples / 1e12, 2),
        rounds_tb=round(rounds / 1e12, 2),
        periods_tb=round(periods / 1e12, 2),
        decisions_tb=round(decisions / 1e12, 2),
        ingest_cores=round(ingest_cores, 1),
        rollup_cores=round(rollup_cores, 1),
        shards=shards,
        node_tb=round(node_tb, 2),
        nodes=shards * (REPLICAS if shards > 1 else 1),
    )


HEADERS = {
    "pops": "PoPs",
    "edges": "edges",
    "sampling": "1 in",
    "rows_per_s": "rows/s",
    "kafka_mb_per_s": "Kafka MB/s",
    "kafka_partitions": "partitions",
    "kafka_tb": "Kafka TB",
    "samples_tb": "samples TB",
    "rounds_tb": "rounds TB",
    "periods_tb": "hours, days TB",
    "decisions_tb": "decisions TB",
    "ingest_cores": "ingest cores",
    "rollup_cores": "roll-up cores",
    "shards": "shards",
    "node_tb": "TB a node",
    "nodes": "nodes",
}


def page_tables() -> str:
    """The tables of docs/explanation/sizing.md, in Markdown."""
    cases = [(1, 10), (34, 1_000), (250, 1_000), (34, 100_000), (250, 100_000)]
    lines = [f"| {' | '.join(HEADERS.values())} |", "|" + "---:|" * len(HEADERS)]
    for limit in (1 << 20, 16):
        for pops, edges in cases:
            found = size(Traffic(pops, edges), Measured(), RetentionPolicy(), limit)
            if limit == 16 and found.sampling == 1:
                continue
            lines.append("| " + " | ".join(f"{getattr(found, name):,}" for name in HEADERS) + " |")
    lines += ["", "| figure | value | from |", "|---|---:|---|"]
    lines += [f"| `{f.name}` | {getattr(Measured(), f.name):,} | {SOURCES[f.name]} |" for f in fields(Measured)]
    return "\n".join(lines) + "\n"

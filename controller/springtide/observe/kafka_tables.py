"""The engine's own Kafka consumers: tables and views of sql/kafka, for the engine in this process or for a server."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from springtide.errors import InputError, Problem
from springtide.observe import accesslog
from springtide.observe import samples as fitting
from springtide.store import Store, cluster
from springtide.store.files import proto_file, sql

TOPIC = "springtide.tcp_samples"
GROUP = "springtide"
# Properties of librdkafka that would change which messages are read.
_OWN = {"group.id", "enable.auto.commit", "auto.offset.reset"}
# Path of the contract on a server, below its format_schema_path.
SERVER_SCHEMA = "springtide/tcp_sample.proto"

# Rows of a block, and messages of a poll, at most.
SAMPLE_BLOCK, REQUEST_BLOCK = 262_144, 65_536
# Out of memory, the parser reports its message as unreadable: with this the block fails instead, and is read again.
_GUARD = " where throwIf(_error like '%memory limit exceeded%', 'memory limit exceeded while parsing') = 0"

# By kind of message: the queue, the table that a block passes through, and the views.
NAMES = {
    "samples": (
        "kafka_samples",
        "kafka_sample_rows",
        "kafka_samples_received",
        "kafka_samples_loaded",
        "kafka_samples_rejected",
    ),
    "requests": (
        "kafka_requests",
        "kafka_request_lines",
        "kafka_requests_judged",
        "kafka_requests_loaded",
        "kafka_requests_rejected",
    ),
}


@dataclass(frozen=True)
class Source:
    """Brokers as host:port,..., topics and the consumer group. `requests` is empty without access logs. `properties`
    are librdkafka's, for the engine in this process and what asks beside it."""

    brokers: str
    topic: str = TOPIC
    group: str = GROUP
    consumers: int = 1
    requests: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises InputError for a property that the tables set."""
        if own := sorted(_OWN & self.properties.keys()):
            raise InputError([Problem("--kafka-option", own[0], "is set by consume itself", "leave it out")])

    @property
    def client(self) -> dict[str, Any]:
        """librdkafka's properties of a client in the group, which commits nothing by itself."""
        own = {"bootstrap.servers": self.brokers, "group.id": self.group, "enable.auto.commit": False}
        return {**self.properties, **own, "auto.offset.reset": "earliest", "enable.partition.eof": True}


def embedded_statements(store: Store, source: Source, database: str, block: int = SAMPLE_BLOCK) -> list[str]:
    """For the engine in this process, in a database of their own; it reads at most `block` messages at once."""
    found = _statements(store, source, str(proto_file()), None, f"{database}.", block, _GUARD)
    return [statement for topic in found.values() for statement in topic]


def server_statements(store: Store, source: Source, on_cluster: str | None) -> dict[str, list[str]]:
    """For a server, which has the contract below its format_schema_path; `store` has the schema. By kind of message:
    samples and, if `source` has their topic, requests."""
    return _statements(store, source, SERVER_SCHEMA, on_cluster)


def removal(source: Source, on_cluster: str | None) -> dict[str, list[str]]:
    """Statements that drop a server's Kafka tables, views first; the rows that they loaded are kept."""
    templates = {
        kind: [f"drop view if exists {name}$on_cluster;" for name in views]
        + [f"drop table if exists {name}$on_cluster;" for name in (lines, queue)]
        for kind, (queue, lines, *views) in NAMES.items()
        if kind == "samples" or source.requests
    }
    return {kind: cluster.render("\n".join(found), on_cluster, f"--remove {kind}") for kind, found in templates.items()}


def create_tables(store: Store, source: Source, on_cluster: str | None) -> None:
    """Create a server's Kafka tables, or those that an interrupted run has left out. Raises InputError, before changing
    anything, when it has different ones, which `if not exists` would not change."""
    wanted = server_statements(store, source, on_cluster)
    rows = store.query("select name, checksum from kafka_tables final where checksum != ''")
    created = {row["name"]: row["checksum"] for row in rows}
    existing = {row["name"] for row in store.query("select name from system.tables where database = currentDatabase()")}
    fix = "drop them with --remove (rows and offsets are kept), then run this again"
    problems = []
    for kind, statements in wanted.items():
        where = f"sql/kafka/{kind}.sql"
        if kind in created and created[kind] != _checksum(statements):
            message = f"with these options differs from the Kafka tables of {store.url}"
            problems.append(Problem(where, "checksum", message, fix))
        elif kind not in created and NAMES[kind][0] in existing:
            message = f"{store.url} has Kafka tables whose options are not recorded"
            problems.append(Problem(where, "checksum", message, fix))
    if problems:
        raise InputError(problems)
    for kind, statements in wanted.items():
        # Recorded first, so that an interrupted run can be finished only with the same options.
        _record(store, kind, _checksum(statements))
        for statement in statements:
            store.execute(statement)


def drop_tables(store: Store, source: Source, on_cluster: str | None) -> None:
    """Drop a server's Kafka tables; the rows that they loaded are kept."""
    for kind, statements in removal(source, on_cluster).items():
        for statement in statements:
            store.execute(statement)
        _record(store, kind, "")


def _checksum(statements: list[str]) -> str:
    return hashlib.sha256(";\n".join(statements).encode()).hexdigest()


def _record(store: Store, kind: str, checksum: str) -> None:
    store.insert("kafka_tables", [{"name": kind, "checksum": checksum}])


def _statements(
    store: Store,
    source: Source,
    schema: str,
    on_cluster: str | None,
    database: str = "",
    block: int = SAMPLE_BLOCK,
    guard: str = "",
) -> dict[str, list[str]]:
    """By kind of message; `database` is the prefix of each of NAMES, with its dot."""
    fits = fitting.of_topics(store)
    common = {
        "database": database,
        "brokers": _quoted(source.brokers),
        "group": _quoted(source.group),
        "consumers": str(source.consumers),
        "threads": "1" if source.consumers > 1 else "0",
    }
    samples = {
        "topic": _quoted(source.topic),
        "block": str(min(block, SAMPLE_BLOCK)),
        "guard": guard,
        "schema": _quoted(f"{schema}:TcpSample"),
        "structure": fits.structure,
        "problem": fits.problem,
        "shown": fits.shown,
        "columns": fits.table.partition("(")[2].rpartition(")")[0],
        "values": fits.select.removeprefix("select "),
    }
    values = {"samples": {**common, **samples}}
    if source.requests:
        before_s, after_s = fitting.TOPIC_DAYS_BEFORE * 86_400, fitting.TOPIC_DAYS_AFTER * 86_400
        requests = {
            "topic": _quoted(source.requests),
            "block": str(min(block, REQUEST_BLOCK)),
            "cleaned": accesslog.CLEANED,
            "problem": accesslog.problem("toUnixTimestamp(now())", before_s, after_s),
            "columns": ", ".join(accesslog.VALUES),
            "values": ", ".join(f"{value} as {name}" for name, value in accesslog.VALUES.items()),
        }
        values["requests"] = {**common, **requests}
    return {
        kind: cluster.render(sql(f"kafka/{kind}"), on_cluster, f"sql/kafka/{kind}.sql", filled)
        for kind, filled in values.items()
    }


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

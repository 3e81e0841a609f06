"""The engine's own Kafka consumers: tables and views from sql/kafka, for the engine in this process or for a server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from springtide.observe.ingest import tables_of_samples
from springtide.store import Store, cluster
from springtide.store.files import proto_file, sql
from springtide.store.migrations import statements_of

TOPIC = "springtide.tcp_samples"
GROUP = "springtide"
# Where a server has the contract, below its format_schema_path.
SERVER_SCHEMA = "springtide/tcp_sample.proto"

_NAME = re.compile(r"\b(kafka_(?:samples|sample_rows|requests|request_lines)\w*)")


@dataclass(frozen=True)
class Source:
    """Where the messages are: brokers as host:port,..., and as whom they are read. No `requests`: no access logs."""

    brokers: str
    topic: str = TOPIC
    group: str = GROUP
    consumers: int = 1
    requests: str = ""


def embedded_statements(store: Store, source: Source, database: str) -> list[str]:
    """For the engine in this process, in a database of their own."""
    found = _statements(store, source, str(proto_file()))
    return [_NAME.sub(rf"{database}.\1", statement) for statement in found]


def server_statements(store: Store, source: Source, on_cluster: str | None) -> list[str]:
    """For a server, which finds the contract below its format_schema_path; `store` has the schema."""
    found = _statements(store, source, SERVER_SCHEMA)
    return cluster.render(found, on_cluster, "sql/kafka") if on_cluster else found


def removal(source: Source, on_cluster: str | None) -> list[str]:
    """What takes a server's Kafka tables away, views first; the rows stay."""
    views = ["kafka_samples_received", "kafka_samples_loaded", "kafka_samples_rejected"]
    tables = ["kafka_sample_rows", "kafka_samples"]
    if source.requests:
        views += ["kafka_requests_judged", "kafka_requests_loaded", "kafka_requests_rejected"]
        tables += ["kafka_request_lines", "kafka_requests"]
    found = [f"drop view if exists {name}" for name in views] + [f"drop table if exists {name}" for name in tables]
    return cluster.render(found, on_cluster, "sql/kafka") if on_cluster else found


def _statements(store: Store, source: Source, schema: str) -> list[str]:
    table, select, structure = tables_of_samples(store)
    common = {
        "brokers": _quoted(source.brokers),
        "group": _quoted(source.group),
        "consumers": str(source.consumers),
        "threads": "1" if source.consumers > 1 else "0",
    }
    samples = {
        "topic": _quoted(source.topic),
        "schema": _quoted(f"{schema}:TcpSample"),
        "structure": structure,
        "columns": table.partition("(")[2].rpartition(")")[0],
        "values": select.removeprefix("select "),
    }
    found = _filled("kafka/samples", {**common, **samples})
    if source.requests:
        found += _filled("kafka/requests", {**common, "topic": _quoted(source.requests)})
    return found


def _filled(name: str, values: Mapping[str, str]) -> list[str]:
    text = re.sub(r"\{(\w+):(?:String|UInt8|Columns)\}", lambda match: values[match[1]], sql(name))
    return statements_of(text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

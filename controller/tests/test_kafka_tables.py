"""The tables by which a ClickHouse server consumes from Kafka: the same SQL as for the engine in this process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from springtide.errors import InputError, StoreError
from springtide.observe.consume import CHDB_SHUTDOWN_CODE
from springtide.observe.kafka_tables import (
    NAMES,
    Source,
    create_tables,
    drop_tables,
    embedded_statements,
    removal,
    server_statements,
)
from springtide.store import Store
from springtide.store.base import Param

from testkit.home import Home

SOURCE = Source("kafka-1:9092,kafka-2:9092", group="it's", consumers=2, requests="springtide.http_requests")
CREATED = re.compile(r"create (?:table|materialized view) if not exists (\S+)")


def flat(statements: dict[str, list[str]]) -> list[str]:
    return [statement for kind in statements.values() for statement in kind]


def parsed(store: Store, statement: str) -> str:
    [row] = store.query("select formatQuery({sql:String}) as text", {"sql": statement})
    return str(row["text"])


@pytest.mark.parametrize("cluster", [None, "main"])
def test_the_engine_parses_every_statement_for_a_server(store: Store, cluster: str | None) -> None:
    statements = flat(server_statements(store, SOURCE, cluster)) + flat(removal(SOURCE, cluster))
    texts = [parsed(store, statement) for statement in statements]
    assert len(texts) == 20
    assert all(("ON CLUSTER" in text) == (cluster is not None) for text in texts)
    assert any(r"kafka_group_name = 'it\'s'" in text and "kafka_num_consumers = 2" in text for text in texts)


def test_statements_for_a_server_and_this_process_differ_by_paths_only(store: Store) -> None:
    """And by a parser that is out of memory: on a server no program would keep that message aside."""
    embedded = embedded_statements(store, SOURCE, "apart")
    here = [re.sub(r" where throwIf\(_error like '%memory limit exceeded%'.* = 0$", "", text) for text in embedded]
    assert [text == other for text, other in zip(embedded, here, strict=True)].count(False) == 1
    there = flat(server_statements(store, SOURCE, None))
    assert [re.sub(r"kafka_schema = '[^']*'", "", text.replace("apart.", "")) for text in here] == [
        re.sub(r"kafka_schema = '[^']*'", "", text) for text in there
    ]


def test_views_that_read_a_block_exist_before_the_consumer_starts(store: Store) -> None:
    """The view into the Null table is created last for each topic: with fewer readers a block would be lost."""
    names = [match[1] for text in flat(server_statements(store, SOURCE, None)) if (match := CREATED.match(text))]
    assert names == [
        *("kafka_samples", "kafka_sample_rows", "kafka_samples_rejected", "kafka_samples_loaded"),
        "kafka_samples_received",
        *("kafka_requests", "kafka_request_lines", "kafka_requests_rejected", "kafka_requests_loaded"),
        "kafka_requests_judged",
    ]


def test_everything_that_is_created_is_dropped(store: Store) -> None:
    made = {match[1] for text in flat(server_statements(store, SOURCE, None)) if (match := CREATED.match(text))}
    assert {text.split()[-1] for text in flat(removal(SOURCE, None))} == made


class Server:
    """The engine of this process as a server: it creates Kafka tables, each with an error, as there is no broker."""

    def __init__(self, store: Store, statements: int = 100) -> None:
        self.store, self.left = store, statements

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def execute(self, sql: str, params: Mapping[str, Param] | None = None) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        try:
            self.store.execute(sql, params)
        except StoreError as error:
            if error.code != CHDB_SHUTDOWN_CODE:
                raise

    def existing(self) -> set[str]:
        tables = "select name from system.tables where database = currentDatabase() and match(name, '^kafka_[rs]')"
        return {row["name"] for row in self.store.query(tables)}


APART = Source("127.0.0.1:9", group="first")
SAMPLES, REQUESTS = (set(NAMES[kind]) for kind in ("samples", "requests"))


def test_tables_that_differ_from_existing_ones_are_refused_until_these_are_dropped(store: Store) -> None:
    server, both = Server(store), replace(APART, requests="springtide.http_requests")
    create_tables(server, APART, None)
    assert server.existing() == SAMPLES
    create_tables(server, both, None)
    create_tables(server, both, None)
    assert server.existing() == SAMPLES | REQUESTS
    for other in (replace(APART, group="second"), replace(both, brokers="127.0.0.1:8"), replace(both, topic="other")):
        with pytest.raises(InputError, match=r"^sql/kafka/samples\.sql: checksum: .* differs .*; drop them with"):
            create_tables(server, other, None)
    # Tables created before a migration do not have the column that it adds.
    store.execute("alter table tcp_samples add column newer Nullable(UInt8)")
    with pytest.raises(InputError, match=r"samples\.sql: checksum"):
        create_tables(server, APART, None)
    drop_tables(server, both, None)
    assert server.existing() == set()
    create_tables(server, replace(APART, group="second"), None)
    assert server.existing() == SAMPLES
    drop_tables(server, APART, None)


def test_tables_without_a_record_are_refused(store: Store) -> None:
    server = Server(store)
    for statement in flat(server_statements(server, APART, None)):
        server.execute(statement)
    with pytest.raises(InputError, match="whose options are not recorded"):
        create_tables(server, APART, None)
    drop_tables(server, APART, None)
    create_tables(server, APART, None)
    assert server.existing() == SAMPLES
    drop_tables(server, APART, None)


def test_an_interrupted_run_is_finished_with_the_same_options_only(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt):
        create_tables(Server(store, statements=2), APART, None)
    server = Server(store)
    assert server.existing() == {"kafka_samples", "kafka_sample_rows"}
    with pytest.raises(InputError, match="differs"):
        create_tables(server, replace(APART, group="second"), None)
    create_tables(server, APART, None)
    assert server.existing() == SAMPLES
    drop_tables(server, APART, None)


@pytest.mark.usefixtures("each_opens")
def test_the_sql_is_printed_and_an_embedded_store_is_refused(own_home: Home) -> None:
    shown = own_home.run("consume", "--kafka", "k:9092", "--cluster", "main", "--dry-run").stdout
    assert "kafka_samples on cluster 'main'" in shown
    assert "kafka_requests" not in shown
    [error] = own_home.refused("consume", "--kafka", "k:9092", "--remove")
    assert "is embedded" in error

"""What a ClickHouse server is given to consume from Kafka by itself: the same SQL as the engine in this process."""

from __future__ import annotations

import re

import pytest
from samplekit.home import Home
from springtide.observe.kafka_tables import Source, embedded_statements, removal, server_statements
from springtide.store import Store

SOURCE = Source("kafka-1:9092,kafka-2:9092", group="it's", consumers=2, requests="springtide.http_requests")
CREATED = re.compile(r"create (?:table|materialized view) if not exists (\S+)")


def parsed(store: Store, statement: str) -> str:
    [row] = store.query("select formatQuery({sql:String}) as text", {"sql": statement})
    return str(row["text"])


@pytest.mark.parametrize("cluster", [None, "main"])
def test_the_engine_parses_every_statement_that_a_server_is_given(store: Store, cluster: str | None) -> None:
    statements = [*server_statements(store, SOURCE, cluster), *removal(SOURCE, cluster)]
    texts = [parsed(store, statement) for statement in statements]
    assert len(texts) == 20
    assert all(("ON CLUSTER" in text) == (cluster is not None) for text in texts)
    assert any(r"kafka_group_name = 'it\'s'" in text and "kafka_num_consumers = 2" in text for text in texts)


def test_a_server_and_this_process_are_given_the_same_but_for_where(store: Store) -> None:
    here = embedded_statements(store, SOURCE, "apart")
    there = server_statements(store, SOURCE, None)
    assert [re.sub(r"kafka_schema = '[^']*'", "", text.replace("apart.", "")) for text in here] == [
        re.sub(r"kafka_schema = '[^']*'", "", text) for text in there
    ]


def test_what_reads_a_block_stands_before_the_consumer_starts(store: Store) -> None:
    """A view into the Null table is the last one made of each topic: with fewer readers a block would be lost."""
    names = [match[1] for text in server_statements(store, SOURCE, None) if (match := CREATED.match(text))]
    assert names == [
        *("kafka_samples", "kafka_sample_rows", "kafka_samples_rejected", "kafka_samples_loaded"),
        "kafka_samples_received",
        *("kafka_requests", "kafka_request_lines", "kafka_requests_rejected", "kafka_requests_loaded"),
        "kafka_requests_judged",
    ]


def test_all_that_is_made_is_taken_away(store: Store) -> None:
    made = {match[1] for text in server_statements(store, SOURCE, None) if (match := CREATED.match(text))}
    assert {text.split()[-1] for text in removal(SOURCE, None)} == made


def test_the_sql_is_shown_and_an_embedded_store_is_not_told_to_keep_it(home: Home) -> None:
    shown = home.run("consume", "--kafka", "k:9092", "--cluster", "main", "--dry-run").stdout
    assert "kafka_samples on cluster 'main'" in shown
    assert "kafka_requests" not in shown
    [error] = home.refused("consume", "--kafka", "k:9092", "--remove")
    assert "is embedded" in error

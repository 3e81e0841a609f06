"""What a ClickHouse server is given to consume from Kafka by itself: the same SQL as the engine in this process."""

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
    embedded_statements,
    give,
    removal,
    server_statements,
    take_away,
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
def test_the_engine_parses_every_statement_that_a_server_is_given(store: Store, cluster: str | None) -> None:
    statements = flat(server_statements(store, SOURCE, cluster)) + flat(removal(SOURCE, cluster))
    texts = [parsed(store, statement) for statement in statements]
    assert len(texts) == 20
    assert all(("ON CLUSTER" in text) == (cluster is not None) for text in texts)
    assert any(r"kafka_group_name = 'it\'s'" in text and "kafka_num_consumers = 2" in text for text in texts)


def test_a_server_and_this_process_are_given_the_same_but_for_where(store: Store) -> None:
    """And but for what a parser without memory does: a server has nobody who would put the message aside."""
    given = embedded_statements(store, SOURCE, "apart")
    here = [re.sub(r" where throwIf\(_error like '%memory limit exceeded%'.* = 0$", "", text) for text in given]
    assert [text == other for text, other in zip(given, here, strict=True)].count(False) == 1
    there = flat(server_statements(store, SOURCE, None))
    assert [re.sub(r"kafka_schema = '[^']*'", "", text.replace("apart.", "")) for text in here] == [
        re.sub(r"kafka_schema = '[^']*'", "", text) for text in there
    ]


def test_what_reads_a_block_stands_before_the_consumer_starts(store: Store) -> None:
    """A view into the Null table is the last one made of each topic: with fewer readers a block would be lost."""
    names = [match[1] for text in flat(server_statements(store, SOURCE, None)) if (match := CREATED.match(text))]
    assert names == [
        *("kafka_samples", "kafka_sample_rows", "kafka_samples_rejected", "kafka_samples_loaded"),
        "kafka_samples_received",
        *("kafka_requests", "kafka_request_lines", "kafka_requests_rejected", "kafka_requests_loaded"),
        "kafka_requests_judged",
    ]


def test_all_that_is_made_is_taken_away(store: Store) -> None:
    made = {match[1] for text in flat(server_statements(store, SOURCE, None)) if (match := CREATED.match(text))}
    assert {text.split()[-1] for text in flat(removal(SOURCE, None))} == made


class Server:
    """The engine of this process as a server: it makes Kafka tables, and complains about each. No broker is there."""

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

    def standing(self) -> set[str]:
        tables = "select name from system.tables where database = currentDatabase() and match(name, '^kafka_[rs]')"
        return {row["name"] for row in self.store.query(tables)}


APART = Source("127.0.0.1:9", group="first")
SAMPLES, REQUESTS = (set(NAMES[kind]) for kind in ("samples", "requests"))


def test_other_tables_than_those_that_stand_are_refused_until_they_are_taken_away(store: Store) -> None:
    server, both = Server(store), replace(APART, requests="springtide.http_requests")
    give(server, APART, None)
    assert server.standing() == SAMPLES
    give(server, both, None)
    give(server, both, None)
    assert server.standing() == SAMPLES | REQUESTS
    for other in (replace(APART, group="second"), replace(both, brokers="127.0.0.1:8"), replace(both, topic="other")):
        with pytest.raises(InputError, match=r"^sql/kafka/samples\.sql: checksum: .* differs .*; take them away with"):
            give(server, other, None)
    # A column that a migration added is one that tables of before do not bring.
    store.execute("alter table tcp_samples add column newer Nullable(UInt8)")
    with pytest.raises(InputError, match=r"samples\.sql: checksum"):
        give(server, APART, None)
    take_away(server, both, None)
    assert server.standing() == set()
    give(server, replace(APART, group="second"), None)
    assert server.standing() == SAMPLES
    take_away(server, APART, None)


def test_tables_that_nothing_is_known_of_are_refused(store: Store) -> None:
    server = Server(store)
    for statement in flat(server_statements(server, APART, None)):
        server.execute(statement)
    with pytest.raises(InputError, match="not known what made them"):
        give(server, APART, None)
    take_away(server, APART, None)
    give(server, APART, None)
    assert server.standing() == SAMPLES
    take_away(server, APART, None)


def test_a_run_that_was_cut_short_is_finished_by_its_like_only(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt):
        give(Server(store, statements=2), APART, None)
    server = Server(store)
    assert server.standing() == {"kafka_samples", "kafka_sample_rows"}
    with pytest.raises(InputError, match="differs"):
        give(server, replace(APART, group="second"), None)
    give(server, APART, None)
    assert server.standing() == SAMPLES
    take_away(server, APART, None)


def test_the_sql_is_shown_and_an_embedded_store_is_not_told_to_keep_it(home: Home) -> None:
    shown = home.run("consume", "--kafka", "k:9092", "--cluster", "main", "--dry-run").stdout
    assert "kafka_samples on cluster 'main'" in shown
    assert "kafka_requests" not in shown
    [error] = home.refused("consume", "--kafka", "k:9092", "--remove")
    assert "is embedded" in error

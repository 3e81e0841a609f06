"""A small part of `make chain`, which takes minutes and has its own command: the edges, Kafka and the store, and one
collector killed; the books balance."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Producer
from springtide.observe.kafka_tables import TOPIC
from springtide.store import open_store

from lab.lab import Lab
from pipeline.chain.__main__ import TOPOLOGY as LAB
from pipeline.chain.books import KILLED
from pipeline.chain.senders import Senders
from pipeline.chain.site import Site
from testkit.kafka import read_topic, rows_in

pytestmark = pytest.mark.root


def test_the_books_balance_over_a_killed_collector_and_miss_what_is_taken_away(tmp_path: Path) -> None:
    with Lab.up(LAB, f"chain{os.getpid()}") as lab:
        site, senders = Site(tmp_path, lab), Senders(tmp_path, lab)
        site.prepare()
        url = f"chdb://{site.product.store}"
        with senders.running():
            with senders.probing():
                senders.kill_collector("ams-1")
            counters = senders.stop()
            # Some messages come once more, as from a collector that got no answer.
            messages = read_topic(senders.broker.bootstrap, TOPIC)
            again = messages[:3]
            producer = Producer({"bootstrap.servers": senders.broker.bootstrap})
            for message in again:
                producer.produce(TOPIC, message.payload, key=message.key)
            assert producer.flush(30) == 0
            taken = site.product.json("consume", "--kafka", senders.broker.bootstrap, "--until-caught-up")
            assert (taken["messages"], taken["left"]) == (len(messages) + len(again), 0)

            books, claims = senders.settle(counters, url)
            assert [claim for claim, holds in claims.items() if not holds] == []
            # Its own connection to the broker closed with it, at the least, and nobody was there to record that.
            assert books.dropped.pop(KILLED) > 0
            assert books.dropped == {}
            assert books.duplicates_counted == sum(rows_in(message.payload) for message in again)
            assert {message.key for message in messages} == set(site.edges)

            # Samples that are taken out of the store are missed.
            store = open_store(url, create=False, wait_s=10, on_wait=print)
            try:
                [row] = store.query(
                    "select cookie, uniqExact(host, poll_sequence, kind) as n from tcp_samples group by 1 limit 1"
                )
                store.execute("delete from tcp_samples where cookie = {cookie:UInt64}", {"cookie": row["cookie"]})
            finally:
                store.close()
            less, claims = senders.settle(counters, url)
            assert less.lost == int(row["n"]) > 0
            assert not all(claims.values())

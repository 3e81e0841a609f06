"""`make chain` as it is, and that its books miss what is taken away."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from confluent_kafka import Producer
from springtide.observe.kafka_tables import TOPIC
from springtide.store import open_store

from lab.lab import Lab
from pipeline.chain.__main__ import TOPOLOGY as LAB
from pipeline.chain.__main__ import main
from pipeline.chain.run import HOPS
from pipeline.chain.senders import Senders
from pipeline.chain.site import Site
from testkit.kafka import read_topic, rows_in

pytestmark = pytest.mark.root


@pytest.mark.parametrize("hops", [("collector", "broker"), pytest.param(HOPS, marks=pytest.mark.proof)])
def test_the_whole_chain_loses_nothing_over_a_kill_of_each_hop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hops: tuple[str, ...]
) -> None:
    out = tmp_path / "chain.json"
    code = main(["--out", str(out), "--kill", *hops])
    assert code == 0, capsys.readouterr().err
    books = json.loads(out.read_text())
    assert set(books) == {"polled", "delivered", "duplicates_counted", "dropped", "lost", "kills"}
    assert books["kills"] == dict.fromkeys(hops, 1)
    assert books["lost"] == 0
    assert books["polled"] == books["delivered"] + sum(books["dropped"].values())
    assert books["delivered"] > 0
    run = json.loads((tmp_path / "chain/run.json").read_text())
    assert run["wrong"] == []
    # Each edge has a window towards the other PoP, and only there.
    there = {"ams": {"10.76.2.0/24"}, "nyc": {"10.76.1.0/24"}}
    assert {edge: set(held) for edge, held in run["in_force"].items()} == {
        edge: there[edge.split("-")[0]] for edge in ("ams-1", "ams-2", "nyc-1")
    }


@pytest.mark.proof
def test_books_balance_over_a_killed_collector_and_miss_what_is_taken_away(tmp_path: Path) -> None:
    with Lab.up(LAB, f"chain{os.getpid()}") as lab:
        site, senders = Site(tmp_path, lab), Senders(tmp_path, lab)
        site.prepare()
        url = f"chdb://{site.product.store}"
        with senders.running():
            with senders.probing():
                senders.kill_collector("ams-1")
            senders.stop()
            # Some messages come once more, as from a collector that got no answer.
            messages = read_topic(senders.broker.bootstrap, TOPIC)
            again = messages[:3]
            producer = Producer({"bootstrap.servers": senders.broker.bootstrap})
            for message in again:
                producer.produce(TOPIC, message.payload, key=message.key)
            assert producer.flush(30) == 0
            assert senders.untaken() == len(messages) + len(again)
            taken = site.product.json("consume", "--kafka", senders.broker.bootstrap, "--until-caught-up")
            assert (taken["messages"], taken["left"]) == (len(messages) + len(again), 0)
            assert senders.untaken() == 0

            books, claims = senders.settle(url)
            assert [claim for claim, holds in claims.items() if not holds] == []
            assert books.polled == books.delivered + sum(books.dropped.values())
            # There may be copies of what a collector had sent as it was killed, too.
            copies = sum(rows_in(message.payload) for message in [*messages, *again])
            assert books.duplicates_counted == copies - books.delivered
            assert books.duplicates_counted >= sum(rows_in(message.payload) for message in again) > 0
            assert {message.key for message in messages} == set(site.edges)

            # Samples that are taken out of the store are missed. Some of a killed collector's might as well have been
            # in its memory, so they are another edge's.
            store = open_store(url, create=False, wait_s=10, on_wait=print)
            try:
                [row] = store.query(
                    "select host, cookie, uniqExact(poll_sequence, kind) as n from tcp_samples"
                    " where host != 'ams-1' group by 1, 2 limit 1"
                )
                store.execute(
                    "delete from tcp_samples where host = {host:String} and cookie = {cookie:UInt64}",
                    {"host": row["host"], "cookie": row["cookie"]},
                )
            finally:
                store.close()
            less, claims = senders.settle(url)
            assert less.lost == int(row["n"]) > 0
            assert not all(claims.values())

"""`consume --until-caught-up` ends where no message is left, whatever offsets lie behind the last one."""

from __future__ import annotations

import time

from confluent_kafka import Producer

from testkit.home import Home
from testkit.kafka import Feed
from testkit.proto import message, row
from testkit.traffic import Socket

SECONDS = 60  # all of them where it waits: half is for a machine that stands still, since a run takes three
SAMPLES = 5


def sample(n: int) -> bytes:
    socket = Socket("ams-1", 1 + n, "10.77.1.1", "10.77.2.2", "ams", 40)
    return message([row(socket.at(int(time.time()) - 3600, poll=1, bytes_acked=0))])


def test_offsets_without_a_message_are_not_waited_for(feed: Feed, home: Home) -> None:
    """Nothing but an aborted transaction, an aborted one behind samples, and some around."""
    producer = Producer({"bootstrap.servers": feed.bootstrap, "transactional.id": feed.topic, "log_level": 0})
    producer.init_transactions(60)
    sent = stored = 0
    for transactions in [(False,), (True,), (False,), (False, True, False, False)]:
        for committed in transactions:
            producer.begin_transaction()
            for n in range(SAMPLES):
                producer.produce(feed.topic, sample(sent + n), partition=0)
            sent += SAMPLES
            if committed:
                producer.commit_transaction(60)
                stored += SAMPLES
            else:
                producer.flush(60)
                producer.abort_transaction(60)
        assert consumed(feed, home, stored) < SECONDS / 2, transactions
    # And so does the next run, whose group stays where it is from the start.
    assert consumed(feed, home, stored) < SECONDS / 2


def test_messages_of_no_row_are_not_waited_for(feed: Feed, home: Home) -> None:
    producer = Producer({"bootstrap.servers": feed.bootstrap, "log_level": 0})
    for payload in [sample(0), b"", None, b"\x00"]:
        producer.produce(feed.topic, payload, key="ams-1", partition=0)
    assert producer.flush(30) == 0
    assert consumed(feed, home, 1) < SECONDS / 2


def consumed(feed: Feed, home: Home, samples: int) -> float:
    """Seconds that a run takes, after which so many samples are stored and nothing is left."""
    began = time.monotonic()
    taken = home.json("consume", *feed.consumer, "--until-caught-up", "--seconds", SECONDS)
    assert taken["left"] == 0
    assert home.query("select count() as n from tcp_samples final") == [{"n": samples}]
    return time.monotonic() - began

"""`springtide tail` on a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.home import ROUND, Home
from testkit.kafka import Feed
from testkit.proto import message, row
from testkit.traffic import Socket


def test_samples_are_shown_as_they_are_and_filtered(
    feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer({"bootstrap.servers": feed.bootstrap})
    producer.produce(feed.topic, b"\x99garbage", key="same")
    for host, peer in (("ams-1", "10.77.2.9"), ("fra-1", "10.77.3.9"), ("ams-1", "10.77.3.8")):
        sample = Socket(host, 7, "10.77.1.1", peer, "ams", 40).at(ROUND, poll=3, bytes_acked=5)
        producer.produce(feed.topic, message([row(sample)]), key="same")
    assert producer.flush(30) == 0
    home = Home(tmp_path)
    arguments = ("tail", "--kafka", feed.bootstrap, "--topic", feed.topic, "--from-beginning")
    everything = home.run(*arguments, "--count", 3)
    assert [line.split()[4].split(":")[0] for line in everything.stdout.splitlines()[1:]] == [
        "10.77.2.9",
        "10.77.3.9",
        "10.77.3.8",
    ]
    assert "established" in everything.stdout
    assert "a message of 8 bytes is not an envelope of samples" in everything.stderr
    mine = ("--host", "ams-1", "--prefix", "10.77.3.0/24", "--json")
    [line] = home.run(*arguments, *mine, "--count", 1).stdout.splitlines()
    sample = json.loads(line)
    assert (sample["dst_ip"], sample["snd_cwnd"], sample["kind"]) == ("10.77.3.8", 40, "SAMPLE_KIND_POLL")
    assert "bbr_bw" not in sample
    # All that is there, or on a busy machine less of it.
    assert set(home.run(*arguments, *mine, "--seconds", 1).stdout.splitlines()) <= {line}
    [complaint] = home.refused("tail", "--kafka", feed.bootstrap, "--prefix", "10.77.3.1/24")
    assert "has host bits set; write it as 10.77.2.0/24" in complaint
    # As units name the brokers.
    monkeypatch.setenv("SPRINGTIDE_KAFKA", feed.bootstrap)
    missing = home.run("tail", "--topic", "springtide.none", code=1)
    assert "topic springtide.none cannot be read" in missing.stderr

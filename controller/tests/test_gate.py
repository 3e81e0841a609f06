"""`springtide gate`: changed edges beside unchanged ones, over the same minutes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from samplekit.home import ROUND, Home
from springtide import instants
from springtide.policy import GatePolicy
from springtide.publish.gate import Group, Inputs, Verdict, decide
from springtide.publish.publication import PublishFolder, sealed

SINCE = ROUND + 120
NOW = ROUND + 240

QUIET = Group(
    connections_before=500,
    connections_after=500,
    sent_before=10_000_000,
    sent_after=10_000_000,
    again_before=50_000,
    again_after=50_000,
    rtt_before_us=20_000.0,
    rtt_after_us=20_000.0,
    closed_before=400,
    closed_after=400,
    failed_before=4,
    failed_after=4,
)
FRESH: dict[str, float | None] = {"ams-1": 5.0}


@pytest.mark.parametrize(
    ("changed", "unchanged", "silence", "verdict", "reason"),
    [
        (QUIET, QUIET, FRESH, Verdict.GO, "beside unchanged edges"),
        (QUIET, Group(), FRESH, Verdict.GO, "themselves before the wave only"),
        (replace(QUIET, again_after=200_000), QUIET, FRESH, Verdict.ROLL_BACK, "retransmit ratio rose by 0.0150"),
        (replace(QUIET, again_after=200_000), Group(), FRESH, Verdict.ROLL_BACK, "retransmit ratio"),
        # It came over everyone.
        (replace(QUIET, again_after=200_000), replace(QUIET, again_after=190_000), FRESH, Verdict.GO, "no worse"),
        (replace(QUIET, rtt_after_us=30_000.0), QUIET, FRESH, Verdict.ROLL_BACK, "RTT became 1.50 times"),
        (replace(QUIET, rtt_after_us=30_000.0), replace(QUIET, rtt_after_us=28_000.0), FRESH, Verdict.GO, "no worse"),
        (replace(QUIET, failed_after=40), QUIET, FRESH, Verdict.ROLL_BACK, "failed connects rose by 0.090"),
        (replace(QUIET, connections_after=99), QUIET, FRESH, Verdict.WAIT, "99 of 100 connections"),
        (QUIET, QUIET, {"ams-1": None}, Verdict.WAIT, "from ams-1"),
        (QUIET, QUIET, {"ams-1": 61.0}, Verdict.WAIT, "within 60 s from ams-1"),
        # Harm that is seen does not wait for a collector.
        (replace(QUIET, again_after=200_000), QUIET, {"ams-1": None}, Verdict.ROLL_BACK, "retransmit"),
    ],
)
def test_the_verdict(
    changed: Group, unchanged: Group, silence: dict[str, float | None], verdict: Verdict, reason: str
) -> None:
    said, why = decide(Inputs(changed, unchanged, silence), GatePolicy())
    assert said == verdict
    assert reason in why


def socket(host: str, cookie: int, at: float, sent: int, again: int, **more: Any) -> dict[str, Any]:
    return {
        "time_unix_us": int(at * 1e6),
        "host": host,
        "pop": host[:3],
        "boot_id": "b",
        "netns": 1,
        "poll_sequence": int(at) - ROUND + 1000,
        "cookie": cookie,
        "kind": "POLL",
        "state": "ESTABLISHED",
        "src_ip": "::ffff:10.77.1.1",
        "src_port": 80,
        "dst_ip": "::ffff:10.77.3.1",
        "dst_port": 1024 + cookie,
        "family": 2,
        "rtt": 20_000,
        "bytes_sent": sent,
        "bytes_retrans": again,
        "segs_in": 10,
    } | more


def samples(host: str, again_after: int, count: int = 120) -> Iterator[dict[str, Any]]:
    """Connections that send 10 kB a minute, two minutes before the wave and two since."""
    for cookie in range(count):
        sent = again = 0
        for number in range(5):
            yield socket(host, cookie, ROUND + 60 * number - 1, sent, again)
            sent += 10_000
            again += again_after if number >= 2 else 50
    # Traffic to anywhere else is not the publication's doing.
    for cookie in range(1000, 1000 + count):
        yield socket(host, cookie, NOW - 10, 1_000_000, 900_000, dst_ip="::ffff:192.0.2.1")


@pytest.fixture
def folder(home: Home, monkeypatch: pytest.MonkeyPatch) -> PublishFolder:
    monkeypatch.setattr(instants, "now", lambda: NOW)
    folder = PublishFolder(home.path / "publish")
    body = {
        "schema_version": 1,
        "edge": "ams-1",
        "pop": "ams",
        "round": instants.show(ROUND),
        "policy_version": "0123456789ab",
        "created_at": instants.show(ROUND + 5),
        "expires_at": instants.show(ROUND + 900),
        "routes": [{"prefix": "10.77.3.0/24", "initcwnd": 40}],
    }
    folder.publish({"ams-1": json.dumps(sealed(body)).encode()}, None)
    return folder


@pytest.mark.parametrize(("again_after", "code", "verdict"), [(50, 0, "go"), (400, 4, "roll back")])
def test_samples_become_a_verdict_that_is_kept(
    home: Home, folder: PublishFolder, again_after: int, code: int, verdict: str
) -> None:
    store = home.open()
    try:
        store.insert("tcp_samples", [*samples("ams-1", again_after), *samples("ams-2", 50)])
    finally:
        store.close()
    arguments = ["gate", "--publish-dir", folder.path, "--publication", folder.rounds()[0], "--wave", 1]
    arguments += ["--changed", "ams-1", "--unchanged", "ams-2", "--since", instants.show(SINCE)]
    said = home.json(*arguments, code=code)
    assert said["verdict"] == verdict, said
    assert (said["changed"]["connections_before"], said["changed"]["connections_after"]) == (120, 120)
    assert said["changed"]["sent_after"] == 120 * 20_000
    assert said["changed"]["again_after"] == 120 * 2 * again_after
    kept = home.json("history", "--publish-dir", folder.path, "--event", "gate")
    assert [row["verdict"] for row in kept] == [verdict]
    assert json.loads(kept[0]["details"])["changed"] == said["changed"]


def test_counters_that_no_connection_reaches_hide_no_loss(home: Home, folder: PublishFolder) -> None:
    """Sums of 64 bits would wrap to anything that the edge wants."""
    beyond = [socket("ams-1", 5000 + number, NOW - 10, 2**63 + number, 0) for number in range(3)]
    bound = [socket("ams-1", 6000 + number, NOW - 10, 2**53, 2**53) for number in range(2100)]
    store = home.open()
    try:
        store.insert("tcp_samples", [*samples("ams-1", 400), *samples("ams-2", 50), *beyond, *bound])
    finally:
        store.close()
    arguments = ["gate", "--publish-dir", folder.path, "--publication", folder.rounds()[0], "--wave", 1]
    arguments += ["--changed", "ams-1", "--unchanged", "ams-2", "--since", instants.show(SINCE)]
    said = home.json(*arguments, code=4)
    assert (said["changed"]["sent_after"], said["changed"]["again_after"]) == (2**63 - 1, 2**63 - 1)


def test_without_samples_it_waits(home: Home, folder: PublishFolder) -> None:
    arguments = ["gate", "--publish-dir", folder.path, "--publication", folder.rounds()[0], "--wave", 1]
    waits = home.run(*arguments, "--changed", "ams-1", "--since", instants.show(SINCE), code=3)
    assert waits.stdout == "wait: no samples within 60 s from ams-1\n"
    assert "is not in the fleet" in home.refused(*arguments, "--changed", "xyz-1")[0]
    assert "none of" in home.refused(*arguments, "--changed", "ams-1")[0], "a wave that nobody recorded"

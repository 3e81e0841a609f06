"""`springtide gate`: new connections after a wave beside new ones before it, on changed and on unchanged edges."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from springtide import instants
from springtide.gate.connections import read
from springtide.gate.judge import (
    Destination,
    Kind,
)
from springtide.policy import GatePolicy
from springtide.publication import journal
from springtide.publication.folder import PublishFolder

import testkit.published
from testkit.bottleneck import MSS, Counters, Path, records, sample, transfer
from testkit.edge import enforcement
from testkit.home import ROUND, Home

SINCE = ROUND + 120
NOW = ROUND + 240
NYC, CLIENT = "::ffff:10.77.3.1", "::ffff:192.0.2.7"

# Where the lab's facts have 29 segments of 69 sent again: a burst into a queue of 41 packets.
SHORT_QUEUE = Path(rate_mbit=50, rtt_s=0.102, queue_packets=41, noise=0.0003)
DEEP_QUEUE = replace(SHORT_QUEUE, queue_packets=400)


def traffic(
    host: str, path: Path, window_after: int, seed: int, to: str = NYC, **more: Any
) -> Iterator[dict[str, Any]]:
    """Samples of a host polled every 5 s: 20 clean connections that live all along, and fresh ones of 50 to 100 KB all
    the time, whose first window is 10 until SINCE."""
    chance = random.Random(seed)
    phase = ROUND - 900 + chance.random()
    for cookie in range(20):
        for number in range(int((NOW - phase) / 5)):
            sent = (number + 1) * 5_000_000
            yield sample(host, cookie, phase + 5 * number, number, Counters(0, sent, sent, 0, number + 1), to, **more)
    cookie, opened = 1000, ROUND - 600.0
    while opened < NOW:
        found = transfer(opened, chance.randint(35, 69), 10 if opened < SINCE else window_after, path, chance)
        # Numbers of polls are the host's own: those of its connections are those of its moments.
        yield from records(found, host, cookie, 5.0, phase, NOW, to, **more)
        cookie, opened = cookie + 1, opened + chance.expovariate(1.25)


@pytest.fixture
def folder(home: Home, monkeypatch: pytest.MonkeyPatch) -> PublishFolder:
    monkeypatch.setattr(instants, "now", lambda: NOW)
    return publish(home, entries=[{"prefix": "10.77.3.0/24", "initcwnd": 100}])


def publish(home: Home, **content: Any) -> PublishFolder:
    folder = PublishFolder(home.path / "publish")
    documents = {}
    for edge in ("ams-1", "ams-2"):
        body = {
            "schema_version": 1,
            "edge": edge,
            "pop": "ams",
            "round": instants.show(ROUND),
            "policy_version": "0123456789ab",
            "created_at": instants.show(ROUND + 5),
            "expires_at": instants.show(ROUND + 900),
            "enforce": enforcement(),
            "entries": [],
            **content,
        }
        documents[edge] = body
    testkit.published.publish(folder, documents)
    return folder


def fill(home: Home, *rows: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> None:
    store = home.open()
    try:
        store.insert("tcp_samples", [row for each in rows for row in each])
    finally:
        store.close()


def run_gate(home: Home, folder: PublishFolder, code: int, *more: object) -> Any:
    arguments = ["gate", "--publish-dir", folder.path, "--publication", folder.rounds()[0], "--wave", 1]
    arguments += ["--changed", "ams-1", "--unchanged", "ams-2", "--since", instants.show(SINCE), *more]
    return home.json(*arguments, code=code)


@pytest.mark.parametrize(("path", "code"), [(DEEP_QUEUE, 0), (SHORT_QUEUE, 4)], ids=["deep", "short"])
def test_new_windows_that_overflow_a_path_are_stopped_although_old_connections_are_clean(
    home: Home, folder: PublishFolder, path: Path, code: int
) -> None:
    fill(home, traffic("ams-1", path, 100, 1), traffic("ams-2", path, 10, 2))
    answer = run_gate(home, folder, code)
    lost = answer["windows"]["lost"]
    after, before = lost["changed_after"], lost["changed_before"]
    # Those of the last seconds are not all seen: what was opened is 150 in two minutes, 750 in ten.
    assert 100 < after["of"] < 200
    assert 600 < before["of"] < 1000
    assert before["hits"] / before["of"] < 0.06
    assert lost["unchanged_after"]["hits"] / lost["unchanged_after"]["of"] < 0.06
    if code == 4:
        # 41 of up to 69 at once fit, and one or two that are served meanwhile.
        assert after["hits"] / after["of"] > 0.6
        assert lost["at_least"] > 0.4
        assert "new connections lost of their first flight" in answer["reason"]
    else:
        assert after["hits"] / after["of"] < 0.06
    kept = home.json("history", "--publish-dir", folder.path, "--event", "gate")
    assert json.loads(kept[0]["details"])["windows"] == answer["windows"]
    # Each look spends of the budget.
    assert run_gate(home, folder, code)["look"] == 2


def test_samples_of_old_kernels_count_as_far_as_they_go(home: Home, folder: PublishFolder) -> None:
    old: dict[str, Any] = {"total_rto": None, "dsack_dups": None, "segs_in": None}
    fill(home, traffic("ams-1", SHORT_QUEUE, 100, 1, **old), traffic("ams-2", SHORT_QUEUE, 10, 2, **old))
    answer = run_gate(home, folder, 4)
    assert answer["windows"]["lost"]["harm"]
    assert not {"timeouts", "failed"} & answer["windows"].keys()


def test_clients_of_bbr_are_judged_apart(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large objects to a prefix that is put on BBR: those after the wave send a tenth again."""
    monkeypatch.setattr(instants, "now", lambda: NOW)
    folder = publish(
        home, entries=[{"prefix": "192.0.2.0/24", "congestion": {"algorithm": "bbr", "from_bytes": 100_000}}]
    )

    def large(host: str, after: float) -> Iterator[dict[str, Any]]:
        yield sample(host, 1, ROUND - 700, 1, Counters(0, 1, 1, 0), CLIENT)
        for cookie in range(2, 842):
            at = ROUND - 600 + cookie
            # Every third is smaller than what BBR acts on.
            size = 50_000 if cookie % 3 == 0 else 500_000
            again = int(size * (after if at > SINCE else 0.005))
            closed = {"kind": "CLOSE", "state": "CLOSE"}
            yield sample(host, cookie, at, at, Counters(0, size, size + again, again, 5), CLIENT, **closed)

    fill(home, large("ams-1", 0.1), large("ams-2", 0.005))
    answer = run_gate(home, folder, 4)
    assert "new connections of clients sent much again" in answer["reason"]
    assert "windows" not in answer
    assert answer["clients"].keys() == {"lossy", "timeouts", "failed", "slow"}
    assert answer["clients"]["lossy"]["changed_after"] == {"hits": 80, "of": 80}


def test_which_connections_are_new_and_what_counts_as_lost(home: Home, folder: PublishFolder) -> None:
    """Each kind of connection once in 100; the numbers show which counted."""

    def rows() -> Iterator[dict[str, Any]]:
        yield sample("ams-1", 1, ROUND - 700, 1, Counters(0, 1, 1, 0), NYC)
        closed = {"kind": "CLOSE", "state": "CLOSE"}
        for number in range(100):
            cookie, at = 1000 + 100 * number, SINCE + 1 + number / 10
            data, lost = Counters(0, 20_000, 20_000, 0, 5), Counters(0, 20_000, 23_000, 3_000, 5)
            # New and clean; new and lossy; new, and what was sent again was there already.
            yield sample("ams-1", cookie, at, 900, data, NYC, **closed)
            yield sample("ams-1", cookie + 1, at, 900, lost, NYC, **closed)
            yield sample("ams-1", cookie + 2, at, 900, replace(lost, again=2 * MSS), NYC, dsack_dups=2, **closed)
            # Shown before; and, lossy, in a namespace whose first poll shows it: its age is unknown.
            yield sample("ams-1", cookie + 3, SINCE - 1, 899, data, NYC)
            yield sample("ams-1", cookie + 3, at, 900, lost, NYC, **closed)
            yield sample("ams-1", cookie + 4, SINCE + 1, 900, lost, NYC, netns=7)
            yield sample("ams-1", cookie + 4, SINCE + 6, 901, lost, NYC, netns=7)
            # The first poll shows one that has sent nothing yet, and loses its flight then.
            yield sample("ams-1", cookie + 5, SINCE + 1, 900, Counters(0), NYC, netns=7)
            yield sample("ams-1", cookie + 5, SINCE + 6, 901, lost, NYC, netns=7)
            # One poll, and its first flight is under way: its outcome is unknown.
            yield sample("ams-1", cookie + 6, SINCE + 1, 901, replace(data, acked=1000), NYC)
            # Its first flight was clean; what it loses a minute later is not a fault of its first window.
            yield sample("ams-1", cookie + 7, at, 902, Counters(0, 200_000, 200_000, 0, 5), NYC)
            yield sample("ams-1", cookie + 7, at + 5, 903, Counters(0, 900_000, 990_000, 90_000, 5), NYC)
            # Nobody answered; and values that no connection can have.
            yield sample("ams-1", cookie + 8, at, 904, Counters(0, 0, 0, 0, 0, 1), NYC, **closed)
            yield sample("ams-1", cookie + 9, at, 904, Counters(0, 2**60, 2**60, 0, 5), NYC, **closed)
            # New and lossy: what arrived twice were the host's own copies.
            copies = {"dsack_dups": 2, "copied_segments": 2}
            yield sample("ams-1", cookie + 11, at, 900, replace(lost, again=2 * MSS), NYC, **copies, **closed)
            # Anywhere else is not the publication's doing.
            yield sample("ams-1", cookie + 10, at, 904, lost, "::ffff:192.0.2.1", **closed)

    copies = [row for row in rows() if row["cookie"] % 3]
    fill(home, rows(), copies)
    answer = run_gate(home, folder, 4, "--json")["windows"]
    # The clean, two lossy, the repeated, the late, the one that grew before its loss.
    assert answer["lost"]["changed_after"] == {"hits": 300, "of": 600}
    assert "lossy" not in answer
    assert answer["failed"]["changed_after"] == {"hits": 100, "of": 700}


def test_an_edge_with_many_connections_does_not_set_the_usual_rtt(home: Home, folder: PublishFolder) -> None:
    """Its round trips of ten minutes, of more connections than all others have, would make every other one short."""
    closed = {"kind": "CLOSE", "state": "CLOSE"}

    def rows(host: str, before: int, rtt_before: int, rtt_after: int) -> Iterator[dict[str, Any]]:
        data = Counters(0, 20_000, 20_000, 0, 5)
        yield sample(host, 1, ROUND - 700, 0, data, NYC)
        for n in range(before):
            yield sample(host, 1000 + n, ROUND - 500 + n / before, 900, data, NYC, rtt=rtt_before, **closed)
        for n in range(100):
            yield sample(host, 9000 + n, SINCE + 1 + n / 100, 900, data, NYC, rtt=rtt_after, **closed)

    liar = rows("ams-2", 1000, 600_000_000, 600_000_000)
    fill(home, rows("ams-1", 100, 20_000, 200_000), rows("ams-3", 100, 21_000, 200_000), liar)
    store = home.open()
    try:
        to = Destination("10.77.3.0/24", Kind.WINDOWS, 14_600, 29_200)
        targets = dict.fromkeys(("ams-1", "ams-2", "ams-3"), ((to, True),))
        found = read(store, GatePolicy(), targets, ["ams-1"], ROUND, SINCE, NOW, 1, 1)
    finally:
        store.close()
    after = {host: windows["after"] for host, windows in found.tallies[Kind.WINDOWS, True].items()}
    assert {host: (tally.slow, tally.measured) for host, tally in after.items()} == dict.fromkeys(targets, (100, 100))


def test_the_rollout_and_not_the_wave_before_is_what_it_is_held_against(home: Home, folder: PublishFolder) -> None:
    """Connections that the first wave opened on its canary are not what the second one's are compared with.

    Nor are they where the rollout was killed after the first wave, and continued."""
    begun, again = (("rollout", "begun", at) for at in (ROUND - 1, SINCE - 1))
    events = (begun, ("wave", "applied", ROUND), again, ("wave", "applied", SINCE))
    for name, verdict, at in events:
        journal.append(folder.path, journal.Event(name, folder.rounds()[0], verdict, at_unix_s=at))
    fill(home, traffic("ams-1", SHORT_QUEUE, 100, 1), traffic("ams-2", SHORT_QUEUE, 10, 2))
    arguments = ["gate", "--publish-dir", folder.path, "--publication", folder.rounds()[0], "--wave", 2]
    answer = home.json(*arguments, "--changed", "ams-1", "--unchanged", "ams-2", code=4)
    assert (answer["begun"], answer["since"], answer["wave"]) == (ROUND - 1, SINCE, 2)


def test_a_wave_without_destinations_goes_on_whatever_the_samples(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new site's first rounds have none: a rollout of nothing fails nothing."""
    monkeypatch.setattr(instants, "now", lambda: NOW)
    folder = publish(home)
    fill(home, traffic("ams-1", SHORT_QUEUE, 100, 1))
    answer = run_gate(home, folder, 0)
    assert (answer["verdict"], answer["judged"]) == ("go", False)
    assert "no destination" in answer["reason"]


def test_without_samples_it_waits(home: Home, folder: PublishFolder) -> None:
    arguments = ["gate", "--publish-dir", folder.path, "--publication", folder.rounds()[0], "--wave", 1]
    waits = home.run(*arguments, "--changed", "ams-1", "--since", instants.show(SINCE), code=3)
    assert waits.stdout == "wait: no samples within 60 s from ams-1\n"
    assert "is not in the fleet" in home.refused(*arguments, "--changed", "xyz-1")[0]
    assert "none of" in home.refused(*arguments, "--changed", "ams-1")[0], "a wave that nobody recorded"

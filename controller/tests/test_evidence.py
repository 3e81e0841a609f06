"""Evidence that the roll-up takes, against connections of which the truth is known."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, Self

import pytest
import yaml
from springtide.fleet import Fleet, load_fleet
from springtide.instants import show
from springtide.observe.enrich import publish_fleet
from springtide.observe.rollup import rollup
from springtide.store import Row, Store

from testkit.home import FLEET, ROUND, Home
from testkit.sender import MSS, Path, Sender
from testkit.sent import Apart
from testkit.together import together

# Short, so that all packets of a round can be followed one by one.
INTERVAL = 10
POLLS = 5
# Rate in bytes a second, round-trip time, queue in packets (docs/explanation/initcwnd.md).
PATHS = (
    (12e6 / 8, 0.054, 10),
    (20e6 / 8, 0.15, 20),
    (50e6 / 8, 0.102, 41),
    (20e6 / 8, 0.09, 170),
    (30e6 / 8, 0.02, 60),
)
EVERYTHING = 10**7

Writes = Iterator[tuple[float, int]]


def writes(kind: str, large: int, chance: random.Random, until: float) -> Writes:
    """Moments, and segments that the application then gives to the socket."""
    at, number = 0.01, 0
    while at < until:
        number += 1
        if kind == "bulk":
            yield at, EVERYTHING
            return
        if kind == "chunks" or (kind == "mixed" and number % 6 == 0):
            yield at, large
            at += chance.uniform(0.7, 1.3)
        else:
            yield at, chance.randint(1, 6)
            at += chance.uniform(0.1, 0.4)


def followed(sender: Sender, written: Writes, rounds: int) -> list[tuple[float, dict[str, Any]]]:
    """Records that POLLS polls of each round see."""
    moments = [(INTERVAL * (n + 0.5) / POLLS, None) for n in range(POLLS * rounds)]
    seen = []
    for at, segments in sorted([*written, *moments], key=lambda one: one[0]):
        if segments is None:
            sender.run(at)
            seen.append((at, sender.info()))
        else:
            sender.write(at, segments)
    return seen


def sample(cookie: int, at: float, info: dict[str, Any], **more: Any) -> Row:
    """A record of a connection from ams-1 to fra; `at` counts from two rounds before ROUND."""
    return {
        "time_unix_us": int((ROUND - 2 * INTERVAL + at) * 1e6) + cookie,
        "host": "ams-1",
        "pop": "ams",
        "boot_id": "boot",
        "netns": 1,
        "poll_sequence": 1000 + int(at * POLLS / INTERVAL + 100),
        "cookie": cookie,
        "kind": "POLL",
        "state": "ESTABLISHED",
        "src_ip": "::ffff:10.77.1.1",
        "dst_ip": "::ffff:10.77.2.9",
        "src_pop": "ams",
        "dst_pop": "fra",
        **info,
        **more,
    }


class Shown(Apart):
    """Rows of some rounds; then what their tables have."""

    def __init__(self, rows: list[Row], moments: Sequence[int] = (ROUND,)) -> None:
        self.samples, self.moments = rows, moments

    @classmethod
    def run(cls, home: Home, cases: Sequence[Self]) -> None:
        cls.place(home, cases)
        store = home.open()
        publish_fleet(store, load_fleet(home.fleet))
        for case in cases:
            store.insert("tcp_samples", case.moved(case.samples))
        for moment in sorted({moment for case in cases for moment in case.moments}):
            rollup(store, moment, INTERVAL, moment + 60)

    def rows(self, table: str, moment: int = ROUND) -> list[Row]:
        return self.named(self.home.query(f"select * from {table} where toUnixTimestamp(round) = {moment}"))


@together
def test_what_is_counted_of_a_window_is_what_a_round_trip_carried() -> Iterator[Shown]:
    rows: list[Row] = []
    truth: dict[int, int] = {}
    kinds: dict[int, str] = {}
    for rate, rtt, queue in PATHS:
        for kind, large in (("bulk", 0), ("chunks", 60), ("chunks", 300), ("small", 0), ("mixed", 60), ("mixed", 300)):
            for idle, initcwnd in (
                ((True, 10),) if kind == "bulk" else ((True, 10), (True, 80), (False, 10), (False, 80))
            ):
                cookie = len(truth) + 1
                chance = random.Random(cookie)
                sender = Sender(Path(rate, rtt, queue, chance=chance), initcwnd, slow_start_after_idle=idle)
                seen = followed(sender, writes(kind, large, chance, 2 * INTERVAL), 2)
                rows += [sample(cookie, at, info) for at, info in seen]
                truth[cookie] = sender.carried(seen[POLLS - 1][0], seen[-1][0])
                kinds[cookie] = kind
    yield (shown := Shown(rows))
    found = {row["cookie"]: row for row in shown.rows("round_sockets") if row["earned"]}
    shares = {cookie: row["proved_cwnd"] / truth[cookie] for cookie, row in found.items()}
    assert max(shares.values()) < 2
    assert median(abs(1 - share) for share in shares.values()) < 0.15
    for kind in ("bulk", "chunks", "mixed"):
        ours = [share for cookie, share in shares.items() if kinds[cookie] == kind]
        assert len(ours) > 0.9 * sum(one == kind for one in kinds.values())
        assert median(abs(1 - share) for share in ours) < 0.15, kind
    # Small answers count only where ten segments were carried, whatever window we gave them.
    assert all(truth[cookie] >= 10 for cookie in found if kinds[cookie] == "small")


@together
@pytest.mark.parametrize(("large", "queue"), [(20, 10), (20, 170), (6, 3)])
def test_our_own_initial_window_is_not_evidence_once_the_path_has_collapsed(large: int, queue: int) -> Iterator[Shown]:
    """From 50 to 1 Mbit/s, while answers of at most `large` segments flow; the window stays at what the route gives."""
    rows, rounds = [], 5
    for cookie in range(1, 9):
        chance = random.Random(cookie)
        path = Path(50e6 / 8, 0.08, queue, collapse_at=2.0 * INTERVAL, collapsed_rate=1e6 / 8, chance=chance)
        sender = Sender(path, 80, slow_start_after_idle=False)
        answers = [
            (n * 0.5 + chance.uniform(0, 0.1), chance.randint(1, large))
            for n in range(1, 2 * INTERVAL * rounds)
            if n * 0.5 < INTERVAL * rounds - 1
        ]
        rows += [sample(cookie, at, info) for at, info in followed(sender, iter([(0.01, 300), *answers]), rounds)]
    moments = [ROUND + late * INTERVAL for late in range(1, 4)]
    yield (shown := Shown(rows, moments))
    info = 0
    for moment in moments:
        windows = [row["proved_cwnd"] for row in shown.rows("round_sockets", moment) if row["earned"]]
        info += len(windows)
        # The collapsed path carries 7 segments in a round trip, and its answers wait in the queue.
        assert all(window <= 2 * 7 for window in windows), (moment, windows)
    # Answers within the kernel's default show nothing; it takes larger ones to see that the path has become narrow.
    assert info > 0 or large < 10


def young(cookie: int, segments: int, again: int = 0, at: float = 15.0, **more: Any) -> Row:
    """The close of a connection that sent so many segments, some of them twice."""
    info = {
        "snd_cwnd": 10,
        "snd_mss": MSS,
        "bytes_acked": segments * MSS,
        "bytes_sent": (segments + again) * MSS,
        "bytes_retrans": again * MSS,
        "total_retrans": again,
        "total_rto": 0,
        "dsack_dups": 0,
        "copied_segments": 0,
    }
    return sample(cookie, at, info, kind="CLOSE", state="CLOSE", **more)


def pair(rows: list[Row]) -> tuple[int, int, int]:
    [row] = rows
    return row["young_connections"], row["young_lossy_connections"], row["young_timeout_connections"]


@together
def test_young_connections_count_whatever_their_windows_became() -> Iterator[Shown]:
    rows = [
        young(1, 20),
        young(2, 20, 5),
        # Final window and ssthresh show nothing.
        young(3, 21, snd_cwnd=400),
        young(4, 21, 5, snd_cwnd=4, snd_ssthresh=300),
        # Sent twice and arrived twice.
        young(5, 12, 3, dsack_dups=3),
        young(6, 12, 3, dsack_dups=2),
        young(7, 3, 1, total_rto=1),
        # The handshake was sent again.
        young(8, 3, total_retrans=2),
        young(9, 3, 0, bytes_sent=0),
        # The host copied three segments by itself: that they arrived twice says nothing of what was sent again.
        young(10, 12, 3, dsack_dups=3, copied_segments=3),
    ]
    yield (shown := Shown(rows))
    assert pair(shown.rows("round_pairs")) == (6, 4, 1)


T0 = ROUND - 2 * INTERVAL


def audit(store: Store, *events: dict[str, Any]) -> None:
    rows = [
        {
            "at": event.pop("at"),
            "id": f"event {n}",
            "publication": event.pop("publication", ""),
            "event": event.pop("event"),
            "verdict": event.pop("verdict", ""),
            "edges": event.pop("edges", []),
            "details": json.dumps(event),
        }
        for n, event in enumerate(events)
    ]
    store.insert("audit", rows)


def decision(moment: int, initcwnd: int, dst: str = "fra", **more: Any) -> Row:
    return {
        "round": moment,
        "part": "initcwnd",
        "src_pop": "ams",
        "destination": dst,
        "ip_version": 4,
        "action": "set",
        "initcwnd": initcwnd,
        "reason": "learnt",
        "expires_at": ROUND + 10**5,
        **more,
    }


def publish(name: str, moment: int, at: int, **more: Any) -> dict[str, Any]:
    windows = {"round": show(moment), "expires_at": show(ROUND + 900), "held_out": [], **more}
    return {"event": "publish", "verdict": "published", "publication": name, "at": at, "windows": windows}


def wave(name: str, at: int, edges: list[str], verdict: str = "applied", **more: Any) -> dict[str, Any]:
    return {"event": "wave", "verdict": verdict, "publication": name, "at": at, "edges": edges, **more}


def counted(store: Store, rows: list[Row]) -> None:
    publish_fleet(store, Fleet.model_validate(yaml.safe_load(FLEET)))
    store.execute("truncate table tcp_samples")
    store.insert("tcp_samples", rows)
    rollup(store, ROUND, INTERVAL, ROUND + 60)


def started(store: Store) -> dict[str, list[int]]:
    """With what each host's connections began that were first seen 1, 3, 5 ... 19 s into the two rounds."""
    idle = {"snd_mss": MSS, "bytes_sent": 0}
    # Polled before, so that these are known to be new.
    counted(store, [sample(n, at, idle, host=host) for host in BOTH for n in range(10) for at in (2 * n + 1.0, 19.5)])
    found = store.query("select host, start_cwnd from round_sockets order by cookie")
    return {host: [row["start_cwnd"] for row in found if row["host"] == host] for host in BOTH}


A, B = ROUND - 900, ROUND - 600
BOTH = ["ams-1", "ams-2"]


def test_a_connection_began_with_what_held_on_its_edge_then(store: Store) -> None:
    store.insert("path_decisions", [decision(A, 40), decision(B, 80)])
    # Unreadable records count for nothing, and do not affect the others.
    torn = {"at": T0 - 750, "publication": "A", "verdict": "published", "edges": BOTH}
    for n, (event, details) in enumerate([("publish", "{torn"), ("wave", "[1]"), ("withdraw", '{"withdrawn": 5}')]):
        store.insert("audit", [{**torn, "id": f"torn {n}", "event": event, "details": details}])
    audit(
        store,
        publish("A", A, T0 - 800),
        wave("A", T0 - 700, BOTH),
        publish("B", B, T0 - 20),
        wave("B", T0 + 4, ["ams-1"], "applied"),
        {"event": "gate", "at": T0 + 5, "publication": "B", "verdict": "roll back"},
        {"event": "rollback", "at": T0 + 8, "publication": "B", "verdict": "begun", "edges": BOTH},
        {
            "event": "rollback",
            "at": T0 + 10,
            "publication": "B",
            "verdict": "partial",
            "edges": BOTH,
            "away": ["ams-2"],
        },
        {"event": "withdraw", "at": T0 + 14, "verdict": "done", "edges": ["ams-1"]},
        wave("B", T0 + 100, ["ams-1"]),
    )
    assert started(store) == {"ams-1": [40, 40, 80, 80, 80, 40, 40, 10, 10, 10], "ams-2": [40] * 10}
    # Forty segments cannot have hurt what ten carry; what is longer than two of the windows may have lost it later.
    lives = [young(1, 10), young(2, 9, 3), young(3, 11), young(4, 80, 7), young(5, 81, 7)]
    counted(store, [{**life, "host": "ams-2"} for life in lives])
    assert pair(store.query("select * from round_pairs")) == (2, 1, 0)


def test_what_a_bundle_did_not_have_was_not_in_force(store: Store) -> None:
    store.insert(
        "path_decisions",
        [
            decision(A, 40, expires_at=ROUND + 800),
            decision(B, 80, "nyc"),
        ],
    )
    store.insert(
        "initcwnd_edge_decisions",
        [
            {
                "round": B,
                "edge": "ams-2",
                "src_pop": "ams",
                "dst_pop": "fra",
                "ip_version": 4,
                "initcwnd": 60,
                "until": ROUND + 900,
            }
        ],
    )
    audit(
        store,
        publish("A", A, T0 - 800),
        wave("A", T0 - 700, ["ams-1"]),
        publish("B", B, T0 - 20, held_out=BOTH),
        wave("B", T0 - 10, ["ams-2"]),
    )
    # The first expires before its bundle would; the second is held out but for an operator's word.
    assert started(store) == {"ams-1": [10] * 10, "ams-2": [60] * 10}
    # A bundle that has expired holds nothing.
    store.execute("truncate table audit")
    store.insert("path_decisions", [decision(A + 1, 40)])
    audit(store, publish("C", A + 1, T0 - 800, expires_at=show(T0 + 10)), wave("C", T0 - 700, BOTH))
    assert started(store)["ams-1"] == [40] * 5 + [10] * 5

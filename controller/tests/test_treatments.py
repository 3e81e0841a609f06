"""Decided is not done: what sockets show of the windows that they began with, through the roll-up."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

import pytest
from springtide import instants
from springtide.laws.base import Treated
from springtide.laws.congestion.interface import CONGESTION
from springtide.publication import journal
from springtide.publication.journal import Event
from springtide.store import Store

from testkit.home import ROUND, Home
from testkit.prefixes import Seen, store_rounds
from testkit.proto import Value
from testkit.sent import Sent
from testkit.slowstart import Sender, mixed
from testkit.spool import record, write_spool
from testkit.together import together
from testkit.traffic import Socket

pytestmark = pytest.mark.usefixtures("settled")

INTERVAL = 300
HOSTS = {"ams-1": "10.77.1.1", "ams-2": "10.77.1.2", "fra-1": "10.77.2.1", "nyc-1": "10.77.3.1"}


@dataclass(frozen=True)
class Publication:
    """Values that edges hold since `at`: a window for connections from ams and nyc to fra."""

    at: int
    edges: Sequence[str]
    window: int
    expires: int
    held_out: Sequence[str]

    def note(self, home: Home, prefix: str = "") -> None:
        """The decisions into the store, and what the plays note into the journal. `prefix`: of all names."""
        decided = self.at // INTERVAL * INTERVAL
        state = {"part": "initcwnd", "destination": f"{prefix}fra", "ip_version": 4, "action": "set"}
        state |= {"initcwnd": self.window, "reason": "learnt", "expires_at": self.expires}
        rows = [{"round": decided, "src_pop": f"{prefix}{pop}", **state} for pop in ("ams", "nyc")]
        store = home.open()
        store.insert("path_decisions", rows)
        store.close()
        times = {"round": instants.show(decided), "expires_at": instants.show(self.expires)}
        windows: dict[str, Any] = {**times, "held_out": [prefix + edge for edge in self.held_out]}
        edges = [prefix + edge for edge in self.edges]
        more: dict[str, Any] = {"edges": edges, "publication": f"{prefix}p-{self.at}"}
        details = {"windows": windows}
        journal.append(
            home.publish_dir, Event("publish", verdict="published", details=details, at_unix_s=self.at - 1, **more)
        )
        journal.append(home.publish_dir, Event("wave", verdict="applied", at_unix_s=self.at, **more))


class Traffic:
    """Samples of new connections of a round, with polls each minute and a close."""

    def __init__(self) -> None:
        self.samples: list[dict[str, Value]] = []
        self.cookies = 1000
        self.held: list[Publication] = []

    def polls(self, host: str, moment: int, peer: str = "10.77.2.200", **more: Value) -> None:
        """A connection from long before, so that the host has polls and new connections can be distinguished from old
        ones."""
        for n in range(-5, 5):
            socket = Socket(host, 1, HOSTS[host], peer, host[:3])
            info: dict[str, Value] = {**Sender(10, ssthresh=20).info(), **more}
            poll = moment // 60 + n
            self.samples.append(socket.at(moment - INTERVAL + 60 * n + 10, poll, poll, **info))

    def closed(
        self,
        host: str,
        moment: int,
        senders: Iterable[Sender],
        peer: str = "10.77.2.9",
        more: Mapping[str, Value] = MappingProxyType({}),
    ) -> None:
        """Connections that lived between two polls: only their close is known."""
        for sender in senders:
            self.cookies += 1
            socket = Socket(host, self.cookies, HOSTS[host], peer, host[:3])
            info = {**sender.info(None), "kind": "SAMPLE_KIND_CLOSE", "state": "TCP_STATE_CLOSE", **more}
            at = moment - INTERVAL + 30 + self.cookies % 200
            self.samples.append(socket.at(at, moment // 60, sender.sent * 1448, **info))

    def polled(self, host: str, moment: int, senders: Iterable[Sender], algorithm: str = "cubic") -> None:
        """Connections that the round's third poll is the first to show."""
        for sender in senders:
            self.cookies += 1
            socket = Socket(host, self.cookies, HOSTS[host], "10.77.2.9", host[:3])
            at = moment - INTERVAL + 60 * 2 + 11
            self.samples.append(socket.at(at, moment // 60 + 2, sender.sent * 1448, **sender.info(algorithm)))

    def hold(
        self, at: int, edges: list[str], window: int, *, expires: int = ROUND + 9000, held_out: Sequence[str] = ()
    ) -> None:
        """From then on these edges hold a publication that gives their connections to fra this window: the plays have
        noted it, and nothing has brought that into the store."""
        self.held.append(Publication(at, edges, window, expires, held_out))

    def roll_up(self, home: Home, *moments: int) -> list[dict[str, Any]]:
        """The rounds where nothing else is."""
        for one in self.held:
            one.note(home)
        write_spool(home.spool, "a", [record(self.samples)])
        home.run("ingest", home.spool)
        for moment in moments:
            home.run("rollup", "--round", instants.show(moment))
        return treated(home)


class Beside(Sent):
    """Traffic, and what its edges hold, beside that of other cases."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic.samples)
        self.held = traffic.held

    @classmethod
    def run(cls, home: Home, cases: Sequence[Self]) -> None:
        cls.place(home, cases)
        for case in cases:
            for one in case.held:
                one.note(home, case.prefix)
        super().run(home, cases)


def treated(home: Home) -> list[dict[str, Any]]:
    rows = home.query(
        "select host, dst_pop, decided_cwnd, toString(seen) as seen, connections, bbr_connections, "
        "told_connections, exact_connections, first_cwnds, "
        "first_cwnd_counts, "
        "first_cwnd_low_p50, first_cwnd_high_p50 from round_treatments order by round, host, dst_pop"
    )
    for row in rows:
        row["first_cwnds"] = dict(zip(row["first_cwnds"], row.pop("first_cwnd_counts"), strict=True))
    return rows


def only(rows: list[dict[str, Any]], host: str) -> dict[str, Any]:
    [row] = [row for row in rows if row["host"] == host]
    return row


@together
def test_first_windows_are_those_that_the_senders_had() -> Iterator[Beside]:
    traffic = Traffic()
    traffic.polls("ams-1", ROUND)
    # Known exactly: a third of forty are 13, with the FIN.
    small = [mixed(40, [n], at_once=True) for n in range(13)]
    # Grown in one step to 70: by bytes, less than half of it was ever sent.
    grown = [mixed(40, [30], at_once=True)]
    lossy = [mixed(40, [20], at_once=True).lose()]
    cut = [Sender(1, handshake=2)]
    traffic.closed("ams-1", ROUND, [*small, *grown, *lossy, *cut])
    yield (sent := Beside(traffic))
    row = only(sent.named(treated(sent.home)), "ams-1")
    assert (row["told_connections"], row["exact_connections"]) == (14, 13)
    assert row["first_cwnds"] == {40: 13}
    assert (row["first_cwnd_low_p50"], row["first_cwnd_high_p50"]) == (40, 40)


@together
def test_a_first_poll_shows_what_the_close_record_lacks() -> Iterator[Beside]:
    traffic = Traffic()
    traffic.polls("ams-1", ROUND)
    traffic.polled("ams-1", ROUND, [mixed(25, [2], at_once=True)])
    last = traffic.samples[-1]
    later = mixed(25, [2, 300], at_once=True).lose().info(None)
    traffic.samples.append(
        {
            **last,
            **later,
            "time_unix_us": int(last["time_unix_us"]) + 50_000_000,
            "kind": "SAMPLE_KIND_CLOSE",
            "state": "TCP_STATE_CLOSE",
        }
    )
    traffic.samples[-1].pop("congestion_algorithm")
    yield (sent := Beside(traffic))
    assert only(sent.named(treated(sent.home)), "ams-1")["first_cwnds"] == {25: 1}


@together
def test_an_old_connection_shows_nothing_of_the_round() -> Iterator[Beside]:
    """After idle time it shows the route of then, and who knows which was there when it began."""
    traffic = Traffic()
    traffic.polls("ams-1", ROUND, snd_cwnd=40, snd_ssthresh=2**31 - 1, data_segs_out=1, total_retrans=0)
    yield (sent := Beside(traffic))
    row = only(sent.named(treated(sent.home)), "ams-1")
    assert (row["connections"], row["told_connections"], row["first_cwnds"]) == (1, 0, {})
    assert row["first_cwnd_low_p50"] is None


@together
def test_under_bbr_nothing_is_known_of_windows() -> Iterator[Beside]:
    traffic = Traffic()
    traffic.polls("ams-1", ROUND, congestion_algorithm="bbr")
    traffic.polls("ams-2", ROUND)
    for host in ("ams-1", "ams-2"):
        traffic.polled(host, ROUND, [Sender(33, sent=3)] * 2, algorithm="bbr")
        # The close does not name the algorithm: where some use BBR, this may be one of them.
        traffic.closed(host, ROUND, [Sender(33, sent=3)])
    # Without any poll that names one, nothing is known either.
    traffic.closed("fra-1", ROUND, [Sender(33)], "10.77.3.9")
    yield (sent := Beside(traffic))
    rows = sent.named(treated(sent.home))
    assert [(row["host"], row["bbr_connections"], row["told_connections"]) for row in rows] == [
        ("ams-1", 3, 0),
        ("ams-2", 2, 0),
        ("fra-1", 0, 0),
    ]


@together
def test_of_a_host_with_a_thousand_windows_eight_count() -> Iterator[Beside]:
    traffic = Traffic()
    traffic.polls("ams-1", ROUND)
    traffic.closed("ams-1", ROUND, [Sender(10 + n % 500) for n in range(1000)])
    traffic.closed("ams-1", ROUND, [Sender(77)] * 5)
    # A host that is not in the fleet does not count at all.
    unknown_host = dict(traffic.samples[-1], host="ams-9")
    traffic.samples.append(unknown_host)
    yield (sent := Beside(traffic))
    rows = sent.named(treated(sent.home))
    row = only(rows, "ams-1")
    assert row["exact_connections"] == 1005
    assert len(row["first_cwnds"]) == 8
    assert row["first_cwnds"][77] == 7
    assert {one["host"] for one in rows} == {"ams-1"}


def test_who_applied_who_did_not_who_did_late_and_who_lies(home: Home) -> None:
    traffic = Traffic()
    before = ROUND - INTERVAL
    traffic.hold(before - 2 * INTERVAL, ["ams-1", "ams-2", "nyc-1"], 40)
    for moment in (before, ROUND):
        for host in ("ams-1", "ams-2", "nyc-1"):
            traffic.polls(host, moment)
        traffic.closed("ams-1", moment, [mixed(40, [n % 9], at_once=True) for n in range(20)])
        # It applies between the two rounds.
        window = 10 if moment == before else 40
        traffic.closed("ams-2", moment, [mixed(window, [n % 3], at_once=True) for n in range(20)])
        # The windows that it sends belong to no connection; a thousand of them weigh no more than a few.
        traffic.closed("nyc-1", moment, [Sender(11 + n % 300) for n in range(300)])
    # Large ones show no window exactly, but from ten none can come to 40 with so few segments.
    traffic.closed("ams-2", before, [mixed(10, [8], at_once=False) for _ in range(30)], "10.77.3.9")
    rows = traffic.roll_up(home, before, ROUND)
    to_fra = [(row["host"], row["decided_cwnd"], row["seen"]) for row in rows if row["dst_pop"] == "fra"]
    assert to_fra == [
        ("ams-1", 40, "same"),
        ("ams-2", 40, "differs"),
        ("nyc-1", 40, "differs"),
        ("ams-1", 40, "same"),
        ("ams-2", 40, "same"),
        ("nyc-1", 40, "differs"),
    ]
    [other] = [row for row in rows if row["dst_pop"] == "nyc"]
    assert (other["decided_cwnd"], other["exact_connections"], other["seen"]) == (10, 0, "unknown")
    steps = home.json("status", "--publish-dir", home.path / "publish", code=1)["steps"]
    [seen] = [step for step in steps if step["what"] == "seen windows"]
    assert (seen["state"], seen["text"]) == (
        "broken",
        "2 of 3 pairs of an edge and a PoP begin with what was decided; 1 differ: nyc-1 -> fra (decided 40, seen 11)",
    )
    first = home.json("sql", "decided-and-seen")[0]
    assert (first["host"], first["shown"], first["exact_connections"]) == ("nyc-1", "differs", 300)


@together
def test_connections_that_an_edges_program_started_are_not_held_against_routes_windows() -> Iterator[Beside]:
    traffic = Traffic()
    traffic.hold(ROUND - 2 * INTERVAL, ["ams-1"], 40, held_out=["ams-1"])
    traffic.polls("ams-1", ROUND)
    of_program: dict[str, Value] = {"started_round": ROUND - INTERVAL, "started_window": 60, "started_step": 0}
    traffic.closed("ams-1", ROUND, [mixed(60, [8], at_once=True) for _ in range(9)], more=of_program)
    # To where the program has no entry.
    watched = of_program | {"started_window": 0, "started_rate": 0}
    traffic.closed("ams-1", ROUND, [mixed(10, [n % 3], at_once=True) for n in range(20)], more=watched)
    yield (sent := Beside(traffic))
    row = only(sent.named(treated(sent.home)), "ams-1")
    assert (row["decided_cwnd"], row["exact_connections"], row["seen"]) == (10, 20, "same")


@together
def test_what_large_connections_cannot_have_begun_with_differs() -> Iterator[Beside]:
    traffic = Traffic()
    traffic.hold(ROUND - 2 * INTERVAL, ["ams-1"], 40)
    traffic.polls("ams-1", ROUND)
    traffic.closed("ams-1", ROUND, [mixed(10, [8], at_once=False) for _ in range(9)])
    yield (sent := Beside(traffic))
    row = only(sent.named(treated(sent.home)), "ams-1")
    assert (row["exact_connections"], row["told_connections"], row["seen"]) == (0, 9, "differs")


def test_prefixes_decided_for_bbr_are_held_against_their_bytes(store: Store) -> None:
    """Most of the bytes by BBR; small objects, most of the connections, may stay on the default."""
    rows = [
        Seen(ROUND, "ams", 1, 10**6, "bbr", connections=1, bytes_acked=9 * 10**6),
        Seen(ROUND, "ams", 1, 10**6, "cubic", connections=50, bytes_acked=10**6),
        Seen(ROUND, "ams", 2, 10**6, "cubic"),
        Seen(ROUND, "ams", 3, 10**6, "bbr"),
        Seen(ROUND, "ams", 4, 10**6, ""),
        Seen(ROUND, "ams", 5, 10**6, "cubic"),
    ]
    store_rounds(store, rows)
    decided = {
        "round": ROUND,
        "part": "congestion",
        "src_pop": "ams",
        "ip_version": 4,
        "action": "keep",
        "selected_since": ROUND - INTERVAL,
    }
    chosen = [(1, "bbr"), (2, "bbr"), (3, "default"), (4, "bbr"), (6, "bbr")]
    store.insert(
        "path_decisions",
        [
            {**decided, "destination": Seen(0, "", n, 0).prefix, "algorithm": one, "held_out": one != "bbr"}
            for n, one in chosen
        ]
        # Chosen just now: no connection can have known.
        + [{**decided, "destination": rows[5].prefix, "algorithm": "bbr", "selected_since": ROUND}],
    )
    # A decision of a clock that was ahead.
    later = {**decided, "round": ROUND + 86_400, "destination": rows[3].prefix, "algorithm": "bbr"}
    store.insert("path_decisions", [later])
    assert CONGESTION.treated(store, ROUND, 300) == Treated(same=1, differs=1, unknown=2, controls=1)


@together
def test_a_window_that_is_known_is_never_wrong() -> Iterator[Beside]:
    """Hundreds of lives in one round."""
    chance = random.Random(17)
    lives = [
        (chance.randint(1, 120), chance.choices([0, 1, 2, 5, 13, 20, 40, 100], k=chance.randint(0, 6)), n % 2 > 0)
        for n in range(400)
    ]
    traffic = Traffic()
    traffic.polls("ams-1", ROUND)
    traffic.closed("ams-1", ROUND, [mixed(window, sent, at_once=at_once) for window, sent, at_once in lives])
    yield (sent := Beside(traffic))
    columns = "host, first_cwnd_low as low, first_cwnd_high as high"
    found = sent.named(sent.home.query(f"select {columns} from rollup_sockets where cookie > 1000 order by cookie"))
    assert len(found) == len(lives)
    for (window, segments, _), row in zip(lives, found, strict=True):
        assert row["low"] <= window <= row["high"], (window, segments, row)
        if 3 * (sum(segments) + 1) <= window:
            assert row["low"] == row["high"]
    assert sum(row["low"] == row["high"] for row in found) > 50


def test_a_journal_that_cannot_be_read_stops_no_round(home: Home) -> None:
    traffic = Traffic()
    traffic.polls("ams-1", ROUND)
    (home.publish_dir / journal.FILE).mkdir(parents=True)
    write_spool(home.spool, "a", [record(traffic.samples)])
    home.run("ingest", home.spool)
    output = home.run("rollup", "--round", instants.show(ROUND))
    assert "1 rounds rolled up" in output.stdout
    [line] = [line for line in output.stderr.splitlines() if journal.FILE in line]
    assert "cannot be read: Is a directory" in line
    output = home.run("decide", "initcwnd", "--round", instants.show(ROUND), code=None)
    assert "cannot be read: Is a directory" in output.stderr

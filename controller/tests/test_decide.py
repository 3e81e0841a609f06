"""`springtide decide initcwnd` and `explain`, from spool files to sentences.

Long: one command from samples to sentences, over one set of samples.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from springtide import instants
from springtide.fleet import load_fleet
from springtide.laws.initcwnd import rows as decisions
from springtide.laws.initcwnd.law import decide as decide_initcwnd
from springtide.laws.registry import LAWS
from springtide.observe.enrich import publish_fleet
from springtide.observe.pairs import pair_observations
from springtide.policy import load_policy

from testkit.home import ROUND, Home
from testkit.proto import Value
from testkit.sent import Sent
from testkit.spool import record, write_spool
from testkit.together import together
from testkit.traffic import MSS, Socket

INTERVAL = 300
NOW = ROUND
FULL = 200 * MSS

Sample = dict[str, Value]
SMOOTH = "initcwnd: {duty_rounds: 1, history_weight: 0.5, hysteresis: 0.1}\n"

pytestmark = pytest.mark.usefixtures("settled")


def polls(socket: Socket, round_unix_s: int, gained: int, start: int = 0, number: int = 0) -> list[Sample]:
    """Six polls over a round, `gained` bytes acknowledged between the first and the last; `number` counts rounds."""
    begin = round_unix_s - INTERVAL
    return [
        socket.at(begin + 10 + 50 * n, poll=100 + 6 * number + n, bytes_acked=start + gained * n // 5) for n in range(6)
    ]


def connections(count: int, cwnd: int = 40, src: str = "ams", dst: str = "fra", first: int = 1) -> list[Socket]:
    subnet = {"ams": "10.77.1", "fra": "10.77.2", "nyc": "10.77.3"}
    return [
        Socket(f"{src}-1", first + n, f"{subnet[src]}.1", f"{subnet[dst]}.{2 + n}", src, cwnd) for n in range(count)
    ]


def feed(home: Home, name: str, samples: list[Sample]) -> None:
    write_spool(home.spool, name, [record(samples)])
    home.run("ingest", home.spool)


def decide(home: Home, *arguments: object) -> list[dict[str, Any]]:
    return list(home.json("decide", "initcwnd", *arguments)["decisions"])


def stored(home: Home) -> list[dict[str, Any]]:
    return home.query(
        "select *, destination as dst_pop from path_decisions final order by round, src_pop, destination, ip_version"
    )


@together
def test_the_mean_of_earned_windows_is_learnt_and_idle_ones_are_not() -> Iterator[Sent]:
    busy = [
        s for n, c in enumerate(connections(4)) for s in polls(Socket(**{**vars(c), "snd_cwnd": 40 + n}), NOW, FULL)
    ]
    idle = [s for c in connections(20, cwnd=95, first=50) for s in polls(c, NOW, 0)]
    yield (sent := Sent(busy + idle))
    [decision] = sent.decide()
    assert (decision["src_pop"], decision["dst_pop"], decision["ip_version"]) == ("ams", "fra", 4)
    assert (decision["initcwnd"], decision["observed_cwnd"]) == (42, 41.5)
    assert (decision["connections_seen"], decision["connections_earned"]) == (24, 4)
    assert (decision["min_cwnd"], decision["max_cwnd"]) == (40, 43)
    assert decision["reason"] == "learnt"


@together
def test_what_was_acknowledged_before_the_round_does_not_earn() -> Iterator[Sent]:
    """Long-lived and idle now: large counters, no progress."""
    old = [s for c in connections(5) for s in polls(c, NOW - INTERVAL, FULL) + polls(c, NOW, 0, start=FULL, number=1)]
    yield (sent := Sent(old, rounds=2))
    [decision] = sent.decide()
    assert (decision["action"], decision["reason"], decision["connections_seen"]) == ("none", "no_evidence", 5)
    [before] = sent.decide("--round", instants.show(NOW - INTERVAL))
    assert before["reason"] == "learnt"


@together
def test_sockets_that_the_first_poll_already_showed_earn_nothing_for_their_past() -> Iterator[Sent]:
    yield (sent := Sent([c.at(NOW - 20, poll=1, bytes_acked=10 * FULL) for c in connections(5)]))
    [decision] = sent.decide()
    assert (decision["connections_seen"], decision["connections_earned"]) == (5, 0)


@together
def test_a_new_socket_earns_from_zero() -> Iterator[Sent]:
    witness = connections(1, first=90)[0]
    new = [c.at(NOW - 20, poll=7, bytes_acked=FULL) for c in connections(3)]
    yield (sent := Sent([witness.at(NOW - 120, poll=6, bytes_acked=5), *new]))
    [decision] = sent.decide()
    assert (decision["connections_earned"], decision["initcwnd"]) == (3, 40)


@together
def test_only_live_connections_between_known_pops_count() -> Iterator[Sent]:
    good = connections(3)
    odd = [
        Socket("ams-1", 20, "10.77.1.1", "10.77.1.2"),
        Socket("ams-1", 21, "10.77.1.1", "192.0.2.1"),
        Socket("ams-1", 22, "192.0.2.1", "10.77.2.1"),
        Socket("ams-1", 23, "10.77.1.1", "10.77.2.1", state="TCP_STATE_CLOSE_WAIT", snd_cwnd=90),
    ]
    closes = [c.at(NOW - 1, 105, 9 * FULL, kind="SAMPLE_KIND_CLOSE") for c in connections(3, 99, first=40)]
    yield (sent := Sent([s for c in good + odd for s in polls(c, NOW, FULL)] + closes))
    [decision] = sent.decide()
    assert (decision["initcwnd"], decision["connections_seen"]) == (40, 3)


@together
def test_ip_versions_are_decided_apart() -> Iterator[Sent]:
    six = [Socket("ams-1", 60 + n, "fd77:1::1", f"fd77:2::{n}", "ams", 80) for n in range(3)]
    yield (sent := Sent([s for c in connections(3) + six for s in polls(c, NOW, FULL)]))
    assert [(d["ip_version"], d["initcwnd"]) for d in sent.decide()] == [(4, 40), (6, 80)]


@together
def test_retransmissions_are_counted_over_the_round() -> Iterator[Sent]:
    samples = [s for c in connections(4) for s in polls(c, NOW, FULL)]
    for sample in samples:
        sample["bytes_retrans"] = 5000 + int(sample["bytes_sent"]) // 50
    yield (sent := Sent(samples))
    [decision] = sent.decide()
    assert decision["retransmit_ratio"] == pytest.approx(0.02, abs=1e-5)


def rounds_of_traffic(windows: list[int]) -> list[Sample]:
    """One window a round, oldest first, the last of them in the newest round."""
    samples = []
    for n, window in enumerate(windows):
        moment = NOW - INTERVAL * (len(windows) - 1 - n)
        for socket in connections(3, window, first=1 + 10 * n):
            samples += polls(socket, moment, FULL, number=n)
    return samples


@together
def test_history_smooths_and_again_gives_the_same_rows() -> Iterator[Sent]:
    yield (sent := Sent(rounds_of_traffic([40, 80, 80]), SMOOTH, rounds=3))
    sent.decide_all()
    first = sent.stored()
    assert [(row["initcwnd"], row["previous_cwnd"]) for row in first] == [(40, None), (60, 40), (70, 60)]
    # The same once more, from a round that was rolled up anew.
    sent.home.run("rollup", "--round", instants.show(NOW))
    sent.decide_all()
    assert sent.stored() == first


def test_later_rows_and_later_decisions_never_leak_in(home: Home) -> None:
    samples = rounds_of_traffic([40, 80, 20])
    cut = (NOW - INTERVAL) * 1_000_000
    feed(home, "past", [s for s in samples if int(s["time_unix_us"]) < cut])
    middle = instants.show(NOW - INTERVAL)
    home.run("decide", "initcwnd", "--round", instants.show(NOW - 2 * INTERVAL))
    before = decide(home, "--round", middle)
    feed(home, "future", [s for s in samples if int(s["time_unix_us"]) >= cut])
    home.run("decide", "initcwnd")
    assert decide(home, "--round", middle) == before


def test_a_round_that_was_decided_differently_is_replaced_as_a_whole(home: Home) -> None:
    feed(home, "a", [s for c in connections(3) + connections(3, dst="nyc", first=30) for s in polls(c, NOW, FULL)])
    home.run("decide", "initcwnd")
    assert len(stored(home)) == 2
    store = home.open()
    store.execute("delete from tcp_samples where dst_pop = 'nyc'")
    store.close()
    home.run("rollup", "--round", instants.show(NOW))
    home.policy.write_text("initcwnd: {duty_rounds: 1, cmax: 30}\n")
    home.run("decide", "initcwnd")
    [row] = stored(home)
    assert (row["dst_pop"], row["initcwnd"], row["reason"]) == ("fra", 30, "clamped_to_cmax")


@together
def test_silence_holds_then_withdraws() -> Iterator[Sent]:
    """The host goes on polling: what it polls is idle."""
    busy = [s for c in connections(3) for s in polls(c, NOW - 4 * INTERVAL, FULL)]
    idle = [
        s
        for later in range(1, 5)
        for s in polls(connections(1, dst="nyc", first=90)[0], NOW - (4 - later) * INTERVAL, 0, number=later)
    ]
    yield (sent := Sent(busy + idle, "initcwnd: {duty_rounds: 1, ttl_s: 900}\n", rounds=5))
    sent.decide_all()
    assert [(row["action"], row["reason"]) for row in sent.stored() if row["dst_pop"] == "fra"] == [
        ("set", "learnt"),
        ("set", "held_no_evidence"),
        ("set", "held_no_evidence"),
        ("withdraw", "expired"),
    ]


def two_hosts(
    round_unix_s: int, number: int, hosts: tuple[str, ...] = ("ams-1", "ams-2"), cwnd: int = 40
) -> list[Sample]:
    """Traffic of two hosts in ams, each with connections of its own to fra."""
    return [
        s
        for index, host in enumerate(("ams-1", "ams-2"))
        if host in hosts
        for c in connections(3, cwnd, first=1 + 10 * index)
        for s in polls(Socket(**{**vars(c), "host": host}), round_unix_s, FULL, start=number * FULL, number=number)
    ]


def test_where_half_of_the_hosts_are_missing_the_last_decisions_stay_for_a_while(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    law = "initcwnd: {duty_rounds: 1, history_weight: 0, falling_history_weight: 0}\n"
    home.policy.write_text("completeness: {memory_rounds: 2}\n" + law)
    one = two_hosts(NOW, 1, ("ams-1",), cwnd=90) + two_hosts(NOW + INTERVAL, 2, ("ams-1",), cwnd=90)
    feed(home, "a", two_hosts(NOW - INTERVAL, 0) + one)
    [before] = decide(home, "--round", instants.show(NOW - INTERVAL))
    file = tmp_path / "springtide.prom"
    answer = home.json("decide", "initcwnd", "--metrics", file, code=3)
    assert answer["incomplete"] == {"ams": "1 of 2 hosts sent samples"}
    [decision] = answer["decisions"]
    assert (decision["initcwnd"], decision["reason"]) == (before["initcwnd"], "held_incomplete_input")
    assert (before["initcwnd"], before["reason"]) == (40, "learnt")
    assert 'springtide_input_incomplete{law="initcwnd",pop="ams"} 1' in file.read_text().splitlines()
    assert 'springtide_input_hosts{law="initcwnd",pop="ams"} 1' in file.read_text().splitlines()
    error = home.run("decide", "initcwnd", code=3).stderr
    assert "ams: 1 of 2 hosts sent samples; the last decisions stay in force until they expire" in error
    assert "too little of the round arrived from ams" in home.run("explain", "ams", "fra").stdout
    # A removed host is expected only so long.
    monkeypatch.setattr(instants, "now", lambda: NOW + INTERVAL + 90)
    assert home.json("decide", "initcwnd")["incomplete"] == {}
    # As soon as the other one sends samples, the round is decided from them.
    feed(home, "b", two_hosts(NOW, 1, ("ams-2",), cwnd=90))
    home.run("rollup", "--round", instants.show(NOW))
    answer = home.json("decide", "initcwnd", "--round", instants.show(NOW), "--metrics", file)
    assert (answer["incomplete"], answer["decisions"][0]["initcwnd"]) == ({}, 90)
    assert 'springtide_input_incomplete{law="initcwnd",pop="ams"} 0' in file.read_text().splitlines()


def test_where_half_of_the_polls_are_missing_the_last_decisions_stay(home: Home) -> None:
    home.policy.write_text("initcwnd: {duty_rounds: 1}\n")
    missing = {113, 114, 115}
    both = two_hosts(NOW - INTERVAL, 1) + two_hosts(NOW, 2, cwnd=90)
    feed(home, "a", [s for s in both if s["poll_sequence"] not in missing])
    home.run("decide", "initcwnd", "--round", instants.show(NOW - INTERVAL))
    answer = home.json("decide", "initcwnd", code=3)
    assert answer["incomplete"] == {"ams": "18 of 36 rows arrived"}
    assert answer["decisions"][0]["reason"] == "held_incomplete_input"


@together
def test_dry_run_writes_nothing() -> Iterator[Sent]:
    yield (sent := Sent(rounds_of_traffic([40])))
    assert len(sent.decide("--dry-run")) == 1
    assert sent.stored() == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("yesterday", "'yesterday' is not an instant; write it as 2026-01-02T03:05:00Z, or as -90m, -6h or -2d"),
        ("-1y", "'-1y' is not an instant"),
        ("-1.5h", "is not an instant"),
        ("-999999d", "is before 1970"),
        ("2026-01-02T03:05:00", "is not an instant"),
        ("2026-1-2T03:05:00Z", "is not an instant"),
        (
            "2026-01-02T02:56:00Z",
            "is not a multiple of round.interval_s = 300; the nearest rounds are 2026-01",
        ),
        ("2106-01-02T03:05:00Z", "has not closed yet"),
        ("1970-01-01T00:00:00Z", "is not a multiple"),
    ],
)
def test_an_instant_that_is_not_a_round_is_refused(bare_home: Home, given: str, message: str) -> None:
    [line] = bare_home.refused("decide", "initcwnd", "--round", given)
    assert message in line


@pytest.mark.parametrize(
    ("given", "moment"),
    [
        ("-0m", "2026-01-02T03:05:00Z"),
        ("-5m", "2026-01-02T03:00:00Z"),
        ("-6h", "2026-01-01T21:05:00Z"),
        ("-2d", "2025-12-31T03:05:00Z"),
    ],
)
def test_a_round_may_be_given_by_how_long_ago_it_was(monkeypatch: pytest.MonkeyPatch, given: str, moment: str) -> None:
    monkeypatch.setattr(instants, "now", lambda: instants.parse("2026-01-02T03:05:00Z") + 299)
    assert instants.show(instants.parse_round(given, INTERVAL)) == moment


@together
def test_a_timers_round_is_one_whose_samples_had_their_time() -> Generator[Sent, pytest.FixtureRequest]:
    """A minute by default."""
    request = yield (sent := Sent(rounds_of_traffic([40, 40]), rounds=2))
    for later, moment in ((59, NOW - INTERVAL), (60, NOW)):
        request.getfixturevalue("monkeypatch").setattr(instants, "now", lambda later=later: NOW + later)
        assert sent.ours().json("decide", "initcwnd", "--round", "due")["round"] == instants.show(moment)
        assert sent.ours().json("decide", "initcwnd")["round"] == instants.show(NOW)


def test_all_laws_decide_at_one_instant(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a clock goes on, by half a round each time that it is read. Without a folder for metrics there are none."""
    seconds = itertools.count(NOW + 60, INTERVAL // 2)
    monkeypatch.setattr(instants, "now", lambda: next(seconds))
    done = home.run("decide", "all", "--round", "due", "--json", "--metrics-dir", tmp_path / "metrics", code=3)
    decided = json.loads(done.stdout)
    assert list(decided) == [law.name for law in LAWS]
    assert {law["round"] for law in decided.values()} == {instants.show(NOW)}
    assert {path.name for path in (tmp_path / "metrics").iterdir()} == {f"springtide-{law}.prom" for law in decided}
    assert len(done.stderr.splitlines()) == 1, "each law says the same"
    monkeypatch.chdir(tmp_path)
    again = ("decide", "all", "--round", instants.show(NOW))
    assert "initcwnd:" in home.run(*again, "--metrics-dir", "", code=3).stdout
    assert {path.name for path in tmp_path.iterdir() if path.suffix == ".prom"} == set()
    home.open().execute("drop view round_prefix_rates")
    failed = home.run(*again, code=1)
    assert "initcwnd:" in failed.stdout
    assert failed.stderr.splitlines()[0] == "springtide: congestion is not decided, nor are the laws after it:"


def test_what_all_laws_warn_of_is_said_once(home: Home, tmp_path: Path) -> None:
    (home.publish_dir / "journal.jsonl").mkdir(parents=True)
    (tmp_path / "file").touch()
    said = home.run("decide", "all", "--metrics-dir", tmp_path / "file", code=3).stderr.splitlines()
    assert [line.count("springtide: ") for line in said] == [1] * (1 + len(LAWS) + 1), said
    assert sum("journal.jsonl: cannot be read" in line for line in said) == 1
    assert sum("choose another place for metrics; the round is decided" in line for line in said) == len(LAWS)


@together
def test_metrics_that_cannot_be_written_keep_no_round_from_being_decided() -> Iterator[Sent]:
    yield (sent := Sent(rounds_of_traffic([40])))
    assert len(sent.decide("--metrics", "/nonexistent/x.prom")) == 1
    assert len(sent.stored()) == 1


def test_nothing_seen_is_nothing_decided(home: Home) -> None:
    answer = home.json("decide", "initcwnd", code=3)
    assert (answer["decisions"], answer["pairs_without_samples"]) == ([], 6)
    assert "no host sent samples" in home.run("decide", "initcwnd", code=3).stderr


@together
def test_explain_shows_value_inputs_rule_history_and_what_would_change_it() -> Iterator[Sent]:
    yield (sent := Sent(rounds_of_traffic([40, 80]), SMOOTH, rounds=2))
    sent.decide_all()
    screen = sent.explain("ams", "fra")
    for text in (
        "decided       60 segments\n",
        "in force      the kernel's default of 10 segments: no publication has reached its edges",
        "3 of 3 live connections earned their window (80.0, 80 to 80)",
        "smoothed with 40.0 from before it gives 60.0",
        "one more round like this one makes it 70",
    ):
        assert text in screen
    assert screen.count("learnt") == 2
    assert len(screen.splitlines()) < 40
    machine = sent.ours().json("explain", sent.own("ams"), sent.own("fra"))["initcwnd"]
    [decision] = machine["decisions"]
    assert (decision["initcwnd"], decision["action"]) == (60, "set")
    assert machine["history"][0] == decision
    assert len(machine["history"]) == 2


@together
def test_explain_names_the_bound() -> Iterator[Sent]:
    yield (sent := Sent(rounds_of_traffic([80]), "initcwnd: {duty_rounds: 1, cmax: 50, history_weight: 0.5}\n"))
    sent.decide_all()
    explanation = sent.explained("ams", "fra")
    assert explanation["rule"] == "initcwnd.cmax"
    assert explanation["would_change"].startswith("a window below 50 in the next round")


@together
def test_explain_shows_why_there_is_no_value() -> Iterator[Sent]:
    thin = [s for c in connections(1) for s in polls(c, NOW, FULL)]
    idle = [s for c in connections(4, src="fra", dst="nyc") for s in polls(c, NOW, 0)]
    yield (sent := Sent(thin + idle))

    def because(src: str, dst: str) -> str:
        explanation = sent.explained(src, dst)
        assert "kernel's default of 10" in explanation["decided"]
        return str(explanation["because"])

    assert "has not been decided" in because("ams", "fra")
    sent.decide_all()
    assert "1 of 1 live connections earned their window" in because("ams", "fra")
    assert "0 of 4 live connections earned their window" in because("fra", "nyc")
    assert "no sample of a live connection from nyc to ams" in because("nyc", "ams")


def test_explain_of_an_unknown_pop_helps(bare_home: Home) -> None:
    [line] = bare_home.refused("explain", "ams", "nyk")
    assert line.endswith("'nyk' is not in the fleet; did you mean nyc?")
    [line] = bare_home.refused("explain", "ams", "ams")
    assert line.endswith("name two PoPs")


EDGE_OVERRIDES = """
initcwnd: {duty_rounds: 1}
overrides:
  - {src: ams, dst: fra, edges: [ams-2], ip_version: 4, initcwnd: 20, until: '2099-01-01T00:00:00Z', reason: old host}
  - {src: ams, dst: fra, edges: [ams-2, ams-1], ip_version: 4, initcwnd: 90, until: '2000-01-01T00:00:00Z', reason: x}
  - {src: ams, dst: nyc, edges: [ams-1], ip_version: 4, initcwnd: 30, until: '2099-01-01T00:00:00Z', reason: trial}
  - {src: fra, dst: ams, edges: [fra-1], initcwnd: null, until: '2099-01-01T00:00:00Z', reason: broken card}
"""


def windows(sent: Sent, edge: str) -> dict[str, int]:
    document = json.loads((sent.home.path / "out" / f"{sent.own(edge)}.json").read_bytes())
    return {route["prefix"]: route["initcwnd"] for route in document["entries"]}


@together
def test_an_override_for_edges_reaches_these_and_leaves_the_pair_alone() -> Iterator[Sent]:
    samples = [
        s
        for src, dst in (("ams", "fra"), ("fra", "ams"))
        for c in connections(3, 40, src, dst)
        for s in polls(c, NOW, FULL)
    ]
    yield (sent := Sent(samples, EDGE_OVERRIDES))
    first = sent.ours().json("decide", "initcwnd")
    assert {(d["src_pop"], d["dst_pop"], d["ip_version"]): d["initcwnd"] for d in sent.named(first["decisions"])} == {
        ("ams", "fra", 4): 40,
        ("ams", "nyc", 4): None,
        ("fra", "ams", 4): 40,
        ("fra", "ams", 6): None,
    }
    sent.home.run("bundle", "--out", sent.home.path / "out")
    fra, nyc = sent.own("10.77.2.0/24"), sent.own("10.77.3.0/24")
    assert windows(sent, "ams-1") == {fra: 40, nyc: 30}
    assert windows(sent, "ams-2") == {fra: 20}
    assert windows(sent, "fra-1") == {}
    said = sent.explain("ams", "fra")
    assert "but on ams-2, IPv4: 20 segments until 2099-01-01T00:00:00Z: old host" in said
    [edge_value] = sent.home.json("explain", sent.own("ams"), sent.own("nyc"))["initcwnd"]["edges"]
    assert (sent.said(edge_value["edge"]), edge_value["initcwnd"], edge_value["why"]) == ("ams-1", 30, "trial")

    # Again changes nothing; without the words nothing of them stays.
    table = "select * from initcwnd_edge_decisions final order by all"
    before = sent.home.query(table)
    assert sent.home.json("decide", "initcwnd")["edge_decisions"] == first["edge_decisions"]
    assert sent.home.query(table) == before
    assert len(before) == 4
    sent.rule("initcwnd: {duty_rounds: 1}\n")
    [of_ams] = [row for row in sent.decide() if row["src_pop"] == "ams"]
    assert of_ams["initcwnd"] == 40
    assert sent.home.query(table) == []


def test_an_override_of_another_pops_edge_is_found_by_check(bare_home: Home) -> None:
    bare_home.policy.write_text(EDGE_OVERRIDES.replace("[fra-1]", "[ams-1, ams-1]"))
    lines = bare_home.refused("check")
    assert [line.split("overrides[3].")[1].split(";")[0] for line in lines] == [
        "edges: names an edge twice",
        "edges[0]: 'ams-1' is not an edge of fra",
        "edges[1]: 'ams-1' is not an edge of fra",
    ]
    bare_home.policy.write_text(EDGE_OVERRIDES.replace("[fra-1]", "[nyc-1]"))
    [line] = bare_home.refused("check")
    assert "overrides[3].edges[0]: 'nyc-1' is not an edge of fra; name edges of the override's src" in line


def test_a_ceiling_outlives_the_value_a_gap_of_days_and_the_store(home: Home) -> None:
    """Explain shows what it is, and what raises it."""
    home.policy.write_text("initcwnd: {duty_rounds: 1}\n")
    policy = load_policy(home.policy)
    store = home.open()
    publish_fleet(store, load_fleet(home.fleet))
    rounds = [NOW - 864_000, NOW - 864_000 + INTERVAL, NOW]
    pair = {"generation": 1, "src_pop": "ams", "dst_pop": "fra", "ip_version": 4, "connections_seen": 5}
    shown = {"connections_earned": 5, "cwnd_sum": 400, "cwnd_weight": 5, "min_cwnd": 80, "max_cwnd": 80}
    store.insert(
        "rollup_pairs",
        [
            pair | shown | {"round": moment, "young_connections": young, "young_lossy_connections": young}
            for moment, young in zip(rounds, (0, 50, 0), strict=True)
        ],
    )
    store.insert("rollups", [{"round": moment, "generation": 1, "interval_s": INTERVAL} for moment in rounds])
    for moment in rounds:
        last = decisions.previous(store, moment, policy)
        found = decide_initcwnd(moment, policy, pair_observations(store, moment), last)
        decisions.WINDOWS.write_round(store, moment, found, policy.version)
    store.close()
    assert [(row["initcwnd"], row["reason"], row["ceiling_initcwnd"]) for row in stored(home)] == [
        (80, "learnt", 0),
        (10, "loss_guard", 10),
        (10, "loss_guard_hold", 10),
    ]
    cut = home.run("explain", "ams", "fra", "--round", instants.show(rounds[1])).stdout
    assert "50 of 50 young connections lost some of their first flight that started with 80 segments" in " ".join(
        cut.split()
    )
    screen = " ".join(home.run("explain", "ams", "fra").stdout.split())
    assert "80 did harm, and the ceiling is 10 until it is judged clean" in screen
    assert "20 young connections with 10 segments that lose nothing (0 so far)" in screen

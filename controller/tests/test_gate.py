"""`springtide gate`: new connections after a wave beside new ones before it, on changed and on unchanged edges.

Long: one judgement from all sides, over one set of connections.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from springtide import instants
from springtide.gate.connections import read
from springtide.gate.judge import (
    Destination,
    Inputs,
    Kind,
    Tally,
    Verdict,
    Windows,
    chance_of_look,
    decide,
)
from springtide.gate.proportions import Share, deviate, pooled, rise, wilson
from springtide.policy import GatePolicy
from springtide.publication import journal
from springtide.publication.folder import PublishFolder

import testkit.published
from testkit.bottleneck import MSS, Counters, Path, records, sample, transfer
from testkit.home import ROUND, Home

SINCE = ROUND + 120
NOW = ROUND + 240
FRESH: dict[str, float | None] = {"ams-1": 5.0}
NYC, CLIENT = "::ffff:10.77.3.1", "::ffff:192.0.2.7"


def tally(count: int = 100, **more: int) -> Tally:
    base = Tally(count, count, count * 2 // 100, 0, 0, count, 0, count, 0, count, count // 10)
    return replace(base, **more)


def one(before: Tally, after: Tally) -> Windows:
    return {"before": before, "after": after}


CLEAN = one(tally(), tally())
LOSSY = one(tally(), tally(young_lost=31))


def inputs(
    changed: dict[str, Windows],
    unchanged: dict[str, Windows],
    kind: Kind = Kind.WINDOWS,
    silence: dict[str, float | None] = FRESH,
) -> Inputs:
    return Inputs({(kind, True): changed, (kind, False): unchanged}, silence)


@pytest.mark.parametrize(
    ("changed", "unchanged", "kind", "silence", "verdict", "reason"),
    [
        (
            CLEAN,
            CLEAN,
            Kind.WINDOWS,
            FRESH,
            Verdict.GO,
            "2 of 100 new connections lost of their first flight, 2 of",
        ),
        (CLEAN, None, Kind.WINDOWS, FRESH, Verdict.GO, "no unchanged edges to compare with"),
        (
            one(tally(), tally(young_lost=31)),
            one(tally(500), tally(400)),
            Kind.WINDOWS,
            FRESH,
            Verdict.ROLL_BACK,
            "31 of 100 new connections lost of their first flight, 2 of 100 before; unchanged edges 8 of 400 and 10 of",
        ),
        (LOSSY, None, Kind.WINDOWS, FRESH, Verdict.ROLL_BACK, "31 of 100 new connections lost"),
        # It came over everyone.
        (LOSSY, LOSSY, Kind.WINDOWS, FRESH, Verdict.GO, "no worse"),
        # Too few to compare with excuse nothing.
        (LOSSY, one(tally(99), tally(99, young_lost=99)), Kind.WINDOWS, FRESH, Verdict.ROLL_BACK, "31 of 100"),
        # All destinations together: of few to those whose window differs nothing would be known.
        (LOSSY, CLEAN, Kind.KEPT, FRESH, Verdict.ROLL_BACK, "31 of 100 new connections lost"),
        (
            one(tally(), tally(timed_out=30)),
            CLEAN,
            Kind.WINDOWS,
            FRESH,
            Verdict.ROLL_BACK,
            "30 of 100 new connections had a r",
        ),
        (
            one(tally(), tally(failed=30)),
            CLEAN,
            Kind.WINDOWS,
            FRESH,
            Verdict.ROLL_BACK,
            "30 of 100 new connections got",
        ),
        (
            one(tally(), tally(slow=90)),
            CLEAN,
            Kind.WINDOWS,
            FRESH,
            Verdict.ROLL_BACK,
            "connections had an RTT",
        ),
        (
            one(tally(0, grown=100, grown_lossy=20), tally(0, grown=100, grown_lossy=80)),
            CLEAN,
            Kind.WINDOWS,
            FRESH,
            Verdict.ROLL_BACK,
            "80 of 100 new connections sent much again, 20 of 100 before",
        ),
        # Of clients only those beyond the bytes from which on they are treated; separately.
        (LOSSY, CLEAN, Kind.CLIENTS, FRESH, Verdict.GO, "no worse"),
        (
            one(tally(grown=100), tally(grown=100, grown_lossy=70)),
            CLEAN,
            Kind.CLIENTS,
            FRESH,
            Verdict.ROLL_BACK,
            "70 of 100 new connections of clients sent much again",
        ),
        (one(tally(), tally(99)), CLEAN, Kind.WINDOWS, FRESH, Verdict.WAIT, "99 of 100 new connections"),
        (CLEAN, CLEAN, Kind.WINDOWS, {"ams-1": None}, Verdict.WAIT, "from ams-1"),
        (CLEAN, CLEAN, Kind.WINDOWS, {"ams-1": 61.0}, Verdict.WAIT, "within 60 s from ams-1"),
        # Harm that is seen does not wait for a collector.
        (LOSSY, CLEAN, Kind.WINDOWS, {"ams-1": None}, Verdict.ROLL_BACK, "31 of 100"),
        # Before there was nothing: then the wave accounts for all of it.
        (
            {"after": tally(young_lost=31)},
            None,
            Kind.WINDOWS,
            FRESH,
            Verdict.ROLL_BACK,
            "31 of 100 new connections lost",
        ),
    ],
)
def test_the_verdict(
    changed: Windows,
    unchanged: Windows | None,
    kind: Kind,
    silence: dict[str, float | None],
    verdict: Verdict,
    reason: str,
) -> None:
    others = {} if unchanged is None else {"ams-2": unchanged}
    answer = decide(inputs({"ams-1": changed}, others, kind, silence), GatePolicy())
    assert answer.verdict == verdict, answer.reason
    assert reason in answer.reason


def test_kernels_that_count_no_timeouts_are_judged_by_the_rest() -> None:
    old = one(tally(timed=0, tried=0), tally(timed=0, tried=0))
    assert decide(inputs({"a": old}, {"b": old}), GatePolicy()).verdict is Verdict.GO
    harmed = one(old["before"], replace(old["after"], young_lost=31))
    assert decide(inputs({"a": harmed}, {"b": old}), GatePolicy()).verdict is Verdict.ROLL_BACK


def test_an_edge_that_lies_hides_no_harm_of_the_others() -> None:
    harmed = {f"e{number}": one(tally(40), tally(40, young_lost=14)) for number in range(4)}
    clean = one(tally(40), tally(10_000_000, young_lost=0))
    truthful = {f"u{number}": one(tally(40), tally(40)) for number in range(20)}
    for changed, unchanged in (
        ({**harmed, "liar": clean}, truthful),
        # A share that rose as far on an unchanged edge, were it true, would be no fault of the wave.
        (harmed, {**truthful, "liar": one(tally(40), tally(10_000_000, young_lost=10_000_000))}),
        (harmed, {**truthful, "liar": one(tally(10_000_000, young_lost=0), tally(40, young_lost=40))}),
    ):
        answer = decide(inputs(changed, unchanged), GatePolicy())
        assert answer.verdict is Verdict.ROLL_BACK, answer.reason
    # Its word alone is not enough to go on.
    alone = {"liar": clean, **{f"e{number}": one(tally(40), tally(1)) for number in range(4)}}
    answer = decide(inputs(alone, truthful), GatePolicy())
    assert (answer.verdict, answer.judged) == (Verdict.WAIT, False)
    assert "no edge counts for much more than the others" in answer.reason


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=3, max_size=9), st.integers(51, 10**9))
def test_no_claim_moves_the_sum_by_more_than_its_weight(truthful: list[tuple[int, int]], claimed: int) -> None:
    shares = [Share(min(hits, of), of) for hits, of in truthful]
    least = pooled([*shares, Share(0, claimed)], 2.0, 0.0)
    most = pooled([*shares, Share(claimed, claimed)], 2.0, 0.0)
    middle = sorted([*(share.of for share in shares), claimed])[len(shares) // 2]
    assert most.of == least.of
    assert most.hits - least.hits <= 2 * middle + 1e-6
    # Scaled down, an edge keeps its share: equal shares give the same share.
    assert pooled([Share(of / 4, of) for _, of in truthful], 2.0, 0.0).value() == pytest.approx(0.25)


def exact(n: int, p: float) -> list[float]:
    return [comb(n, hits) * p**hits * (1 - p) ** (n - hits) for hits in range(n + 1)]


@pytest.mark.parametrize(("n", "p"), [(20, 0.02), (20, 0.1), (100, 0.02), (100, 0.1), (100, 0.5)])
def test_a_test_errs_no_more_often_than_its_level(n: int, p: float) -> None:
    """By all counts that there can be, without a rise: binomials' chances against the one that it is made for."""
    chance = chance_of_look(1, 1, GatePolicy()) / 4
    weights = exact(n, p)
    wrong = sum(
        weights[before] * weights[after]
        for before in range(n + 1)
        for after in range(before + 1, n + 1)
        if weights[before] * weights[after] > 1e-12
        and rise(Share(before, n), Share(after, n), chance).low > GatePolicy().max_lost_rise
    )
    assert wrong <= chance


def test_intervals_are_those_of_their_sources() -> None:
    """Newcombe 1998, table II, method 10: 56 of 70 and 48 of 80, to 95 %."""
    z = deviate(0.025)
    found = wilson(Share(56, 70), z).minus(wilson(Share(48, 80), z))
    assert (round(found.low, 4), round(found.high, 4)) == (0.0524, 0.3339)
    assert wilson(Share(), z).low == 0.0


def test_the_error_budget_holds_for_any_number_of_waves_and_looks() -> None:
    policy = GatePolicy()
    spent = sum(chance_of_look(wave, look, policy) for wave in range(1, 40) for look in range(1, 40))
    assert spent <= policy.max_false_roll_backs


def rollout(chance: np.random.Generator, harm: float) -> int:
    """The wave at which 3,000 edges in five regions are rolled back; 0: never. Each has 20 new connections a look."""
    changed = 0
    for wave, size in enumerate((5, 15, 45, 135, 405, 1215, 1180), start=1):
        changed += size

        def tally(edges: int, lost: float) -> Tally:
            n = 20 * edges
            young_lost, timed_out, failed = (int(chance.binomial(n, p)) for p in (lost, 0.01, 0.01))
            return Tally(n, n, young_lost, 0, 0, n, timed_out, n, failed)

        groups = {
            (Kind.WINDOWS, True): {"c": one(tally(changed, 0.02), tally(changed, 0.02 + harm))},
            (Kind.WINDOWS, False): {"u": one(tally(3000 - changed, 0.02), tally(3000 - changed, 0.02))},
        }
        for look in (1, 2):
            if decide(Inputs(groups, FRESH, wave, look), GatePolicy()).verdict is Verdict.ROLL_BACK:
                return wave
    return 0


def test_a_rollout_to_3000_edges_is_taken_back_for_harm_and_not_by_chance() -> None:
    assert [rollout(np.random.default_rng(seed), 0.0) for seed in range(100)].count(0) == 100
    assert [rollout(np.random.default_rng(seed), 0.28) for seed in range(40)].count(1) >= 38


def spread_wave(chance: np.random.Generator, edges: tuple[int, int], count: int, harm: float, skewed: bool) -> bool:
    """Whether a wave to these edges, (changed, unchanged), is rolled back; every edge and window has shares of its
    own, 2 % around what is usual."""

    def share(usual: float) -> float:
        if skewed:
            return min(1.0, float(chance.gamma((usual / 0.02) ** 2, 0.02**2 / usual)))
        return min(1.0, max(0.0, chance.normal(usual, 0.02)))

    def drawn(more: float) -> Tally:
        lost, timed_out, failed, slow = (
            int(chance.binomial(count, min(1.0, p))) for p in (share(0.02) + more, share(0.01), share(0.01), share(0.1))
        )
        return Tally(count, count, lost, 0, 0, count, timed_out, count, failed, count, slow)

    groups = {
        (Kind.WINDOWS, changed): {f"e{n}": one(drawn(0), drawn(harm if changed else 0)) for n in range(number)}
        for changed, number in zip((True, False), edges, strict=True)
    }
    return decide(Inputs(groups, FRESH), GatePolicy()).verdict is Verdict.ROLL_BACK


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize(
    ("edges", "count", "seen"),
    [((2, 10), 1000, 0.9), ((5, 50), 1000, 0.98), ((1, 50), 2000, 0.5), ((10, 0), 1000, 0.98)],
)
def test_a_spread_of_edges_and_minutes_is_no_harm(
    edges: tuple[int, int], count: int, seen: float, skewed: bool
) -> None:
    """At most one of a hundred unchanged waves is taken back; 28 points more that lose are seen, of one changed edge in
    half of the waves, whose own spread could be as much."""
    chance = np.random.default_rng(7)
    assert sum(spread_wave(chance, edges, count, 0.0, skewed) for _ in range(400)) <= 4
    assert sum(spread_wave(chance, edges, count, 0.28, skewed) for _ in range(100)) >= 100 * seen


@pytest.mark.parametrize(
    ("changed", "unchanged"),
    [([(10, 310), (200, 500)], [(10, 10), (200, 200)]), ([(20, 400)], [(600, 20)])],
)
def test_what_edges_differ_in_for_good_and_one_that_recovers_excuse_no_harm(
    changed: list[tuple[int, int]], unchanged: list[tuple[int, int]]
) -> None:
    """Of 1,000 connections those that lost, before and after."""

    def group(shares: list[tuple[int, int]]) -> dict[str, Windows]:
        return {
            f"e{n}": one(tally(1000, young_lost=before), tally(1000, young_lost=after))
            for n, (before, after) in enumerate(shares)
        }

    tallies = {(Kind.WINDOWS, True): group(changed), (Kind.WINDOWS, False): group(unchanged)}
    assert decide(Inputs(tallies, FRESH), GatePolicy()).verdict is Verdict.ROLL_BACK


# Where the lab's facts have 29 segments of 69 sent again: a burst into a queue of 41 packets.
SHORT_QUEUE = Path(rate_mbit=50, rtt_s=0.102, queue_packets=41, noise=0.0003)
DEEP_QUEUE = replace(SHORT_QUEUE, queue_packets=400)


def traffic(
    host: str, path: Path, window_after: int, seed: int, to: str = NYC, **more: Any
) -> Iterator[dict[str, Any]]:
    """Of a host polled every 5 s: 20 clean connections that live all along, and fresh ones of 50 to 100 KB all the
    time, whose first window is 10 until SINCE."""
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
    return publish(home, routes=[{"prefix": "10.77.3.0/24", "initcwnd": 100}])


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
            "routes": [],
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
    # What was looked at spends of the budget.
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
    folder = publish(home, congestion=[{"prefix": "192.0.2.0/24", "algorithm": "bbr", "min_object_bytes": 100_000}])

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
            # That first poll shows one that has sent nothing yet, and loses its flight then.
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
            # Anywhere else is not the publication's doing.
            yield sample("ams-1", cookie + 10, at, 904, lost, "::ffff:192.0.2.1", **closed)

    copies = [row for row in rows() if row["cookie"] % 3]
    fill(home, rows(), copies)
    answer = run_gate(home, folder, 4, "--json")["windows"]
    # The clean, the lossy, the repeated, the late, the one that grew before its loss.
    assert answer["lost"]["changed_after"] == {"hits": 200, "of": 500}
    assert "lossy" not in answer
    assert answer["failed"]["changed_after"] == {"hits": 100, "of": 600}


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
    """Connections that the first wave opened on its canary are not what the second one's are compared with."""
    events = (("rollout", "begun", ROUND - 1), ("wave", "applied", ROUND), ("wave", "applied", SINCE))
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

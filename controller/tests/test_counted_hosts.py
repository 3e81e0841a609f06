"""Samples that count: only those of the fleet's edges, each within bounds; every other host is listed by its name.

Long: its cases share the roll-ups of two rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import pytest
from springtide import instants
from springtide.fleet import load_fleet
from springtide.jobs import decide as jobs
from springtide.laws.registry import LAWS
from springtide.observe.completeness import inputs
from springtide.observe.enrich import publish_fleet
from springtide.observe.rollup import rollup
from springtide.policy import load_policy
from springtide.store import Row

from testkit.home import FLEET, ROUND, Home
from testkit.prefixes import INTERVAL, Seen, store_rounds
from testkit.sent import Apart
from testkit.together import together
from testkit.traffic import MSS

pytestmark = pytest.mark.usefixtures("settled")

# Room for the larger of two windows in the round: 200 segments.
FULL = 200 * MSS
EDGES = ("ams-1", "ams-2", "ams-3")
POLICY = """
initcwnd: {duty_rounds: 1}
congestion: {window_rounds: 4, min_rounds: 1, min_prefixes: 2, min_connections: 1, min_samples: 1, min_bytes: 1,
  benefit_rounds: 2, min_stay_s: 600, low_share: 0.5, enter_duty: 0.5, leave_duty: 0.2, max_flap_rate: 1.0,
  holdout_share: 0}
"""


# Three edges in ams.
THREE = FLEET.replace("      ams-2:", "      ams-3: {address: 10.77.1.3}\n      ams-2:")


@pytest.fixture
def home(home: Home) -> Home:
    home.fleet.write_text(THREE)
    home.policy.write_text(POLICY)
    return home


def life(host: str, cookie: int, cwnd: int = 40, dst: str = "10.77.2.9", rounds: int = 2, **more: Any) -> list[Row]:
    """A connection from ams, polled once a minute, that has 200 segments acknowledged in each round up to ROUND."""
    return [
        {
            "time_unix_us": (ROUND - INTERVAL * rounds + 10 + 60 * n) * 1_000_000 + cookie,
            "host": host,
            "pop": "ams",
            "boot_id": f"boot of {host}",
            "netns": 1,
            "poll_sequence": 100 + n,
            "cookie": cookie,
            "kind": "POLL",
            "state": "ESTABLISHED",
            "src_ip": "::ffff:10.77.1.1",
            "dst_ip": f"::ffff:{dst}",
            "snd_cwnd": cwnd,
            "snd_mss": MSS,
            "snd_wnd": 1 << 20,
            "rtt": 20_000,
            # Enough for any window, and another one at each poll.
            "delivery_rate": 90_000_000_000 + n,
            "bytes_acked": 50 * MSS * n,
            "bytes_sent": 50 * MSS * n,
            "bytes_retrans": 0,
            "min_rtt": 19_000,
            "busy_time": 0,
            "sample_weight": 1,
            **more,
        }
        for n in range(5 * rounds)
    ]


def closing(host: str, cookie: int, sent: int, again: int, **more: Any) -> Row:
    """The close of a connection that no poll saw."""
    [row] = life(host, cookie, rounds=2)[-1:]
    counters = {"bytes_acked": sent - again, "bytes_sent": sent, "bytes_retrans": again}
    return {**row, "kind": "CLOSE", "state": "CLOSE", **counters, **more}


def truthful(hosts: Sequence[str] = EDGES, clients: int = 6) -> list[Row]:
    """Connections of each host to fra, with windows of 30 to 50, and to clients of its own."""
    rows = []
    for n, host in enumerate(hosts):
        for c in range(4):
            rows += life(host, 100 * n + c, 30 + 5 * c + n)
        for c in range(clients):
            client = f"192.0.{10 * n + c}.7"
            rows += life(host, 100 * n + 50 + c, dst=client, delivery_rate=100_000 + 10_000 * c + n)
    return rows


def put(home: Home, rows: Iterable[Row]) -> None:
    store = home.open()
    publish_fleet(store, load_fleet(home.fleet))
    store.insert("tcp_samples", list(rows))
    store.close()


def decided(home: Home) -> list[Any]:
    """Both laws' input from the two rounds, computed again."""
    policy, fleet, now = load_policy(home.policy), load_fleet(home.fleet), instants.now()
    store = home.open()
    try:
        for moment in (ROUND - INTERVAL, ROUND):
            rollup(store, moment, INTERVAL, now)
            made = [(law, jobs.decide(law, store, policy, moment, now)) for law in LAWS]
    finally:
        store.close()
    return [(outcome.thin, law.view(outcome, fleet, policy).decisions) for law, outcome in made]


def rogues(home: Home) -> dict[tuple[str, str], int]:
    return {(row["host"], row["why"]): row["times"] for row in home.query(ROGUES)}


ROGUES = "select host, toString(why) as why, times from round_rogues where round = (select max(round) from rollups)"


class Counted(Apart):
    """Rows of two rounds; then what tables have of the second, and both laws' input from the two rounds."""

    fleet = THREE
    decided: Sequence[tuple[dict[str, str], list[dict[str, Any]]]]

    def __init__(self, rows: Iterable[Row]) -> None:
        self.samples = list(rows)

    @classmethod
    def run(cls, home: Home, cases: Sequence[Self]) -> None:
        cls.place(home, cases)
        home.policy.write_text(POLICY)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(instants, "now", lambda: ROUND + 90)
            for case in cases:
                put(home, case.moved(case.samples))
            made = decided(home)
        for case in cases:
            case.decided = [(case.missing(thin), case.named(rows)) for thin, rows in made]

    def missing(self, thin: Mapping[str, str]) -> dict[str, str]:
        return {pop.removeprefix(self.prefix): why for pop, why in thin.items() if pop.startswith(self.prefix)}

    def rows(self, table: str, columns: str = "*") -> list[Row]:
        """Gives those of ROUND."""
        return self.named(self.home.query(f"select {columns} from {table} where toUnixTimestamp(round) = {ROUND}"))

    def rogues(self) -> dict[tuple[str, str], int]:
        return {(row["host"], row["why"]): row["times"] for row in self.named(self.home.query(ROGUES))}


NAMES = ["AMS-1", "ams-1 ", "ams-1\u200b", "\u0430ms-1", "ams-1\n", "\x1b[2Jams", "", "ams_1", "x" * 200]


def test_names_outside_the_fleet_change_nothing_and_are_reported(home: Home) -> None:
    put(home, truthful())
    before = decided(home)
    assert before[0][0] == {}
    assert before[0][1][0]["initcwnd"] is not None
    assert any(row["algorithm"] == "bbr" for row in before[1][1])
    strange: list[Row] = []
    for n, name in enumerate([*NAMES, *(f"edge-{n}" for n in range(20))]):
        for c in range(3):
            # It sends in the first of the two rounds, and nothing in the second.
            rows = life(name, c, 700, bytes_acked=2**40, dst=f"198.51.{c}.7" if n % 2 else "10.77.2.9")
            strange += [{**row, "pop": "p" * 70 if n % 3 else "ams"} for row in rows[: 5 if n % 4 else 10]]
    # And one from the future.
    strange.append({**strange[0], "host": "edge-77", "time_unix_us": (ROUND + 4_000_000) * 1_000_000})
    put(home, strange)
    assert decided(home) == before
    kept = home.query("select count() as n from tcp_samples where host not in (select edge from fleet_edges)")
    assert kept == [{"n": len(strange)}]
    found = rogues(home)
    assert {why for _, why in found} == {"not_in_fleet"}
    # Every fourth went on.
    assert {name for name, _ in found} == {name for n, name in enumerate(NAMES) if n % 4 == 0} | {
        f"edge-{n}" for n in range(20) if (n + len(NAMES)) % 4 == 0
    }
    where = ("--publish-dir", home.path / "publish")
    output = home.run("status", *where, code=1).stdout
    assert "do not count: " in output
    assert "AMS-1 (not in fleet.yaml, 15 samples)" in output
    assert "in the future" not in output
    advice = home.run("doctor", "--site", *where, code=1).stdout
    assert "add it to fleet.yaml" in advice
    assert all(c.isprintable() or c == "\n" for c in output + advice)


def test_more_names_than_anybody_reads_are_counted(home: Home) -> None:
    own = [{**row, "snd_mss": 2**32 - 1} for row in life("ams-1", 99, rounds=1)]
    put(home, truthful(EDGES[:1]) + own + [row for n in range(150) for row in life(f"bot-{n}", 1, rounds=1)])
    home.run("rollup", "--round", instants.show(ROUND))
    found = home.query("select host, times, hosts from round_rogues")
    assert len(found) == 102
    assert "do not count: ams-1 (impossible values" in home.run("status", code=None).stdout
    assert [row for row in found if not row["host"]] == [{"host": "", "times": 50 * 5, "hosts": 50}]


IMPOSSIBLE: list[dict[str, Any]] = [
    {"snd_cwnd": 1_000_000},
    {"snd_cwnd": 2**32 - 1, "snd_mss": 1},
    {"snd_mss": 2**32 - 1},
    {"snd_wnd": 2**32 - 1},
    {"rtt": 2**32 - 1},
    {"min_rtt": 2**32 - 2},
    {"delivery_rate": 2**64 - 1},
    {"bytes_acked": 2**64 - 1},
    {"bytes_acked": 2**53 + 1},
    {"bytes_sent": 2**63},
    {"bytes_retrans": 2**64 - 2},
    {"busy_time": 2**64 - 1},
]


@together
def test_values_that_no_connection_can_have_are_left_out_and_reported() -> Iterator[list[Counted]]:
    bad: list[Row] = []
    for n, values in enumerate(IMPOSSIBLE):
        for dst in ("10.77.2.9", "192.0.0.7"):
            rows = life("ams-1", 1000 + 2 * n + (dst[0] == "1" and dst[1] == "9"), 60, dst)
            # Only the last poll of each round has it.
            bad += [{**row, **(values if at % 5 == 4 else {})} for at, row in enumerate(rows)]
    without, beside = Counted(truthful()), Counted(truthful() + bad)
    yield [without, beside]
    assert without.decided[0][1][0]["initcwnd"] is not None
    assert any(row["algorithm"] == "bbr" for row in without.decided[1][1])
    assert beside.decided == without.decided
    assert beside.rogues() == {("ams-1", "impossible_values"): 2 * len(IMPOSSIBLE)}
    kept = beside.home.query("select host, count() as n from tcp_samples where cookie >= 1000 group by host")
    assert beside.named(kept) == [{"host": "ams-1", "n": len(bad)}]


@together
def test_sums_end_at_their_bound_and_do_not_wrap() -> Iterator[Counted]:
    """Each at the largest possible value: together beyond 64 bits."""
    most = 2**53 - 1
    yield (counted := Counted(closing("ams-1", n, most, 0, busy_time=most) for n in range(2100)))
    rows = counted.rows("round_outcomes", "host, bytes_sent, busy_sum_us")
    assert [sum(row[name] for row in rows) for name in ("bytes_sent", "busy_sum_us")] == [2**63 - 1, 2**63 - 1]
    assert [row["young_connections"] for row in counted.rows("round_pairs")] == [0]


LIES: dict[str, tuple[dict[str, Any], int]] = {
    "wide windows": ({"snd_cwnd": 20_000, "gained": 10**10}, 3),
    "many sockets": ({"snd_cwnd": 90}, 400),
    "heavy sockets": ({"snd_cwnd": 90, "sample_weight": 2**32 - 1}, 3),
    "all of it": ({"snd_cwnd": 700_000, "sample_weight": 65_535, "gained": 10**12}, 100),
    "windows of one": ({"snd_cwnd": 1, "sample_weight": 65_535}, 100),
    "one of ten is wide": ({"snd_cwnd": 1, "tenth": 20_000, "sample_weight": 65_535, "gained": 10**10}, 100),
}


@together
def test_one_edge_of_three_moves_its_pair_by_half_at_most() -> Iterator[list[Counted]]:
    true = [row for host in EDGES[:2] for c in range(10) for row in life(host, c, 40)]
    cases = []
    for changes, sockets in LIES.values():
        values = dict(changes)
        gained, tenth = values.pop("gained", 50 * MSS), values.pop("tenth", None)
        lies = [
            {**row, "bytes_acked": gained * (row["poll_sequence"] - 100)}
            for c in range(sockets)
            for row in life("ams-3", c, **(values | ({"snd_cwnd": tenth} if tenth and c % 10 == 0 else {})))
        ]
        cases.append(Counted(true + lies))
    yield cases
    for case, (lie, (changes, sockets)) in zip(cases, LIES.items(), strict=True):
        [pair] = case.rows("pairs")
        assert pair["connections_earned"] == 20 + sockets
        for name in ("cwnd_mean", "cwnd_by_traffic"):
            assert 30 <= pair[name] <= 60, (lie, name, pair)
        # The middle of a distribution that is made up for it is as far as the bound reaches.
        for name in ("cwnd_p50",) if "tenth" in changes else ("cwnd_p10", "cwnd_p50", "cwnd_p90"):
            assert 20 <= pair[name] <= 80, (lie, name, pair)


@together
def test_one_edge_of_three_hides_no_loss_and_narrows_no_receiver() -> Iterator[Counted]:
    lossy = [closing(host, c, 20 * MSS, 4 * MSS) for host in EDGES[:2] for c in range(20)]
    clean = [closing("ams-3", c, 20 * MSS, 0, snd_wnd=MSS, sample_weight=65_535) for c in range(3000)]
    witness = [row for host in EDGES for row in life(host, 9999)]
    yield (counted := Counted(lossy + clean + witness))
    [pair] = counted.rows("round_pairs")
    # All of theirs lost; of the third edge as many count as of the other two.
    assert (pair["young_connections"], pair["young_lossy_connections"]) == (80, 40)
    assert pair["young_rwnd_p50"] in (1, (1 << 20) // MSS)


@together
def test_of_two_edges_that_differ_the_lower_one_bounds_the_other() -> Iterator[Counted]:
    rows = [row for host, cwnd in (("ams-1", 20), ("ams-2", 150)) for c in range(5) for row in life(host, c, cwnd)]
    yield (counted := Counted(rows))
    assert [(row["cwnd_mean"], row["cwnd_max"]) for row in counted.rows("pairs")] == [(30, 40)]


@together
def test_an_edge_counts_for_its_own_pop_only() -> Iterator[list[Counted]]:
    """Whatever PoP it sends, and whichever address it claims."""
    to: dict[str, Any] = {"dst": "10.77.3.9", "src_ip": "::ffff:10.77.2.1", "pop": "fra"}
    rows = truthful() + [row for c in range(5) for row in life("fra-1", c, 45, **to)]
    claims = [row for c in range(20) for row in life("nyc-1", c, 90, **to)]
    before, after = Counted(rows), Counted(rows + claims)
    yield [before, after]
    assert after.decided[0] == before.decided[0]
    assert {row["prefix"] for row in after.decided[1][1] if row["pop"] == "fra"} == set()
    assert after.rogues() == {("nyc-1", "other_pop"): 100}
    of_nyc = [row for row in after.rows("round_sockets", "distinct host, pop, src_pop") if row["host"] == "nyc-1"]
    assert of_nyc == [{"host": "nyc-1", "pop": "nyc", "src_pop": ""}]


@together
@pytest.mark.parametrize(
    "numbers", [[299 * n for n in range(10)], [1, 2**40, 9, 2**41, 4, 5, 2**64 - 2, 3, 2**63 + 9, 7]]
)
def test_jumping_poll_numbers_freeze_no_pop_and_are_reported(numbers: list[int]) -> Iterator[Counted]:
    odd = [{**row, "poll_sequence": numbers[n]} for c in range(4) for n, row in enumerate(life("ams-3", c, 41))]
    # As many, as if it had been left out: an edge does not choose how much is expected of it.
    yield (counted := Counted(truthful(EDGES[:2]) + odd))
    (missing, windows), *_ = counted.decided
    assert missing == {}
    assert windows[0]["reason"] == "learnt"
    assert [name for name, why in counted.rogues() if why == "poll_numbers"] == ["ams-3"]


@together
def test_an_edge_that_sends_much_and_then_nothing_freezes_no_pop() -> Iterator[Counted]:
    many_samples = [row for c in range(300) for row in life("ams-3", c)[:5]]
    yield (counted := Counted(truthful(EDGES[:2]) + many_samples))
    assert counted.decided[0][0] == {}


@together
def test_two_machines_with_one_name_are_reported() -> Iterator[Counted]:
    second_boot = [
        {**row, "boot_id": "before" if n < 7 else "after", "poll_sequence": n % 7 + 1}
        for n, row in enumerate(life("ams-2", 7))
    ]
    second_machine = [
        {**row, "boot_id": "another", "cookie": 9, "poll_sequence": 5 + n} for n, row in enumerate(life("ams-1", 8))
    ]
    yield (counted := Counted(truthful(EDGES[:1]) + second_boot + second_machine))
    assert counted.rogues() == {("ams-1", "several_boots"): 2}
    assert "two machines have one name" in counted.home.run("doctor", "--site", code=1).stdout


def many(host: str, lost: range, closed: range, *, reported: bool = True, idle: bool = False) -> list[Row]:
    """40 connections; of those in `lost` the last two minutes show nothing, of those in `closed` a close comes then."""
    rows = []
    for c in range(40):
        polls = life(host, c, 30 + c % 10)
        if c in lost or c in closed:
            polls = polls[:8]
        if idle and c % 2:
            polls = [row for n, row in enumerate(polls) if n in (0, 4, 5, 9)]
        rows += polls
        if c in closed and reported:
            last = polls[-1]
            rows.append({**last, "kind": "CLOSE", "state": "CLOSE", "time_unix_us": last["time_unix_us"] + 1_000_000})
    return rows


@together
@pytest.mark.parametrize(
    ("given", "share", "closes"),
    [
        ({"lost": range(0), "closed": range(30)}, 1.0, (60, 60)),
        ({"lost": range(24), "closed": range(24, 30)}, 0.2, (12, 60)),
        # A collector that leaves closes out, and one that leaves out what has not changed.
        ({"lost": range(0), "closed": range(30), "reported": False}, 1.0, (0, 0)),
        ({"lost": range(24), "closed": range(24, 30), "idle": True}, 1.0, (12, 12)),
    ],
    ids=["all arrive", "most are lost", "no closes", "changes only"],
)
def test_close_records_that_are_lost_count(
    given: dict[str, Any], share: float, closes: tuple[int, int]
) -> Iterator[Counted]:
    yield (counted := Counted(many("ams-1", **given) + many("ams-2", **given)))
    [found] = [one for one in inputs(counted.home.open(), ROUND, INTERVAL, 6) if one.pop == counted.own("ams")]
    assert (found.closes_share, (found.closes_seen, found.closes_expected)) == (share, closes)


@together
def test_where_close_records_are_lost_the_last_decisions_stay() -> Iterator[Counted]:
    lost, closed = range(24), range(24, 30)
    yield (counted := Counted(many("ams-1", lost, closed) + many("ams-2", lost, closed)))
    counted.home.policy.write_text(POLICY)
    answer = counted.home.json("decide", "initcwnd", code=3)
    assert counted.missing(answer["incomplete"]) == {"ams": "12 of 60 close records arrived"}
    assert counted.named(answer["decisions"])[0]["reason"] == "held_incomplete_input"
    counted.home.policy.write_text(POLICY + "completeness: {min_closes: 0}\n")
    assert counted.home.json("decide", "initcwnd")["incomplete"] == {}


def test_invented_prefixes_decide_little_of_who_is_slow(home: Home) -> None:
    """A fifth of 30 truthful prefixes of three edges is slow; one edge more invents 200 that are fast."""
    home.policy.write_text(POLICY.replace("low_share: 0.5", "low_share: 0.2, max_new: 500"))

    def slow(extra: Sequence[Seen]) -> set[str]:
        store = home.open()
        publish_fleet(store, load_fleet(home.fleet))
        for table in ("rollup_prefixes", "rollup_prefix_rates", "rollup_hosts", "rollups", "path_decisions"):
            store.execute(f"truncate table {table}")
        real = [
            Seen(ROUND - age * INTERVAL, "ams", n, 1_000_000 * (n + 1), host=f"ams-{n % 3 + 1}")
            for n in range(30)
            for age in range(3)
        ]
        store_rounds(store, [*real, *extra])
        store.close()
        rows = home.json("decide", "congestion")["decisions"]
        return {row["prefix"] for row in rows if row["algorithm"] == "bbr"}

    invented = [
        Seen(ROUND - age * INTERVAL, "ams", n, 10**9 + n, host="nyc-1") for n in range(40, 240) for age in range(3)
    ]
    alone = slow([])
    assert len(alone) == 6
    assert alone <= slow(invented)
    assert len(slow(invented)) <= 12

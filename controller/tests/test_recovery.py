"""Time after which a lost SYN or SYN-ACK is sent again, and where the beginning of connections is sent twice: from
records to bundles, and back where it does harm.

Long: its cases share the roll-ups of six rounds.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator

import pytest
from springtide import instants
from springtide.bundles.render import render
from springtide.fleet import load_fleet
from springtide.jobs.due import undecided
from springtide.laws.base import Contribution
from springtide.laws.entry import Part
from springtide.laws.recovery.interface import RECOVERY
from springtide.policy import Policy, load_policy

from testkit.home import FLEET, ROUND, Home
from testkit.proto import Value
from testkit.recovered import Recovered
from testkit.together import together
from testkit.traffic import Socket

pytestmark = pytest.mark.usefixtures("settled")

POLICY = "initcwnd: {duty_rounds: 1}\nenforce: {by: bpf}\nrecovery: {handshake: true, window_rounds: 2}\n"
INTERVAL = 300
# The longest case has five rounds more, up to ROUND.
FIRST = ROUND - 5 * INTERVAL
SECOND = FIRST + INTERVAL
THREE_HOSTS = FLEET.replace("      ams-2:", "      ams-3: {address: 10.77.1.3}\n      ams-2:")
FRA, CLIENTS, FEW = "10.77.2.9", "203.0.113.7", "198.51.100.7"
NUMBER = iter(range(1, 1_000_000))


def handshakes(
    moment: int, host: str, peer: str, rtts_ms: list[float], timeout_ms: int = 0, again: int = 0
) -> list[dict[str, Value]]:
    """Records of the round that ends at `moment`; `again` of these handshakes were sent again."""
    found = []
    none = dict.fromkeys(("total_retrans", "started_window", "started_rate", "started_arm", "started_step"), 0)
    for number, rtt_ms in enumerate(rtts_ms):
        one = Socket(host, next(NUMBER), f"10.77.1.{host[-1]}", peer, "ams")
        seen: dict[str, Value] = {
            "data_segs_out": 4,
            "started_round": moment - INTERVAL,
            "started_prefix_length": 24,
            "handshake_rtt": round(1000 * rtt_ms),
            "handshake_timeout_ms": timeout_ms,
            "handshake_retrans": int(number < again),
            "lived_time": 90_000,
        }
        found.append(one.first_flight(moment - 100, moment // INTERVAL, 5000, **none, **seen))
    return found


def flights(
    moment: int, host: str, peer: str, lossy: list[bool], copied: int = 0, again: int = 1, took_ms: int = 200
) -> list[dict[str, Value]]:
    """First flights whose handshakes took longer and longer; a lossy one sent so many segments again."""
    found = handshakes(moment, host, peer, [50.0 + 20 * number / len(lossy) for number in range(len(lossy))])
    for row, is_lossy in zip(found, lossy, strict=True):
        row["first_flight_retrans"] = row["total_retrans"] = again * is_lossy
        row["acked_10k_time"] = 1000 * took_ms
        row["copied_bytes"] = copied
    return found


def every(period: int, count: int) -> list[bool]:
    """One in so many is lossy, whatever its round trip."""
    return [number % period == 0 for number in range(count)]


def timeouts(case: Recovered, moment: int) -> dict[str, dict[str, int]]:
    """By edge, what its bundle has."""
    found = case.bundles(moment)
    return {edge: {one["prefix"]: one["handshake_timeout_ms"] for one in found[edge]["entries"]} for edge in found}


@together
def test_paths_get_the_timeout_that_their_handshakes_ask_for_and_lose_it_where_it_is_in_vain() -> Iterator[Recovered]:
    first = [
        # The slower edge of two counts, and of 99 % of its handshakes the slowest.
        *handshakes(FIRST, "ams-1", FRA, [100.0] * 60),
        *handshakes(FIRST, "ams-2", FRA, [120.0] * 60),
        *handshakes(FIRST, "ams-1", CLIENTS, [*[20.0] * 148, 30.0, 900.0]),
        *handshakes(FIRST, "ams-1", FEW, [20.0] * 99),
    ]
    # Losses hit both arms alike: one handshake in ten. A quarter more, with the path's own timeout, is in vain.
    second = [
        *handshakes(SECOND, "ams-1", FRA, [100.0] * 900, 180, again=90),
        *handshakes(SECOND, "ams-1", FRA, [100.0] * 100, again=10),
        *handshakes(SECOND, "ams-1", CLIENTS, [20.0] * 900, 50, again=315),
        *handshakes(SECOND, "ams-1", CLIENTS, [20.0] * 100, again=10),
    ]
    third, fourth, last = (SECOND + later * INTERVAL for later in (1, 2, 4))
    few = {moment: handshakes(moment, "ams-1", FEW, [20.0]) for moment in (third, fourth, last)}
    yield (case := Recovered(POLICY, {FIRST: first, SECOND: second, **few}))

    assert case.decided(FIRST) == {"fra": ("learnt", 180), "203.0.113.0/24": ("learnt", 50)}
    of_ams = {"10.77.2.0/24": 180, "203.0.113.0/24": 50}
    assert case.decide(FIRST)["written"] == 0
    assert timeouts(case, FIRST) == {"ams-1": of_ams, "ams-2": of_ams, "fra-1": {}, "nyc-1": {}}
    said = case.explained(FIRST)
    assert "a lost SYN or SYN-ACK is sent again after 180 ms" in said
    assert "120 handshakes, of which 99 % took up to 120 ms" in said

    assert case.decided(SECOND) == {"fra": ("held_hysteresis", 180), "203.0.113.0/24": ("spurious", 0)}
    assert timeouts(case, SECOND)["ams-1"] == {"10.77.2.0/24": 180}
    of_clients = case.explanations(SECOND, "203.0.113.7")
    assert [(one["treated_resent"], one["control_resent"]) for one in of_clients] == [(315, 10)]

    # For as long as a bundle lives the one is held and the other stays; then both are gone.
    for moment, wanted in (
        (third, {"fra": ("held_hysteresis", 180), "203.0.113.0/24": ("held_spurious", 0)}),
        (fourth, {"fra": ("held_thin_evidence", 180), "203.0.113.0/24": ("held_spurious", 0)}),
        (last, {"fra": ("expired", 0), "203.0.113.0/24": ("thin_evidence", 0)}),
    ):
        assert case.decided(moment) == wanted
    span = ("--from", instants.show(FIRST), "--to", instants.show(last))
    [replayed] = case.ours().json("replay", "--law", "recovery", *span)["summary"]
    assert (replayed["values_at_the_end"], replayed["values_at_the_end_recorded"]) == (0, 0)


@together
def test_an_override_is_in_bundles_without_evidence_and_ends_by_itself() -> Iterator[Recovered]:
    """Also where the law is off: of both values only what it names."""
    words = f"ip_version: 4, until: '{instants.show(SECOND)}', reason: their firewall"
    policy = (
        "initcwnd: {duty_rounds: 1}\nenforce: {by: bpf}\nrecovery_overrides:\n"
        f"- {{src: ams, to: 203.0.113.0/24, copied_bytes: 3000, {words}}}\n"
        f"- {{src: ams, to: fra, handshake_timeout_ms: 80, copied_bytes: 0, {words}}}\n"
    )
    yield (case := Recovered(policy, {FIRST: [], SECOND: []}))
    both = ("copies_reason", "copied_bytes")
    assert case.decided(FIRST, both) == {"fra": ("override", 0), "203.0.113.0/24": ("override", 3000)}
    entries = [
        {name: value for name, value in one.items() if name in ("prefix", "handshake_timeout_ms", "copied_bytes")}
        for one in case.bundles(FIRST)["ams-1"]["entries"]
    ]
    assert {"prefix": "203.0.113.0/24", "copied_bytes": 3000} in entries
    assert {"prefix": "10.77.2.0/24", "handshake_timeout_ms": 80} in entries
    assert "override: an operator's override in the policy" in case.explained(FIRST)
    case.decided(SECOND)
    gone = case.bundles(SECOND)["ams-1"]["entries"]
    assert not any({"handshake_timeout_ms", "copied_bytes"} & one.keys() for one in gone)


@together
def test_a_round_that_was_not_decided_promises_no_override_that_has_ended() -> Iterator[Recovered]:
    """Two overrides of one path end at different times: the later one stays."""
    word = "src: ams, to: fra, ip_version: 4, reason: a trial"
    values = (("handshake_timeout_ms: 80", 1), ("copied_bytes: 4000", 2))
    lines = (f"- {{{word}, {value}, until: '{instants.show(FIRST + n * INTERVAL)}'}}\n" for value, n in values)
    yield (case := Recovered("enforce: {by: bpf}\nrecovery_overrides:\n" + "".join(lines), {FIRST: []}))
    assert case.decided(FIRST) == {"fra": ("override", 80)}
    parts = case.home.open(), load_fleet(case.home.fleet), load_policy(case.home.policy)
    [given] = RECOVERY.contribute(*parts, SECOND, FIRST + 3600).entries[case.own("ams-1")]
    assert vars(given) == {"prefix": case.own("10.77.2.0/24"), "copied_bytes": 4000}


@together
def test_nothing_is_left_of_an_override_that_did_no_harm() -> Iterator[Recovered]:
    """Two for one path give what each names. Copies of another size than the policy's are judged, too."""
    words = f"ip_version: 4, until: '{instants.show(SECOND)}', reason: a trial"
    policy = (
        f"{BOTH}recovery_overrides:\n- {{src: ams, to: 203.0.113.0/24, copied_bytes: 3000, {words}}}\n"
        f"- {{src: ams, to: fra, handshake_timeout_ms: 80, {words}}}\n"
        f"- {{src: ams, to: fra, copied_bytes: 4000, {words}}}\n"
    )
    clean = [*flights(FIRST, "ams-1", CLIENTS, [False] * 400), *flights(FIRST, "ams-1", FRA, [False] * 400)]
    second = [
        *flights(SECOND, "ams-1", CLIENTS, [False] * 400),
        *flights(SECOND, "ams-1", FRA, every(2, 400), copied=4000),
        *flights(SECOND, "ams-1", FRA, every(20, 400)),
    ]
    yield (case := Recovered(policy, {FIRST: clean, SECOND: second}))
    assert case.decided(FIRST, COPIES) == {"fra": ("override", 4000), "203.0.113.0/24": ("override", 3000)}
    [given] = [one for one in case.bundles(FIRST)["ams-1"]["entries"] if one["prefix"] == "10.77.2.0/24"]
    copies = {"copied_bytes": 4000, "parity_every": 5}
    assert given == {"prefix": "10.77.2.0/24", "handshake_timeout_ms": 80, **copies}
    assert case.decided(SECOND, COPIES) == {"fra": ("copies_harm", 0), "203.0.113.0/24": ("little_loss", 0)}


@together
@pytest.mark.parametrize("section", ["", "recovery: {handshake: false}", "recovery: {handshake: true}"])
def test_nothing_is_decided_where_it_is_off_or_no_edge_runs_the_program(section: str) -> Iterator[Recovered]:
    by = "routes" if "true" in section else "bpf"
    policy = f"initcwnd: {{duty_rounds: 1}}\nenforce: {{by: {by}}}\n{section}\n"
    yield (case := Recovered(policy, {FIRST: handshakes(FIRST, "ams-1", FRA, [100.0] * 200)}))
    assert case.decided(FIRST) == {}
    found = timeouts(case, FIRST)
    assert not any(found.values())


@together
def test_one_that_is_turned_off_makes_no_round_due_and_nothing_late() -> Generator[Recovered, pytest.FixtureRequest]:
    first, second = FIRST - INTERVAL, FIRST + INTERVAL
    shown = {moment: handshakes(moment, "ams-1", FRA, [100.0] * 200) for moment in (first, second)}
    request = yield (case := Recovered(POLICY, shown))
    assert case.decided(first) == {"fra": ("learnt", 150)}
    case.rule(POLICY.replace("handshake: true", "handshake: false"))
    assert case.decided(second) == {}
    assert not any(timeouts(case, second).values())
    assert undecided(case.home.open(), load_policy(case.home.policy), second) == []
    request.getfixturevalue("monkeypatch").setattr(instants, "now", lambda: second + 90)
    [step] = [one for one in case.home.json("status", code=1)["steps"] if one["what"] == "recovery"]
    assert (step["state"], step["fix"]) == ("note", "")


@together
def test_what_one_host_invents_changes_little_where_three_are() -> Iterator[Recovered]:
    others = [
        one
        for host in ("ams-1", "ams-2")
        for one in [
            *handshakes(FIRST, host, CLIENTS, [20.0] * 900, 50, again=9),
            *handshakes(FIRST, host, CLIENTS, [20.0] * 100, again=1),
        ]
    ]
    invented = handshakes(FIRST, "ams-3", CLIENTS, [4_294_967.0] * 5000, 50, again=5000)
    yield (case := Recovered(POLICY, {FIRST: [*others, *invented]}, THREE_HOSTS))
    assert case.decided(FIRST) == {"203.0.113.0/24": ("learnt", 50)}
    [row] = case.stored()
    counts = ("treated", "treated_resent", "control", "control_resent")
    assert tuple(int(row[name]) for name in counts) == (1800, 18, 200, 2)


@together
def test_control_is_of_the_same_bundles_and_the_newest_timeout() -> Iterator[Recovered]:
    rows = [
        # Before anything was given, nothing was lost; a shorter timeout did harm; then as much is lost with both.
        *handshakes(FIRST, "ams-1", CLIENTS, [20.0] * 3000),
        *handshakes(FIRST, "ams-1", CLIENTS, [20.0] * 900, 50, again=500),
        *handshakes(FIRST, "ams-1", CLIENTS, [20.0] * 900, 60, again=90),
        *handshakes(FIRST, "ams-1", CLIENTS, [20.0] * 100, again=10),
    ]
    for at, row in enumerate(rows):
        row["started_round"] = FIRST - (900 if at < 3000 else 600 if at < 3900 else 300)
        row["time_unix_us"] = int(row["time_unix_us"]) + 1_000_000 * (at // 1000)
    yield (case := Recovered(POLICY, {FIRST: rows}))
    case.decided(FIRST)
    [row] = case.stored()
    counts = ("treated_ms", "treated", "treated_resent", "control", "control_resent")
    assert tuple(int(row[name]) for name in counts) == (60, 900, 90, 100, 10)


@pytest.mark.parametrize("bound", [{"max_routes": 100}, {"max_bytes": 12_000}])
def test_a_bundle_that_is_full_keeps_what_gains_most_of_both_laws(bare_home: Home, bound: dict[str, int]) -> None:
    prefixes = [f"198.51.{number}.0/24" for number in range(200)]
    values = {"initcwnd": 120, "start_rate": 8_000_000, "connection_rate": 2_000_000}
    starts = [Part(prefix=prefix, **values) for prefix in prefixes]
    timeouts = [Part(prefix=prefix, handshake_timeout_ms=150) for prefix in prefixes]
    policy = Policy.model_validate({"enforce": {"by": "bpf"}, "bundle": bound})
    given = [Contribution({"ams-1": part}, "bpf") for part in (starts, timeouts)]
    rendered = render(load_fleet(bare_home.fleet), policy, ROUND, ROUND, given)
    content = rendered.documents["ams-1"].content
    entries = json.loads(content)["entries"]
    windows = [one["prefix"] for one in entries if "initcwnd" in one]
    assert len(windows) <= policy.bundle.max_routes
    assert policy.bundle.max_bytes - 400 < len(content) or len(windows) == policy.bundle.max_routes
    assert len(content) <= policy.bundle.max_bytes
    # The prefixes are as well as they come: those that gain most are first.
    assert set(windows) == set(prefixes[: len(windows)])


COPIES = ("copies_reason", "copied_bytes")
GIVEN = 20_000
FULL, LATE, ENDING = "198.51.100.7", "198.51.101.7", "198.51.102.7"
BOTH = POLICY.replace(
    "window_rounds: 2", "copies: true, copies_permille: 50, copies_dscp: 1, parity_every: 5, window_rounds: 2"
)
ONLY_COPIES = BOTH.replace("handshake: true", "handshake: false")


@together
def test_paths_that_lose_at_random_get_copies_until_these_do_harm_or_the_loss_ends() -> Iterator[Recovered]:
    first, second, third = FIRST - INTERVAL, FIRST, FIRST + INTERVAL
    random = [
        *flights(first, "ams-1", FRA, every(10, 400)),
        *flights(first, "ams-1", ENDING, every(10, 400)),
        *flights(first, "ams-1", CLIENTS, [False] * 400),
        # A queue that is full drops many at once; before it is full it is long.
        *flights(first, "ams-1", FULL, every(2, 400), again=8),
        *flights(first, "ams-1", LATE, [*every(33, 200), *every(4, 200)]),
    ]
    # One in three loses with copies, and one in ten beside them. Nothing is lost any more on the other path.
    beside = [
        *flights(second, "ams-1", FRA, every(3, 900), GIVEN),
        *flights(second, "ams-1", FRA, every(10, 100)),
        *flights(second, "ams-1", ENDING, [False] * 200, GIVEN),
        *flights(second, "ams-1", ENDING, [False] * 2000),
    ]
    after = flights(third, "ams-1", FRA, every(10, 400))
    yield (case := Recovered(BOTH, {first: random, second: beside, third: after}))

    assert case.decided(first, COPIES) == {
        "fra": ("lossy", GIVEN),
        "198.51.102.0/24": ("lossy", GIVEN),
        "203.0.113.0/24": ("little_loss", 0),
        "198.51.100.0/24": ("full_path", 0),
        "198.51.101.0/24": ("full_path", 0),
    }
    found = case.bundles(first)["ams-1"]
    assert (found["enforce"]["copies_permille"], found["enforce"]["copies_dscp"]) == (50, 1)
    [entry] = [one for one in found["entries"] if one["prefix"] == "10.77.2.0/24"]
    # The longest handshakes took 70 ms, and half more is 105.
    assert entry == {"prefix": "10.77.2.0/24", "handshake_timeout_ms": 110, "copied_bytes": GIVEN, "parity_every": 5}
    # Clients cannot read parity.
    assert [one["prefix"] for one in found["entries"] if "parity_every" in one] == ["10.77.2.0/24"]
    assert {one["prefix"] for one in found["entries"] if "copied_bytes" in one} == {"10.77.2.0/24", "198.51.102.0/24"}
    said = case.explained(first)
    assert "the SYN-ACK is sent twice, and the first 100,000 bytes with parity of 5 segments" in said
    assert "the SYN-ACK and the first 20,000 bytes are sent twice" in case.explained(first, "198.51.102.7")
    assert "40 of 400 first flights without copies lost something, 1.0 segments each" in said

    given = case.decided(second, COPIES)
    assert (given["fra"], given["198.51.102.0/24"]) == (("copies_harm", 0), ("loss_ended", 0))
    entries = case.bundles(second)["ams-1"]["entries"]
    assert not [one for one in entries if "copied_bytes" in one]
    assert {one["prefix"] for one in entries} >= {"10.77.2.0/24", "198.51.102.0/24"}
    assert "300 of 900 with copies lost something; 10 of 100 without" in case.explained(second)

    assert case.decided(third, COPIES)["fra"] == ("held_copies_harm", 0)


@together
def test_copies_that_take_longer_are_taken_back() -> Iterator[Recovered]:
    # Times of 250 ± 50 ms with copies, and of 200 ± 50 beside them: 50 ms are more than three times 50 ms / sqrt(90).
    second = [
        *(one for ms in (200, 300) for one in flights(SECOND, "ams-1", FRA, every(10, 450), GIVEN, took_ms=ms)),
        *(one for ms in (150, 250) for one in flights(SECOND, "ams-1", FRA, every(10, 50), took_ms=ms)),
    ]
    shown = {FIRST: flights(FIRST, "ams-1", FRA, every(10, 400)), SECOND: second}
    yield (case := Recovered(ONLY_COPIES, shown))
    assert case.decided(FIRST, COPIES) == {"fra": ("lossy", GIVEN)}
    assert case.decided(SECOND, COPIES) == {"fra": ("copies_harm", 0)}
    [row] = case.explanations(SECOND)
    assert (row["reason"], row["copied_10k_us"], row["uncopied_10k_us"]) == ("off", 250_000, 200_000)
    assert row["error_10k_us"] == pytest.approx(50_000 / 90**0.5)
    assert row["copies_hold_until"] > instants.show(SECOND)


@together
def test_of_three_hosts_one_neither_gives_copies_nor_takes_them() -> Iterator[Recovered]:
    first = [
        *(one for host in ("ams-1", "ams-2") for one in flights(FIRST, host, FRA, every(5, 300))),
        *flights(FIRST, "ams-3", FRA, every(3000, 3000)),
        *(one for host in ("ams-1", "ams-2") for one in flights(FIRST, host, CLIENTS, [False] * 300)),
        *flights(FIRST, "ams-3", CLIENTS, [True] * 3000),
    ]
    second = [
        *(one for host in ("ams-1", "ams-2") for one in flights(SECOND, host, FRA, every(20, 900), GIVEN)),
        *(one for host in ("ams-1", "ams-2") for one in flights(SECOND, host, FRA, every(5, 100))),
        *flights(SECOND, "ams-3", FRA, [True] * 2000, GIVEN, again=50, took_ms=9000),
        *flights(SECOND, "ams-3", FRA, [*[False] * 1000, *[True] * 1000], again=50, took_ms=1),
    ]
    yield (case := Recovered(ONLY_COPIES, {FIRST: first, SECOND: second}, THREE_HOSTS))
    wanted = {"fra": ("lossy", GIVEN), "203.0.113.0/24": ("little_loss", 0)}
    assert case.decided(FIRST, COPIES) == wanted
    assert case.decided(SECOND, COPIES)["fra"] == ("lossy", GIVEN)
    [row] = case.explanations(SECOND)
    assert (row["flights"], row["flights_lossy"], row["resent_each"]) == (200, 40, 1)
    # Each host has one flight in the middle.
    assert row["calm_flights"] + row["busy_flights"] == 198
    assert (row["copied"], row["copied_lossy"], row["copied_10k_us"]) == (1800, 90, 200_000)
    # The host that shows least loss beside copies is left out, and the one that invents counts as another one.
    assert (row["uncopied"], row["uncopied_lossy"], row["uncopied_10k_us"]) == (200, 70, 200_000)

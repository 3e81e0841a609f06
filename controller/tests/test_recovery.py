"""Time after which a lost SYN or SYN-ACK is sent again, and where the beginning of connections is sent twice: from
records to bundles, and back where it does harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
from testkit.spool import record, write_spool
from testkit.traffic import Socket

POLICY = "initcwnd: {duty_rounds: 1}\nenforce: {by: bpf}\nrecovery: {handshake: true, window_rounds: 2}\n"
INTERVAL = 300
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


def decided(
    home: Home, moment: int, rows: list[dict[str, Value]], what: tuple[str, str] = ("reason", "handshake_timeout_ms")
) -> dict[str, tuple[str, int]]:
    """Reason and timeout by destination, of a round that showed these, and a poll of each host."""
    polls = [
        Socket(host, 900_000, f"10.77.1.{host[-1]}", FRA, "ams").at(moment - 30, moment // INTERVAL, 5000)
        for host in ("ams-1", "ams-2")
    ]
    write_spool(home.spool, str(moment), [record(polls + rows)])
    home.run("ingest", home.spool)
    at = ("--round", instants.show(moment))
    home.run("rollup", *at)
    first = home.json("decide", "recovery", *at)
    assert first["written"] == len(first["decisions"])
    return {row["destination"]: (row[what[0]], row[what[1]]) for row in first["decisions"]}


def bundles(home: Home, moment: int, code: int = 0) -> dict[str, Any]:
    """By edge."""
    out = home.path / f"bundles-{moment}"
    home.run("decide", "initcwnd", "--round", instants.show(moment), code=code)
    home.run("bundle", "--round", instants.show(moment), "--out", out)
    return {path.stem: json.loads(path.read_bytes()) for path in Path(out).glob("*.json")}


def timeouts(home: Home, moment: int) -> dict[str, dict[str, int]]:
    """By edge, what its bundle has."""
    found = bundles(home, moment)
    return {edge: {one["prefix"]: one["handshake_timeout_ms"] for one in found[edge]["entries"]} for edge in found}


def test_paths_get_the_timeout_that_their_handshakes_ask_for_and_lose_it_where_it_is_in_vain(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.policy.write_text(POLICY)
    now = [ROUND + 90]
    monkeypatch.setattr(instants, "now", lambda: now[0])
    first = [
        # The slower edge of two counts, and of 99 % of its handshakes the slowest.
        *handshakes(ROUND, "ams-1", FRA, [100.0] * 60),
        *handshakes(ROUND, "ams-2", FRA, [120.0] * 60),
        *handshakes(ROUND, "ams-1", CLIENTS, [*[20.0] * 148, 30.0, 900.0]),
        *handshakes(ROUND, "ams-1", FEW, [20.0] * 99),
    ]
    assert decided(home, ROUND, first) == {"fra": ("learnt", 180), "203.0.113.0/24": ("learnt", 50)}
    of_ams = {"10.77.2.0/24": 180, "203.0.113.0/24": 50}
    assert home.json("decide", "recovery", "--round", instants.show(ROUND))["written"] == 0
    assert timeouts(home, ROUND) == {"ams-1": of_ams, "ams-2": of_ams, "fra-1": {}, "nyc-1": {}}
    said = home.run("explain", "ams", "fra", "--round", instants.show(ROUND)).stdout
    assert "a lost SYN or SYN-ACK is sent again after 180 ms" in said
    assert "120 handshakes, of which 99 % took up to 120 ms" in said

    # Losses hit both arms alike: one handshake in ten. A quarter more, with the path's own timeout, is in vain.
    second, now[0] = ROUND + INTERVAL, now[0] + INTERVAL
    rows = [
        *handshakes(second, "ams-1", FRA, [100.0] * 900, 180, again=90),
        *handshakes(second, "ams-1", FRA, [100.0] * 100, again=10),
        *handshakes(second, "ams-1", CLIENTS, [20.0] * 900, 50, again=315),
        *handshakes(second, "ams-1", CLIENTS, [20.0] * 100, again=10),
    ]
    assert decided(home, second, rows) == {"fra": ("held_hysteresis", 180), "203.0.113.0/24": ("spurious", 0)}
    assert timeouts(home, second)["ams-1"] == {"10.77.2.0/24": 180}
    of_clients = home.json("explain", "ams", "203.0.113.7", "--round", instants.show(second))["recovery"]["decisions"]
    assert [(one["treated_resent"], one["control_resent"]) for one in of_clients] == [(315, 10)]

    # For as long as a bundle lives the one is held and the other stays; then both are gone.
    for later, wanted in (
        (1, {"fra": ("held_hysteresis", 180), "203.0.113.0/24": ("held_spurious", 0)}),
        (2, {"fra": ("held_thin_evidence", 180), "203.0.113.0/24": ("held_spurious", 0)}),
        (4, {"fra": ("expired", 0), "203.0.113.0/24": ("thin_evidence", 0)}),
    ):
        third = second + later * INTERVAL
        now[0] = third + 90
        assert decided(home, third, handshakes(third, "ams-1", FEW, [20.0])) == wanted
    span = ("--from", instants.show(ROUND), "--to", instants.show(third))
    [replayed] = home.json("replay", "--law", "recovery", *span)["summary"]
    assert (replayed["values_at_the_end"], replayed["values_at_the_end_recorded"]) == (0, 0)


def test_an_override_is_in_bundles_without_evidence_and_ends_by_itself(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the law is off: of both values only what it names."""
    now = [ROUND + 90]
    monkeypatch.setattr(instants, "now", lambda: now[0])
    until = instants.show(ROUND + INTERVAL)
    words = f"ip_version: 4, until: '{until}', reason: their firewall"
    home.policy.write_text(
        "initcwnd: {duty_rounds: 1}\nenforce: {by: bpf}\nrecovery_overrides:\n"
        f"- {{src: ams, to: 203.0.113.0/24, copied_bytes: 3000, {words}}}\n"
        f"- {{src: ams, to: fra, handshake_timeout_ms: 80, copied_bytes: 0, {words}}}\n"
    )
    both = ("copies_reason", "copied_bytes")
    assert decided(home, ROUND, [], both) == {"fra": ("override", 0), "203.0.113.0/24": ("override", 3000)}
    entries = [
        {name: value for name, value in one.items() if name in ("prefix", "handshake_timeout_ms", "copied_bytes")}
        for one in bundles(home, ROUND)["ams-1"]["entries"]
    ]
    assert {"prefix": "203.0.113.0/24", "copied_bytes": 3000} in entries
    assert {"prefix": "10.77.2.0/24", "handshake_timeout_ms": 80} in entries
    said = home.run("explain", "ams", "fra", "--round", instants.show(ROUND)).stdout
    assert "override: an operator's override in the policy" in said
    now[0] += INTERVAL
    decided(home, ROUND + INTERVAL, [])
    gone = bundles(home, ROUND + INTERVAL)["ams-1"]["entries"]
    assert not any({"handshake_timeout_ms", "copied_bytes"} & one.keys() for one in gone)


def test_a_round_that_was_not_decided_promises_no_override_that_has_ended(home: Home) -> None:
    """Two overrides of one path end at different times: the later one stays."""
    word = "src: ams, to: fra, ip_version: 4, reason: a trial"
    values = (("handshake_timeout_ms: 80", 1), ("copied_bytes: 4000", 2))
    lines = (f"- {{{word}, {value}, until: '{instants.show(ROUND + n * INTERVAL)}'}}\n" for value, n in values)
    home.policy.write_text("enforce: {by: bpf}\nrecovery_overrides:\n" + "".join(lines))
    assert decided(home, ROUND, []) == {"fra": ("override", 80)}
    parts = home.open(), load_fleet(home.fleet), load_policy(home.policy)
    [given] = RECOVERY.contribute(*parts, ROUND + INTERVAL, ROUND + 3600).entries["ams-1"]
    assert vars(given) == {"prefix": "10.77.2.0/24", "copied_bytes": 4000}


def test_nothing_is_left_of_an_override_that_did_no_harm(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two for one path give what each names. Copies of another size than the policy's are judged, too."""
    now = [ROUND + 90]
    monkeypatch.setattr(instants, "now", lambda: now[0])
    words = f"ip_version: 4, until: '{instants.show(ROUND + INTERVAL)}', reason: a trial"
    home.policy.write_text(
        f"{BOTH}recovery_overrides:\n- {{src: ams, to: 203.0.113.0/24, copied_bytes: 3000, {words}}}\n"
        f"- {{src: ams, to: fra, handshake_timeout_ms: 80, {words}}}\n"
        f"- {{src: ams, to: fra, copied_bytes: 4000, {words}}}\n"
    )
    clean = [*flights(ROUND, "ams-1", CLIENTS, [False] * 400), *flights(ROUND, "ams-1", FRA, [False] * 400)]
    assert decided(home, ROUND, clean, COPIES) == {"fra": ("override", 4000), "203.0.113.0/24": ("override", 3000)}
    [given] = [one for one in bundles(home, ROUND)["ams-1"]["entries"] if one["prefix"] == "10.77.2.0/24"]
    assert given == {"prefix": "10.77.2.0/24", "handshake_timeout_ms": 80, "copied_bytes": 4000}

    second, now[0] = ROUND + INTERVAL, now[0] + INTERVAL
    rows = [
        *flights(second, "ams-1", CLIENTS, [False] * 400),
        *flights(second, "ams-1", FRA, every(2, 400), copied=4000),
        *flights(second, "ams-1", FRA, every(20, 400)),
    ]
    assert decided(home, second, rows, COPIES) == {"fra": ("copies_harm", 0), "203.0.113.0/24": ("little_loss", 0)}


@pytest.mark.parametrize("section", ["", "recovery: {handshake: false}", "recovery: {handshake: true}"])
def test_nothing_is_decided_where_it_is_off_or_no_edge_runs_the_program(
    home: Home, section: str, settled: None
) -> None:
    by = "routes" if "true" in section else "bpf"
    home.policy.write_text(f"initcwnd: {{duty_rounds: 1}}\nenforce: {{by: {by}}}\n{section}\n")
    assert decided(home, ROUND, handshakes(ROUND, "ams-1", FRA, [100.0] * 200)) == {}
    found: dict[str, Any] = timeouts(home, ROUND)
    assert not any(found.values())


def test_one_that_is_turned_off_makes_no_round_due_and_nothing_late(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.policy.write_text(POLICY)
    monkeypatch.setattr(instants, "now", lambda: ROUND + 90)
    assert decided(home, ROUND, handshakes(ROUND, "ams-1", FRA, [100.0] * 200)) == {"fra": ("learnt", 150)}
    home.policy.write_text(POLICY.replace("handshake: true", "handshake: false"))
    second = ROUND + 2 * INTERVAL
    monkeypatch.setattr(instants, "now", lambda: second + 90)
    assert decided(home, second, handshakes(second, "ams-1", FRA, [100.0] * 200)) == {}
    assert not any(timeouts(home, second).values())
    store = home.open()
    assert undecided(store, load_policy(home.policy), second) == []
    store.close()
    [step] = [one for one in home.json("status", code=1)["steps"] if one["what"] == "recovery"]
    assert (step["state"], step["fix"]) == ("note", "")


def test_what_one_host_invents_changes_little_where_three_are(home: Home, settled: None) -> None:
    home.policy.write_text(POLICY)
    others = [
        one
        for host in ("ams-1", "ams-2")
        for one in [
            *handshakes(ROUND, host, CLIENTS, [20.0] * 900, 50, again=9),
            *handshakes(ROUND, host, CLIENTS, [20.0] * 100, again=1),
        ]
    ]
    invented = handshakes(ROUND, "ams-3", CLIENTS, [4_294_967.0] * 5000, 50, again=5000)
    home.fleet.write_text(FLEET.replace("      ams-2:", "      ams-3: {address: 10.77.1.3}\n      ams-2:"))
    found = decided(home, ROUND, [*others, *invented])
    assert found == {"203.0.113.0/24": ("learnt", 50)}
    [row] = home.query(
        "select treated, treated_resent, control, control_resent from path_decisions where part = 'recovery'"
    )
    assert tuple(int(value) for value in row.values()) == (1800, 18, 200, 2)


def test_control_is_of_the_same_bundles_and_the_newest_timeout(home: Home, settled: None) -> None:
    home.policy.write_text(POLICY)
    rows = [
        # Before anything was given, nothing was lost; a shorter timeout did harm; then as much is lost with both.
        *handshakes(ROUND, "ams-1", CLIENTS, [20.0] * 3000),
        *handshakes(ROUND, "ams-1", CLIENTS, [20.0] * 900, 50, again=500),
        *handshakes(ROUND, "ams-1", CLIENTS, [20.0] * 900, 60, again=90),
        *handshakes(ROUND, "ams-1", CLIENTS, [20.0] * 100, again=10),
    ]
    for at, row in enumerate(rows):
        row["started_round"] = ROUND - (900 if at < 3000 else 600 if at < 3900 else 300)
        row["time_unix_us"] = int(row["time_unix_us"]) + 1_000_000 * (at // 1000)
    decided(home, ROUND, rows)
    counts = "treated_ms, treated, treated_resent, control, control_resent"
    [row] = home.query(f"select {counts} from path_decisions where part = 'recovery'")
    assert tuple(int(value) for value in row.values()) == (60, 900, 90, 100, 10)


@pytest.mark.parametrize("bound", [{"max_routes": 100}, {"max_bytes": 12_000}])
def test_a_bundle_that_is_full_keeps_what_gains_most_of_both_laws(home: Home, bound: dict[str, int]) -> None:
    prefixes = [f"198.51.{number}.0/24" for number in range(200)]
    values = {"initcwnd": 120, "start_rate": 8_000_000, "connection_rate": 2_000_000}
    starts = [Part(prefix=prefix, **values) for prefix in prefixes]
    timeouts = [Part(prefix=prefix, handshake_timeout_ms=150) for prefix in prefixes]
    policy = Policy.model_validate({"enforce": {"by": "bpf"}, "bundle": bound})
    given = [Contribution({"ams-1": part}, "bpf") for part in (starts, timeouts)]
    rendered = render(load_fleet(home.fleet), policy, ROUND, ROUND, given)
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
BOTH = POLICY.replace("window_rounds: 2", "copies: true, copies_permille: 50, copies_dscp: 1, window_rounds: 2")


def test_paths_that_lose_at_random_get_copies_until_these_do_harm_or_the_loss_ends(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.policy.write_text(BOTH)
    now = [ROUND + 90]
    monkeypatch.setattr(instants, "now", lambda: now[0])
    rows = [
        *flights(ROUND, "ams-1", FRA, every(10, 400)),
        *flights(ROUND, "ams-1", ENDING, every(10, 400)),
        *flights(ROUND, "ams-1", CLIENTS, [False] * 400),
        # A queue that is full drops many at once; before it is full it is long.
        *flights(ROUND, "ams-1", FULL, every(2, 400), again=8),
        *flights(ROUND, "ams-1", LATE, [*every(33, 200), *every(4, 200)]),
    ]
    assert decided(home, ROUND, rows, COPIES) == {
        "fra": ("lossy", GIVEN),
        "198.51.102.0/24": ("lossy", GIVEN),
        "203.0.113.0/24": ("little_loss", 0),
        "198.51.100.0/24": ("full_path", 0),
        "198.51.101.0/24": ("full_path", 0),
    }
    found = bundles(home, ROUND)["ams-1"]
    assert (found["enforce"]["copies_permille"], found["enforce"]["copies_dscp"]) == (50, 1)
    [entry] = [one for one in found["entries"] if one["prefix"] == "10.77.2.0/24"]
    # The longest handshakes took 70 ms, and half more is 105.
    assert entry == {"prefix": "10.77.2.0/24", "handshake_timeout_ms": 110, "copied_bytes": GIVEN}
    assert {one["prefix"] for one in found["entries"] if "copied_bytes" in one} == {"10.77.2.0/24", "198.51.102.0/24"}
    said = home.run("explain", "ams", "fra", "--round", instants.show(ROUND)).stdout
    assert "the SYN-ACK and the first 20,000 bytes are sent twice" in said
    assert "40 of 400 first flights without copies lost something, 1.0 segments each" in said

    # One in three loses with copies, and one in ten beside them. Nothing is lost any more on the other path.
    second, now[0] = ROUND + INTERVAL, now[0] + INTERVAL
    rows = [
        *flights(second, "ams-1", FRA, every(3, 900), GIVEN),
        *flights(second, "ams-1", FRA, every(10, 100)),
        *flights(second, "ams-1", ENDING, [False] * 200, GIVEN),
        *flights(second, "ams-1", ENDING, [False] * 2000),
    ]
    given = decided(home, second, rows, COPIES)
    assert (given["fra"], given["198.51.102.0/24"]) == (("copies_harm", 0), ("loss_ended", 0))
    entries = bundles(home, second)["ams-1"]["entries"]
    assert not [one for one in entries if "copied_bytes" in one]
    assert {one["prefix"] for one in entries} >= {"10.77.2.0/24", "198.51.102.0/24"}
    said = home.run("explain", "ams", "fra", "--round", instants.show(second)).stdout
    assert "300 of 900 with copies lost something; 10 of 100 without" in said

    third, now[0] = second + INTERVAL, now[0] + INTERVAL
    given = decided(home, third, flights(third, "ams-1", FRA, every(10, 400)), COPIES)
    assert given["fra"] == ("held_copies_harm", 0)


def test_copies_that_take_longer_are_taken_back(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instants, "now", lambda: ROUND + INTERVAL + 90)
    home.policy.write_text(BOTH.replace("handshake: true", "handshake: false"))
    assert decided(home, ROUND, flights(ROUND, "ams-1", FRA, every(10, 400)), COPIES) == {"fra": ("lossy", GIVEN)}
    second = ROUND + INTERVAL
    # Times of 250 ± 50 ms with copies, and of 200 ± 50 beside them: 50 ms are more than three times 50 ms / sqrt(90).
    rows = [
        *(one for ms in (200, 300) for one in flights(second, "ams-1", FRA, every(10, 450), GIVEN, took_ms=ms)),
        *(one for ms in (150, 250) for one in flights(second, "ams-1", FRA, every(10, 50), took_ms=ms)),
    ]
    assert decided(home, second, rows, COPIES) == {"fra": ("copies_harm", 0)}
    [row] = home.json("explain", "ams", "fra", "--round", instants.show(second))["recovery"]["decisions"]
    assert (row["reason"], row["copied_10k_us"], row["uncopied_10k_us"]) == ("off", 250_000, 200_000)
    assert row["error_10k_us"] == pytest.approx(50_000 / 90**0.5)
    assert row["copies_hold_until"] > instants.show(second)


def test_of_three_hosts_one_neither_gives_copies_nor_takes_them(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instants, "now", lambda: ROUND + INTERVAL + 90)
    home.policy.write_text(BOTH.replace("handshake: true", "handshake: false"))
    home.fleet.write_text(FLEET.replace("      ams-2:", "      ams-3: {address: 10.77.1.3}\n      ams-2:"))
    rows = [
        *(one for host in ("ams-1", "ams-2") for one in flights(ROUND, host, FRA, every(5, 300))),
        *flights(ROUND, "ams-3", FRA, every(3000, 3000)),
        *(one for host in ("ams-1", "ams-2") for one in flights(ROUND, host, CLIENTS, [False] * 300)),
        *flights(ROUND, "ams-3", CLIENTS, [True] * 3000),
    ]
    wanted = {"fra": ("lossy", GIVEN), "203.0.113.0/24": ("little_loss", 0)}
    assert decided(home, ROUND, rows, COPIES) == wanted
    second = ROUND + INTERVAL
    rows = [
        *(one for host in ("ams-1", "ams-2") for one in flights(second, host, FRA, every(20, 900), GIVEN)),
        *(one for host in ("ams-1", "ams-2") for one in flights(second, host, FRA, every(5, 100))),
        *flights(second, "ams-3", FRA, [True] * 2000, GIVEN, again=50, took_ms=9000),
        *flights(second, "ams-3", FRA, [*[False] * 1000, *[True] * 1000], again=50, took_ms=1),
    ]
    assert decided(home, second, rows, COPIES)["fra"] == ("lossy", GIVEN)
    [row] = home.json("explain", "ams", "fra", "--round", instants.show(second))["recovery"]["decisions"]
    assert (row["flights"], row["flights_lossy"], row["resent_each"]) == (200, 40, 1)
    # Each host has one flight in the middle.
    assert row["calm_flights"] + row["busy_flights"] == 198
    assert (row["copied"], row["copied_lossy"], row["copied_10k_us"]) == (1800, 90, 200_000)
    # The host that shows least loss beside copies is left out, and the one that invents counts as another one.
    assert (row["uncopied"], row["uncopied_lossy"], row["uncopied_10k_us"]) == (200, 70, 200_000)

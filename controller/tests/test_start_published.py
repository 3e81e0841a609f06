"""From a decision of the law of starts to a published bundle and a connection: every kind of unit, every part."""

from __future__ import annotations

import json
import os
from ipaddress import ip_network
from typing import Any

import numpy as np
import pytest
from springtide import instants
from springtide.frame import Frame
from springtide.jobs.publish import newest_decided
from springtide.laws.congestion import rows as congestion_rows
from springtide.laws.congestion.law import ACTIONS
from springtide.laws.congestion.law import DECIDED as CONGESTION
from springtide.laws.initcwnd.decision import Decision
from springtide.laws.initcwnd.rows import WINDOWS
from springtide.laws.start.bundle import untreated
from springtide.laws.start.explain import labelled
from springtide.laws.start.law import DECIDED, STARTS
from springtide.policy import Policy, load_policy

from lab.connections import own_network
from testkit import bpf
from testkit.decided import DECISIONS, decision
from testkit.home import ROUND, Home
from testkit.loopback import on_loopback
from testkit.pairs import decided_table
from testkit.start_law import Reason

pytestmark = pytest.mark.usefixtures("clock")

# Two pairs of PoPs and two client prefixes, by what a bundle names.
UNITS = {
    ("fra", 4): "10.77.2.0/24",
    ("fra", 6): "fd77:2::/48",
    ("198.51.100.0/24", 4): "198.51.100.0/24",
    ("2001:db8:5:100::/56", 6): "2001:db8:5:100::/56",
}
IN_USE = {"window": 120, "connection_rate": 2e6, "path_rate": 8e6}
ON_TRIAL = {"trial_permille": 50, "trial_window": 160, "trial_connection_rate": 3e6, "trial_path_rate": 8e6}


def decided(**values: Any) -> Frame:
    """A round in which each unit has these values."""
    found = np.zeros(len(UNITS), DECIDED)
    found["src_pop"] = b"ams"
    for row, (destination, version) in zip(found, sorted(UNITS), strict=True):
        row["destination"], row["ip_version"] = destination.encode(), version
    found["action"] = STARTS.actions.index("set" if "window" in values else "try")
    found["last_evidence"], found["expires_at"] = ROUND, ROUND + 3600
    for name, value in values.items():
        found[name] = value
    return Frame.of(found)


def on_bbr() -> Any:
    """A round in which both client prefixes use BBR."""
    found = np.zeros(2, CONGESTION)
    found["src_pop"], found["ip_version"] = b"ams", (4, 6)
    found["destination"] = b"198.51.100.0/24", b"2001:db8:5:100::/56"
    found["action"], found["algorithm"] = ACTIONS.index("enter"), 1
    found["selected_since"] = ROUND - 3000
    return found


def published(
    home: Home, values: dict[str, Any], found: Frame | None = None, more: str = "", most: int = 500
) -> dict[str, Any]:
    """The bundle of an edge in ams, as `springtide publish` makes it of what is in the store."""
    home.policy.write_text(f"enforce: {{by: bpf, max_trial_permille: {most}}}\n{more}")
    store = home.open()
    WINDOWS.write_round(store, ROUND, decided_table(DECISIONS), Policy().version)
    STARTS.write_round(store, ROUND, decided(**values) if found is None else found, Policy().version)
    congestion_rows.PREFIXES.write_round(store, ROUND, Frame.of(on_bbr()), Policy().version)
    store.close()
    home.run("publish", "--round", instants.show(ROUND))
    bundle: dict[str, Any] = json.loads((home.publish_dir / "candidate" / "edges" / "ams-1.json").read_bytes())
    return bundle


def test_status_shows_no_starts_of_the_future(home: Home) -> None:
    """One round that a clock that was ahead decided would hide all others for a day."""
    published(home, IN_USE | {"previous_window": 100, "flights_0": 30})

    def seen() -> str:
        steps = home.json("status", code=1)["steps"]
        return next(f"{one['state']}: {one['text']}" for one in steps if one["what"] == "seen starts")

    before = seen()
    assert before.startswith(f"ok: {len(UNITS)} of {len(UNITS)} ")
    store = home.open()
    STARTS.write_round(store, ROUND + 86_400, decided(**IN_USE), Policy().version)
    store.close()
    assert seen() == before


@pytest.mark.parametrize(
    ("windows", "windows_s", "published_s"),
    [
        # A PoP alone.
        ([], 0, 0),
        # A stray connection between PoPs left a row, of which no edge has anything.
        ([decision("ams", "fra", 4, None)], -300, 0),
        # Windows in force come from no other round, as long as bundles live.
        (DECISIONS, 300 - Policy().bundle.ttl_s, 300 - Policy().bundle.ttl_s),
        (DECISIONS, -Policy().bundle.ttl_s, 0),
    ],
)
def test_a_round_without_windows_is_published_unless_some_act(
    home: Home, windows: list[Decision], windows_s: int, published_s: int
) -> None:
    home.policy.write_text("enforce: {by: bpf}\n")
    store = home.open()
    STARTS.write_round(store, ROUND, decided(**IN_USE), Policy().version)
    if windows:
        WINDOWS.write_round(store, ROUND + windows_s, decided_table(windows), Policy().version)
    newest = newest_decided(store, Policy(), ROUND)
    store.close()
    assert newest == ROUND + published_s
    if newest == ROUND:
        home.run("bundle", "--out", home.path / "out")
        bundle = json.loads((home.path / "out/ams-1.json").read_bytes())
        assert bundle["round"] == instants.show(newest)
        assert sorted(one["prefix"] for one in bundle["entries"]) == sorted(UNITS.values())


def test_status_does_not_wait_for_starts_where_no_edge_paces(home: Home) -> None:
    """Also where some did, an hour ago."""

    def start() -> dict[str, Any]:
        steps = home.json("status", code=1)["steps"]
        return dict(next(one for one in steps if one["what"] == "start"))

    store = home.open()
    STARTS.write_round(store, ROUND - 3600, decided(**IN_USE), Policy().version)
    store.close()
    home.policy.write_text("enforce: {by: bpf}\n")
    assert start()["state"] == "stale"
    home.policy.write_text("enforce: {by: routes}\n")
    assert (start()["state"], start()["text"][:24]) == ("note", "no edge enforces by bpf,")


@pytest.mark.parametrize("values", [IN_USE, ON_TRIAL, IN_USE | ON_TRIAL], ids=["in use", "on trial", "both"])
def test_every_unit_and_part_is_published(home: Home, values: dict[str, Any]) -> None:
    entries = {one["prefix"]: one for one in published(home, values)["entries"]}
    assert sorted(entries) == sorted(UNITS.values())
    for entry in entries.values():
        assert entry.get("initcwnd") == values.get("window")
        assert entry.get("trial", {}).get("initcwnd") == values.get("trial_window")
        # An edge that the store's fleet does not have begins with half of an equal part.
        assert entry.get("start_rate") == (2_000_000 if "window" in values else None)


@pytest.mark.parametrize(
    ("more", "rest"),
    [("", 20), ("holdout: {connection_permille: 7}\n", 7), ("start: {trial_permille: 9}\n", 9)],
)
def test_one_in_fifty_keeps_the_default_so_that_the_rest_has_something_beside_it(
    home: Home, more: str, rest: int
) -> None:
    """Not where an operator has given the values. A policy from before that allows smaller trials has fewer."""
    found = published(home, IN_USE, more=more, most=9 if rest == 9 else 500)
    assert [one["trial"] for one in found["entries"]] == [{"permille": rest}] * len(UNITS)
    [row, *_] = STARTS.rows(decided(**IN_USE))
    said = dict(labelled({"round": ROUND, **row}, load_policy(home.policy), []))["on trial"]
    assert said == f"nothing; {rest / 10:g} % of the connections keep the kernel's default, to be compared with"
    assert untreated(load_policy(home.policy), ROUND, {**row, "overridden": True}) == 0


def test_a_share_that_starts_with_the_default_beside_what_is_in_use_is_published(home: Home) -> None:
    values = IN_USE | {"trial_permille": 200}
    assert [one["trial"] for one in published(home, values)["entries"]] == [{"permille": 200}] * len(UNITS)
    [row, *_] = STARTS.rows(decided(**values))
    lines = dict(labelled({"round": ROUND, **row}, Policy(), []))
    assert lines["on trial"] == "the kernel's default for 20 % of the connections, to see what that loses now"


@pytest.mark.parametrize(("harmful", "where"), [(0.0, ""), (5e6, "near 40 Mbit/s ")])
def test_a_hold_without_a_ceiling_names_no_rate(harmful: float, where: str) -> None:
    found = decided(reason=STARTS.reasons.index(Reason.TRIAL_SLOWER), harmful_rate=harmful, hold_until=ROUND + 900)
    row = {"round": ROUND, **next(STARTS.rows(found))}
    lines = dict(labelled(row, Policy(), []))
    assert lines["would change"] == f"a fall at once; {where}nothing is tried before {instants.show(ROUND + 900)}"


@pytest.mark.parametrize("overridden", [0, 1])
@pytest.mark.parametrize("wider", ["198.51.100.0/24", "198.51.96.0/20"])
def test_a_client_prefix_that_became_a_pops_has_no_values_of_its_own(home: Home, wider: str, overridden: int) -> None:
    """But for an override; never some of the one unit and some of the other."""
    home.fleet.write_text(home.fleet.read_text().replace("10.77.2.0/24", wider))
    found = decided(**IN_USE).table()
    client, pop = (found["destination"] == name for name in (b"198.51.100.0/24", b"fra"))
    for name, value in ON_TRIAL.items():
        found[name][pop] = value
    found["window"][client] = 300
    found["overridden"][client] = overridden
    entries = {one["prefix"]: one for one in published(home, {}, Frame.of(found))["entries"]}
    kept = [entries[wider]] if wider in entries else []
    if overridden:
        own = entries["198.51.100.0/24"]
        assert own["initcwnd"] == 300
        assert "trial" not in own
        kept = [one for one in kept if one is not own]
    else:
        assert "initcwnd" not in entries.get("198.51.100.0/24", {}) or wider == "198.51.100.0/24"
    for entry in kept:
        assert (entry["initcwnd"], entry["trial"]["initcwnd"]) == (120, 160)


def test_what_no_bundle_may_name_is_left_out_and_named_and_nothing_else(home: Home) -> None:
    """As an override that was decided before fleet.yaml changed."""
    found = np.repeat(decided(**IN_USE).table()[:1], 2)
    found["destination"], found["overridden"] = [b"10.77.1.0/24", b"198.51.100.0/23"], 1
    found = np.concatenate([found, decided(**IN_USE).table()])
    word = "until: '2030-01-01T00:00:00Z', reason: incident"
    home.policy.write_text(f"enforce: {{by: bpf}}\nstart_overrides: [{{src: ams, to: lon, initcwnd: 20, {word}}}]\n")
    store = home.open()
    WINDOWS.write_round(store, ROUND, decided_table(DECISIONS), Policy().version)
    STARTS.write_round(store, ROUND, Frame.of(np.sort(found, order=["destination", "ip_version"])), Policy().version)
    store.close()
    notes = home.run("publish", "--round", instants.show(ROUND)).stderr.splitlines()
    assert [line for line in notes if line.startswith("left out: ")] == [
        "left out: start_overrides[0].to: 'lon' is not a PoP of the fleet",
        "left out: ams: 10.77.1.0/24 belongs to the edge's own PoP ams",
        "left out: ams: 198.51.100.0/23 is neither a prefix of the fleet nor an IPv4 /24 or an IPv6 /56",
    ]
    bundle = json.loads((home.publish_dir / "candidate" / "edges" / "ams-1.json").read_bytes())
    assert sorted(one["prefix"] for one in bundle["entries"]) == sorted(UNITS.values())


def test_a_pops_prefix_that_an_override_leaves_to_the_kernel_is_left_to_it(home: Home) -> None:
    found = np.concatenate([decided(**IN_USE).table(), np.zeros(1, DECIDED)])
    found["src_pop"][-1], found["destination"][-1], found["ip_version"][-1] = b"ams", b"10.77.2.0/24", 4
    found["overridden"][-1] = 1
    entries = published(home, {}, Frame.of(np.sort(found, order=["destination", "ip_version"])))["entries"]
    assert sorted(one["prefix"] for one in entries) == sorted(set(UNITS.values()) - {"10.77.2.0/24"})


def test_what_gains_least_is_left_out_of_a_full_bundle_and_named(home: Home) -> None:
    """One PoP has as many IPv6 prefixes as it may by default, each with all that an entry may have: a few have no room.
    The prefixes that also use BBR keep it, and other edges their bundles."""
    home.policy.write_text("enforce: {by: bpf}\n")
    count = Policy().start.max_prefixes
    found = np.zeros(count + 1, DECIDED)
    found["src_pop"] = b"ams"
    for n, row in enumerate(found[:-1]):
        row["destination"], row["ip_version"] = f"2001:db8:{n // 250 + 4096:x}:{n % 250 + 1:x}00::/56".encode(), 6
        row["connections"] = 1 + (n * 7919) % count
    # A pair of PoPs has few connections, and stays.
    found[-1]["destination"], found[-1]["ip_version"], found[-1]["connections"] = b"fra", 4, 1
    rates = {f"{kind}{name}_rate": 2e9 for kind in ("", "trial_") for name in ("connection", "path")}
    default = {"default_flights": 99, "default_lossy": 80, "default_resent": 3, "default_at": ROUND}
    for name, value in (IN_USE | ON_TRIAL | rates | default | {"min_rtt_us": 50_000, "mss": 1448}).items():
        found[name] = value
    found["action"], found["last_evidence"], found["expires_at"] = STARTS.actions.index("set"), ROUND, ROUND + 3600
    found.sort(order=["src_pop", "destination", "ip_version"])
    store = home.open()
    WINDOWS.write_round(store, ROUND, decided_table(DECISIONS), Policy().version)
    STARTS.write_round(store, ROUND, Frame.of(found), Policy().version)
    congestion_rows.PREFIXES.write_round(store, ROUND, Frame.of(on_bbr()), Policy().version)
    store.close()
    result = home.run("publish", "--round", instants.show(ROUND))
    edges = home.publish_dir / "candidate" / "edges"
    content = (edges / "ams-1.json").read_bytes()
    assert len(content) <= Policy().bundle.max_bytes
    entries = {one["prefix"]: one for one in json.loads(content)["entries"]}
    starts = {prefix for prefix, one in entries.items() if "initcwnd" in one}
    assert UNITS["fra", 4] in starts
    dropped = count + 1 - len(starts)
    assert 0 < dropped < count // 2
    # No more than is needed: another would not have fitted.
    assert len(content) > Policy().bundle.max_bytes - 400
    most = sorted(found, key=lambda row: (b"/" not in row["destination"], row["connections"]))[dropped:]
    assert starts == {row["destination"].decode() for row in most} - {"fra"} | {UNITS["fra", 4]}
    assert entries["198.51.100.0/24"].keys() == {"prefix", "congestion"}
    note = f"{dropped:,} starts with least to gain, over bundle.max_bytes or max_routes"
    assert f"left out: ams-1: {note}" in result.stderr.splitlines()
    assert json.loads((edges / "fra-1.json").read_bytes())["entries"] == []
    (step,) = (
        one for one in json.loads(home.run("status", "--json", code=None).stdout)["steps"] if one["what"] == "published"
    )
    assert "no room for" in step["text"]


@pytest.mark.root
def test_a_connection_starts_as_decided(home: Home) -> None:
    document = published(home, IN_USE, more="holdout: {connection_permille: 0}\n")
    with own_network(), bpf.program(f"stp{os.getpid()}") as program:
        program.apply({"entries": document["entries"]})
        for prefix in UNITS.values():
            network = ip_network(prefix)
            host = str(network[7])
            on_loopback([host])
            found = bpf.ask(program, f"one, _, = pair({host!r})[:2]\nprint(json.dumps([window(one), rate(one)]))")
            assert found == [120, 2_000_000], prefix
        switched = [one["prefix"] for one in document["entries"] if "congestion" in one]
        assert switched == ["198.51.100.0/24", "2001:db8:5:100::/56"]

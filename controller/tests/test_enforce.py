"""Enforcement of bundles by edges: from policy.yaml to a bundle of schema 2, and what schema 1 stays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from springtide import instants
from springtide.bundles.model import Document, parse
from springtide.bundles.published import going_back, renewed
from springtide.bundles.render import render as render_contributions
from springtide.bundles.validate import Context, parsed_problems
from springtide.fleet import Fleet
from springtide.gate.judge import Kind, destinations
from springtide.laws.base import Contribution
from springtide.laws.congestion import interface as congestion
from springtide.laws.entry import Part
from springtide.laws.initcwnd import interface as initcwnd
from springtide.laws.initcwnd.rows import WINDOWS
from springtide.policy import Policy
from springtide.publication import journal
from springtide.publication.waves import read_publication
from springtide.publication.ways import given

from testkit.decided import DECISIONS
from testkit.home import FLEET, Home
from testkit.home import ROUND as NOW
from testkit.pairs import decided_table
from testkit.published import canonical, digest

pytestmark = pytest.mark.usefixtures("clock")

THE_FLEET = Fleet.model_validate(yaml.safe_load(FLEET))
CLIENTS = {"ams": [ip_network("192.0.2.0/24"), ip_network("2001:db8:0:100::/56")]}
BPF = {"enforce": {"by": "bpf"}}


def rendered(policy: dict[str, Any], *more: Contribution, clients: Any = None) -> dict[str, Document]:
    """Edges that pace start with the same windows as the others: only the way differs."""
    parsed = Policy.model_validate(policy)
    windows = initcwnd.contribution(THE_FLEET, parsed, DECISIONS, NOW + 900)
    contributions = [
        windows,
        Contribution(windows.entries, "bpf"),
        congestion.contribution(THE_FLEET, parsed, CLIENTS if clients is None else clients),
        *more,
    ]
    return render_contributions(THE_FLEET, parsed, NOW, NOW, contributions).documents


def wrong(document: dict[str, Any], policy: dict[str, Any]) -> list[str]:
    content = canonical({**document, "digest": digest(document)})
    context = Context(THE_FLEET, Policy.model_validate(policy), NOW + 1)
    return [str(problem) for problem in parsed_problems("b.json", content, context)[1]]


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"enforce": {"otherwise": "routes", "lift_bytes": 5, "record_permille": 9, "receive_windows": True}},
        {"enforce_overrides": [{"pop": "fra", "by": "bpf", "reason": "another PoP"}]},
        {"enforce_overrides": [{"pop": "ams", "by": "bpf", "until": instants.show(NOW), "reason": "over"}]},
        BPF | {"enforce_overrides": [{"edges": ["ams-1"], "by": "routes", "reason": "an old kernel"}]},
    ],
)
def test_edges_by_routes_get_no_rates_and_nothing_of_the_program(policy: dict[str, Any]) -> None:
    rates = Contribution({edge: [Part(prefix="10.77.2.0/24", start_rate=5000)] for edge in THE_FLEET.edges()}, "bpf")
    bbr = {"algorithm": "bbr", "from_bytes": 100_000}
    found = json.loads(rendered(policy, rates)["ams-1"].content)
    assert found["enforce"] == {
        "by": "routes",
        "live": "leave",
        "otherwise": policy.get("enforce", {}).get("otherwise", "default"),
    }
    assert found["entries"] == [
        {"prefix": "10.77.2.0/24", "initcwnd": 42},
        {"prefix": "192.0.2.0/24", "congestion": bbr},
        {"prefix": "2001:db8:0:100::/56", "congestion": bbr},
        {"prefix": "fd77:2::/48", "initcwnd": 77},
    ]


def test_the_how_to_switches_edges_on(home: Home) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/start-at-the-rate.md").read_text()
    one, pop, every = re.findall(r"```yaml\n(.*?)```", page, re.S)
    store = home.open()
    WINDOWS.write_round(store, NOW, decided_table(DECISIONS), DECISIONS[0].policy_version)
    store.close()
    of_ams = {edge for edge, name in THE_FLEET.edges().items() if name == "ams"}
    for policy, paced in ((one, {"ams-1"}), (pop, of_ams), (every, set(THE_FLEET.edges()))):
        home.policy.write_text(policy)
        home.run("check")
        answer = home.json("bundle", "--out", home.path / "out")
        assert {bundle["edge"] for bundle in answer["bundles"] if bundle["enforced_by"] == "bpf"} == paced
    # Its commands exist, but for what runs on edges and against a fleet.
    [commands, *_] = [block for block in re.findall(r"```sh\n(.*?)```", page, re.S) if "decide start" in block]
    for line in commands.splitlines():
        if line.startswith("springtide "):
            home.run(*[word for word in line.split()[1:] if not word.startswith(("-", "/"))], "--help")


def test_from_the_policy_to_bundles(home: Home) -> None:
    store = home.open()
    WINDOWS.write_round(store, NOW, decided_table(DECISIONS), DECISIONS[0].policy_version)
    store.close()
    home.policy.write_text(
        "enforce: {lift_round_trips: 4, excluded: [fd00:1::/32, 10.9.0.0/16], record_permille: 7}\n"
        "enforce_overrides:\n"
        "- {edges: [ams-2], by: bpf, otherwise: routes, reason: the first}\n"
        "- {pop: ams, by: routes, reason: the others}\n"
    )
    home.run("check")
    out = home.path / "out"
    answer = home.json("bundle", "--out", out)
    ways = [(one["edge"], one["enforced_by"], one["routes"]) for one in answer["bundles"]]
    assert ways[:2] == [("ams-1", "routes", 2), ("ams-2", "bpf", 0)]
    assert "bpf" in home.run("bundle", "--out", out).stdout
    home.run("validate", *sorted(out.glob("*.json")))
    first, second = (json.loads((out / f"ams-{n}.json").read_bytes()) for n in (1, 2))
    assert first["entries"] == [{"prefix": "10.77.2.0/24", "initcwnd": 42}, {"prefix": "fd77:2::/48", "initcwnd": 77}]
    # A window that nothing paces is for edges by routes.
    assert second["entries"] == []
    excluded = ["10.9.0.0/16", "fd00:1::/32"]
    assert first["enforce"] == {"by": "routes", "otherwise": "default", "live": "leave", "excluded": excluded}
    assert second["enforce"] == {
        "by": "bpf",
        "otherwise": "routes",
        "live": "leave",
        "excluded": excluded,
        "lift_bytes": 1_000_000,
        "lift_round_trips": 4,
        "brake": {"lost_permille": 400, "connections": 20, "half_life_s": 60},
        "record_permille": 7,
        "copies_permille": 20,
    }
    # The current bundles are compared with what they become, the way of enforcing included.
    home.run("publish")
    assert journal.read(home.publish_dir)[0][-1].details["windows"]["held_out"] == ["ams-2"]
    assert {"edge": "ams-2", "before": "routes", "after": "bpf"} in home.json("diff")["enforced_by"]
    assert "Enforced in another way: 1 edges" in home.run("diff").stdout
    # A newer policy refuses an older bundle's program.
    home.policy.write_text("enforce: {by: routes}\n")
    [line] = home.refused("validate", out / "ams-2.json")
    assert "enforce.by: is 'bpf', but the policy has ams-2 enforce by routes (rule way); publish a newer" in line


def test_what_all_laws_give_a_prefix_is_one_entry() -> None:
    shared = {"ams": [*CLIENTS["ams"], ip_network("10.77.2.0/24"), ip_network("169.254.7.0/24")]}
    trial = Part(permille=50, initcwnd=20)
    of_edge = [
        Part(prefix="10.77.2.0/24", start_rate=5000, connection_rate=2000, trial=trial),
        Part(prefix="192.0.2.0/24", start_rate=1000),
    ]
    rates = Contribution({edge: of_edge if edge == "ams-1" else [] for edge in THE_FLEET.edges()}, "bpf")
    policy = {"enforce": {"by": "bpf", "congestion_always": True}}
    found = json.loads(rendered(policy, rates, clients=shared)["ams-1"].content)
    bbr = {"algorithm": "bbr", "from_bytes": 100_000, "always": True}
    assert found["entries"] == [
        {
            "prefix": "10.77.2.0/24",
            "initcwnd": 42,
            "start_rate": 5000,
            "connection_rate": 2000,
            "congestion": bbr,
            "trial": {"permille": 50, "initcwnd": 20},
        },
        {"prefix": "192.0.2.0/24", "start_rate": 1000, "congestion": bbr},
        {"prefix": "2001:db8:0:100::/56", "congestion": bbr},
        {"prefix": "fd77:2::/48", "initcwnd": 77},
    ]
    assert wrong(found, policy) == []
    # One host that shows such clients must not stop all bundles: they are left out, and named.
    parsed = Policy.model_validate(policy)
    given_clients = congestion.contribution(THE_FLEET, parsed, shared)
    left_out = render_contributions(THE_FLEET, parsed, NOW, NOW, [given_clients]).unusable
    assert left_out == ["ams: 169.254.7.0/24 is loopback, link-local, multicast or reserved space"]


def test_receivers_announce_what_the_others_start_with() -> None:
    found = rendered({"enforce": {"by": "bpf", "receive_windows": True}}, clients={})
    entries = {edge: json.loads(found[edge].content)["entries"] for edge in ("ams-1", "fra-1", "nyc-1")}
    # ams starts with 42 (IPv4) and 77 (IPv6) towards fra, fra with 30 (IPv4) towards ams; 44 fit in 64 KB.
    assert entries["fra-1"] == [
        {"prefix": "10.77.1.0/24", "initcwnd": 30},
        {"prefix": "fd77:1::/48", "receive_window": 77},
    ]
    assert entries["ams-1"] == [
        {"prefix": "10.77.2.0/24", "initcwnd": 42},
        {"prefix": "fd77:2::/48", "initcwnd": 77},
    ]
    assert entries["nyc-1"] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("enforce: {by: ebpf}", "enforce.by: "),
        ("enforce: {otherwise: bpf}", "enforce.otherwise: "),
        ("enforce: {live: kill}", "enforce.live: "),
        ("enforce: {excluded: [10.0.0.1/8]}", "enforce.excluded[0]: '10.0.0.1/8' is not a prefix in its shortest form"),
        ("enforce: {excluded: ['::ffff:a00:0/104']}", "is not a prefix in its shortest form"),
        ("enforce: {excluded: ['fe80::%1/64']}", "is not a prefix in its shortest form"),
        ("enforce: {excluded: [10.0.0.0/8, 10.0.0.0/8]}", "enforce.excluded[1]: 10.0.0.0/8 is listed twice"),
        ("enforce: {excluded: 10.0.0.0/8}", "enforce.excluded: "),
        ("enforce: {lift_bytes: 0}", "enforce.lift_bytes: "),
        ("enforce: {lift_round_trips: 1001}", "enforce.lift_round_trips: "),
        ("enforce: {brake_lost_permille: 0}", "enforce.brake_lost_permille: "),
        ("enforce: {brake_connections: 1000001}", "enforce.brake_connections: "),
        ("enforce: {brake_half_life_s: 86401}", "enforce.brake_half_life_s: "),
        ("enforce: {record_permille: 1.5}", "enforce.record_permille: "),
        ("enforce: {max_trial_permille: 1001}", "enforce.max_trial_permille: "),
        ("enforce_overrides: [{by: bpf, reason: all}]", "enforce_overrides[0]: names neither a pop nor edges"),
        ("enforce_overrides: [{pop: xxx, by: bpf, reason: x}]", "enforce_overrides[0].pop: 'xxx' is not a PoP"),
        (
            "enforce_overrides: [{pop: fra, edges: [ams-1], by: bpf, reason: x}]",
            "enforce_overrides[0].edges[0]: 'ams-1' is not an edge of fra",
        ),
        ("enforce_overrides: [{edges: [ams-1, ams-1], by: bpf, reason: x}]", "names an edge twice"),
        ("enforce_overrides: [{pop: ams, by: bpf}]", "enforce_overrides[0].reason: "),
    ],
)
def test_a_policy_that_no_edge_could_follow_is_refused(bare_home: Home, text: str, message: str) -> None:
    bare_home.policy.write_text(text + "\n")
    assert message in "\n".join(bare_home.refused("check"))


def entry(document: dict[str, Any], index: int = 0, **values: object) -> None:
    document["entries"][index].update(values)


Change = Callable[[dict[str, Any]], Any]
BROKEN: dict[str, tuple[Change, str]] = {
    "routes too": (lambda d: d.update(routes=[]), "routes: unknown field `routes`"),
    "no enforce": (lambda d: d.pop("enforce"), "document: missing field `enforce`"),
    "null": (lambda d: entry(d, initcwnd=None), "entries[0].initcwnd: invalid type: null"),
    "a brake of null": (lambda d: d["enforce"].update(brake=None), "enforce.brake: invalid type: null"),
    "a list for a brake": (lambda d: d["enforce"].update(brake=[20, 60, 400]), "enforce.brake: invalid type: sequence"),
    "half a brake": (
        lambda d: d["enforce"].update(brake={"connections": 1}),
        "enforce.brake: missing field `half_life_s`",
    ),
    "no value": (lambda d: d["entries"].__setitem__(0, {"prefix": "10.77.2.0/24"}), "entries[0]: 10.77.2.0/24 has no"),
    "another way": (
        lambda d: d["enforce"].update(by="magic"),
        "enforce.by: unknown variant `magic`, expected `routes` or `bpf`",
    ),
    "no lift": (lambda d: d["enforce"].update(lift_bytes=0), "enforce.lift_bytes: 0 is outside 1 to 1000000000"),
    "excluded twice": (
        lambda d: d["enforce"].update(excluded=["10.0.0.0/8"] * 2),
        "enforce.excluded[1]: 10.0.0.0/8 occurs twice",
    ),
    "excluded unsorted": (
        lambda d: d["enforce"].update(excluded=["fd00::/8", "10.0.0.0/8"]),
        "enforce.excluded[1]: 10.0.0.0/8 is out of order",
    ),
    "excluded is mapped": (
        lambda d: d["enforce"].update(excluded=["::ffff:a00:0/104"]),
        "enforce.excluded[0]: '::ffff:a00:0/104' is IPv4-mapped",
    ),
    "above cmax": (
        lambda d: entry(d, initcwnd=401),
        "entries[0].initcwnd: 401 is outside the kernel's 10 to start.cmax",
    ),
    "trial above cmax": (
        lambda d: entry(d, trial={"permille": 1, "initcwnd": 401}),
        "entries[0].trial.initcwnd: 401 is outside the kernel's 10 to start.cmax = 400",
    ),
    "trial of too many": (
        lambda d: entry(d, trial={"permille": 501}),
        "entries[0].trial.permille: 501 is over enforce.max_trial_permille = 500",
    ),
    "rate": (lambda d: entry(d, start_rate=999), "entries[0].start_rate: 999 is outside 1000 to 10000000000"),
    "rate of one": (lambda d: entry(d, start_rate=1000, connection_rate=1), "entries[0].connection_rate: 1 is outside"),
    "rate of one alone": (
        lambda d: entry(d, connection_rate=1000),
        "entries[0].connection_rate: is there without start_rate",
    ),
    "default resent": (
        lambda d: entry(d, default_resent=200_001),
        "entries[0].default_resent: 200001 is outside 1 to 200000",
    ),
    "receive window": (lambda d: entry(d, receive_window=1001), "entries[0].receive_window: 1001 is outside 1 to 1000"),
    "unknown prefix": (lambda d: entry(d, prefix="10.77.8.0/23"), "10.77.8.0/23 is neither a prefix of the fleet nor"),
    "a client's window by a route": (
        lambda d: d.update(
            enforce={**d["enforce"], "by": "routes"}, entries=[{"prefix": "10.77.9.0/24", "initcwnd": 42}]
        ),
        "10.77.9.0/24 is not a prefix of the fleet",
    ),
    "own PoP": (lambda d: entry(d, prefix="10.77.1.0/24"), "belongs to the edge's own PoP ams"),
    "neither": (lambda d: entry(d, 1, prefix="192.0.2.0/25"), "192.0.2.0/25 is neither a prefix of the fleet nor an"),
    "multicast": (lambda d: entry(d, 1, prefix="224.0.2.0/24"), "224.0.2.0/24 is loopback, link-local, multicast"),
    "twice": (lambda d: d["entries"].insert(1, d["entries"][0]), "entries[1].prefix: 10.77.2.0/24 occurs twice"),
    "unsorted": (lambda d: d["entries"].reverse(), "entries[1].prefix: 2001:db8:0:100::/56 is out of order"),
    "another algorithm": (
        lambda d: entry(d, 1, congestion={"algorithm": "reno", "from_bytes": 0}),
        "entries[1].congestion.algorithm: is 'reno', not 'bbr'",
    ),
    "bytes": (
        lambda d: entry(d, 1, congestion={"algorithm": "bbr", "from_bytes": -1}),
        "entries[1].congestion.from_bytes: invalid value: integer `-1`",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_each_rule_finds_what_it_is_for(case: str) -> None:
    change, message = BROKEN[case]
    document = json.loads(rendered(BPF)["ams-1"].content)
    change(document)
    lines = wrong(document, BPF)
    assert any(line.startswith("b.json: ") and message in line for line in lines), lines


def test_a_way_back_restores_the_way_or_leaves_nothing() -> None:
    by_routes, by_program = (
        rendered({})["ams-1"].bundle,
        rendered({"enforce": {"by": "bpf", "live": "restore"}})["ams-1"],
    )
    undone = json.loads(going_back(by_routes, by_program.bundle).content)
    assert undone["enforce"] == {"by": "routes", "live": "leave", "otherwise": "default"}
    assert undone["entries"] == json.loads(canonical({"entries": by_routes.entries}))["entries"]
    again = json.loads(going_back(by_program.bundle, by_routes).content)
    assert {name: again[name] for name in ("enforce", "entries")} == {
        name: json.loads(by_program.content)[name] for name in ("enforce", "entries")
    }
    # The program goes; open connections are treated as the bundle said that is undone.
    nothing = going_back(None, by_program.bundle)
    assert json.loads(nothing.content)["enforce"] == {"by": "routes", "live": "restore", "otherwise": "default"}
    assert given(json.loads(nothing.content), 0) is None
    for made in (nothing, renewed(by_program.bundle, nothing.bundle, NOW + 30)):
        assert parse("b.json", made.content) == made
        assert made.bundle.digest == digest(json.loads(made.content))
    assert given(json.loads(by_program.content), NOW) != given(again | {"enforce": {}}, NOW)
    assert given(json.loads(by_program.content), NOW) == given(again, NOW)


def test_a_rollout_begins_with_an_edge_that_has_something(tmp_path: Path) -> None:
    for edge, document in rendered(BPF).items():
        (tmp_path / f"{edge}.json").write_bytes(document.content)
    found = read_publication(tmp_path, [("ams-1", "europe"), ("nyc-1", "america")])
    assert [one.routes for one in found] == [4, 0]


def kinds(before: dict[str, Document], after: dict[str, Document]) -> Iterable[tuple[str, Kind]]:
    sides = ({edge: one.bundle for edge, one in side.items()} for side in (before, after))
    return [(one.network, one.kind) for one in destinations(*sides)["ams-1"]]


def test_another_way_to_enforce_the_same_values_is_a_change_to_the_gate() -> None:
    prefixes = [("10.77.2.0/24", Kind.WINDOWS), ("fd77:2::/48", Kind.WINDOWS)]
    clients = [("192.0.2.0/24", Kind.CLIENTS), ("2001:db8:0:100::/56", Kind.CLIENTS)]
    kept = [(prefix, Kind.KEPT) for prefix, _ in prefixes]
    first, by_program = rendered({}), rendered(BPF)
    assert kinds(first, by_program) == prefixes + clients
    assert kinds(by_program, by_program) == kept
    # Schema 2 by routes says the same; with `congestion_always`, BBR that did not act does.
    assert kinds(first, rendered({"enforce": {"excluded": ["10.9.0.0/16"]}})) == kept
    assert kinds(first, rendered({"enforce": {"congestion_always": True}})) == kept + clients

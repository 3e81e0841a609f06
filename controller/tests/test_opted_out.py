"""Tenants that keep the kernel's default start: from fleet.yaml to bundles, and what may not be published."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from springtide.bundles.model import parse
from springtide.bundles.published import going_back
from springtide.bundles.render import render
from springtide.bundles.validate import Context, parsed_problems
from springtide.fleet import Fleet
from springtide.laws.base import Contribution
from springtide.laws.entry import Part
from springtide.policy import Policy

from testkit.home import FLEET, Home
from testkit.home import ROUND as NOW
from testkit.published import canonical, digest

pytestmark = pytest.mark.usefixtures("clock")

TENANTS = """
tenants:
  shop: {ports: [443], addresses: [10.77.1.0/26]}
  voice: {ports: [5061, 5060], addresses: ["fd77:1::/64", 10.77.1.64/26], start: off}
  lab: {addresses: [10.77.1.128/25], start: off}
"""
THE_FLEET = Fleet.model_validate(yaml.safe_load(FLEET + TENANTS))
NOBODY = Fleet.model_validate(yaml.safe_load(FLEET))
BPF = {"enforce": {"by": "bpf"}}
SIDES = [
    {"prefix": "10.77.1.128/25"},
    {"port": 5060, "prefix": "10.77.1.64/26"},
    {"port": 5060, "prefix": "fd77:1::/64"},
    {"port": 5061, "prefix": "10.77.1.64/26"},
    {"port": 5061, "prefix": "fd77:1::/64"},
]


def bundle(fleet: Fleet, policy: dict[str, Any]) -> dict[str, Any]:
    """ams-1's, with a start towards fra."""
    parsed = Policy.model_validate(policy)
    edges = fleet.edges()
    starts = Contribution({edge: [Part(prefix="10.77.2.0/24", initcwnd=40)] for edge in edges})
    found: dict[str, Any] = json.loads(render(fleet, parsed, NOW, NOW, [starts]).documents["ams-1"].content)
    return found


def wrong(document: dict[str, Any], policy: dict[str, Any], fleet: Fleet = THE_FLEET) -> list[str]:
    content = canonical({**document, "digest": digest(document)})
    context = Context(fleet, Policy.model_validate(policy), NOW + 1)
    return [str(problem) for problem in parsed_problems("b.json", content, context)[1]]


def test_bundles_name_ports_and_addresses_in_the_order_that_edges_want() -> None:
    found = bundle(THE_FLEET, BPF)
    assert found["enforce"]["opted_out"] == SIDES
    assert wrong(found, BPF) == []
    assert "opted_out" not in bundle(NOBODY, BPF)["enforce"]


def test_an_older_round_does_not_bring_the_starts_back() -> None:
    older = bundle(NOBODY, BPF)
    assert wrong(older, BPF, NOBODY) == []
    [problem] = wrong(older, BPF)
    assert (
        "enforce.opted_out: lacks a tenant that fleet.yaml has with start: off (rule opted_out); publish a newer"
        in problem
    )
    # Who came back in is left alone until the next round, which harms nobody.
    assert wrong(bundle(THE_FLEET, BPF), BPF, NOBODY) == []


def test_the_way_back_does_not_bring_the_starts_back_either() -> None:
    """A gate that takes a rollout back knows nothing of tenants."""
    before, after = bundle(NOBODY, BPF), bundle(THE_FLEET, BPF)
    back = json.loads(way_back(before, after))
    assert back["entries"] == before["entries"]
    assert back["enforce"] == {**before["enforce"], "opted_out": SIDES}
    # Routes could not leave them alone; and who came back in is started by the next round.
    by_both = {"enforce": {"by": "bpf", "otherwise": "routes"}}
    for old in (bundle(NOBODY, {}), bundle(NOBODY, {"enforce": {"live": "restore"}}), bundle(NOBODY, by_both)):
        assert way_back(old, after) == way_back(None, after)
    assert json.loads(way_back(after, before))["enforce"] == after["enforce"]


def way_back(before: dict[str, Any] | None, after: dict[str, Any]) -> bytes:
    old, new = (None if one is None else parse("b.json", canonical(one)).bundle for one in (before, after))
    assert new is not None
    return going_back(old, new).content


@pytest.mark.parametrize(
    "policy", [{}, {"enforce": {"by": "bpf", "otherwise": "routes"}}, {"enforce": {"live": "restore"}}]
)
def test_what_routes_would_carry_is_refused(policy: dict[str, Any]) -> None:
    found = bundle(THE_FLEET, policy)
    [problem] = wrong(found, policy)
    assert "enforce.opted_out: " in problem
    assert "by routes, which know destinations only" in problem
    assert "; set enforce.by: bpf and enforce.otherwise: default in policy.yaml" in problem
    assert wrong(bundle(NOBODY, policy), policy, NOBODY) == []


def test_a_bundle_that_starts_nothing_may_be_by_routes() -> None:
    """The way back from a publication."""
    empty = bundle(THE_FLEET, {}) | {"entries": []}
    assert wrong(empty, {}) == []


Change = Callable[[list[dict[str, Any]]], Any]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda sides: sides.append({}), "enforce.opted_out[5]: has neither a port nor a prefix"),
        (lambda sides: sides.append({"port": 65_536}), "enforce.opted_out[5].port: invalid value: integer `65536`"),
        (
            lambda sides: sides.append({"port": 6000, "prefix": "10.0.0.1/8"}),
            "opted_out[5].prefix: '10.0.0.1/8'",
        ),
        (lambda sides: sides.append({"port": 6000, "prefix": "::ffff:a00:0/104"}), "enforce.opted_out[5].prefix: "),
        (lambda sides: sides.append(sides[-1]), "enforce.opted_out[5]: is out of order (port, prefix), or twice"),
        (lambda sides: sides.reverse(), "enforce.opted_out[1]: is out of order (port, prefix)"),
        (
            lambda sides: sides.extend({"port": 6000 + n} for n in range(60)),
            "enforce.opted_out: 65 are more than the 64",
        ),
        (lambda sides: sides.append({"host": "x"}), "enforce.opted_out[5].host: unknown field"),
    ],
)
def test_what_edges_would_refuse_is_refused(change: Change, message: str) -> None:
    found = bundle(THE_FLEET, BPF)
    change(found["enforce"]["opted_out"])
    assert any(message in problem for problem in wrong(found, BPF)), wrong(found, BPF)


def test_check_names_the_edges_that_could_not_leave_a_tenant_alone(bare_home: Home) -> None:
    bare_home.fleet.write_text(FLEET + TENANTS)
    bare_home.policy.write_text("enforce: {by: bpf}\n")
    bare_home.run("check")
    bare_home.policy.write_text("enforce_overrides: [{edges: [ams-1, ams-2, fra-1], by: bpf, reason: the first}]\n")
    lines = bare_home.refused("check")
    fault = "start: routes know destinations only, and 1 of 4 edges enforce by them (nyc-1); set enforce.by: bpf"
    assert [fault in line for line in lines] == [True, True]
    assert ["tenants.voice" in lines[0], "tenants.lab" in lines[1]] == [True, True]

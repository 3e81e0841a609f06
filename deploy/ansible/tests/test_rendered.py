"""Edges take what the controller renders, and `springtide validate` takes nothing that they refuse."""

from __future__ import annotations

import json
import re
import subprocess
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from springtide import instants
from springtide._core import MAX_DEFAULT_RESENT
from springtide.bundles.render import render as render_contributions
from springtide.bundles.validate import Context, parsed_problems, problems
from springtide.fleet import Fleet
from springtide.laws.base import Contribution
from springtide.laws.congestion import interface as congestion
from springtide.laws.entry import Part
from springtide.laws.initcwnd import interface as initcwnd
from springtide.policy import Policy
from testkit.decided import decision
from testkit.edge import NAME, PROGRAM, sealed
from testkit.home import ROUND

FLEET = Fleet.model_validate(
    {
        "version": 1,
        "pops": {
            "ams": {"prefixes": ["10.77.1.0/24"], "edges": {NAME: {"address": "10.77.1.1"}}},
            "fra": {
                "prefixes": ["10.77.2.0/24", "172.16.0.0/16", "fd77:2::/48"],
                "edges": {"fra-1": {"address": "10.77.2.1"}},
            },
        },
    }
)
TENANTS = {
    "voice": {"ports": [5060, 5061], "addresses": ["10.77.1.0/25", "fd77:1::/64"], "start": "off"},
    "lab": {"addresses": ["10.77.1.128/25"], "start": "off"},
}
OPTED_OUT = Fleet.model_validate(FLEET.model_dump(mode="json", exclude={"tenants"}) | {"tenants": TENANTS})
# A client prefix that is a PoP's as well, and some that no bundle may name.
CLIENTS = ("10.77.2.0/24", "192.0.2.0/24", "127.0.0.0/24", "169.254.0.0/24", "2001:db8::/56", "fe80::/56", "::/56")
WINDOWS = st.integers(10, 100)
RATES = st.integers(1000, 10_000_000_000)
# Rules that need fleet and policy, which edges do not have; a value out of the policy's range.
KNOWN_BY_THE_CONTROLLER = (
    "known_edge",
    "prefixes",
    "bounds",
    "times",
    "congestion_values",
    "entry_values",
    "enforce",
    "opted_out",
)
PREFIXES = (
    "10.77.2.1/24",
    "10.0.0.0/7",
    "::/0",
    "0.0.0.0/0",
    "::ffff:a00:0/104",
    "fd00::%1/64",
    "FD00::/64",
    "10.0.0.0",
)
HOSTILE: st.SearchStrategy[object] = st.sampled_from(
    [None, True, False, -1, 0, 1, 1001, 10**10 + 1, 2**63, 2**70, 1.0, 10.5, "", "\0", "bbr", "BBR", "restore", [], {}]
) | st.sampled_from([*PREFIXES, "224.0.0.0/24", "10.77.2.0/24", "192.0.2.0/25", "2026-01-02T03:05:60Z", "e" * 99])


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    enforce = {
        "by": draw(st.sampled_from(["bpf", "bpf", "routes"])),
        "otherwise": draw(st.sampled_from(["default", "routes"])),
        "live": draw(st.sampled_from(["leave", "restore"])),
        "excluded": draw(
            st.lists(st.sampled_from(["fd00::/8", "0.0.0.0/0", "10.9.0.0/16", "10.9.0.0/24"]), unique=True)
        ),
        "congestion_always": draw(st.booleans()),
        "receive_windows": draw(st.booleans()),
        "lift_bytes": draw(st.sampled_from([1, 60_000, 1_000_000_000])),
        "lift_round_trips": draw(st.sampled_from([0, 1, 1000])),
        "brake_lost_permille": draw(st.sampled_from([1, 1000])),
        "brake_connections": draw(st.sampled_from([1, 1_000_000])),
        "brake_half_life_s": draw(st.sampled_from([1, 86_400])),
        "record_permille": draw(st.sampled_from([0, 1000])),
        "max_trial_permille": 1000,
    }
    return Policy.model_validate({"enforce": enforce})


@st.composite
def handed_over(draw: st.DrawFn) -> list[Part]:
    """Entries as a later law may give them."""
    found = []
    for prefix in draw(st.sets(st.sampled_from(["10.77.2.0/24", "172.16.0.0/16", "fd77:2::/48"]))):
        values: dict[str, Any] = {"start_rate": draw(RATES)}
        if draw(st.booleans()):
            values["connection_rate"] = draw(RATES)
        if draw(st.booleans()):
            values["default_resent"] = draw(st.sampled_from([1, MAX_DEFAULT_RESENT]))
        if draw(st.booleans()):
            trial = {"permille": draw(st.integers(1, 1000)), "initcwnd": draw(WINDOWS)}
            values["trial"] = Part(**{name: trial[name] for name in draw(st.sampled_from([["permille"], list(trial)]))})
        found.append(Part(prefix=prefix, **values))
    return found


def places(value: Any) -> list[tuple[Any, Any]]:
    """Everything in a document: what holds it, and under which key."""
    if isinstance(value, dict):
        keys: list[Any] = list(value)
    else:
        keys = list(range(len(value))) if isinstance(value, list) else []
    found = [(value, key) for key in keys]
    for key in keys:
        found += places(value[key])
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rendered") / "b.json"


def is_taken(place: Path, content: bytes) -> bool:
    """Tells whether the edges' program takes it a second after its round."""
    place.write_bytes(content)
    command = [str(PROGRAM), "verify", str(place), "--unsigned", "--edge", NAME, "--at", str(ROUND + 1)]
    code = subprocess.run(command, check=False, capture_output=True).returncode
    assert code in (0, 2, 12, 13, 15)
    return code == 0


# Each example is a process.
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(policies(), handed_over(), st.sets(st.sampled_from(CLIENTS)), st.data())
def test_edges_take_what_is_rendered_and_validate_takes_nothing_that_they_refuse(
    place: Path, policy: Policy, more: list[Part], clients: set[str], data: st.DataObject
) -> None:
    decided = [
        decision(*pair, data.draw(WINDOWS)) for pair in (("ams", "fra", 4), ("ams", "fra", 6), ("fra", "ams", 4))
    ]
    contributions = [
        initcwnd.contribution(FLEET, policy, decided, ROUND + policy.bundle.ttl_s),
        congestion.contribution(FLEET, policy, {"ams": [ip_network(prefix) for prefix in clients]}),
        Contribution({NAME: more, "fra-1": []}, "bpf"),
    ]
    paces = (policy.enforce.by, policy.enforce.otherwise) == ("bpf", "default")
    fleet = data.draw(st.sampled_from([FLEET, OPTED_OUT])) if paces else FLEET
    made = render_contributions(fleet, policy, ROUND, ROUND, contributions).documents[NAME]
    context = Context(fleet, policy, ROUND + 1, NAME)
    assert problems("b.json", made, context) == []
    document = json.loads(made.content)
    how = data.draw(st.sampled_from(["another value", "missing", "one more", "as it is"]))
    holder, key = data.draw(st.sampled_from(places(document)))
    event(how)
    if how == "as it is":
        assert is_taken(place, made.content)
        return
    if how == "another value":
        holder[key] = data.draw(HOSTILE)
    elif how == "missing":
        del holder[key]
    elif isinstance(holder, list):
        holder.append(data.draw(HOSTILE | st.just(holder[key])))
    else:
        holder[data.draw(st.sampled_from(["via", "initcwnd", "trial", "congestion", "routes"]))] = data.draw(HOSTILE)
    if "digest" in document and key != "digest":
        document = sealed(document)
    content = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    _, found = parsed_problems("b.json", content, context)
    taken = is_taken(place, content)
    event(f"{how}, edge: {taken}, validate: {not found}")
    if not taken:
        assert found, "an edge refuses what validate takes"
    else:
        rules = [re.search(r"\(rule (\w+)\)", one.message) for one in found]
        assert all(rule and rule[1] in KNOWN_BY_THE_CONTROLLER for rule in rules), [str(one) for one in found]


@pytest.mark.parametrize("ahead", [0, instants.EDGE_TOLERANCE_S, instants.EDGE_TOLERANCE_S + 1])
def test_edges_take_bundles_of_a_clock_as_far_ahead_as_the_controller_knows(place: Path, ahead: int) -> None:
    now = ROUND + 1  # as is_taken has it
    made = render_contributions(FLEET, Policy(), ROUND, now + ahead, []).documents[NAME]
    expected = ahead <= instants.EDGE_TOLERANCE_S
    assert is_taken(place, made.content) is expected
    assert (problems("b.json", made, Context(FLEET, Policy(), now, NAME)) == []) is expected

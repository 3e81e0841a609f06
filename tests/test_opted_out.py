"""From `start: off` in fleet.yaml to sockets: the controller's bundle, the edge's program, connections."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from springtide.bundles.render import render
from springtide.bundles.validate import Context, problems
from springtide.fleet import Fleet
from springtide.laws.base import Contribution
from springtide.laws.entry import Part
from springtide.policy import Policy

from testkit import host as hosts
from testkit.edge import NAME, Outcome
from testkit.host import Host

pytestmark = pytest.mark.root

POP = "ams"
FLEET = {
    "version": 1,
    "pops": {
        POP: {"prefixes": ["192.168.0.0/24", "fd00:0::/64"], "edges": {NAME: {"address": "192.168.0.1"}}},
        "fra": {"prefixes": ["10.77.2.0/24", "fd77:2::/48"]},
    },
}
TENANTS = {"voice": {"addresses": ["192.168.0.0/24"], "start": "off"}, "web": {"addresses": ["fd00:0::/64"]}}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with hosts.made(tmp_path) as found:
        yield found


def apply(host: Host, fleet: Fleet, policy: Policy, made_at: int) -> Outcome:
    starts = [Part(prefix="10.77.2.0/24", initcwnd=60), Part(prefix="fd77:2::/48", initcwnd=40)]
    moment = made_at // 300 * 300
    made = render(fleet, policy, moment, made_at, [Contribution({NAME: starts})]).documents[NAME]
    assert problems("b.json", made, Context(fleet, policy, made_at + 1, NAME)) == []
    return host.run("apply", host.edge.write(json.loads(made.content)))


def test_a_tenant_that_opts_out_keeps_the_default_until_it_is_back(host: Host) -> None:
    # Also the first round, almost 15 minutes old, is to hold while this runs.
    policy, now = Policy.model_validate({"enforce": {"by": "bpf"}, "bundle": {"ttl_s": 3600}}), int(time.time())
    everybody = Fleet.model_validate(FLEET)
    assert apply(host, everybody, policy, now - 600).code == 0
    assert host.windows() == [60, 40]
    assert apply(host, Fleet.model_validate(FLEET | {"tenants": TENANTS}), policy, now - 300).code == 0
    assert host.windows() == [10, 40]
    assert host.run("status").report["program"]["totals"]["opted_out"] == 1
    assert apply(host, everybody, policy, now).code == 0
    assert host.windows() == [60, 40]

"""The worked example of a field that edges enforce, from the law to a packet, in a copy of the code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testkit import worked

PAGE = (worked.ROOT / "docs/how-to/add-an-enforced-field.md").read_text()
# The bundle that the copy's controller makes of one decision, and what it finds wrong with another value and another
# publication.
RENDER = """
import json
import numpy as np
from springtide import instants
from springtide.bundles import caps
from springtide.bundles.model import fields_of, seal
from springtide.bundles.render import render
from springtide.bundles.validate import Context, problems
from springtide.cli import diff
from springtide.fleet import Fleet
from springtide.frame import Frame
from springtide.laws.base import Contribution
from springtide.laws.start import bundle
from springtide.laws.start.law import DECIDED, STARTS
from springtide.policy import BundlePolicy, Policy

pops = {name: {"prefixes": [f"10.77.{at}.0/24"], "edges": {f"{name}-1": {"address": f"10.77.{at}.1"}}}
        for at, name in enumerate(("ams", "fra"), 1)}
fleet = Fleet.model_validate({"version": 1, "pops": pops})
policy = Policy.model_validate({"enforce": {"by": "bpf"}})
now = instants.now()
moment = instants.latest_round(now, policy.round.interval_s)
found = np.zeros(1, DECIDED)
found["src_pop"], found["destination"], found["ip_version"] = b"ams", b"fra", 4
found["window"], found["connection_rate"], found["path_rate"] = 60, 2e6, 8e6
found["last_evidence"], found["expires_at"] = moment, moment + 3600
entries, _ = bundle.entries(fleet, policy, moment, STARTS.rows(Frame.of(found)), {}, moment + policy.bundle.ttl_s)
good = render(fleet, policy, moment, now, [Contribution(entries, "bpf")]).documents["ams-1"]

def with_tos(value, times=1):
    [entry] = good.bundle.entries
    others = [entry.but(prefix=f"10.78.{at}.0/24", tos=value) for at in range(times - 1)]
    return seal({**fields_of(good.bundle), "entries": [entry.but(tos=value), *others]})

def wrong(document):
    return [f"{one.field}: {one.message}" for one in problems("", document, Context(fleet, policy, now, "ams-1"))]

before, after = ({"ams-1": with_tos(value, 200)} for value in (72, 184))
capped = caps.problems("", caps.difference(before, after), BundlePolicy())
print(json.dumps({
    "good": json.loads(good.content), "of_good": wrong(good),
    "bad": json.loads(with_tos(253).content), "of_bad": wrong(with_tos(253)),
    "capped": [one.message for one in capped],
    "shown": diff._start(caps.starts({"ams-1": good})["ams-1", "10.77.2.0/24"]),
}))
"""
# The copy's edge takes it, and connections are opened: into the prefix, and to another one.
ENFORCE = """
import json, sys
from pathlib import Path
from testkit import host as hosts
from testkit import marked

documents = json.loads(sys.argv[1])
with hosts.made(Path(sys.argv[2])) as host:
    bad = host.edge.write(documents["bad"])
    refused = host.edge.run("verify", bad, "--allowed-signers", str(host.edge.allowed_signers))
    taken = host.run("apply", host.edge.write(documents["good"]))
    seen = marked.octets(host, "10.77.2.1")
    print(json.dumps({"refused": [refused.code, refused.errors], "taken": [taken.code, taken.errors], "seen": seen}))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folders = ("controller/springtide", "sql", "proto", "testkit", *worked.CRATES)
    return worked.copy(tmp_path_factory.mktemp("tree"), folders, PAGE)


@pytest.fixture(scope="module")
def rendered(tree: Path) -> dict[str, Any]:
    worked.build(tree, "springtide-edge", "springtide-native")
    found: dict[str, Any] = json.loads(worked.run(tree, RENDER))
    return found


def test_it_is_four_files(tree: Path) -> None:
    assert len(worked.files(PAGE)) <= 4
    assert all((tree / name).read_text() != (worked.ROOT / name).read_text() for name in worked.files(PAGE))


@pytest.mark.proof
def test_the_controller_gives_it_within_its_bounds(rendered: dict[str, Any]) -> None:
    [entry] = rendered["good"]["entries"]
    assert entry["tos"] == 72
    assert rendered["of_good"] == []
    assert rendered["of_bad"] == ["entries[0].tos: 253 is outside 1 to 252"]
    assert rendered["capped"][0].startswith("200 of 200 routes are changed or withdrawn")
    assert rendered["shown"].endswith(", tos 72")


@pytest.mark.proof
@pytest.mark.root
def test_a_packet_has_it(tree: Path, rendered: dict[str, Any], tmp_path: Path) -> None:
    found = json.loads(worked.run(tree, ENFORCE, json.dumps(rendered), str(tmp_path)))
    assert found["taken"] == [0, ""]
    assert found["seen"] == {"10.77.2.1": [72, 72], "192.168.0.2": [0, 0]}
    code, errors = found["refused"]
    assert code == 2
    assert "entries[0].tos: 253 is outside 1 to 252" in errors

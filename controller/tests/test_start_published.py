"""From a decision of the law of starts to a published bundle and a connection: every kind of unit, every part."""

from __future__ import annotations

import json
import os
import subprocess
from ipaddress import ip_network
from typing import Any

import numpy as np
import pytest
from springtide import instants
from springtide.frame import Frame
from springtide.laws.congestion import prefixes
from springtide.laws.congestion import rows as congestion_rows
from springtide.laws.congestion.law import ACTION, Action
from springtide.laws.congestion.law import DECIDED as CONGESTION
from springtide.laws.initcwnd.rows import write_round
from springtide.laws.start import rows
from springtide.laws.start.decision import Action as Start
from springtide.laws.start.law import DECIDED
from springtide.laws.vocabulary import codes
from springtide.policy import Policy

from lab.connections import own_network
from testkit import bpf
from testkit.decided import DECISIONS
from testkit.home import ROUND, Home
from testkit.pairs import decided_table

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
    found["action"] = codes(Start)[Start.SET if "window" in values else Start.TRY]
    found["last_evidence"], found["expires_at"] = ROUND, ROUND + 3600
    for name, value in values.items():
        found[name] = value
    return Frame.of(found)


def on_bbr() -> Any:
    """A round in which both client prefixes use BBR."""
    chosen = [ip_network(prefix) for prefix in ("198.51.100.0/24", "2001:db8:5:100::/56")]
    found = np.zeros(len(chosen), CONGESTION)
    found["pop"] = b"ams"
    for row, prefix in zip(found, chosen, strict=True):
        row["high"], row["low"] = prefixes.halves(str(prefix))
        row["ip_version"] = prefix.version
    found["action"], found["algorithm"] = ACTION[Action.ENTER], 1
    found["selected_since"] = ROUND - 3000
    return found


def published(home: Home, values: dict[str, Any]) -> dict[str, Any]:
    """The bundle of an edge in ams, as `springtide publish` makes it of what is in the store."""
    home.policy.write_text("enforce: {by: bpf}\n")
    store = home.open()
    write_round(store, ROUND, decided_table(DECISIONS), Policy().version)
    rows.write_round(store, ROUND, decided(**values), Policy().version)
    congestion_rows.write_round(store, ROUND, on_bbr(), Policy().version)
    store.close()
    home.run("publish", "--round", instants.show(ROUND))
    found: dict[str, Any] = json.loads((home.publish_dir / "candidate" / "edges" / "ams-1.json").read_bytes())
    return found


@pytest.mark.parametrize("values", [IN_USE, ON_TRIAL, IN_USE | ON_TRIAL], ids=["in use", "on trial", "both"])
def test_every_unit_and_part_is_published(home: Home, values: dict[str, Any]) -> None:
    entries = {one["prefix"]: one for one in published(home, values)["entries"]}
    assert sorted(entries) == sorted(UNITS.values())
    for entry in entries.values():
        assert entry.get("initcwnd") == values.get("window")
        assert entry.get("trial", {}).get("initcwnd") == values.get("trial_window")
        # An edge that the store's fleet does not have begins with half of an equal part.
        assert entry.get("start_rate") == (2_000_000 if "window" in values else None)


@pytest.mark.root
def test_a_connection_starts_as_decided(home: Home) -> None:
    document = published(home, IN_USE)
    with own_network(), bpf.program(f"stp{os.getpid()}") as program:
        program.apply({"entries": document["entries"]})
        for prefix in UNITS.values():
            network = ip_network(prefix)
            host = str(network[7])
            subprocess.run(
                ["ip", "address", "add", f"{host}/{network.max_prefixlen}", "dev", "lo", "nodad"], check=True
            )
            found = bpf.ask(program, f"one, _, = pair({host!r})[:2]\nprint(json.dumps([window(one), rate(one)]))")
            assert found == [120, 2_000_000], prefix
        switched = [one["prefix"] for one in document["entries"] if "congestion" in one]
        assert switched == ["198.51.100.0/24", "2001:db8:5:100::/56"]

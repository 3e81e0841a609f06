"""A host on which an earlier program applied a bundle: what it left is understood, kept, and taken back."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from testkit.edge import Edge, bundle, save

pytestmark = pytest.mark.root

WINDOWS = {"10.1.0.0/16": 20, "10.2.0.0/16": 30}


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def as_before(edge: Edge) -> dict[str, object]:
    """State directory and kernel as the program in Python left them; its state."""
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    document = bundle(WINDOWS, now=time.time() - 5)
    name = f"bundle-{document['digest'][7:23]}.json"
    edge.state_dir.mkdir(mode=0o700)
    (edge.state_dir / name).write_text(json.dumps(document))
    (edge.state_dir / "lock").touch(mode=0o600)
    way = "via 192.168.0.2 dev up0 scope 0 initcwnd"
    now = int(time.time())
    state: dict[str, object] = {
        "schema_version": 1,
        "transaction": "0123456789abcdef",
        "edge": "ams-1",
        "pop": "ams",
        "round": now // 300 * 300,
        "created_at": now - 5,
        "expires_at": now + 595,
        "policy_version": "0123456789ab",
        "bundle": name,
        "bundle_digest": document["digest"],
        "applied_at": now - 4,
        "boot_id": boot_id(),
        "boottime_expires": time.clock_gettime(time.CLOCK_BOOTTIME) + 595,
        "created_after": None,
        "withdrawal_seen": None,
        "withdrawn": None,
        "routes": {prefix: f"{way} {window}" for prefix, window in WINDOWS.items()},
        "refused": {},
    }
    save(edge.state_dir / "state.json", state)
    for prefix, window in WINDOWS.items():
        edge.ip(*f"route add {prefix} via 192.168.0.2 dev up0 table 201 proto 201 initcwnd {window}".split())
    edge.ip("rule", "add", "pref", "1000", "lookup", "201", "protocol", "201")
    return state


def test_what_was_applied_stays_applied_and_no_route_is_touched(edge: Edge) -> None:
    as_before(edge)
    before = edge.picture()
    report = edge.run("status").report
    assert (report["applied"], report["in_sync"], report["routes"]) == (True, True, 2)
    first = edge.run("follow").report
    assert (first["added"], first["replaced"], first["removed"]) == (0, 0, 0)
    assert edge.run("follow").report["changed"] is False, "the record is in the new words now"
    assert edge.picture() == before


def test_a_withdrawal_takes_it_back_and_an_older_round_stays_refused(edge: Edge) -> None:
    as_before(edge)
    assert edge.run("withdraw").report["removed"] == 2
    assert edge.windows() == {}
    old = edge.write(bundle({"10.1.0.0/16": 40}, now=time.time() - 3600))
    assert edge.run("apply", old).code in (14, 15)
    assert edge.run("apply", edge.write(bundle({"10.1.0.0/16": 40}))).code == 0


def test_an_apply_that_was_interrupted_then_ends_with_the_kernels_default(edge: Edge) -> None:
    state = as_before(edge)
    before = {"routes": state["routes"], "rules": [4]}
    intent = {key: value for key, value in state.items() if key not in ("routes", "refused")}
    intent |= {"transaction": "fedcba9876543210", "operation": "apply", "before": before}
    save(edge.state_dir / "intent.json", intent)
    outcome = edge.run("expire")
    assert "an earlier program wrote what stood before, so every route was withdrawn" in outcome.report["notes"][0]
    assert edge.windows() == {}

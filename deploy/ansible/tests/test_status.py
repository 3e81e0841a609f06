"""An edge's own report: expiry, drift, state on disk, and what it could not do."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from testkit.edge import Edge, Outcome, bundle, instant

pytestmark = pytest.mark.root


def test_expire_withdraws_once_the_bundle_has_expired_and_not_before(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.ip("-6", "route", "add", "default", "via", "fd00:0::2")
    before = edge.picture()
    ends = edge.apply_briefly({"10.77.2.0/24": 83, "fd77:2::/48": 40}, 4)
    early = edge.run("expire")
    if time.time() < ends:
        assert (early.code, early.report["changed"]) == (0, False)
        assert len(edge.windows()) == 2
    time.sleep(max(0.0, ends - time.time()) + 0.01)
    late = edge.run("expire")
    assert early.report["changed"] or late.report["removed"] == 2
    assert edge.picture() == before
    assert edge.run("expire").report["changed"] is False
    assert edge.status()["withdrawn"]["reason"] == f"expired at {instant(ends)}"


def test_status_shows_what_is_applied_and_what_has_drifted(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    empty = edge.run("status")
    assert (empty.code, empty.report["applied"], empty.report["in_sync"]) == (0, False, True)
    document = bundle({"10.1.0.0/16": 50, "10.2.0.0/16": 50})
    path = edge.write(document)
    edge.run("apply", path)
    report = edge.status()
    assert {key: report[key] for key in ("edge", "round", "digest", "expires_at", "policy_version")} == {
        key: document[key] for key in ("edge", "round", "digest", "expires_at", "policy_version")
    }
    assert (report["applied"], report["expired"], report["in_sync"], report["routes"]) == (True, False, True, 2)

    edge.batch(
        [
            "route del 10.1.0.0/16 table 201",
            "route replace 10.2.0.0/16 via 192.168.0.2 table 201 proto 201 initcwnd 9",
            "route add 10.3.0.0/16 via 192.168.0.2 table 201 proto 201 initcwnd 9",
            "rule del pref 1000",
        ]
    )
    drifted = edge.run("status")
    assert (drifted.code, drifted.report["in_sync"]) == (3, False)
    drift = {entry["prefix"]: (entry["wanted"], entry["found"]) for entry in drifted.report["drift"]}
    copy = "via 192.168.0.2 dev up0 scope 0 initcwnd"
    assert drift == {
        "10.1.0.0/16": (f"{copy} 50", None),
        "10.2.0.0/16": (f"{copy} 50", f"{copy} 9"),
        "10.3.0.0/16": (None, f"{copy} 9"),
        "IPv4 rule": ("pref 1000 lookup 201 protocol 201", None),
    }
    assert edge.run("apply", path).report["changed"] is True
    assert edge.run("status").code == 0


def test_a_link_that_flaps_is_drift_that_apply_repairs(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    path = edge.write(bundle({"10.1.0.0/16": 50}))
    edge.run("apply", path)
    edge.ip("link", "set", "up0", "down")
    edge.ip("link", "set", "up0", "up")
    assert edge.run("status").code == 3
    assert edge.run("apply", path).code == 3, "the edge's own route is gone too"
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    assert edge.run("apply", path).report["added"] == 1
    assert edge.run("status").code == 0


def test_state_is_for_root_only_and_keeps_the_last_good_bundle(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.state_dir.mkdir(mode=0o755)
    first, second = edge.write(bundle({"10.1.0.0/16": 50})), edge.write(bundle({"10.1.0.0/16": 60}))
    for path in (first, second):
        assert edge.run("apply", path).code == 0
    assert edge.state_dir.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o077 == 0 for file in edge.state_dir.iterdir())
    kept = list(edge.state_dir.glob("bundle-*.json"))
    assert [file.read_bytes() for file in kept] == [Path(second).read_bytes()]
    assert sorted(file.name for file in edge.state_dir.iterdir()) == sorted([kept[0].name, "lock", "state.json"])


def test_people_read_the_same_as_machines(edge: Edge) -> None:
    edge.ip("route", "add", "10.0.0.0/8", "via", "192.168.0.2")
    path = edge.write(bundle({"10.1.0.0/16": 50, "172.16.0.0/12": 50}))
    command = [word for word in edge.command("apply", path) if word != "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 3
    assert "routes: 1 (1 added, 0 replaced, 0 removed)" in done.stdout
    assert "refused: 172.16.0.0/12: no route of the edge's own covers it" in done.stdout


def test_a_bundle_is_enforced_as_far_as_routes_can(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    entries = [
        {"prefix": "10.1.0.0/16", "initcwnd": 50, "start_rate": 1_000_000},
        {"prefix": "10.2.0.0/16", "congestion": {"algorithm": "reno", "from_bytes": 100_000, "always": True}},
        {"prefix": "10.3.0.0/16", "congestion": {"algorithm": "reno", "from_bytes": 100_000}},
    ]

    def applied(**enforce: object) -> Outcome:
        return edge.run("apply", edge.write(bundle({}, enforce=enforce, entries=entries)))

    outcome = applied()
    assert (outcome.code, outcome.report["routes"]) == (0, 2)
    left = {key: count for key, count in outcome.report["not_enforced"].items() if count}
    assert left == {"congestion": 1, "start_rate": 1}
    assert [line for line in edge.table() if "initcwnd 50" in line]
    assert [line for line in edge.table() if line.endswith("congctl reno")]
    assert edge.run("status").code == 0
    excluded = applied(excluded=["10.1.7.0/24"])
    assert (excluded.report["not_enforced"]["excluded"], excluded.report["routes"]) == (1, 1)
    # Without the program: the kernel's default, or routes, as the bundle says.
    assert applied(by="bpf").report["not_enforced"]["program"] == 3
    assert (edge.table(), edge.run("status").code) == ([], 0)
    assert applied(by="bpf", otherwise="routes").report["routes"] == 2

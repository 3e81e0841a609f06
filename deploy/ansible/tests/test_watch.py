"""Copies follow the host's own routing: a real routing daemon, links that go, clocks, kills and restarts."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testkit.edge import Edge, load, save

pytestmark = pytest.mark.root

DESTINATION = "10.77.2.0/24"


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Waits for what comes by itself: the minute is only for a machine that stands still."""
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, what
        time.sleep(0.05)


def copied(edge: Edge, via: str | None) -> Callable[[], bool]:
    """Whether the copy of DESTINATION goes through `via`, or, for None, is gone."""

    def check() -> bool:
        lines = [line for line in edge.table() if line.startswith(DESTINATION)]
        return lines == [] if via is None else len(lines) == 1 and f" via {via} " in lines[0]

    return check


@contextlib.contextmanager
def watching(edge: Edge, interval: int = 3600) -> Iterator[subprocess.Popen[str]]:
    """The service, from its first pass on; by default nothing but an event makes it look again."""
    with (edge.directory / "watch.log").open("w+") as log:
        process = subprocess.Popen(
            edge.command("watch", "--interval", str(interval)), stdout=log, stderr=log, text=True
        )
        try:
            eventually(lambda: Path(log.name).stat().st_size > 0, "watch printed nothing")
            yield process
        finally:
            process.kill()
            process.wait()
    assert "Traceback" not in (edge.directory / "watch.log").read_text()


class Bird:
    """BIRD in the edge's namespace, writing static routes into main as a BGP session would."""

    def __init__(self, edge: Edge) -> None:
        self.config, self.socket = edge.directory / "bird.conf", edge.directory / "bird.ctl"

    def announce(self, *routes: str) -> None:
        """Exactly these routes, like `10.77.2.0/24 via 192.168.0.2`."""
        self.write(*routes)
        text = subprocess.run(
            ["birdc", "-s", str(self.socket), "configure"], capture_output=True, text=True, check=True
        ).stdout
        assert "Reconfigur" in text, text

    def write(self, *routes: str) -> None:
        static = "\n".join(f"  route {route};" for route in routes)
        self.config.write_text(
            "router id 192.168.0.1;\nprotocol device { scan time 1; }\n"
            "protocol kernel { ipv4 { export all; }; scan time 5; }\n"
            f"protocol static {{ ipv4;\n{static}\n}}\n"
        )


@pytest.fixture
def bird(edge: Edge) -> Iterator[Bird]:
    daemon = Bird(edge)
    daemon.write(f"{DESTINATION} via 192.168.0.2")
    process = subprocess.Popen(
        ["ip", "netns", "exec", edge.name, "bird", "-f", "-c", str(daemon.config), "-s", str(daemon.socket)]
    )
    try:
        eventually(lambda: any(DESTINATION in line for line in edge.table(table="main")), "BIRD wrote no route")
        yield daemon
    finally:
        process.terminate()
        process.wait()


def test_copies_follow_a_routing_daemon(edge: Edge, bird: Bird) -> None:
    edge.ip("route", "add", "default", "via", "192.168.1.2")
    assert edge.apply({DESTINATION: 83, "10.99.0.0/16": 20}).code == 0
    assert copied(edge, "192.168.0.2")()
    with watching(edge):
        bird.announce(f"{DESTINATION} via 192.168.1.2")
        eventually(copied(edge, "192.168.1.2"), "the copy did not follow to the other next hop")

        bird.announce(f"{DESTINATION} via 192.168.1.2", "10.77.2.128/25 via 192.168.0.2")
        eventually(copied(edge, None), "a more specific route is hidden")
        assert "via 192.168.0.2 dev up0" in edge.ip("route", "get", "10.77.2.129")
        assert edge.windows() == {"10.99.0.0/16": 20}, "the other destination is served on"

        bird.announce(f"{DESTINATION} via 192.168.0.2")
        eventually(copied(edge, "192.168.0.2"), "the copy did not come back")
        assert edge.windows()[DESTINATION] == 83

        # Its route gone altogether, the default route serves the destination.
        bird.announce("10.1.0.0/16 via 192.168.0.2")
        eventually(copied(edge, "192.168.1.2"), "the copy did not fall back to the default route")
        edge.ip("route", "del", "default")
        eventually(lambda: edge.windows() == {}, "no route is left to copy")


def test_copies_follow_a_link_that_flaps(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.ip("route", "add", DESTINATION, "via", "192.168.1.2")
    edge.apply({DESTINATION: 83})
    with watching(edge):
        for _ in range(2):
            edge.ip("link", "set", "up1", "down")
            eventually(copied(edge, "192.168.0.2"), "the copy did not leave the dead link")
            edge.ip("link", "set", "up1", "up")
            edge.ip("route", "add", DESTINATION, "via", "192.168.1.2")
            eventually(copied(edge, "192.168.1.2"), "the copy did not come back to the link")


def test_a_rule_that_ours_would_bypass_ends_it_and_is_named(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.apply({DESTINATION: 83})
    with watching(edge):
        edge.ip("rule", "add", "pref", "2000", "fwmark", "7", "lookup", "99")
        eventually(lambda: edge.windows() == {}, "the marked packets are bypassed")
        eventually(lambda: edge.status()["withdrawn"] is not None, "the withdrawal is not recorded")
    assert "fwmark 0x7" in edge.status()["withdrawn"]["reason"]


@pytest.mark.parametrize(
    ("version", "rule"),
    [
        (4, "pref 105 lookup main suppress_prefixlength 0"),
        (4, "pref 500 lookup main"),
        (4, "pref 900 from 192.168.0.0/16 lookup main"),
        (4, "pref 900 ipproto tcp lookup main"),
        (4, "pref 0 goto 32766"),
        (4, "pref 900 to 10.77.0.0/16 prohibit"),
        (6, "pref 105 lookup main suppress_prefixlength 0"),
        (6, "pref 900 from fd00::/16 lookup main"),
        (6, "pref 900 ipproto tcp lookup main"),
        (6, "pref 900 to fd77::/32 unreachable"),
    ],
)
def test_destinations_that_a_rule_before_ours_keeps_from_it_are_named(edge: Edge, version: int, rule: str) -> None:
    both = {4: ("10.77.0.0/16", "192.168.0.2"), 6: ("fd77::/32", "fd00:0::2")}
    for family, (prefix, via) in both.items():
        edge.ip(f"-{family}", "route", "add", prefix, "via", via)
    destination = both[version][0]
    served = {prefix: 83 for prefix, _ in both.values()}
    assert edge.apply(served).code == 0
    assert edge.run("status").code == 0
    log = edge.directory / "watch.log"
    with watching(edge):
        edge.ip(f"-{version}", "rule", "add", *rule.split())
        eventually(lambda: "not reached" in log.read_text(), "watch is silent")
        applied = edge.apply(dict.fromkeys(served, 84))
        assert (applied.code, [one["prefix"] for one in applied.report["refused"]]) == (3, [destination])
        assert "a rule before 1000 answers" in applied.report["refused"][0]["reason"]
        status = edge.run("status")
        assert (status.code, [one["prefix"] for one in status.report["drift"]]) == (3, [destination])
        before = len(log.read_text())
        edge.ip(f"-{version}", "rule", "del", *rule.split())
        eventually(lambda: len(log.read_text()) > before, "watch does not notice that the rule is gone")
        assert edge.run("status").code == 0


def test_a_withdrawal_stays_and_an_expiry_comes_by_itself(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.apply({DESTINATION: 83})
    with watching(edge, interval=1):
        edge.run("withdraw")
        edge.ip("route", "add", "10.5.0.0/16", "via", "192.168.1.2")
        outcome = edge.run("follow")
        assert (outcome.code, outcome.report["changed"], edge.windows()) == (0, False, {})
        edge.apply_briefly({DESTINATION: 83}, 3)
        eventually(lambda: edge.windows() == {}, "the bundle's end was not kept")


def test_follow_brings_the_last_good_bundle_back_while_it_holds(edge: Edge) -> None:
    """As after a restart: the kernel has forgotten everything, the state directory nothing."""
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.apply({DESTINATION: 83})
    edge.ip("rule", "del", "pref", "1000")
    edge.ip("route", "flush", "table", "201")
    rebooted(edge, applied_ago=60)
    outcome = edge.run("follow")
    assert (outcome.code, outcome.report["added"], edge.windows()) == (0, 1, {DESTINATION: 83})
    assert edge.status()["in_sync"]


def rebooted(edge: Edge, applied_ago: int) -> None:
    """The state as another boot left it, applied that many seconds before the clock of now."""
    path = edge.state_dir / "state.json"
    boot = "00000000-0000-0000-0000-000000000000"
    save(path, load(path) | {"boot_id": boot, "applied_at": int(time.time()) - applied_ago})


def test_a_clock_two_hours_back_after_a_restart_does_not_extend_a_bundle(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    before = edge.picture()
    edge.apply({DESTINATION: 83})
    rebooted(edge, applied_ago=-7200)
    outcome = edge.run("follow")
    assert "the clock is before the last apply" in outcome.report["reason"]
    assert edge.picture() == before


def test_a_last_good_bundle_that_was_damaged_is_not_followed(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    before = edge.picture()
    edge.apply({DESTINATION: 83})
    [kept] = edge.state_dir.glob("bundle-*.json")
    kept.write_text(kept.read_text().replace(": 83", ":  99").replace(":83", ":99"))
    assert "does not match" in edge.run("follow").report["reason"]
    assert edge.picture() == before


def test_a_full_disk_leaves_no_stale_copy(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.apply({DESTINATION: 83})
    before = without_copies(edge)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(edge.state_dir)], check=True)
    try:
        assert edge.apply({DESTINATION: 83}).code == 0
        with contextlib.suppress(OSError), (edge.state_dir / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        edge.ip("route", "replace", "default", "via", "192.168.1.2")
        outcome = edge.run("follow")
        assert outcome.code == 0, "the last good bundle made room for the record"
        assert "No space left" in outcome.report["reason"]
        assert edge.windows() == {}
        edge.ip("route", "replace", "default", "via", "192.168.0.2")
        assert without_copies(edge) == before
    finally:
        subprocess.run(["umount", str(edge.state_dir)], check=True)


def without_copies(edge: Edge) -> list[str]:
    return edge.table(table="main") + edge.table(6, table="main")


@pytest.mark.proof
def test_a_watch_killed_at_any_moment_leaves_one_of_two_states_or_the_next_pass_repairs_it(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    routes = {f"10.{number}.0.0/16": 20 for number in range(1, 60)}
    edge.apply(routes)
    dice = random.Random(6)
    for turn in range(20):
        via = f"192.168.{turn % 2 ^ 1}.2"
        process = subprocess.Popen(edge.command("watch"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        edge.ip("route", "replace", "default", "via", via)
        time.sleep(dice.uniform(0, 0.9))
        process.send_signal(signal.SIGKILL)
        process.wait()
        outcome = edge.run("follow")
        assert outcome.code == 0, outcome
        assert edge.windows() == routes
        assert all(f" via {via} " in line for line in edge.table()), "a copy is stale"
        assert edge.status()["in_sync"]
        assert not (edge.state_dir / "intent.json").exists()


def test_watch_ends_on_sigterm_and_prints_json(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.apply({DESTINATION: 83})
    with watching(edge) as process:
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM  # the minute is only for a machine that stands still
    [first] = (edge.directory / "watch.log").read_text().splitlines()
    assert json.loads(first)["command"] == "follow"
    assert edge.windows() == {DESTINATION: 83}

"""Faults around a rollout: the state of every edge afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from testkit.farm import NEW, Farm, Node, wait_for
from testkit.origin import Origin, pullers

pytestmark = pytest.mark.root


def test_edges_outlive_controller_store_and_publisher_and_go_back_to_the_kernels_default(farm: Farm) -> None:
    before = {name: node.picture() for name, node in farm.edges.items()}
    farm.hold()
    assert all(farm.windows().values())

    # Nobody is there any more who could push or answer; three edges without a common friend.
    shutil.rmtree(farm.publish_dir)
    early, late, third = farm.edges.values()
    assert early.routes("follow", seconds_later=300)["removed"] == 0, "a bundle that is valid must stay"
    assert early.routes("follow", seconds_later=700)["removed"] == 2
    assert late.routes("expire", seconds_later=7000)["removed"] == 2
    assert third.windows(), "an edge whose bundle is valid lost it"

    # withdraw.yml from any machine that has Ansible and fleet.yaml: no store, no publication, no controller.
    withdrawn = farm.play("withdraw.yml", springtide_command="/nonexistent", springtide_reason="all is lost")
    assert withdrawn.code == 0, withdrawn.output
    assert {name: node.picture() for name, node in farm.edges.items()} == before


@contextlib.contextmanager
def full_disk(node: Node) -> Iterator[Callable[[], None]]:
    """A small disk for the edge's state that `fill` fills; the edge's sshd must see the mount, so it starts anew."""
    node.state_dir.mkdir()
    options = ["-t", "tmpfs", "-o", "size=64k,nr_inodes=100"]
    subprocess.run(["mount", *options, "springtide-test", str(node.state_dir)], check=True)
    node.stop()
    node.start()

    def fill() -> None:
        with (node.state_dir / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)

    try:
        yield fill
    finally:
        subprocess.run(["umount", str(node.state_dir)], check=True)


def test_a_canary_with_a_full_disk_keeps_its_old_state_and_the_others_go_back(farm: Farm) -> None:
    full = farm.edges["am-1"]
    with full_disk(full) as fill:
        farm.wait_for_sshd()
        before = farm.hold()
        held = {name: node.picture() for name, node in farm.edges.items()}
        fill()
        farm.publish(farm.documents(NEW))
        rolled = farm.play("rollout.yml")
        assert rolled.code == 2, rolled.output
        assert "not applied on am-1" in rolled.output
        assert "No space left on device; nothing was changed" in rolled.output
        assert "2 edges are back to what held before; hold that and could not record it: am-1" in rolled.output
        assert farm.windows() == dict.fromkeys(farm.edges, before)
        assert {name: node.picture() for name, node in farm.edges.items()} == held
        assert farm.journal()[-2]["details"] == {"away": [], "withdrawn": [], "unrecorded": ["am-1"]}

        # withdraw.yml does not need room: for its record the last good bundle makes some.
        withdrawn = farm.play("withdraw.yml")
        assert withdrawn.code == 0, withdrawn.output
        assert farm.windows() == {name: {} for name in farm.edges}
        (full.state_dir / "filler").unlink()
        repaired = farm.play("drift.yml", springtide_repair=True, springtide_resume=True)
        assert repaired.code == 0, repaired.output
        assert farm.windows() == dict.fromkeys(farm.edges, before)


@contextlib.contextmanager
def busy(node: Node) -> Iterator[None]:
    """While another run works on the edge: an apply there waits for it."""
    with (node.state_dir / "lock").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("then", ["drift.yml", "rollback.yml", "rollout.yml"])
def test_after_a_rollout_was_killed_the_next_run_brings_all_edges_to_one_state(farm: Farm, then: str) -> None:
    before = farm.hold()
    farm.publish(farm.documents(NEW))
    last = farm.edges["eu-2" if then == "rollback.yml" else "eu-0"]
    running = None
    try:
        # One canary has the round, at the other an apply is under way, the third edge was not reached.
        with busy(farm.edges["eu-0"]), busy(farm.edges["eu-2"]):
            running = farm.start("rollout.yml")
            wait_for(lambda: farm.edges["am-1"].windows() == NEW, "no edge took the round")
            # Only Ansible's first process, as the kernel does it when memory runs out: what it started goes on.
            running.send_signal(signal.SIGKILL)
            running.wait()
        assert last.windows() in (before, NEW)
        assert farm.journal()[-1]["verdict"] == "begun"

        after = farm.play(then, springtide_repair=True)
        assert after.code == 0, after.output
        expected = NEW if then == "rollout.yml" else before
        assert farm.windows() == dict.fromkeys(farm.edges, expected)
    finally:
        if running is not None and running.poll() is None:
            os.kill(running.pid, signal.SIGKILL)
            running.wait()


@pytest.mark.parametrize("by", ["ssh", "pull"])
def test_a_rollout_that_was_killed_in_a_gate_holds_that_gate_before_it_goes_on(farm: Farm, by: str) -> None:
    """It is killed in the first gate of each wave: the gate's parent is the judge, and that one's is Ansible itself."""
    calls = farm.directory / "calls"
    once = f"cd {farm.directory}; [ -e $wave ] || {{ touch $wave; kill -9 $(ps -o ppid= -p $PPID) $PPID; }}"
    gate = farm.script(f'echo "$wave $changed" >> {calls}; {once}')
    settings: dict[str, Any] = {"springtide_gate": True, "springtide_gate_command": gate, "springtide_origin_wait_s": 5}
    farm.publish()
    with contextlib.ExitStack() as made:
        if by == "pull":
            origin = made.enter_context(Origin.made(farm.namespace, farm.directory, "10.99.0.1"))
            (farm.publish_dir / "origin").symlink_to(origin.folder)
            made.enter_context(pullers(farm, origin))
        runs = [farm.play("rollout.yml", **settings) for _ in range(4)]
    assert [run.code for run in runs] == [-signal.SIGKILL, -signal.SIGKILL, 0, 0], [run.output for run in runs]
    held = [line.split() for line in calls.read_text().splitlines()]
    assert [(wave, len(edges.split(","))) for wave, edges in held] == [("1", 2), ("1", 2), ("2", 3), ("2", 3)]
    assert all(farm.windows().values())

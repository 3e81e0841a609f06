"""A rollout has failed until its judge has cleared every wave: what breaks on the publisher brings the edges back."""

from __future__ import annotations

import re
import subprocess

import pytest
from testkit.farm import NEW, Farm, wait_for

pytestmark = pytest.mark.root


@pytest.mark.parametrize("wave", [1, 2])
def test_a_gate_that_fails_rolls_back_every_edge(farm: Farm, wave: int) -> None:
    """The journal goes while the gate looks: then it is not recorded that the wave was cleared."""
    before = farm.hold()
    folder = farm.publish(farm.documents(NEW))
    journal = farm.publish_dir / "journal.jsonl"
    gate = farm.script(f"[ $wave != {wave} ] || {{ mv {journal} {journal}.away; mkdir {journal}; }}")
    rolled = farm.play("rollout.yml", springtide_gate=True, springtide_gate_command=gate)
    assert rolled.code == 2, rolled.output
    assert "Is a directory" in rolled.output
    assert "3 edges are back to what held before" in rolled.output
    assert "NOT recorded" in rolled.output
    assert farm.windows() == dict.fromkeys(farm.edges, before)
    assert farm.folder.resolved("current") == (folder / "back").resolve()
    assert (farm.publish_dir / "rollout.lock").read_text() == "", "the lock was kept"


def test_without_a_journal_nothing_begins_and_everything_can_be_taken_back(farm: Farm) -> None:
    before = farm.hold()
    held = farm.folder.resolved("current")
    assert held is not None
    farm.publish(farm.documents(NEW))
    (farm.publish_dir / "journal.jsonl").mkdir()
    refused = farm.play("rollout.yml")
    assert refused.code == 2, refused.output
    assert "no edge was changed" in refused.output
    assert farm.windows() == dict.fromkeys(farm.edges, before)
    assert farm.folder.resolved("current") == held, "a rollback would undo what did not begin"
    back = farm.play("rollback.yml")
    assert back.code == 2, back.output
    assert "3 edges are back" in back.output
    assert "NOT recorded" in back.output
    assert farm.windows() == {name: {} for name in farm.edges}
    assert farm.folder.resolved("current") == held.parent / "back"
    assert (farm.publish_dir / "rollout.lock").read_text() == "", "the lock was kept"


def test_taking_back_needs_no_disk_on_the_publisher(farm: Farm) -> None:
    farm.hold()
    folder = str(farm.publish_dir)
    (farm.publish_dir / "rollout.lock").write_text("a torn li")
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        back = farm.play("rollback.yml")
        pressed = farm.play("withdraw.yml")
    finally:
        subprocess.run(["umount", folder], check=True)
    # Nothing there stops the next push: that is not a success, whatever the edges report.
    assert pressed.code == 2, pressed.output
    assert "every edge is withdrawn; NOT known to the publisher" in pressed.output
    assert "run withdraw.yml once more" in pressed.output
    assert back.code == 2, back.output
    assert "Read-only file system: nothing keeps another push" in re.sub(r"\s+", " ", back.output)
    assert "3 edges are back" in back.output
    assert "NOT recorded" in back.output
    assert farm.windows() == {name: {} for name in farm.edges}


def test_what_is_published_during_a_rollout_goes_back_to_that(farm: Farm) -> None:
    farm.hold()
    first = farm.publish(farm.documents(NEW))
    started, go_on = farm.directory / "started", farm.directory / "go-on"
    gate = farm.script(f"touch {started}; while [ ! -e {go_on} ]; do sleep 0.1; done; exit 0")
    running = farm.start("rollout.yml", springtide_gate=True, springtide_gate_command=gate)
    try:
        wait_for(started.exists, "the rollout did not reach its gate")
        second = farm.publish(farm.documents({"10.200.1.0/24": 99}, later=2))
    finally:
        go_on.touch()
        output, _ = running.communicate(timeout=300)  # the bound is only for a machine that stands still
    assert running.returncode == 0, output
    assert farm.windows() == dict.fromkeys(farm.edges, NEW)

    # It was published and not rolled out, so there is nothing of it to take back.
    failed = farm.play("rollout.yml", springtide_gate=True, springtide_gate_command=farm.script("exit 4"))
    assert failed.code == 2, failed.output
    assert farm.windows() == dict.fromkeys(farm.edges, NEW)
    assert farm.folder.resolved("current") == (second / "back").resolve()
    assert first != second

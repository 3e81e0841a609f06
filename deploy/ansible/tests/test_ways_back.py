"""Ways back of a rollout: to what is on the fleet when it begins, whatever was published in between."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from springtide.bundles.published import PublishedBundles
from springtide.publication.folder import PublishFolder
from springtide.publication.gate import applied, cleared, run_gate
from springtide.publication.journal import Event
from springtide.publication.ways import WAYS, hold, way_back
from springtide.publication.withdrawal import end_withdrawal, withdraw
from testkit.edge import bundle
from testkit.published import canonical, publish

ROUTE = "10.0.1.0/24"


class Publisher:
    """A publisher without edges: their recorded state is moved as the plays move it."""

    def __init__(self, path: Path) -> None:
        self.folder = PublishFolder(path)
        self.made = int(time.time()) - 100

    def publish(self, value: int, ttl: float = 600) -> Path:
        """A newer round that gives this window."""
        self.made += 3
        return publish(self.folder, {"ams-1": bundle({ROUTE: value}, now=self.made, ttl=ttl)})

    def way(self, publication: Path, now: float | None = None) -> Path:
        return way_back(publication, self.folder.path, ["ams-1"], time.time() if now is None else now)

    def begin(self, publication: Path) -> int | None:
        """Begins, and returns the window that a failure goes back to."""
        hold(self.folder, self.way(publication))
        end_withdrawal(self.folder.path)
        return self.holds()

    def done(self, publication: Path) -> None:
        hold(self.folder, publication / "edges")

    def roll_out(self, value: int) -> Path:
        publication = self.publish(value)
        self.begin(publication)
        self.done(publication)
        return publication

    def roll_back(self) -> int | None:
        """As rollback.yml: the way back of the publication that `current` leads to."""
        current = self.folder.resolved("current")
        assert current is not None
        hold(self.folder, current.parent / WAYS[0])
        return self.holds()

    def holds(self) -> int | None:
        held = PublishedBundles(self.folder).current()
        assert held is not None
        routes = held["ams-1"].bundle.entries
        return routes[0].initcwnd if routes else None


@pytest.fixture
def site(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path)


def test_a_rollback_undoes_what_was_rolled_out_and_not_what_was_published(site: Publisher) -> None:
    site.roll_out(10)
    site.roll_out(20)
    site.publish(30)
    assert site.roll_back() == 10
    assert site.roll_back() == 10, "once more brings back those that were away"


def test_publications_in_a_row_go_back_to_the_one_that_was_rolled_out(site: Publisher) -> None:
    site.roll_out(10)
    site.publish(20)
    assert site.begin(site.publish(30)) == 10


@pytest.mark.parametrize("ends", ["done", "failed"])
def test_a_round_published_during_a_rollout_goes_back_to_how_that_ended(site: Publisher, ends: str) -> None:
    site.roll_out(10)
    under_way = site.publish(20)
    site.begin(under_way)
    new = site.publish(30)
    if ends == "done":
        site.done(under_way)
    assert site.begin(new) == (20 if ends == "done" else 10)
    assert {path.name for path in new.iterdir() if not path.name.startswith(".")} >= {"back", "edges"}
    # Killed and begun again, done and begun again, taken back: always the same.
    assert site.begin(new) == (20 if ends == "done" else 10)
    site.done(new)
    assert site.way(new) == new / "back"
    assert site.roll_back() == (20 if ends == "done" else 10)


def test_the_other_way_back_completes_after_an_interruption(site: Publisher) -> None:
    site.roll_out(10)
    under_way = site.publish(20)
    site.begin(under_way)
    new = site.publish(30)
    site.done(under_way)
    (new / WAYS[0]).rename(new / ".not-taken")  # as a kill between the two steps leaves it
    assert site.begin(new) == 20


def test_a_publication_without_a_way_back_to_what_holds_is_refused(site: Publisher) -> None:
    site.roll_out(10)
    site.roll_out(20)
    new = site.publish(30)
    site.roll_back()
    with pytest.raises(ValueError, match="something else came to hold"):
        site.way(new)
    assert site.begin(site.publish(30)) == 10


def test_after_withdraw_the_way_back_is_empty(site: Publisher) -> None:
    site.roll_out(10)
    before = site.publish(20)
    withdraw(site.folder.path, "loss")
    with pytest.raises(ValueError, match="withdrawn after it was published"):
        site.way(before)
    after = site.publish(30)
    assert site.begin(after) is None
    site.done(after)
    assert site.roll_back() is None


def test_what_has_expired_since_is_nothing_to_go_back_to(site: Publisher) -> None:
    old = site.publish(10, ttl=200)
    site.begin(old)
    site.done(old)
    new = site.publish(20)
    later = time.time() + 300
    assert site.way(new, later) == new / "back"
    empty = Publisher(site.folder.path)
    empty.made = int(later)
    assert site.way(empty.publish(30), later).name == "back"


def test_another_content_for_a_moment_that_edges_have_is_refused(site: Publisher) -> None:
    held = site.roll_out(10)
    new = site.publish(20)
    document: dict[str, Any] = json.loads((held / "edges/ams-1.json").read_bytes())
    changed = bundle({ROUTE: 99}, now=site.made - 3, ttl=600)
    assert (changed["round"], changed["created_at"]) == (document["round"], document["created_at"])
    (new / "edges/ams-1.json").write_bytes(canonical(changed))
    with pytest.raises(ValueError, match="another content"):
        site.way(new)


PYTHON = [sys.executable, "-c"]


@pytest.mark.parametrize(
    ("gate", "answer"),
    [
        (["true"], ""),
        ([*PYTHON, "print('go'); raise SystemExit(0)"], ""),
        ([*PYTHON, "print('loss'); raise SystemExit(4)"], "loss"),
        ([*PYTHON, "raise SystemExit(3)"], "nothing, with exit code 3"),
        (["/nonexistent/gate"], "nothing: /nonexistent/gate: No such file or directory"),
        ([*PYTHON, "import os; os.kill(os.getpid(), 9)"], "nothing, with exit code -9"),
        ([*PYTHON, "import os, sys; sys.stdout.buffer.write(b'\\xff'); sys.exit(1)"], "\ufffd"),
        ([*PYTHON, "import time; time.sleep(600)"], "nothing for 0.5 s"),
        (["sh", "-c", "sleep 600 & sleep 600"], "nothing for 0.5 s"),
    ],
)
def test_only_a_plain_go_is_a_go(gate: list[str], answer: str) -> None:
    """A gate that does not sleep has a minute, which only a machine that stands still takes."""
    assert run_gate(gate, 1, 0, 0.5 if "sleep" in gate[-1] else 60) == answer


def test_a_gate_that_waits_is_tried_again_a_limited_number_of_times(tmp_path: Path) -> None:
    count = tmp_path / "count"
    gate = ["sh", "-c", f"echo >> {count}; [ $(wc -l < {count}) -ge 3 ] || exit 3"]
    assert run_gate(gate, 1, 0) == "nothing, with exit code 3"
    assert run_gate(gate, 1, 0) == ""
    assert len(count.read_text()) == 3


def test_what_was_cleared_is_so_until_something_is_taken_back() -> None:
    events = [
        Event("cleared", "one", edges=["ams-1", "nyc-1"]),
        Event("cleared", "other", edges=["fra-1"]),
        Event("drift", "one", "repaired", edges=["nyc-1"]),
        Event("rollback", "one", "begun", edges=["ams-1", "nyc-1", "fra-1"]),
    ]
    known = [cleared(events[:number], "one") for number in range(5)]
    assert known == [set(), {"ams-1", "nyc-1"}, {"ams-1", "nyc-1"}, {"ams-1"}, set()]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"changed": True}, True),
        ({"changed": False, "failed": False, "report": {}}, True),
        (None, False),
        ({}, False),
        ("changed", False),
        ({"changed": "yes"}, False),
        ({"changed": True, "failed": "no"}, False),
        ({"changed": True, "unreachable": True}, False),
        ({"changed": False, "skipped": True}, False),
        ({"msg": "an error", "failed": True, "changed": False}, False),
    ],
)
def test_only_a_plain_yes_of_an_edge_counts(answer: object, expected: bool) -> None:
    assert applied(answer) is expected

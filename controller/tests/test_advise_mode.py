"""`mode: advise`: everything runs and is decided, nothing is pushed, and that is as it should be."""

from __future__ import annotations

from typing import Any

import pytest
from springtide.publication import journal
from springtide.publication.folder import PublishFolder

from testkit.home import ROUND, Home
from testkit.spool import record, write_spool
from testkit.traffic import MSS, Socket

pytestmark = pytest.mark.usefixtures("clock")

ONE_POP = """\
version: 1
pops:
  ams:
    prefixes: [10.77.1.0/24]
    edges:
      ams-1: {address: 10.77.1.1}
"""


@pytest.fixture
def advising(home: Home) -> Home:
    """A fleet in the mode advise with a round decided."""
    home.policy.write_text("mode: advise\ninitcwnd: {duty_rounds: 1}\n")
    sockets = [Socket("ams-1", n, "10.77.1.1", f"10.77.2.{n}", "ams") for n in range(1, 5)]
    samples = [s.at(ROUND - 290 + 50 * n, 100 + n, 40 * n * MSS) for s in sockets for n in range(6)]
    write_spool(home.spool, "a", [record(samples)])
    home.run("ingest", home.spool)
    home.run("decide", "initcwnd")
    return home


def steps(home: Home, code: int = 0) -> dict[str, Any]:
    answer = home.json("status", code=code)
    assert answer["closing"] is (code == 0)
    return {step["what"]: step for step in answer["steps"]}


def test_publish_says_what_it_would_and_writes_no_publication(advising: Home) -> None:
    for attempt in (("--force", "--reason", "I insist"), ("--once",), ()):
        [line] = [
            line
            for line in advising.run("publish", *attempt, code=5).stderr.splitlines()
            if not line.startswith(("left out", "unsigned"))
        ]
        assert line == (
            "springtide: advice only (mode: advise): nothing is pushed; round 2026-01-02T03:00:00Z would be: "
            "2 routes for 4 edges; `mode: act` publishes it"
        )
    assert PublishFolder(advising.publish_dir).rounds() == []
    assert PublishFolder(advising.publish_dir).resolved("candidate") is None
    [event] = advising.json("history")
    assert (event["event"], event["verdict"], event["reason"]) == ("advise", "would publish", "2 routes for 4 edges")
    refused = advising.run("rollback", "2026-01-02T03:00:00Z", "--reason", "loss", code=5).stderr
    assert "advice only (mode: advise): nothing is pushed" in refused


def test_status_closes_on_it_and_says_that_it_is_advice_only(advising: Home) -> None:
    found = steps(advising)
    headline = advising.run("status").stdout.splitlines()[0]
    assert headline == "the loop is closing, advice only (mode: advise): nothing is pushed"
    assert found["published"]["text"].endswith("`springtide publish` says what would be")
    advising.run("publish", code=5)
    assert found["on the fleet"]["text"] == "nothing, the kernel's default"
    assert "it would have been 2 routes for 4 edges" in steps(advising)["published"]["text"]
    advising.policy.write_text("initcwnd: {duty_rounds: 1}\n")
    acting = steps(advising, code=1)
    assert {acting[what]["state"] for what in ("published", "on the fleet", "last push")} == {"none"}


def test_what_was_pushed_before_ends_by_itself_and_is_no_fault(advising: Home) -> None:
    advising.policy.write_text("initcwnd: {duty_rounds: 1}\n")
    advising.run("publish")
    folder = PublishFolder(advising.publish_dir)
    candidate = folder.resolved("candidate")
    assert candidate is not None
    folder.point("current", candidate / "edges")
    journal.append(folder.path, journal.Event("rollout", publication=candidate.name, verdict="done"))
    advising.policy.write_text("mode: advise\ninitcwnd: {duty_rounds: 1}\n")
    found = steps(advising)["on the fleet"]
    assert (found["state"], found["text"].endswith("nothing renews it")) == ("ok", True)
    # A drift between the two is a fault in every mode.
    journal.append(folder.path, journal.Event("drift", verdict="found", edges=["ams-1"]))
    assert steps(advising, code=1)["drift"]["state"] == "broken"


def test_check_says_that_there_is_nothing_to_decide_between_one_pop(bare_home: Home) -> None:
    assert "note:" not in bare_home.run("check").stdout
    bare_home.fleet.write_text(ONE_POP)
    bare_home.policy.write_text("mode: advise\n")
    first, second = [line for line in bare_home.run("check").stdout.splitlines() if line.startswith("note: ")]
    assert first.startswith("note: ams is the only PoP: there is nothing to decide between PoPs")
    assert second == "note: advice only (mode: advise): nothing is pushed"
    assert len(bare_home.json("check")["notes"]) == 2


def test_a_mode_that_is_none_is_refused(bare_home: Home) -> None:
    bare_home.policy.write_text("mode: advice\n")
    [line] = bare_home.refused("check")
    assert "mode" in line
    assert "advise" in line

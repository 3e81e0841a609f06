"""`springtide pause` and `resume`: who else may publish, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest
from springtide import instants
from springtide.errors import PausedError, SpringtideError
from springtide.publication import journal
from springtide.publication.pause import FILE, Pause, pause, paused, refuse_when_paused, resume

from testkit.home import ROUND, Home

pytestmark = pytest.mark.usefixtures("clock")
NOW = ROUND + 30


def test_publish_refuses_while_paused_with_the_reason(home: Home) -> None:
    where = ("--publish-dir", home.path / "publish")
    until = instants.show(NOW + 600)
    answer = home.json("pause", "--reason", "backbone maintenance", "--until", until, *where)
    assert (answer["reason"], answer["since"], answer["until"]) == ("backbone maintenance", instants.show(NOW), until)
    refused = home.run("publish", *where, code=5).stderr
    assert "backbone maintenance" in refused
    assert until in refused
    assert "springtide resume" in refused
    forced = home.run("publish", "--force", "--reason", "I insist", *where, code=5)
    assert "nothing is published" in forced.stderr
    assert not (home.path / "publish/rounds").exists()

    assert home.json("resume", "--reason", "done", *where) == {"was_paused": True}
    assert home.json("resume", *where) == {"was_paused": False}
    assert "no round has decisions" in home.refused("publish", *where)[0], "publish did not get past the switch"
    events = sorted((row["event"], row["reason"]) for row in home.json("history", *where))
    assert events == [("pause", "backbone maintenance"), ("resume", "done")]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--reason", " "], "--reason: reason: is empty"),
        (["--reason", "x", "--until", "tomorrow"], "write it as"),
        (["--reason", "x", "--until", instants.show(NOW)], "is not in the future"),
    ],
)
def test_a_pause_that_makes_no_sense_is_refused(home: Home, arguments: list[str], expected: str) -> None:
    folder = home.path / "publish"
    assert expected in home.refused("pause", *arguments, "--publish-dir", folder)[0]
    assert paused(folder, NOW) is None


def test_a_pause_ends_by_itself(tmp_path: Path) -> None:
    pause(tmp_path, Pause("maintenance", NOW, NOW + 60))
    with pytest.raises(PausedError):
        refuse_when_paused(tmp_path, NOW + 59)
    refuse_when_paused(tmp_path, NOW + 60)
    pause(tmp_path, Pause("for longer", NOW))
    found = paused(tmp_path, NOW + 10**9)
    assert found is not None
    assert found.reason == "for longer"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"why": "x"}',
        '{"reason": "x", "since_unix_s": 1, "until_unix_s": "y"}',
        '{"reason": "x", "since_unix_s": "y"}',
        '{"reason": "x", "since_unix_s": 1e400}',
        r'{"reason": "\ud800", "since_unix_s": 1}',
    ],
)
def test_an_unreadable_pause_counts_as_a_pause(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(SpringtideError, match="so nothing is published"):
        refuse_when_paused(tmp_path, NOW)
    assert resume(tmp_path, "")
    refuse_when_paused(tmp_path, NOW)


def test_a_journal_that_cannot_be_written_does_not_keep_the_pause_away(tmp_path: Path) -> None:
    (tmp_path / journal.FILE).mkdir()
    with pytest.raises(SpringtideError, match="cannot be written"):
        pause(tmp_path, Pause("disk trouble", NOW))
    assert paused(tmp_path, NOW) is not None


def test_history_of_an_event_that_there_is_not_is_refused(home: Home) -> None:
    refused = home.run("history", "--event", "rollouts", code=2)
    assert "'rollouts' is not one of" in refused.stderr

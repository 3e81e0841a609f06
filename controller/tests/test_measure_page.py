"""docs/how-to/measure-the-benefit.md: its policies and commands, as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from springtide.policy import load_policy

from testkit.home import Home

pytestmark = pytest.mark.usefixtures("clock")

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/measure-the-benefit.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)


def test_every_policy_is_taken_and_does_what_its_title_says(tmp_path: Path) -> None:
    path, found = tmp_path / "policy.yaml", []
    for text in blocks("yaml"):
        path.write_text(text)
        experiment = load_policy(path).experiment
        found.append((experiment.kind, experiment.shares, experiment.disable_every_days))
    shares = [0.1, 0.5, 0.9]
    assert found == [("switchback", shares, 0), ("share", shares, 0), ("holdout", shares, 7)]


def test_every_command_answers(home: Home) -> None:
    home.policy.write_text(blocks("yaml")[0])
    commands = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
    assert [words[0] for words in commands] == ["springtide"] * 5
    for _, *arguments in commands:
        home.run(*arguments, code=None if arguments[0] == "decide" else 0)
    assert home.json("history", "--event", "disable") == []

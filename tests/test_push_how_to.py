"""Runs the plays of the page on pushing routes, on two edges; its `springtide` commands are parsed as they stand.

controller/tests/test_publication.py shows what those do.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import click
import pytest
from springtide.cli import cli

from testkit.farm import Farm

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/how-to/push-routes.md").read_text()
LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines()]


def test_all_commands_are_of_a_known_kind() -> None:
    assert {line.split()[0] for line in LINES} == {"ssh-keygen", "echo", "cd", "ansible-playbook", "springtide"}


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("springtide ")])
def test_springtide_takes_these_commands(line: str) -> None:
    _, name, *arguments = shlex.split(line)
    command = cli.get_command(click.Context(cli), name)
    assert command is not None, name
    command.make_context(name, arguments)


@pytest.mark.proof
@pytest.mark.root
def test_the_plays_do_what_the_page_says(tmp_path: Path) -> None:
    assert os.geteuid() == 0, "this test makes network namespaces: run it as root"
    lines = [shlex.split(line) for line in LINES if line.startswith("ansible-playbook ")]
    routes = {"10.200.1.0/24": 30, "10.200.2.0/24": 40}
    # Routes of the edges after each of the page's plays.
    expected = {
        ("rollout.yml", "-e"): routes,
        ("rollout.yml",): routes,
        ("drift.yml", "--diff"): routes,
        ("drift.yml", "-e"): routes,
        ("rollback.yml", "-e"): {},
        ("withdraw.yml", "-e"): {},
    }
    with Farm.made(tmp_path, count=2) as farm:
        farm.publish()
        seen = set()
        for words in lines:
            play, options = f"{words[3].removeprefix('springtide.fleet.')}.yml", words[4:]
            if "--check" in options or play == "edges.yml":
                continue  # deploy/ansible/tests/test_rollout.py has these
            if "springtide_resume=true" in options:
                farm.publish(farm.documents(later=2))
            played = farm.play(play, *options)
            assert played.code == 0, played.output
            seen.add((play, *options[:1]))
            assert farm.windows() == dict.fromkeys(farm.edges, expected[play, *options[:1]]), words
        assert seen == set(expected)

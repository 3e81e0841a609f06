"""Shells complete what the programs take, and `--help` names every variable of the environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from springtide.cli import cli, completion

from lab.collector import binary
from tools import reference

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/how-to/install.md").read_text().split("\n## Completion\n")[1].split("\n## ")[0]
PATH = f"{Path(sys.executable).parent}:{binary().parent}:{os.environ['PATH']}"


def completed(folder: Path, program: str, words: str) -> list[str]:
    """Words that bash offers after these, the last of which is not whole, once it has read the program's script."""
    script = f"""
source {folder}/{program}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE='{words}'; COMP_POINT=${{#COMP_LINE}}
run=$(complete -p {program} | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$run {program} "${{COMP_WORDS[-1]}}" "${{COMP_WORDS[-2]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    # It is a shell for people that has completion.
    done = subprocess.run(
        ["bash", "-O", "progcomp", "-c", script],
        env={**os.environ, "PATH": PATH},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_pages_scripts_complete_commands_and_options(tmp_path: Path) -> None:
    [block] = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    for line in block.splitlines():
        here = line.replace("/etc/bash_completion.d", str(tmp_path))
        subprocess.run(["bash", "-c", here], env={**os.environ, "PATH": PATH}, check=True)
    assert "explain" in completed(tmp_path, "springtide", "springtide exp")
    assert "--sign-key" in completed(tmp_path, "springtide", "springtide publish --sig")
    assert "wave" in completed(tmp_path, "springtide", "springtide history --event wa")
    assert "congestion" in completed(tmp_path, "springtide", "springtide decide con")
    assert completed(tmp_path, "springtide", "springtide sql worst") == ["worst-prefixes"]
    assert completed(tmp_path, "springtide-collector", "springtide-collector esti") == ["estimate"]
    assert completed(tmp_path, "springtide-edge", "springtide-edge withd") == ["withdraw"]
    assert "--asn" in completed(tmp_path, "springtide-collector", "springtide-collector estimate --a")


def test_the_words_that_are_completed_are_those_of_the_commands() -> None:
    assert completion.WORDS.read_text() == reference.completed_words(), "run `python -m tools.reference`"


def test_what_completes_imports_no_command() -> None:
    """Each press of the key starts the program: what the commands import takes ten times as long as the rest."""
    script = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); import springtide.cli as c; c.main()"
    for words, count, offered in (
        ("springtide ", 1, "explain"),
        ("springtide explain --", 2, "--round"),
        ("springtide sql ", 2, "rtt-bands"),
    ):
        asked = {"_SPRINGTIDE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(count)}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
        *lines, modules = done.stdout.splitlines()
        assert f"plain,{offered}" in lines, (words, lines)
        assert not {"pydantic", "numpy", "chdb", "springtide.cli.options"} & set(modules.split())


def test_an_empty_variable_asks_for_no_completion() -> None:
    environment = {**os.environ, "PATH": PATH, "_SPRINGTIDE_COMPLETE": ""}
    done = subprocess.run(["springtide", "--version"], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("springtide, version ")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_scripts_too(shell: str) -> None:
    done = subprocess.run([binary(), "completion", shell], capture_output=True, text=True, check=True)
    assert "estimate" in done.stdout
    environment = {**os.environ, "PATH": PATH, "_SPRINGTIDE_COMPLETE": f"{shell}_source"}
    ours = subprocess.run(["springtide"], env=environment, capture_output=True, text=True, check=True)
    assert "_SPRINGTIDE_COMPLETE" in ours.stdout


@pytest.mark.parametrize("program", ["springtide-collector", "springtide-edge"])
def test_a_script_that_cannot_be_written_is_a_failure_in_one_line(program: str) -> None:
    environment = {**os.environ, "PATH": PATH}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [program, "completion", "bash"],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f"{program}: ")
    assert "standard output" in line


@pytest.mark.parametrize("program", ["springtide-collector", "springtide-edge"])
def test_no_shell_offers_a_command_that_is_hidden(program: str) -> None:
    """As `man`, which writes manual pages for packages."""
    for shell in ("bash", "zsh", "fish"):
        environment = {**os.environ, "PATH": PATH}
        done = subprocess.run(
            [program, "completion", shell], env=environment, capture_output=True, text=True, check=True
        )
        assert "completion" in done.stdout
        assert not re.findall(r"\bman\b", done.stdout), shell


def commands(group: click.Group, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    found: dict[tuple[str, ...], click.Command] = {}
    for name, one in group.commands.items():
        found |= commands(one, (*path, name)) if isinstance(one, click.Group) else {(*path, name): one}
    return found


def test_help_names_every_variable_that_an_option_takes() -> None:
    seen = set()
    for path, command in commands(cli).items():
        shown = re.sub(r"\s+", "", command.get_help(click.Context(command, info_name=path[-1])))
        for option in command.params:
            for variable in [option.envvar] if isinstance(option.envvar, str) else option.envvar or ():
                assert f"envvar:{variable}" in shown, (path, variable)
                seen.add(variable)
    assert {"SPRINGTIDE_STORE", "SPRINGTIDE_FLEET", "SPRINGTIDE_POLICY", "SPRINGTIDE_SIGN_KEY"} <= seen
    assert "SPRINGTIDE_STORE_PASSWORD" in cli.commands["ingest"].get_help(click.Context(cli.commands["ingest"]))


def test_a_broker_that_is_away_is_said_in_one_line() -> None:
    """And not once for each attempt, in the client's own words."""
    environment = {**os.environ, "PATH": PATH}
    # Both at once: each waits ten seconds for the broker.
    running = [
        subprocess.Popen(
            ["springtide", *words, "--kafka", "127.0.0.1:1"], env=environment, stderr=subprocess.PIPE, text=True
        )
        for words in (["topics", "check"], ["tail"])
    ]
    for process in running:
        _, errors = process.communicate()
        assert process.returncode == 1
        [line] = errors.splitlines()
        assert line.startswith("springtide: ")
        assert "rdkafka" not in line

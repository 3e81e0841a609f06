"""The command line as a whole."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from springtide.cli import cli

from testkit.home import Home


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("path", list(commands(cli)), ids=" ".join)
def test_help_shows_what_it_is_for_with_examples(bare_home: Home, path: tuple[str, ...]) -> None:
    text = bare_home.run(*path, "--help").stdout
    assert f"springtide {' '.join(path)}" in text.partition("Examples:")[2]
    assert "--json" in text


def test_usage_errors_and_unknown_commands_are_code_2(bare_home: Home) -> None:
    for arguments in (("ingest",), ("ingest", "/nowhere"), ("bundle",), ("nonsense",), ("decide", "initcwnd", "--x")):
        assert bare_home.run(*arguments, code=2).stderr

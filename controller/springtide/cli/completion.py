"""Completion in a shell without the commands themselves, whose imports take a second for each press of a key.

words.json has what completion needs of each command; `python -m tools.reference` makes it of the commands, and a test
holds it to them. Click completes from these as it would from the commands.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from springtide.shipped import shipped

WORDS = Path(__file__).with_name("words.json")


class QuestionName(click.ParamType):  # type: ignore[type-arg] # older ones of click take no type
    """A question of `springtide sql`, or any query."""

    name = "question"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = sorted(path.stem for path in shipped("sql/analysis").glob("*.sql"))
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def described(command: click.Command) -> dict[str, Any]:
    """A command as words.json has it, with those below it."""
    found: dict[str, Any] = {
        "help": command.get_short_help_str(),
        "params": [_parameter(each) for each in command.params if not getattr(each, "hidden", False)],
    }
    if isinstance(command, click.Group):
        found["commands"] = {name: described(one) for name, one in command.commands.items()}
    return found


def outline() -> click.Command:
    """The program's commands, which complete and do nothing."""
    return _command("springtide", json.loads(WORDS.read_text()))


def _parameter(of: click.Parameter) -> dict[str, Any]:
    kind: object = None
    if isinstance(of.type, click.Choice):
        kind = list(of.type.choices)
    elif isinstance(of.type, click.Path):
        kind = "file" if of.type.file_okay else "dir"
    elif isinstance(of.type, QuestionName):
        kind = "question"
    shared = {"nargs": of.nargs, "type": kind}
    if not isinstance(of, click.Option):
        return {"name": of.name, "required": of.required, **shared}
    names = [*of.opts[:-1], "/".join([of.opts[-1], *of.secondary_opts])]
    return {"options": names, "is_flag": of.is_flag, "multiple": of.multiple, "help": of.help, **shared}


def _command(name: str, of: dict[str, Any]) -> click.Command:
    more: dict[str, Any] = {
        "params": [_stub(each) for each in of["params"]],
        "short_help": of["help"],
        "context_settings": {"help_option_names": ["-h", "--help"]},
    }
    if "commands" not in of:
        return click.Command(name, **more)
    return click.Group(name, commands={each: _command(each, one) for each, one in of["commands"].items()}, **more)


def _stub(of: dict[str, Any]) -> click.Parameter:
    kind: click.ParamType[Any] = click.STRING
    if isinstance(of["type"], list):
        kind = click.Choice(of["type"])
    elif of["type"] == "question":
        kind = QuestionName()
    elif of["type"]:
        kind = click.Path(file_okay=of["type"] == "file")
    if "name" in of:
        return click.Argument([of["name"]], type=kind, nargs=of["nargs"], required=of["required"])
    if of["is_flag"]:
        return click.Option(of["options"], is_flag=True, help=of["help"])
    return click.Option(of["options"], type=kind, nargs=of["nargs"], multiple=of["multiple"], help=of["help"])

"""The command line: one file a command group; the groups are the four verbs of the loop."""

from __future__ import annotations

import os
from collections import UserDict
from importlib import import_module
from typing import Any, cast

import click

from springtide.cli import completion
from springtide.errors import SpringtideError

NAMES = (
    "check",
    "status",
    "doctor",
    "migrate",
    "ingest",
    "consume",
    "topics",
    "tail",
    "ingest-logs",
    "ingest-probes",
    "asn",
    "rollup",
    "decide",
    "bundle",
    "validate",
    "publish",
    "diff",
    "gate",
    "rollback",
    "pause",
    "resume",
    "history",
    "advise",
    "explain",
    "measure",
    "report",
    "replay",
    "sql",
    "downsample",
    "retention",
    "size",
    "files",
)
# The files of commands that have none of their own name.
FILES = {"downsample": "retention", "resume": "pause"}


class _Commands(UserDict[str, Any]):
    """Imports a command where it is asked for: the others' imports take longer than what it needs itself."""

    def __getitem__(self, name: str) -> click.Command:
        if name not in self.data:
            raise KeyError(name)
        module = import_module(f"springtide.cli.{FILES.get(name, name).replace('-', '_')}")
        return cast(click.Command, getattr(module, name.replace("-", "_")))


class _Group(click.Group):
    """Exit codes: 0 done, 1 a failure at run time, 2 bad input or usage, 3 too little input to decide on, 5 paused.

    An error is one line for each problem.
    """

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except SpringtideError as error:
            for line in str(error).split("\n"):
                click.echo(f"springtide: {line}", err=True)
            ctx.exit(error.exit_code)


@click.group(
    cls=_Group,
    commands=_Commands(dict.fromkeys(NAMES)),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(package_name="springtide", prog_name="springtide")
def cli() -> None:
    """Let new connections start at the speed that the path has already proved.

    \b
    A first round, from samples to bundles:
      springtide check                          # fleet.yaml and policy.yaml
      springtide migrate                        # make the store
      springtide ingest /var/spool/springtide
      springtide rollup                         # closed rounds become round tables
      springtide decide initcwnd
      springtide explain ams nyc
      springtide bundle --out /var/lib/springtide/bundles
    """


def main() -> None:
    program = completion.outline() if os.environ.get("_SPRINGTIDE_COMPLETE") else cli
    program.main(prog_name="springtide")

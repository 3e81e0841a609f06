"""The command line: one file a command group; the groups are the four verbs of the loop."""

from __future__ import annotations

import click

from springtide.cli.advise import advise
from springtide.cli.asn import asn
from springtide.cli.bundle import bundle
from springtide.cli.check import check
from springtide.cli.consume import consume
from springtide.cli.decide import decide
from springtide.cli.diff import diff
from springtide.cli.doctor import doctor
from springtide.cli.explain import explain
from springtide.cli.files import files
from springtide.cli.gate import gate
from springtide.cli.history import history
from springtide.cli.ingest import ingest
from springtide.cli.ingest_logs import ingest_logs
from springtide.cli.ingest_probes import ingest_probes
from springtide.cli.migrate import migrate
from springtide.cli.pause import pause, resume
from springtide.cli.publish import publish
from springtide.cli.replay import replay
from springtide.cli.report import report
from springtide.cli.retention import downsample, retention
from springtide.cli.rollback import rollback
from springtide.cli.rollup import rollup
from springtide.cli.size import size
from springtide.cli.sql import sql
from springtide.cli.status import status
from springtide.cli.tail import tail
from springtide.cli.topics import topics
from springtide.cli.validate import validate
from springtide.errors import SpringtideError

COMMANDS = (
    check,
    status,
    doctor,
    migrate,
    ingest,
    consume,
    topics,
    tail,
    ingest_logs,
    ingest_probes,
    asn,
    rollup,
    decide,
    bundle,
    validate,
    publish,
    diff,
    gate,
    rollback,
    pause,
    resume,
    history,
    advise,
    explain,
    report,
    replay,
    sql,
    downsample,
    retention,
    size,
    files,
)


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


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
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


for command in COMMANDS:
    cli.add_command(command)


def main() -> None:
    cli.main(prog_name="springtide")

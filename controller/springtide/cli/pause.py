"""springtide pause and springtide resume"""

from __future__ import annotations

from pathlib import Path

import click

from springtide import instants
from springtide.cli.options import json_option, publish_dir_option
from springtide.cli.output import print_json
from springtide.errors import InputError, Problem
from springtide.publication import pause as switch


@click.command()
@publish_dir_option
@click.option("--reason", required=True, metavar="TEXT", help="Why; kept in the audit, and shown to whoever publishes.")
@click.option(
    "--until", "until_text", metavar="INSTANT", help="When it ends by itself; without it, `springtide resume` ends it."
)
@json_option
def pause(publish_dir: Path, reason: str, until_text: str | None, as_json: bool) -> None:
    """Stop publishing: `springtide publish` refuses with exit code 5, and the jobs skip it and its rollout.

    Rounds continue to be decided. Edges keep what they have until their bundles expire (bundle.ttl_s), then the
    kernel's default returns: to hold a value for longer, there are overrides in policy.yaml. A rollout that is running
    goes on; to take routes back there are rollback.yml and withdraw.yml, which no pause stops.

    \b
    Examples:
      springtide pause --reason "backbone maintenance"
      springtide pause --reason "backbone maintenance" --until 2026-01-02T06:00:00Z
    """
    if not reason.strip():
        raise InputError([Problem("--reason", "reason", "is empty", "give one; others will read it")])
    now = instants.now()
    wanted = switch.Pause(reason, now, None if until_text is None else _later(until_text, now))
    switch.pause(publish_dir, wanted)
    if as_json:
        print_json(shown(wanted))
        return
    click.echo(str(wanted))


@click.command()
@publish_dir_option
@click.option("--reason", default="", metavar="TEXT", help="Why; the audit keeps it.")
@json_option
def resume(publish_dir: Path, reason: str, as_json: bool) -> None:
    """Publish again, from the next round on. Reports it when nothing was paused.

    \b
    Examples:
      springtide resume
      springtide resume --reason "maintenance is over"
    """
    was_paused = switch.resume(publish_dir, reason)
    if as_json:
        print_json({"was_paused": was_paused})
        return
    click.echo("resumed: the next round is published" if was_paused else "nothing was paused")


def shown(found: switch.Pause) -> dict[str, str | None]:
    """For JSON: instants as text."""
    until = None if found.until_unix_s is None else instants.show(found.until_unix_s)
    return {"reason": found.reason, "who": found.who, "since": instants.show(found.since_unix_s), "until": until}


def _later(text: str, now_unix_s: int) -> int:
    try:
        moment = instants.parse(text)
    except ValueError as error:
        raise InputError([Problem("--until", "instant", str(error), "write it as 2026-01-02T03:05:00Z")]) from error
    if moment <= now_unix_s:
        raise InputError([Problem("--until", "instant", f"{text} is not in the future", "give a later one")])
    return moment

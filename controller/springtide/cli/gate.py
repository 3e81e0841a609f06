"""springtide gate: does a rollout go on after a wave?"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from springtide import instants
from springtide.cli.options import (
    StoreOptions,
    fleet_option,
    json_option,
    policy_option,
    publish_dir_option,
    read_fleet,
    read_policy,
    store_options,
)
from springtide.cli.output import print_json
from springtide.cli.rounds import edges_of, publication_prefixes
from springtide.errors import InputError, Problem
from springtide.publish import journal
from springtide.publish.gate import Verdict, decide, read
from springtide.publish.publication import PublishFolder

CODES = {Verdict.GO: 0, Verdict.WAIT: 3, Verdict.ROLL_BACK: 4}


@click.command()
@publish_dir_option
@click.option("--publication", required=True, metavar="NAME", help="What is being rolled out.")
@click.option("--wave", type=click.IntRange(min=1), required=True, metavar="N", help="After which wave.")
@click.option("--changed", required=True, metavar="EDGE,...", help="Edges that have it.")
@click.option("--unchanged", default="", metavar="EDGE,...", help="Edges that do not.")
@click.option(
    "--since", "since_text", metavar="INSTANT", help="When the wave was applied; from the journal by default."
)
@json_option
@fleet_option
@policy_option
@store_options
def gate(
    store: StoreOptions,
    fleet_path: Path,
    policy_path: Path,
    publish_dir: Path,
    publication: str,
    wave: int,
    changed: str,
    unchanged: str,
    since_text: str | None,
    as_json: bool,
) -> None:
    """Compare changed edges with unchanged ones since the wave, and with as long a time before it.

    Exit codes: 0 go, 3 wait (too few samples yet), 4 roll back. Inputs and verdict go to the audit.

    \b
    Examples:
      springtide gate --publication 2026-01-02T03:05:00Z-02030507 --wave 1 --changed ams-1 --unchanged ams-2,nyc-1
    """
    fleet, policy = read_fleet(fleet_path), read_policy(policy_path)
    folder = PublishFolder(publish_dir)
    changed_edges = edges_of(changed, fleet.edges())
    unchanged_edges = edges_of(unchanged, fleet.edges())
    if not changed_edges:
        raise InputError([Problem("--changed", "edge", "none is named", "name the edges that have the new bundle")])
    path = folder.publication(publication)
    since = _instant(since_text) if since_text else _applied_at(publish_dir, path.name)
    until = max(instants.now(), since + 1)
    prefixes = publication_prefixes(path, changed_edges)
    with store.open() as opened:
        inputs = read(opened, changed_edges, unchanged_edges, prefixes, since, until)
        verdict, reason = decide(inputs, policy.gate)
        details = {**asdict(inputs), "wave": wave, "since": since, "until": until, "policy": policy.gate.model_dump()}
        event = journal.Event(
            "gate", publication=path.name, verdict=verdict, reason=reason, edges=changed_edges, details=details
        )
        journal.append(publish_dir, event)
        journal.send(publish_dir, opened)
    if as_json:
        print_json({"verdict": verdict, "reason": reason, **details})
    else:
        click.echo(f"{verdict}: {reason}")
    sys.exit(CODES[verdict])


def _instant(text: str) -> int:
    try:
        return instants.parse(text)
    except ValueError as error:
        raise InputError([Problem("--since", "instant", str(error), "write it as 2026-01-02T03:05:00Z")]) from error


def _applied_at(publish_dir: Path, publication: str) -> int:
    """The last wave's time."""
    events, _, _ = journal.read(publish_dir)
    waves = [event.at_unix_s for event in events if event.event == "wave" and event.publication == publication]
    if not waves:
        fix = "name the time with --since"
        raise InputError([Problem(str(publish_dir / journal.FILE), "wave", f"none of {publication} is recorded", fix)])
    return waves[-1]

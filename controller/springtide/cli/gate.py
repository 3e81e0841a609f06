"""springtide gate: does a rollout go on after a wave?"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from springtide import instants
from springtide.bundles.model import read_folder
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
from springtide.errors import InputError, Problem
from springtide.gate.connections import read
from springtide.gate.judge import Judgement, Verdict, decide, destinations, looked_at
from springtide.jobs import audit
from springtide.publication import journal
from springtide.publication.folder import PublishFolder
from springtide.publication.gate import last_rollout

NO_DESTINATION = "these edges have no destination, before or after: nothing starts otherwise"
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
    """Compare new connections of changed edges with those before the rollout, and with those of unchanged edges.

    Exit codes: 0 go on, 3 wait (too few samples yet), 4 roll back. Inputs and verdict go to the audit.

    \b
    Examples:
      springtide gate --publication 2026-01-02T03:05:00Z-20260102030507 --wave 1 --changed ams-1 --unchanged ams-2,nyc-1
    """
    # Long: one option per line, and the verdict in three forms.
    fleet, policy = read_fleet(fleet_path), read_policy(policy_path)
    folder = PublishFolder(publish_dir)
    pops = fleet.edges()
    changed_edges, unchanged_edges = _edges(changed, pops), _edges(unchanged, pops)
    if not changed_edges:
        raise InputError([Problem("--changed", "edge", "none is named", "name the edges that have the new bundle")])
    path = folder.publication(publication)
    events = last_rollout(journal.read(publish_dir)[0], path.name)
    since = _instant(since_text) if since_text else _applied_at(publish_dir, events, path.name)
    begun = min([since, *(event.at_unix_s for event in events if event.event == "rollout")])
    look = 1 + sum(
        event.event == "gate" and event.at_unix_s >= since and event.details.get("judged") is True for event in events
    )
    until = max(instants.now(), since + 1)
    named = {*changed_edges, *unchanged_edges}
    before, after = (
        {edge: document.bundle for edge, document in read_folder(path / part).items() if edge in named}
        for part in ("back", "edges")
    )
    targets = looked_at(destinations(before, after), pops, changed_edges)
    # Edges without evidence yet, or withdrawn before: their connections start as the kernel has them start.
    unaffected = not any(is_changed for found in targets.values() for _, is_changed in found)
    with store.open() as opened:
        inputs = read(opened, policy.gate, targets, changed_edges, begun, since, until, wave, look)
        judgement = Judgement(Verdict.GO, NO_DESTINATION, False, 0.0) if unaffected else decide(inputs, policy.gate)
        details = {
            **judgement.details(),
            "silence_s": inputs.silence_s,
            "wave": wave,
            "look": look,
            "begun": begun,
            "since": since,
            "until": until,
            "policy": policy.gate.model_dump(),
        }
        event = journal.Event(
            "gate",
            publication=path.name,
            verdict=judgement.verdict,
            reason=judgement.reason,
            edges=changed_edges,
            details=details,
        )
        journal.append(publish_dir, event)
        audit.send(publish_dir, opened)
    if as_json:
        print_json({"verdict": judgement.verdict, "reason": judgement.reason, **details})
    else:
        click.echo(f"{judgement.verdict}: {judgement.reason}")
    sys.exit(CODES[judgement.verdict])


def _edges(text: str, fleet_edges: Iterable[str]) -> list[str]:
    """A comma-separated list; raises InputError for an edge that is not in the fleet."""
    names = [name for name in text.split(",") if name]
    unknown = sorted(set(names) - set(fleet_edges))
    if unknown:
        raise InputError([Problem("--changed", "edge", f"{unknown[0]} is not in the fleet", "see fleet.yaml")])
    return names


def _instant(text: str) -> int:
    try:
        return instants.parse(text)
    except ValueError as error:
        raise InputError([Problem("--since", "instant", str(error), "write it as 2026-01-02T03:05:00Z")]) from error


def _applied_at(publish_dir: Path, events: list[journal.Event], publication: str) -> int:
    """The last wave's time."""
    waves = [event.at_unix_s for event in events if event.event == "wave"]
    if not waves:
        fix = "name the time with --since"
        raise InputError([Problem(str(publish_dir / journal.FILE), "wave", f"none of {publication} is recorded", fix)])
    return waves[-1]

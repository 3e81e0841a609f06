"""springtide publish, rollback and diff: rounds in the publisher's folder"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from springtide import instants
from springtide.cli.options import (
    StoreOptions,
    closed_round,
    fleet_option,
    json_option,
    policy_option,
    publish_dir_option,
    read_fleet,
    read_policy,
    round_option,
    sign_key_option,
    store_options,
)
from springtide.cli.output import print_json, print_table
from springtide.cli.publish import need_reason
from springtide.errors import InputError, Problem, SpringtideError
from springtide.jobs import publish as jobs
from springtide.publish import bundle as bundles
from springtide.publish import caps, journal
from springtide.publish.pause import refuse_when_paused
from springtide.publish.publication import PublishFolder, read_folder, renewed
from springtide.publish.validate import Context, problems


@click.command()
@publish_dir_option
@sign_key_option
@click.option("--force", is_flag=True, help="Publish although it changes more than the policy's caps allow.")
@click.option("--reason", default="", metavar="TEXT", help="Why; the audit keeps it.")
@click.option(
    "--once", is_flag=True, help="Leave the newest publication as it is where it says the same of this round."
)
@click.option(
    "--keep",
    type=click.IntRange(1, 100_000),
    default=288,
    show_default=True,
    metavar="N",
    help="Publications to keep, a day of rounds by default; what holds on the fleet always stays.",
)
@round_option
@json_option
@fleet_option
@policy_option
@store_options
def publish(
    store: StoreOptions,
    fleet_path: Path,
    policy_path: Path,
    round_text: str | None,
    publish_dir: Path,
    sign_key: Path | None,
    force: bool,
    reason: str,
    once: bool,
    keep: int,
    as_json: bool,
) -> None:
    """Render, validate and sign a round with its way back, for rollout.yml to bring to the edges.

    Refuses with exit code 5 while `springtide pause` is in force.

    \b
    Examples:
      springtide publish --sign-key /etc/springtide/publisher
      springtide publish --force --reason "two PoPs left the fleet"
    """
    need_reason(force, reason)
    refuse_when_paused(publish_dir, instants.now())
    fleet, policy = read_fleet(fleet_path), read_policy(policy_path)
    asked = closed_round(round_text, policy)
    with store.open() as opened:
        rendered, _ = jobs.render(opened, fleet, policy, asked, instants.now())
    documents = rendered.documents
    folder = PublishFolder(publish_dir)
    copy = fleet_path.read_bytes()
    path = jobs.publish(
        folder, documents, sign_key, policy, instants.now(), force=force, reason=reason, once=once, fleet=copy
    )
    folder.prune(keep)
    new = read_folder(path / "edges")
    if sign_key is None:
        click.echo("unsigned: edges refuse these bundles; sign with --sign-key", err=True)
    count = sum(len(document["routes"]) for document in new.values())
    if as_json:
        digest = jobs.digest_of(new)
        print_json(
            {"publication": path.name, "folder": str(path), "digest": digest, "edges": len(new), "routes": count}
        )
        return
    click.echo(f"published {path.name}: {len(new)} edges, {count} routes; roll it out with rollout.yml")


@click.command()
@click.argument("round_name", metavar="ROUND")
@publish_dir_option
@sign_key_option
@click.option("--reason", required=True, metavar="TEXT", help="Why; the audit keeps it.")
@json_option
@fleet_option
@policy_option
def rollback(
    round_name: str,
    publish_dir: Path,
    sign_key: Path | None,
    reason: str,
    fleet_path: Path,
    policy_path: Path,
    as_json: bool,
) -> None:
    """Publish an earlier round's values again, for rollout.yml; needs no store.

    To undo the newest round at once there is rollback.yml, which needs no key either. ROUND is a publication's name or
    its round. An edge takes nothing older than what it has, so the old values get a new creation time and signature;
    they live no longer than they were promised.

    \b
    Examples:
      springtide rollback 2026-01-02T03:05:00Z --reason "loss towards nyc" --sign-key /etc/springtide/publisher
    """
    folder = PublishFolder(publish_dir)
    source = folder.publication(round_name)
    old, held = read_folder(source / "edges"), folder.current() or {}
    now = instants.now()
    again = {edge: renewed(document, held.get(edge), now) for edge, document in old.items()}
    documents = {edge: bundles.canonical(document) for edge, document in again.items()}
    context = Context(read_fleet(fleet_path), read_policy(policy_path), now)
    found = [problem for edge, content in documents.items() for problem in problems(f"{edge}.json", content, context)]
    if found:
        raise InputError(found)
    details = {"of": source.name, **jobs.windows_of(folder, source.name)}
    event = journal.Event("rollback", reason=reason, verdict="published", details=details)
    path = jobs.write(folder, documents, sign_key, [event], fleet_path.read_bytes())
    if as_json:
        print_json({"publication": path.name, "of": source.name, "edges": len(documents)})
        return
    click.echo(f"published {path.name} with the values of {source.name}; roll it out with rollout.yml")


@click.command()
@click.argument("what", metavar="[ROUND|EDGE]", required=False)
@publish_dir_option
@json_option
def diff(what: str | None, publish_dir: Path, as_json: bool) -> None:
    """What a publication changes against what holds on the fleet, edge by edge.

    Without an argument: the newest publication. With an edge: only that edge's part of it.

    \b
    Examples:
      springtide diff
      springtide diff 2026-01-02T03:05:00Z
      springtide diff ams-1
    """
    folder = PublishFolder(publish_dir)
    candidate = folder.resolved("candidate")
    if candidate is None:
        raise InputError([Problem(str(publish_dir), "candidate", "is not there", "run `springtide publish` first")])
    new, held = read_folder(candidate / "edges"), folder.current() or {}
    if what is not None and what in new.keys() | held.keys():
        new = {edge: document for edge, document in new.items() if edge == what}
        held = {edge: document for edge, document in held.items() if edge == what}
    elif what is not None:
        candidate = folder.publication(what)
        new = read_folder(candidate / "edges")
    found, of_clients = caps.difference(held, new), caps.congestion_difference(held, new)
    rows = _rows(found)
    clients = [(pop, prefix, _choice(a), _choice(b)) for pop, prefix, a, b in _rows(of_clients)]
    names = ("edge", "prefix", "before", "after")
    if as_json:
        listed = [dict(zip(names, row, strict=True)) for row in rows]
        chosen = [dict(zip(("pop", *names[1:]), row, strict=True)) for row in clients]
        head = {"publication": candidate.name, "before": found.before, "after": found.after}
        print_json({**head, "changes": listed, "congestion": chosen})
        return
    print_table(names, rows, title=f"{candidate.name}: {_counts(found)}")
    if clients:
        title = f"Congestion control of clients: {_counts(of_clients)}"
        print_table(("PoP", *names[1:]), clients, title=title)


def _rows(found: caps.Difference | caps.CongestionDifference) -> list[tuple[str, str, Any, Any]]:
    return sorted(
        [
            *((*key, None, value) for key, value in found.added.items()),
            *((*key, before, after) for key, (before, after) in found.changed.items()),
            *((*key, value, None) for key, value in found.withdrawn.items()),
        ],
        key=lambda row: row[:2],
    )


def _choice(choice: caps.Choice | None) -> str | None:
    return None if choice is None else f"{choice[0]} from {choice[1]:,} B"


def _counts(found: caps.Difference | caps.CongestionDifference) -> str:
    return f"{len(found.added)} added, {len(found.changed)} changed, {len(found.withdrawn)} withdrawn"


def edges_of(text: str, fleet_edges: Iterable[str]) -> list[str]:
    """A comma-separated list; raises InputError for an edge that is not in the fleet."""
    names = [name for name in text.split(",") if name]
    unknown = sorted(set(names) - set(fleet_edges))
    if unknown:
        raise InputError([Problem("--changed", "edge", f"{unknown[0]} is not in the fleet", "see fleet.yaml")])
    return names


def publication_prefixes(folder: Path, edges: Iterable[str]) -> list[str]:
    """Every destination of these edges, in the new bundle or in the one before; raises SpringtideError."""
    found = {
        route["prefix"]
        for part in ("edges", "back")
        for edge, document in read_folder(folder / part).items()
        if edge in set(edges)
        for route in document["routes"]
    }
    if not found:
        raise SpringtideError(f"{folder}: no routes for these edges; there is nothing that a gate could measure")
    return sorted(found)

"""springtide rollback: publish an earlier round's values again"""

from __future__ import annotations

from pathlib import Path

import click

from springtide import instants
from springtide.bundles.published import PublishedBundles, renewed
from springtide.bundles.validate import Context
from springtide.cli.options import (
    fleet_option,
    json_option,
    policy_option,
    publish_dir_option,
    read_fleet,
    read_policy,
    sign_key_option,
)
from springtide.cli.output import print_json
from springtide.errors import InputError, Problem
from springtide.jobs import publish as jobs
from springtide.publication import journal
from springtide.publication.folder import PublishFolder


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
    its round. An edge refuses bundles older than its own, so the old values get a new creation time and signature;
    they expire when they would have. Edges that have left fleet.yaml, or their PoP, are left out. Refuses with exit
    code 5 where the policy's mode is advise.

    \b
    Examples:
      springtide rollback 2026-01-02T03:05:00Z --reason "loss towards nyc" --sign-key /etc/springtide/publisher
    """
    fleet, policy = read_fleet(fleet_path), read_policy(policy_path)
    jobs.refuse_in_advise_mode(policy)
    folder = PublishFolder(publish_dir)
    source = folder.publication(round_name)
    published = PublishedBundles(folder)
    old, held = published.part(source / "edges"), published.current() or {}
    now, pops = instants.now(), fleet.edges()
    left = {edge for edge, document in old.items() if pops.get(edge) != document.bundle.pop}
    if len(left) == len(old):
        what = f"{source.name} has no edge that fleet.yaml has in the same PoP"
        raise InputError([Problem("ROUND", "edges", what, "name a newer publication")])
    for edge in sorted(left):
        click.echo(f"left out: {edge}: is no longer an edge of {old[edge].bundle.pop} in fleet.yaml", err=True)
    documents = {
        edge: renewed(document.bundle, held[edge].bundle if edge in held else None, now)
        for edge, document in old.items()
        if edge not in left
    }
    found = jobs.wrong(documents, Context(fleet, policy, now))
    if found:
        raise InputError(found)
    details = {"of": source.name, **jobs.windows_of(folder, source.name)}
    event = journal.Event("rollback", reason=reason, verdict="published", details=details)
    path = jobs.write(published, documents, sign_key, [event], fleet_path.read_bytes())
    if as_json:
        print_json({"publication": path.name, "of": source.name, "edges": len(documents)})
        return
    click.echo(f"published {path.name} with the values of {source.name}; roll it out with rollout.yml")

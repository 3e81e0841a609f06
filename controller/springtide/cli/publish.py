"""springtide publish: a round, with its way back, for rollout.yml to bring to the edges"""

from __future__ import annotations

from pathlib import Path

import click

from springtide import instants
from springtide.cli.options import (
    StoreOptions,
    closed_round,
    fleet_option,
    json_option,
    need_reason,
    policy_option,
    publish_dir_option,
    read_fleet,
    read_policy,
    round_option,
    sign_key_option,
    store_options,
)
from springtide.cli.output import print_json
from springtide.jobs import publish as jobs
from springtide.publication.folder import PublishFolder
from springtide.publication.pause import refuse_when_paused


@click.command()
@publish_dir_option
@sign_key_option
@click.option("--force", is_flag=True, help="Publish beyond the policy's caps, or in place of damaged bundles.")
@click.option("--reason", default="", metavar="TEXT", help="Why; the audit keeps it.")
@click.option(
    "--once", is_flag=True, help="Leave the newest publication as it is where it has the same values for this round."
)
@click.option(
    "--keep",
    type=click.IntRange(1, 100_000),
    default=288,
    show_default=True,
    metavar="N",
    help="Publications to keep, a day of rounds by default; what is current on the fleet always stays.",
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

    Refuses with exit code 5 while `springtide pause` is in force, and where the policy's mode is advise: then it says
    what would be published, and so does `springtide history`.

    \b
    Examples:
      springtide publish --sign-key /etc/springtide/publisher
      springtide publish --force --reason "two PoPs left the fleet"
    """
    need_reason(force, reason)
    refuse_when_paused(publish_dir, instants.now())
    fleet, policy = read_fleet(fleet_path), read_policy(policy_path)
    requested = closed_round(round_text, policy)
    with store.open() as opened:
        rendered, _ = jobs.render(opened, fleet, policy, requested, instants.now())
    for what in rendered.notes():
        click.echo(f"left out: {what}", err=True)
    folder = PublishFolder(publish_dir)
    copy = fleet_path.read_bytes()
    path, new = jobs.publish(
        folder,
        rendered.documents,
        sign_key,
        policy,
        instants.now(),
        force=force,
        reason=reason,
        once=once,
        fleet=copy,
        too_many=rendered.too_many,
    )
    folder.prune(keep)
    if sign_key is None:
        click.echo("unsigned: edges refuse these bundles; sign with --sign-key", err=True)
    count = sum(len(document.bundle.windows) for document in new.values())
    if as_json:
        digest = jobs.digest_of(new)
        print_json(
            {"publication": path.name, "folder": str(path), "digest": digest, "edges": len(new), "routes": count}
        )
        return
    click.echo(f"published {path.name}: {len(new)} edges, {count} routes; roll it out with rollout.yml")

"""springtide bundle: a file for each edge"""

from __future__ import annotations

from pathlib import Path

import click

from springtide import instants
from springtide.bundles.model import Bundle
from springtide.bundles.published import files, signatures
from springtide.cli.options import (
    StoreOptions,
    closed_round,
    fleet_option,
    json_option,
    policy_option,
    read_fleet,
    read_policy,
    round_option,
    sign_key_option,
    store_options,
)
from springtide.cli.output import print_json, print_table
from springtide.jobs.publish import render
from springtide.publication.files import write


@click.command()
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder for EDGE.json files."
)
@sign_key_option
@round_option
@json_option
@fleet_option
@policy_option
@store_options
def bundle(
    store: StoreOptions,
    fleet_path: Path,
    policy_path: Path,
    round_text: str | None,
    out: Path,
    sign_key: Path | None,
    as_json: bool,
) -> None:
    """Render, validate and sign one bundle for each edge, and write all or none.

    Edges without routes get an empty bundle, which removes the routes that they had.

    \b
    Examples:
      springtide bundle --out /var/lib/springtide/bundles --sign-key /etc/springtide/publisher
      springtide bundle --round 2026-01-02T03:05:00Z --out /tmp/bundles
    """
    fleet = read_fleet(fleet_path)
    policy = read_policy(policy_path)
    requested = closed_round(round_text, policy)
    with store.open() as opened:
        rendered, moment = render(opened, fleet, policy, requested, instants.now())
    write(out, files(rendered.documents) | signatures(rendered.documents, sign_key))
    if sign_key is None:
        click.echo("unsigned: edges refuse these bundles; sign with --sign-key", err=True)
    written = [(document.bundle, str(out / f"{edge}.json")) for edge, document in sorted(rendered.documents.items())]
    expires = instants.show(moment + policy.bundle.ttl_s)
    if as_json:
        listed = [_listed(one, path) for one, path in written]
        head = {"round": instants.show(moment), "policy_version": policy.version, "expires_at": expires}
        print_json(
            {
                **head,
                "signed": sign_key is not None,
                "bundles": listed,
                "left_out": rendered.left_out,
                "unusable": rendered.unusable,
                "too_many": rendered.too_many,
            }
        )
        return
    table = [(one.edge, one.pop, len(one.windows), len(one.congestion), one.by, path) for one, path in written]
    print_table(
        ["edge", "pop", "routes", "clients on BBR", "enforced by", "file"],
        table,
        title=f"Round {instants.show(moment)}, until {expires}",
    )
    for pair in rendered.left_out:
        click.echo(f"left out: {pair}: its last evidence is too old for a bundle valid until {expires}")
    for what in rendered.notes():
        click.echo(f"left out: {what}")


def _listed(one: Bundle, path: str) -> dict[str, object]:
    return {
        "edge": one.edge,
        "pop": one.pop,
        "file": path,
        "routes": len(one.windows),
        "congestion": len(one.congestion),
        "enforced_by": one.by,
        "digest": one.digest,
    }

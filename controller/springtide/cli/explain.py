"""springtide explain"""

from __future__ import annotations

import difflib
from pathlib import Path

import click

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
    store_options,
)
from springtide.cli.output import print_json, print_table, warn
from springtide.errors import InputError, Problem
from springtide.fleet import Fleet
from springtide.jobs.due import bring_audit
from springtide.laws.base import HISTORY_ROUNDS, Explained
from springtide.laws.registry import LAWS


@click.command()
@click.argument("src_pop")
@click.argument("destination")
@round_option
@json_option
@fleet_option
@policy_option
@publish_dir_option
@store_options
def explain(
    store: StoreOptions,
    fleet_path: Path,
    policy_path: Path,
    publish_dir: Path,
    src_pop: str,
    destination: str,
    round_text: str | None,
    as_json: bool,
) -> None:
    """Explain why new connections from SRC_POP start as they do, and what would change it.

    DESTINATION is a PoP, or a client prefix or an address in it. Shown is what acts on the PoP's edges: where all pace,
    no windows of routes.

    `decided` is what a round gives; `left out` why bundles do without it; `pushed` whether the newest publication went
    out; `in force` what new connections start with now on each edge, by what was recorded of waves, ways back and
    expiry. Whether sockets show it is another question: `springtide sql decided-and-seen`.

    \b
    Examples:
      springtide explain ams nyc
      springtide explain ams nyc --round 2026-01-02T03:05:00Z
      springtide explain ams 192.0.2.0/24
    """
    fleet, policy = read_fleet(fleet_path), read_policy(policy_path)
    # A destination that no law explains has been refused by one of them.
    laws = [law for law in LAWS if law.explains(destination)]
    _require_pop(fleet, src_pop)
    requested = closed_round(round_text, policy)
    with store.open() as opened:
        bring_audit(opened, publish_dir, warn)
        every = ((law, law.explain(opened, fleet, policy, src_pop, destination, requested)) for law in laws)
        found = {law.name: one for law, one in every if one is not None}
    first, *others = found
    if as_json:
        # The first law's words as they are, those of the others beside them.
        print_json({**found[first].machine, **{name: found[name].machine for name in others}})
        return
    for number, one in enumerate(found.values()):
        if number:
            click.echo("")
        _print(one)


def _print(found: Explained) -> None:
    click.echo(found.title)
    for heading, lines in found.sections:
        click.echo("")
        if heading:
            click.echo(heading)
        for label, text in lines:
            click.echo(f"  {label:<13} {text}")
    for note in found.notes:
        click.echo(f"  {note}")
    columns, rows = found.history
    if rows:
        click.echo("")
        print_table(columns, rows, title=f"The last {HISTORY_ROUNDS} rounds")


def _require_pop(fleet: Fleet, name: str) -> None:
    if name not in fleet.pops:
        close = difflib.get_close_matches(name, fleet.pops, n=1)
        fix = f"did you mean {close[0]}?" if close else f"the fleet has {', '.join(sorted(fleet.pops))}"
        raise InputError([Problem("explain", "PoP", f"{name!r} is not in the fleet", fix)])

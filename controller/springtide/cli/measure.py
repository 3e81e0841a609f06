"""springtide measure"""

from __future__ import annotations

from pathlib import Path

import click

from springtide import instants
from springtide.cli.options import (
    StoreOptions,
    closed_round,
    fleet_option,
    json_option,
    policy_option,
    read_fleet,
    read_policy,
    store_options,
)
from springtide.cli.output import print_json
from springtide.learn import benefits


@click.command()
@click.option("--round", "round_text", metavar="INSTANT", help="The last round of the day that is measured anew.")
@json_option
@fleet_option
@policy_option
@store_options
def measure(store: StoreOptions, fleet_path: Path, policy_path: Path, round_text: str | None, as_json: bool) -> None:
    """Measure what decisions are good for, once an hour, and keep it for report, status, dashboards and alerts.

    Over the day up to the newest full hour; where that is measured already, nothing is done. With --round over the day
    up to that round, anew: over the same rounds it gives the same rows.

    \b
    Examples:
      springtide measure
      springtide measure --round 2026-01-02T03:00:00Z
    """
    fleet, policy = read_fleet(fleet_path), read_policy(policy_path)
    moment = closed_round(round_text, policy)
    with store.open() as opened:
        until = moment or benefits.due(opened, policy.round.due(instants.now()))
        measured = benefits.Measured() if until is None else benefits.keep(opened, fleet, policy, until)
    if as_json:
        ends = {
            name: instants.show(moment) if moment else None
            for name, moment in (("since", measured.since), ("until", until))
        }
        print_json({**ends, "differences": len(measured.lines)})
    elif until is None:
        click.echo("the newest full hour is measured already")
    else:
        click.echo(f"day up to {instants.show(until)}: {len(measured.lines)} differences kept")

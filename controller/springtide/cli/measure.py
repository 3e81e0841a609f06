"""springtide measure"""

from __future__ import annotations

from pathlib import Path

import click

from springtide import instants
from springtide.cli.options import (
    StoreOptions,
    closed_round,
    fleet_option,
    policy_option,
    read_fleet,
    read_policy,
    store_options,
)
from springtide.learn import benefits


@click.command()
@click.option("--round", "round_text", metavar="INSTANT", help="The last round of the day that is measured anew.")
@fleet_option
@policy_option
@store_options
def measure(store: StoreOptions, fleet_path: Path, policy_path: Path, round_text: str | None) -> None:
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
        if until is None:
            click.echo("the newest full hour is measured already")
            return
        measured = benefits.keep(opened, fleet, policy, until)
    click.echo(f"day up to {instants.show(until)}: {len(measured.lines)} differences kept")

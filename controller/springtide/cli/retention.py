"""springtide retention apply|status, springtide downsample"""

from __future__ import annotations

from pathlib import Path

import click

from springtide import instants
from springtide.cli.options import StoreOptions, cluster_option, json_option, policy_option, read_policy, store_options
from springtide.cli.output import print_json, print_table
from springtide.observe import downsample as periods
from springtide.store import retention as rules


@click.group()
def retention() -> None:
    """Show and set how long each table keeps its rows."""


@retention.command()
@policy_option
@json_option
@store_options
def status(store: StoreOptions, policy_path: Path, as_json: bool) -> None:
    """Compare the policy's retention with the store's. Exit code 1 when they differ.

    \b
    Examples:
      springtide retention status
      springtide retention status --json
    """
    policy = read_policy(policy_path)
    with store.open() as opened:
        tables = rules.status(opened, policy.retention)
    if as_json:
        print_json([{**vars(kept), "agrees": kept.agrees} for kept in tables])
    else:
        rows = [(k.table, k.days, "yes" if k.agrees else k.set or "kept forever", k.rows, k.bytes) for k in tables]
        print_table(["table", "days wanted", "set", "rows", "bytes"], rows)
    if not all(kept.agrees for kept in tables):
        click.echo("run `springtide retention apply` to set the policy's values", err=True)
        raise click.exceptions.Exit(1)


@retention.command()
@cluster_option("On every server of this cluster.")
@policy_option
@json_option
@store_options
def apply(store: StoreOptions, policy_path: Path, as_json: bool, cluster: str | None) -> None:
    """Set the tables' retention to the policy's. Shorter times delete rows soon after.

    \b
    Examples:
      springtide retention apply
      springtide retention apply --cluster main
    """
    policy = read_policy(policy_path)
    with store.open() as opened:
        changed = rules.apply(opened, policy.retention, cluster)
    if as_json:
        print_json({"changed": changed})
    else:
        click.echo("\n".join(f"changed {table}" for table in changed) or "every table has the policy's retention")


@click.command()
@policy_option
@json_option
@store_options
def downsample(store: StoreOptions, policy_path: Path, as_json: bool) -> None:
    """Downsample closed rounds to hours and days, where missing or where a round was computed since. Repeats safely.

    \b
    Examples:
      springtide downsample
      springtide downsample --json
    """
    policy = read_policy(policy_path)
    now = instants.now()
    with store.open() as opened:
        todo = periods.pending(opened, now, policy.round.lateness_s)
        for period in todo:
            periods.downsample(opened, period, now)
    if as_json:
        print_json([{**vars(period), "start": instants.show(period.start)} for period in todo])
    else:
        lines = [f"{instants.show(p.start)}  {p.period_s // 3600:2d} h from {p.rounds} rounds" for p in todo]
        click.echo("\n".join(lines) or "every closed hour and day exists")

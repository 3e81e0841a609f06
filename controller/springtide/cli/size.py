"""springtide size"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import click

from springtide import instants
from springtide.cli.options import json_option, policy_option, read_policy
from springtide.cli.output import print_json, print_table
from springtide.sizing import HEADERS, Measured, Traffic, read_measured
from springtide.sizing import size as compute


@click.command()
@click.option("--pops", type=click.IntRange(1, 10_000), required=True)
@click.option("--edges", type=click.IntRange(1, 10_000_000), required=True)
@click.option(
    "--connections", type=click.IntRange(1, 100_000_000), default=5_000, show_default=True, help="Open, an edge."
)
@click.option("--closes-per-s", type=click.FloatRange(0, 1e7), default=50.0, show_default=True, help="On an edge.")
@click.option("--poll-s", type=click.FloatRange(0.1, 3600), default=30.0, show_default=True, help="Between polls.")
@click.option("--prefixes", type=click.IntRange(1, 10**8), default=5_000, show_default=True, help="A PoP and round.")
@click.option("--max-shards", type=click.IntRange(1, 1 << 20), default=16, show_default=True, help="Sample beyond.")
@click.option(
    "--measured",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A bench's JSON, for instance out/bench/pipeline.json: its figures in place of the built-in ones. May be "
    "repeated; of two that have a figure the last counts.",
)
@policy_option
@json_option
def size(
    pops: int,
    edges: int,
    connections: int,
    closes_per_s: float,
    poll_s: float,
    prefixes: int,
    max_shards: int,
    measured: tuple[Path, ...],
    policy_path: Path,
    as_json: bool,
) -> None:
    """Estimate how many rows, disks, cores, Kafka partitions and ClickHouse shards a fleet needs.

    \b
    Examples:
      springtide size --pops 34 --edges 1000
      springtide size --pops 250 --edges 100000 --max-shards 32 --json
      springtide size --pops 34 --edges 1000 --measured out/bench/pipeline.json --measured out/bench/sizes.json
    """
    policy = read_policy(policy_path)
    paced = policy.start.max_prefixes if policy.paces(instants.now()) else None
    traffic = Traffic(pops, edges, connections, closes_per_s, poll_s, prefixes, policy.round.interval_s, paced)
    own = read_measured(measured)
    found = compute(traffic, replace(Measured(), **own), policy.retention, max_shards)
    built_in = [field.name for field in fields(Measured) if field.name not in own]
    if as_json:
        print_json({**vars(found), "measured": own, "built_in": built_in})
        return
    print_table(list(HEADERS.values()), [[getattr(found, name) for name in HEADERS]])
    if own:
        click.echo(f"measured here: {', '.join(f'{name} {value:g}' for name, value in own.items())}")
    click.echo(f"not measured here, as in docs/explanation/sizing.md: {', '.join(built_in) or 'none'}")

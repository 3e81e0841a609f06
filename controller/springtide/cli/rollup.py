"""springtide rollup"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from springtide import instants
from springtide.cli.options import (
    StoreOptions,
    closed_round,
    fleet_option,
    is_terminal,
    json_option,
    policy_option,
    publish_dir_option,
    read_fleet,
    read_policy,
    store_options,
)
from springtide.cli.output import print_json, print_table, warn
from springtide.errors import InputError, Problem
from springtide.jobs.due import due, prepare, span
from springtide.observe.rollup import Rollup, count_late, with_samples
from springtide.observe.rollup import rollup as run
from springtide.store import Store

# Rounds after which a run without a terminal says how far it is: eight hours of samples.
REPORTED = 100


@click.command()
@click.option("--round", "round_text", metavar="INSTANT", help="One round, computed anew if it has its tables already.")
@click.option("--from", "from_text", metavar="INSTANT", help="The first round of a backfill, computed anew.")
@click.option("--to", "to_text", metavar="INSTANT", help="The last round of a backfill; the newest by default.")
@json_option
@fleet_option
@policy_option
@publish_dir_option
@store_options
def rollup(
    store: StoreOptions,
    fleet_path: Path,
    policy_path: Path,
    publish_dir: Path,
    round_text: str | None,
    from_text: str | None,
    to_text: str | None,
    as_json: bool,
) -> None:
    """Compute the round tables: each round's samples by socket, PoP pair, client prefix and host.

    By default every round of the last 24 hours that closed at least round.lateness_s ago, holds samples and lacks its
    tables. Over the same samples a round always gives the same rows, however often it is run and wherever an earlier
    run was interrupted; readers see a round's old rows or its new ones, never a mixture.
    Samples that arrive after that are counted in round_late. A backfill begins with the first round
    that has samples, as those before may have tables of samples that have expired; one without samples is refused.

    What playbooks recorded in the publisher's folder goes into the store first: the publication that was current on an
    edge determines with which window its new connections began.

    Only samples of fleet.yaml's edges count, each in fleet.yaml's PoP: other hosts are listed by `springtide status`.

    \b
    Examples:
      springtide rollup
      springtide rollup --round 2026-01-02T03:05:00Z
      springtide rollup --from 2026-01-02T00:00:00Z --to 2026-01-02T03:05:00Z
    """
    fleet, policy = read_fleet(fleet_path), read_policy(policy_path)
    interval_s = policy.round.interval_s
    if round_text and (from_text or to_text):
        raise InputError([Problem("--round", "round", "is given with --from or --to", "give one or the other")])
    if to_text and not from_text:
        raise InputError([Problem("--to", "round", "is given without --from", "give the first round")])
    now, one = instants.now(), closed_round(round_text, policy)
    first = one or closed_round(from_text, policy, "--from")
    last = one or closed_round(to_text, policy, "--to") or instants.latest_round(now, interval_s)
    if first is not None and first > last:
        raise InputError([Problem("--from", "round", f"{from_text} is after {to_text}", "swap them")])
    with store.open() as opened:
        prepare(opened, fleet, publish_dir, warn)
        if first is None:
            rounds: Sequence[int] = due(opened, policy, policy.round.due(now)).to_roll_up
        else:
            rounds = span(first, last, interval_s) if one else _announced(opened, span(first, last, interval_s))
        acting = policy.congestion.min_object_bytes
        steps = _counted(rounds)
        done = [run(opened, moment, interval_s, instants.now(), acting, paced=policy.paces(moment)) for moment in steps]
        late = count_late(opened, last, interval_s, now)
    if as_json:
        print_json({"rounds": [as_dict(line) for line in done], "late_samples": late})
        return
    if done:
        print_table(["round", "samples", "sockets"], [(instants.show(d.round), d.samples, d.sockets) for d in done])
    click.echo(f"{len(done)} rounds rolled up" if done else "no closed round lacks its tables")
    if late:
        click.echo(
            f"{late} samples came too late for their rounds' tables (round_late lists them): --round includes them"
        )


def _announced(store: Store, rounds: range) -> range:
    """Says how many rounds a backfill is, and gives them."""
    rounds = with_samples(store, rounds)
    count = f"{len(rounds):,} {'round' if len(rounds) == 1 else 'rounds'}"
    ends = f"from {instants.show(rounds[0])} up to {instants.show(rounds[-1])}"
    click.echo(f"rollup: {count} {ends}; {instants.show(rounds[0])} is the first with samples", err=True)
    return rounds


def _counted(rounds: Sequence[int]) -> Iterable[int]:
    """The rounds, and how far they are: a bar on a terminal, else a line for each hundred."""
    if is_terminal():
        yield from track(rounds, "rollup", console=Console(stderr=True))
        return
    for number, moment in enumerate(rounds):
        if number and number % REPORTED == 0:
            click.echo(f"rollup: {number:,} of {len(rounds):,} rounds done", err=True)
        yield moment


def as_dict(line: Rollup) -> dict[str, object]:
    """For JSON: instants as text."""
    return {**asdict(line), "round": instants.show(line.round), "computed_at": instants.show(line.computed_at)}

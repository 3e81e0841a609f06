"""springtide replay"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from springtide import instants
from springtide.cli.options import (
    StoreOptions,
    is_terminal,
    json_option,
    policy_option,
    read_policy,
    span_options,
    store_options,
    time_span,
)
from springtide.cli.output import print_json, print_table
from springtide.laws.registry import BY_NAME, LAWS
from springtide.learn import replay as history


@click.command()
@span_options
@click.option("--law", type=click.Choice(list(BY_NAME)), help="Only this one; all by default.")
@json_option
@policy_option
@store_options
def replay(
    store: StoreOptions,
    policy_path: Path,
    from_text: str | None,
    to_text: str | None,
    law: str | None,
    as_json: bool,
) -> None:
    """Replay history under another policy, and compare with what was decided. Nothing is written.

    A day up to the newest round by default; rounds without tables are left out. The samples are those of the history:
    how other routes would have changed them is not known.

    \b
    Examples:
      springtide replay --policy calmer.yaml
      springtide replay --from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z --policy calmer.yaml --law congestion
    """
    policy = read_policy(policy_path)
    since, until = time_span(from_text, to_text, policy)
    rounds = []
    with store.open() as opened:
        for each in (BY_NAME[law],) if law else LAWS:
            for one in history.replay(opened, policy, since, until, each):
                rounds.append(one)
                if is_terminal():
                    sys.stderr.write(f"\r{each.name} {instants.show(one.round)}")
    if rounds and is_terminal():
        sys.stderr.write("\n")
    found = history.summary(rounds, policy.round.interval_s)
    if as_json:
        head = {"since": instants.show(since), "until": instants.show(until), "policy_version": policy.version}
        listed = [{**asdict(one), "round": instants.show(one.round)} for one in rounds]
        print_json({**head, "summary": found, "rounds": listed})
        return
    title = f"After {instants.show(since)} up to {instants.show(until)}, policy {policy.version}"
    if not found:
        click.echo(f"{title}: no round has its tables; run `springtide rollup` for them")
        return
    table = [
        (
            one["law"],
            one["rounds"],
            _compared(one["changes"], one["changes_recorded"]),
            _compared(one["changed_per_round_median"], one["changed_per_round_median_recorded"]),
            _compared(one["changed_per_round_most"], one["changed_per_round_most_recorded"]),
            _compared(one["values_at_the_end"], one["values_at_the_end_recorded"]),
            one["different_per_round_median"],
        )
        for one in found
    ]
    columns = ["law", "rounds", "changes", "in a round, median", "most", "in use at the end", "different, median"]
    print_table(columns, table, title=title)
    click.echo("replayed (recorded)")


def _compared(ours: object, theirs: object) -> str:
    return f"{ours} ({'-' if theirs is None else theirs})"

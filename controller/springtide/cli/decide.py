"""springtide decide"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from springtide import instants
from springtide.cli.options import (
    StoreOptions,
    closed_round,
    fleet_option,
    json_option,
    metrics_option,
    policy_option,
    publish_dir_option,
    read_fleet,
    read_policy,
    round_option,
    store_options,
)
from springtide.cli.output import print_json, print_table, warn
from springtide.errors import SpringtideError
from springtide.jobs import decide as jobs
from springtide.jobs.due import prepare
from springtide.laws.base import Law, Outcome, View
from springtide.laws.registry import LAWS, METRICS
from springtide.metrics import Labels, write_metrics
from springtide.policy import Policy


@click.group()
def decide() -> None:
    """Turn a round's observations into decisions, with their reasons.

    Where too little of a round arrived from a PoP (policy section completeness), its last decisions stay in force, with
    that reason, and the exit code is 3.
    """


def _command(law: Law) -> click.Command:
    """`springtide decide LAW`."""
    examples = f"""
    \b
    Examples:
      springtide decide {law.name}
      springtide decide {law.name} --round 2026-01-02T03:05:00Z --dry-run
    """

    @click.command(law.name, help=law.help + examples)
    @round_option
    @click.option("--dry-run", is_flag=True, help="Show what would be decided; write nothing.")
    @metrics_option
    @json_option
    @fleet_option
    @policy_option
    @publish_dir_option
    @store_options
    def command(
        store: StoreOptions,
        fleet_path: Path,
        policy_path: Path,
        publish_dir: Path,
        round_text: str | None,
        dry_run: bool,
        metrics_path: Path | None,
        as_json: bool,
    ) -> None:
        fleet, policy = read_fleet(fleet_path), read_policy(policy_path)
        moment = closed_round(round_text, policy) or instants.latest_round(instants.now(), policy.round.interval_s)
        with store.open() as opened:
            prepare(opened, fleet, publish_dir, warn)
            outcome = jobs.decide(law, opened, policy, moment, instants.now(), dry_run=dry_run)
        view = law.view(outcome, fleet, policy)
        if metrics_path is not None:
            try:
                _measure(law, outcome, view, metrics_path)
            except SpringtideError as failed:
                # Alerts watch the loop; they must not stop it.
                warn(f"springtide: {failed}; the round is decided all the same")
        show = _print_json if as_json else _print
        show(outcome, view, policy, dry_run)
        error = jobs.too_thin(moment, outcome.inputs, outcome.thin)
        if error is not None:
            raise error

    return command


for each in LAWS:
    decide.add_command(_command(each))


def _print_json(outcome: Outcome, view: View, policy: Policy, dry_run: bool) -> None:
    head = {"round": instants.show(outcome.round), "policy_version": policy.version, "dry_run": dry_run}
    written = {"written": len(view.decisions) if outcome.written else 0, "incomplete": outcome.thin}
    print_json({**head, **written, **view.more, "decisions": view.decisions})


def _print(outcome: Outcome, view: View, policy: Policy, dry_run: bool) -> None:
    title = f"Round {instants.show(outcome.round)}, policy {policy.version}"
    print_table(view.columns, view.rows, title=title)
    verb = "would be written" if dry_run else "written" if outcome.written else "unchanged"
    click.echo(f"{len(view.decisions)} decisions {verb}; {view.summary}")
    for note in view.notes:
        click.echo(note)


def _measure(law: Law, outcome: Outcome, view: View, path: Path) -> None:
    """Gauges of a law's round: how complete its input was, and what it decided."""

    def by_pop(values: Iterable[tuple[str, float]]) -> dict[Labels, float]:
        return {(("law", law.name), ("pop", pop)): value for pop, value in values}

    found, thin = outcome.inputs, outcome.thin
    pops = sorted({*thin, *(one.pop for one in found)})
    write_metrics(
        path,
        {
            "springtide_decided_round_seconds": {(("law", law.name),): outcome.round},
            "springtide_input_incomplete": by_pop((pop, pop in thin) for pop in pops),
            "springtide_input_hosts": by_pop((one.pop, one.hosts_seen) for one in found),
            "springtide_input_hosts_expected": by_pop((one.pop, one.hosts_expected) for one in found),
            "springtide_input_rows": by_pop((one.pop, one.rows_seen) for one in found),
            "springtide_input_rows_expected": by_pop((one.pop, one.rows_expected) for one in found),
            **view.gauges,
        },
        METRICS,
    )

"""springtide decide"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import click

from springtide import instants
from springtide.cli.options import (
    F,
    StoreOptions,
    closed_round,
    fleet_option,
    json_option,
    metrics_dir_option,
    metrics_option,
    policy_option,
    publish_dir_option,
    read_fleet,
    read_policy,
    round_option,
    store_options,
)
from springtide.cli.output import print_json, print_table, warn
from springtide.errors import SpringtideError, ThinInputError
from springtide.fleet import Fleet
from springtide.jobs import decide as jobs
from springtide.jobs.due import prepare
from springtide.laws.base import Law, Outcome, View
from springtide.laws.registry import LAWS
from springtide.metrics import placed
from springtide.policy import Policy


@click.group()
def decide() -> None:
    """Turn a round's observations into decisions, with their reasons.

    Where too little of a round arrived from a PoP (policy section completeness), its last decisions stay in force, with
    that reason, and the exit code is 3.
    """


@dataclass(frozen=True)
class _Round:
    """A round to decide, what from, and the instant at which every law does."""

    store: StoreOptions
    fleet: Fleet
    policy: Policy
    publish_dir: Path
    dry_run: bool
    moment: int
    now: int
    # Prints each line once, whichever laws say it.
    warn: Callable[[str], None]

    @classmethod
    def of(
        cls,
        store: StoreOptions,
        fleet_path: Path,
        policy_path: Path,
        publish_dir: Path,
        round_text: str | None,
        dry_run: bool,
    ) -> Self:
        now, policy = instants.now(), read_policy(policy_path)
        moment = closed_round(round_text, policy, now=now) or instants.latest_round(now, policy.round.interval_s)
        return cls(store, read_fleet(fleet_path), policy, publish_dir, dry_run, moment, now, cache(warn))

    def decide(self, law: Law, metrics: Path | None) -> tuple[Outcome, View]:
        """Opens the store for this law alone: other commands get it in between."""
        with self.store.open() as opened:
            prepare(opened, self.fleet, self.publish_dir, self.warn)
            outcome = jobs.decide(law, opened, self.policy, self.moment, self.now, dry_run=self.dry_run)
        view = law.view(outcome, self.fleet, self.policy)
        if metrics is not None:
            try:
                jobs.measure(law, outcome, view, metrics)
            except SpringtideError as failed:
                # Alerts watch the loop; they must not stop it.
                self.warn(f"{failed}; the round is decided all the same")
        return outcome, view

    def too_thin(self, outcomes: Iterable[Outcome]) -> ThinInputError | None:
        """Says once what keeps several laws."""
        found = [error for one in outcomes if (error := jobs.too_thin(self.moment, one.inputs, one.thin))]
        lines = dict.fromkeys(line for error in found for line in str(error).split("\n"))
        return ThinInputError("\n".join(lines)) if found else None


def _options(command: F) -> F:
    """Adds the options that all of these commands have."""
    dry = click.option("--dry-run", is_flag=True, help="Show what would be decided; write nothing.")
    for option in (store_options, publish_dir_option, policy_option, fleet_option, json_option, dry, round_option):
        command = option(command)
    return command


@decide.command("all")
@_options
@metrics_dir_option
def _all(metrics_dir: str, as_json: bool, **given: Any) -> None:
    """Decide one round by every law, at one instant.

    What a law decides is shown under its name. The first law that fails ends it.

    \b
    Examples:
      springtide decide all
      springtide decide all --round due --metrics-dir /var/lib/prometheus/node-exporter
    """
    asked = _Round.of(**given)
    outcomes, shown = [], {}
    for law in LAWS:
        try:
            outcome, view = asked.decide(law, placed(metrics_dir, f"springtide-{law.name}.prom"))
        except SpringtideError:
            warn(f"{law.name} is not decided, nor are the laws after it:")
            raise
        outcomes.append(outcome)
        if as_json:
            shown[law.name] = _as_dict(outcome, view, asked)
        else:
            click.echo(f"{law.name}:")
            _print(outcome, view, asked)
    if as_json:
        print_json(shown)
    error = asked.too_thin(outcomes)
    if error is not None:
        raise error


def _command(law: Law) -> click.Command:
    """`springtide decide LAW`."""
    examples = f"""
    \b
    Examples:
      springtide decide {law.name}
      springtide decide {law.name} --round 2026-01-02T03:05:00Z --dry-run
    """

    @click.command(law.name, help=law.help + examples)
    @_options
    @metrics_option
    def command(metrics_path: Path | None, as_json: bool, **given: Any) -> None:
        asked = _Round.of(**given)
        outcome, view = asked.decide(law, metrics_path)
        if as_json:
            print_json(_as_dict(outcome, view, asked))
        else:
            _print(outcome, view, asked)
        error = asked.too_thin([outcome])
        if error is not None:
            raise error

    return command


for each in LAWS:
    decide.add_command(_command(each))


def _as_dict(outcome: Outcome, view: View, asked: _Round) -> dict[str, Any]:
    head = {
        "round": instants.show(outcome.round),
        "policy_version": asked.policy.version,
        "dry_run": asked.dry_run,
    }
    written = {"written": len(view.decisions) if outcome.written else 0, "incomplete": outcome.thin}
    return {**head, **written, **view.more, "decisions": view.decisions}


def _print(outcome: Outcome, view: View, asked: _Round) -> None:
    title = f"Round {instants.show(outcome.round)}, policy {asked.policy.version}"
    print_table(view.columns, view.rows, title=title)
    verb = "would be written" if asked.dry_run else "written" if outcome.written else "unchanged"
    click.echo(f"{len(view.decisions)} decisions {verb}; {view.summary}")
    for note in view.notes:
        click.echo(note)

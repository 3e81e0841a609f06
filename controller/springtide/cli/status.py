"""springtide status"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from springtide import instants
from springtide.cli.options import (
    StoreOptions,
    fleet_option,
    json_option,
    metrics_dir_option,
    metrics_option,
    policy_option,
    publish_dir_option,
    read_fleet,
    read_policy,
    store_options,
)
from springtide.cli.output import print_json
from springtide.laws.base import State, Step
from springtide.learn import status_facts
from springtide.learn.status import Facts, lines, verdict
from springtide.metrics import Gauges, placed, write_metrics
from springtide.publication.folder import PublishFolder
from springtide.publication.pause import paused

STYLES = {State.OK: "green", State.NOTE: "dim", State.NONE: "yellow", State.STALE: "yellow", State.BROKEN: "bold red"}


@click.command()
@publish_dir_option
@metrics_option
@metrics_dir_option
@json_option
@fleet_option
@policy_option
@store_options
def status(
    store: StoreOptions,
    fleet_path: Path,
    policy_path: Path,
    publish_dir: Path,
    metrics_path: Path | None,
    metrics_dir: str,
    as_json: bool,
) -> None:
    """Show on one screen whether the loop is closing.

    From samples to what is current on the fleet, each step with its age; what runs once a round is stale when it has
    missed one (policy.yaml's round.interval_s). Decided is not applied: what sockets of the last rounds show is
    compared with what was decided for their edge, and a difference is a fault. On a host that is not the publisher,
    pushes, gates and drift are those of the audit in the store. Where the policy's mode is advise, the loop closes
    without a push, and the first line says that it is advice only.

    Exit codes: 0 the loop is closing, 1 something is missing, stale, paused or broken, or the store does not answer,
    2 bad input or usage.

    \b
    Examples:
      springtide status
      springtide status --json
      springtide status --metrics /var/lib/prometheus/node-exporter/springtide-status.prom
      springtide status > /dev/null || mail -s "springtide" ops < /dev/null
    """
    fleet, policy, now = read_fleet(fleet_path), read_policy(policy_path), instants.now()
    with store.open() as opened:
        facts = status_facts.read(opened, fleet, policy, PublishFolder(publish_dir), now)
    found = lines(facts)
    closing = all(line.closes for line in found)
    if as_json:
        print_json(
            {
                "closing": closing,
                "mode": policy.mode,
                "verdict": verdict(found, advises=policy.advises),
                "at": instants.show(now),
                "steps": [_for_machines(line, now) for line in found],
            }
        )
    else:
        _print(found, verdict(found, advises=policy.advises), closing)
    # Last, so that a folder that cannot be written hides no status.
    metrics_path = metrics_path or placed(metrics_dir, "springtide-status.prom")
    if metrics_path is not None:
        write_metrics(metrics_path, gauges(facts, found, paused(publish_dir, now) is not None))
    sys.exit(0 if closing else 1)


def gauges(facts: Facts, found: Sequence[Step], is_paused: bool) -> Gauges:
    """Values that alerts read; a step or an event that has not happened yet has no line."""
    steps = {line.what.replace(" ", "_"): line for line in found if line.what not in facts.benefit}
    holds = facts.holds
    return {
        "springtide_status_seconds": {(): facts.now},
        "springtide_step_closes": {(("step", step),): line.closes for step, line in steps.items()},
        "springtide_step_seconds": {
            (("step", step),): line.at_unix_s for step, line in steps.items() if line.at_unix_s is not None
        },
        "springtide_event_seconds": {
            (("event", event.event), ("verdict", event.verdict)): event.at_unix_s for event in facts.events.values()
        },
        "springtide_bundles_expire_seconds": {(): holds.expires} if holds is not None and holds.routes else {},
        "springtide_paused": {(): is_paused},
        "springtide_benefit_worse": {
            (("law", line.law),): line.reading == "worse" for line in facts.benefit.values() if line.reading
        },
        "springtide_treatments": {
            (("law", law), ("seen", seen)): getattr(treated, seen)
            for law, treated in facts.treated.items()
            for seen in ("same", "differs", "unknown")
        },
    }


def _for_machines(line: Step, now: int) -> dict[str, object]:
    moment = line.at_unix_s
    when = {"at": None if moment is None else instants.show(moment), "age_s": None if moment is None else now - moment}
    return {**{key: value for key, value in asdict(line).items() if key != "at_unix_s"}, **when}


def _print(found: Sequence[Step], headline: str, closing: bool) -> None:
    # Colours only on a terminal; lines are never wrapped.
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(headline, style="bold green" if closing else "bold red"))
    width = max(len(line.what) for line in found)
    for line in found:
        row = Text(f"  {line.what:<{width}}  ")
        row.append(f"{line.state:<6}", STYLES[line.state])
        row.append(f"  {line.text}")
        if line.fix:
            row.append(f"; {line.fix}", "italic")
        console.print(row)

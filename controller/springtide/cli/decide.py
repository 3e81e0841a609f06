"""springtide decide"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click

from springtide import instants
from springtide.cli.metrics import write_metrics
from springtide.cli.options import (
    StoreOptions,
    closed_round,
    fleet_option,
    json_option,
    policy_option,
    read_fleet,
    read_policy,
    round_option,
    store_options,
)
from springtide.cli.output import print_json, print_table
from springtide.decide import congestion_rows
from springtide.decide import decisions as rows
from springtide.decide.completeness import incomplete_pops
from springtide.decide.congestion import decide as decide_congestion
from springtide.decide.initcwnd import Decision
from springtide.decide.initcwnd import decide as decide_initcwnd
from springtide.observe.rollup import ensure
from springtide.observe.rounds import completeness, pair_observations

# Decided, but for some PoPs the last decisions had to stand.
INCOMPLETE = 3


@click.group()
def decide() -> None:
    """Turn a round's observations into decisions, with their reasons."""


@decide.command()
@round_option
@click.option("--dry-run", is_flag=True, help="Show what would be decided; write nothing.")
@json_option
@fleet_option
@policy_option
@store_options
def initcwnd(
    store: StoreOptions, fleet_path: Path, policy_path: Path, round_text: str | None, dry_run: bool, as_json: bool
) -> None:
    """Decide the initial congestion window of every pair of PoPs for one round.

    Over the same samples a round always gives the same rows, however often it is run. Nothing from its instant on is
    read. Decide rounds in their order: each smooths with the one before. A round that has no tables yet, or only
    those from before round.lateness_s, is rolled up first, as by `springtide rollup --round`.

    \b
    Examples:
      springtide decide initcwnd
      springtide decide initcwnd --round 2026-01-02T03:05:00Z --dry-run
    """
    fleet = read_fleet(fleet_path)
    policy = read_policy(policy_path)
    interval_s = policy.round.interval_s
    moment = closed_round(round_text, policy) or instants.latest_round(instants.now(), interval_s)
    with store.open() as opened:
        ensure(opened, moment, interval_s, policy.round.lateness_s, instants.now())
        observations = pair_observations(opened, moment)
        decided = decide_initcwnd(moment, policy, observations, rows.previous(opened, moment, policy))
        written = not dry_run and rows.write_round(opened, moment, decided)
    silent = len(fleet.pops) * (len(fleet.pops) - 1) - len({d.pair[:2] for d in decided})
    if as_json:
        head = {"round": instants.show(moment), "policy_version": policy.version, "dry_run": dry_run}
        counts = {"written": len(decided) if written else 0, "pairs_without_samples": max(0, silent)}
        print_json({**head, **counts, "decisions": [as_dict(decision) for decision in decided]})
        return
    columns = ["from", "to", "ip", "action", "initcwnd", "reason", "observed", "earned", "seen", "retransmitted"]
    table = [
        (
            d.src_pop,
            d.dst_pop,
            d.ip_version,
            d.action.value,
            d.initcwnd,
            d.reason.value,
            None if d.observed_cwnd is None else round(d.observed_cwnd, 1),
            d.connections_earned,
            d.connections_seen,
            None if d.retransmit_ratio is None else f"{d.retransmit_ratio:.2%}",
        )
        for d in decided
    ]
    print_table(columns, table, title=f"Round {instants.show(moment)}, policy {policy.version}")
    verb = "would be written" if dry_run else "written" if written else "unchanged"
    click.echo(f"{len(decided)} decisions {verb}; {max(0, silent)} pairs of the fleet have no samples")


@decide.command()
@round_option
@click.option("--dry-run", is_flag=True, help="Show what would be decided; write nothing.")
@click.option(
    "--metrics",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write gauges for node_exporter's textfile collector.",
)
@json_option
@policy_option
@store_options
@click.pass_context
def congestion(
    context: click.Context,
    store: StoreOptions,
    policy_path: Path,
    round_text: str | None,
    dry_run: bool,
    metrics: Path | None,
    as_json: bool,
) -> None:
    """Decide which client prefixes of each PoP use BBR, for one round.

    Those that are consistently among their PoP's slowest, by the round tables of the last hours; a hashed share of them
    is held out to measure what it is good for. Nothing after the round is read, and again gives the same rows. Decide
    rounds in their order: each remembers the one before.

    Where less than round.min_complete of what a PoP's hosts should have said is there, its last decisions stand, and
    the exit code is 3.

    \b
    Examples:
      springtide decide congestion
      springtide decide congestion --round 2026-01-02T03:05:00Z --dry-run
    """
    policy = read_policy(policy_path)
    interval_s = policy.round.interval_s
    moment = closed_round(round_text, policy) or instants.latest_round(instants.now(), interval_s)
    with store.open() as opened:
        ensure(opened, moment, interval_s, policy.round.lateness_s, instants.now())
        last = congestion_rows.last_round(opened, moment)
        seen = congestion_rows.evidence(opened, moment, policy, last)
        before = congestion_rows.previous(opened, last)
        pops = {name.decode() for table in (seen, before) for name in set(table["pop"].tolist())}
        missing = incomplete_pops(pops, completeness(opened, moment), policy.round.min_complete)
        decided = decide_congestion(moment, policy, seen, before, frozenset(missing))
        written = not dry_run and congestion_rows.write_round(opened, moment, decided, policy.version)
    listed = [congestion_rows.as_dict(row) for row in congestion_rows.rows(decided)]
    chosen = sum(one["algorithm"] == "bbr" for one in listed)
    held = sum(bool(one["held_out"]) for one in listed)
    if metrics is not None:
        write_metrics(
            metrics,
            {
                "springtide_congestion_round_seconds": ("Newest decided round.", {(): moment}),
                "springtide_congestion_prefixes": (
                    "Chosen prefixes.",
                    {(("algorithm", "bbr"),): chosen, (("algorithm", "held_out"),): held},
                ),
                "springtide_congestion_incomplete_pops": ("PoPs whose last decisions stand.", {(): len(missing)}),
                "springtide_congestion_complete_share": (
                    "Share of the rows that an incomplete PoP should have sent.",
                    {(("pop", pop),): share for pop, share in missing.items()},
                ),
            },
        )
    for pop, share in missing.items():
        click.echo(f"{pop}: {share:.0%} of the round's rows are there: its last decisions stand", err=True)
    if as_json:
        head = {"round": instants.show(moment), "policy_version": policy.version, "dry_run": dry_run}
        outcome = {"written": len(decided) if written else 0, "incomplete_pops": missing}
        print_json({**head, **outcome, "decisions": listed})
        context.exit(INCOMPLETE if missing else 0)
    counts = Counter((str(one["pop"]), str(one["action"]), str(one["reason"])) for one in listed)
    table = [(*key, count) for key, count in sorted(counts.items())]
    print_table(
        ["PoP", "action", "reason", "prefixes"], table, title=f"Round {instants.show(moment)}, policy {policy.version}"
    )
    verb = "would be written" if dry_run else "written" if written else "unchanged"
    click.echo(f"{len(listed)} decisions {verb}; {chosen} prefixes use BBR, {held} are held out")
    context.exit(INCOMPLETE if missing else 0)


def as_dict(decision: Decision) -> dict[str, object]:
    """For JSON: instants as text."""
    instant_fields = ("round", "guard_until", "last_evidence", "expires_at")
    values = asdict(decision)
    return {**values, **{f: None if values[f] is None else instants.show(values[f]) for f in instant_fields}}

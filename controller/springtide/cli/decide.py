"""springtide decide"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
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
from springtide.decide import congestion_rows
from springtide.decide.decision import Decision
from springtide.jobs import decide as jobs
from springtide.jobs.rounds import prepare
from springtide.learn.explain import left_out
from springtide.metrics import Gauges, Labels, write_metrics
from springtide.observe.completeness import Input


@click.group()
def decide() -> None:
    """Turn a round's observations into decisions, with their reasons.

    Where too little of a round arrived from a PoP (policy section completeness), its last decisions stand, with that
    reason, and the exit code is 3.
    """


@decide.command()
@round_option
@click.option("--dry-run", is_flag=True, help="Show what would be decided; write nothing.")
@metrics_option
@json_option
@fleet_option
@policy_option
@publish_dir_option
@store_options
def initcwnd(
    store: StoreOptions,
    fleet_path: Path,
    policy_path: Path,
    publish_dir: Path,
    round_text: str | None,
    dry_run: bool,
    metrics_path: Path | None,
    as_json: bool,
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
        prepare(opened, fleet, publish_dir, warn)
        made = jobs.initcwnd(opened, policy, moment, instants.now(), dry_run=dry_run)
    heard, thin, decided, written = made.heard, made.thin, made.decided, made.written
    of_edges = made.of_edges
    windows = sum(decision.initcwnd is not None for decision in decided)
    gauges: Gauges = {"springtide_initcwnd_windows": {(): windows}}
    _tell("initcwnd", moment, heard, thin, gauges, metrics_path)
    silent = len(fleet.pops) * (len(fleet.pops) - 1) - len({d.pair[:2] for d in decided})
    if as_json:
        head = {"round": instants.show(moment), "policy_version": policy.version, "dry_run": dry_run}
        counts = {"written": len(decided) if written else 0, "pairs_without_samples": max(0, silent)}
        listed = [as_dict(decision) for decision in decided]
        of_each_edge = [asdict(one) | {"until": instants.show(one.until)} for one in of_edges]
        print_json({**head, **counts, "incomplete": thin, "decisions": listed, "edge_decisions": of_each_edge})
        _conclude(moment, heard, thin)
        return
    columns = ["from", "to", "ip", "action", "initcwnd", "reason", "observed", "earned", "seen", "retransmitted"]
    table = [
        (
            d.src_pop,
            d.dst_pop,
            d.ip_version,
            left_out(d, policy),
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
    for one in of_edges:
        click.echo(
            f"override on {one.edge} to {one.dst_pop} (IPv{one.ip_version}): {one.initcwnd or 'default'}: {one.why}"
        )
    _conclude(moment, heard, thin)


@decide.command()
@round_option
@click.option("--dry-run", is_flag=True, help="Show what would be decided; write nothing.")
@metrics_option
@json_option
@fleet_option
@policy_option
@publish_dir_option
@store_options
def congestion(
    store: StoreOptions,
    fleet_path: Path,
    policy_path: Path,
    publish_dir: Path,
    round_text: str | None,
    dry_run: bool,
    metrics_path: Path | None,
    as_json: bool,
) -> None:
    """Decide which client prefixes of each PoP use BBR, for one round.

    Those that are consistently among their PoP's slowest, by the round tables of the last hours; a hashed share of them
    is held out to measure what it is good for. Nothing after the round is read, and again gives the same rows. Decide
    rounds in their order: each remembers the one before.

    \b
    Examples:
      springtide decide congestion
      springtide decide congestion --round 2026-01-02T03:05:00Z --dry-run
    """
    fleet, policy = read_fleet(fleet_path), read_policy(policy_path)
    interval_s = policy.round.interval_s
    moment = closed_round(round_text, policy) or instants.latest_round(instants.now(), interval_s)
    with store.open() as opened:
        prepare(opened, fleet, publish_dir, warn)
        made = jobs.congestion(opened, policy, moment, instants.now(), dry_run=dry_run)
    heard, thin, decided, written = made.heard, made.thin, made.decided, made.written
    listed = [congestion_rows.as_dict(row) for row in congestion_rows.rows(decided)]
    chosen = sum(one["algorithm"] == "bbr" for one in listed)
    held = sum(bool(one["held_out"]) for one in listed)
    gauges: Gauges = {
        "springtide_congestion_prefixes": {(("algorithm", "bbr"),): chosen, (("algorithm", "held_out"),): held}
    }
    _tell("congestion", moment, heard, thin, gauges, metrics_path)
    if as_json:
        head = {"round": instants.show(moment), "policy_version": policy.version, "dry_run": dry_run}
        outcome = {"written": len(decided) if written else 0, "incomplete": thin}
        print_json({**head, **outcome, "decisions": listed})
        _conclude(moment, heard, thin)
        return
    counts = Counter((str(one["pop"]), str(one["action"]), str(one["reason"])) for one in listed)
    table = [(*key, count) for key, count in sorted(counts.items())]
    print_table(
        ["PoP", "action", "reason", "prefixes"], table, title=f"Round {instants.show(moment)}, policy {policy.version}"
    )
    verb = "would be written" if dry_run else "written" if written else "unchanged"
    click.echo(f"{len(listed)} decisions {verb}; {chosen} prefixes decided for BBR, {held} are held out")
    _conclude(moment, heard, thin)


def _tell(
    law: str, moment: int, heard: Sequence[Input], thin: Mapping[str, str], more: Gauges, path: Path | None
) -> None:
    """Gauges of a law's round: how complete its input was, and what came of it."""
    if path is None:
        return

    def by_pop(values: Iterable[tuple[str, float]]) -> dict[Labels, float]:
        return {(("law", law), ("pop", pop)): value for pop, value in values}

    pops = sorted({*thin, *(one.pop for one in heard)})
    write_metrics(
        path,
        {
            "springtide_decided_round_seconds": {(("law", law),): moment},
            "springtide_input_incomplete": by_pop((pop, pop in thin) for pop in pops),
            "springtide_input_hosts": by_pop((one.pop, one.hosts_heard) for one in heard),
            "springtide_input_hosts_expected": by_pop((one.pop, one.hosts_expected) for one in heard),
            "springtide_input_rows": by_pop((one.pop, one.rows_seen) for one in heard),
            "springtide_input_rows_expected": by_pop((one.pop, one.rows_expected) for one in heard),
            **more,
        },
    )


def _conclude(moment: int, heard: Sequence[Input], thin: Mapping[str, str]) -> None:
    """Raises ThinInputError where the input was too thin."""
    error = jobs.too_thin(moment, heard, thin)
    if error is not None:
        raise error


def as_dict(decision: Decision) -> dict[str, object]:
    """For JSON: instants as text."""
    instant_fields = ("round", "guard_until", "last_evidence", "expires_at")
    values = asdict(decision)
    return {**values, **{f: None if values[f] is None else instants.show(values[f]) for f in instant_fields}}

"""A round by a law: its input, its decisions, its rows, its metrics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from springtide import instants
from springtide.errors import SpringtideError, ThinInputError
from springtide.fleet import Fleet
from springtide.laws.base import Law, Outcome, View, frozen
from springtide.laws.registry import METRICS
from springtide.metrics import Labels, placed, write_metrics
from springtide.observe.completeness import Input
from springtide.observe.rollup import ensure
from springtide.policy import Policy
from springtide.store import Store


def decide(law: Law, store: Store, policy: Policy, moment: int, now_unix_s: int, *, dry_run: bool = False) -> Outcome:
    """Decide and write a round, rolling it up first where that is missing. Raises StoreError."""
    interval_s = policy.round.interval_s
    acting, paced = policy.congestion.min_object_bytes, policy.paces(moment)
    ensure(store, moment, interval_s, policy.round.lateness_s, now_unix_s, acting, paced=paced)
    seen, before = law.observe(store, policy, moment)
    found, thin = frozen(store, policy, moment, law.pops(seen, before))
    decided = law.decide(moment, policy, seen, before, thin)
    written = not dry_run and law.write(store, policy, moment, decided)
    return Outcome(moment, found, thin, decided, written)


def too_thin(round_unix_s: int, found: Sequence[Input], thin: Mapping[str, str]) -> ThinInputError | None:
    """The error where a PoP's input was too incomplete to decide on."""
    fix = "the last decisions stay in force until they expire; see `springtide sql incomplete-hosts`"
    lines = [f"round {instants.show(round_unix_s)}: {pop}: {why}; {fix}" for pop, why in thin.items()]
    if not found:
        lines = [f"round {instants.show(round_unix_s)}: no host sent samples; {fix}"]
    return ThinInputError("\n".join(lines)) if lines else None


def report(
    law: Law,
    outcome: Outcome,
    fleet: Fleet,
    policy: Policy,
    environment: Mapping[str, str] = os.environ,
    print_line: Callable[[str], None] = print,
) -> None:
    """The gauges of `springtide decide all`, in SPRINGTIDE_METRICS_DIR; nothing without that."""
    path = placed(environment.get("SPRINGTIDE_METRICS_DIR"), f"springtide-{law.name}.prom")
    if path is None:
        return
    try:
        measure(law, outcome, law.view(outcome, fleet, policy), path)
    except SpringtideError as failed:
        # Alerts watch the loop; they must not stop it.
        print_line(f"{failed}; the round is decided all the same")


def measure(law: Law, outcome: Outcome, view: View, path: Path) -> None:
    """Gauges of a law's round: how complete its input was, and what it decided. Raises SpringtideError."""

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

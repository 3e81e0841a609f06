"""A round by each law: its input, its decisions, its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from springtide import instants
from springtide.decide import congestion_rows, edges
from springtide.decide import decisions as window_rows
from springtide.decide.columns import Table
from springtide.decide.congestion import decide as decide_congestion
from springtide.decide.decision import Decision
from springtide.decide.edges import EdgeDecision
from springtide.decide.initcwnd import decide as decide_initcwnd
from springtide.errors import ThinInputError
from springtide.observe.completeness import Input, inputs, lacking
from springtide.observe.rollup import ensure
from springtide.observe.rounds import pair_observations
from springtide.policy import Policy
from springtide.store import Store


@dataclass(frozen=True)
class Windows:
    """A round of initial windows; `thin` PoPs kept their last decisions, and why; `written`: rows had to change."""

    round: int
    heard: Sequence[Input]
    thin: Mapping[str, str]
    decided: list[Decision]
    of_edges: list[EdgeDecision]
    written: bool


@dataclass(frozen=True)
class Prefixes:
    """A round of congestion control; as Windows."""

    round: int
    heard: Sequence[Input]
    thin: Mapping[str, str]
    decided: Table
    written: bool


def initcwnd(store: Store, policy: Policy, moment: int, now_unix_s: int, *, dry_run: bool = False) -> Windows:
    """Decide and write a round, rolling it up first where that is missing. Raises StoreError."""
    interval_s = policy.round.interval_s
    ensure(store, moment, interval_s, policy.round.lateness_s, now_unix_s, policy.congestion.min_object_bytes)
    observations = pair_observations(store, moment)
    before = window_rows.previous(store, moment, policy)
    heard = inputs(store, moment, interval_s, policy.completeness.memory_rounds)
    thin = lacking(heard, policy.completeness, {name.decode() for name in set(before["src_pop"].tolist())})
    found = decide_initcwnd(moment, policy, observations, before, thin)
    of_edges = edges.edge_decisions(policy, moment)
    written = not dry_run and window_rows.write_round(store, moment, found, policy.version)
    if not dry_run:
        edges.write_round(store, moment, of_edges, policy.version)
    decided = window_rows.as_decisions(found, moment, policy.version)
    return Windows(moment, heard, thin, decided, of_edges, written)


def congestion(store: Store, policy: Policy, moment: int, now_unix_s: int, *, dry_run: bool = False) -> Prefixes:
    """As `initcwnd`, for client prefixes. Raises StoreError."""
    interval_s = policy.round.interval_s
    ensure(store, moment, interval_s, policy.round.lateness_s, now_unix_s, policy.congestion.min_object_bytes)
    last = congestion_rows.last_round(store, moment)
    seen = congestion_rows.evidence(store, moment, policy, last)
    before = congestion_rows.previous(store, last)
    pops = {name.decode() for table in (seen, before) for name in set(table["pop"].tolist())}
    heard = inputs(store, moment, interval_s, policy.completeness.memory_rounds)
    thin = lacking(heard, policy.completeness, pops)
    decided = decide_congestion(moment, policy, seen, before, thin)
    written = not dry_run and congestion_rows.write_round(store, moment, decided, policy.version)
    return Prefixes(moment, heard, thin, decided, written)


def too_thin(round_unix_s: int, heard: Sequence[Input], thin: Mapping[str, str]) -> ThinInputError | None:
    """What to say where the input was too thin to be followed."""
    fix = "the last decisions stand until they expire; see `springtide sql incomplete-hosts`"
    lines = [f"round {instants.show(round_unix_s)}: {pop}: {why}; {fix}" for pop, why in thin.items()]
    if not heard:
        lines = [f"round {instants.show(round_unix_s)}: no host was heard; {fix}"]
    return ThinInputError("\n".join(lines)) if lines else None

"""The decisions' benefit: treated against held-out, by group, from the round tables of a span of time; and what
connections of each tenant and to each autonomous system show."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from springtide import instants
from springtide.fleet import Fleet
from springtide.laws.base import BenefitLine, Figure
from springtide.laws.holdout import held_out_edges
from springtide.laws.initcwnd.benefit import MINIMUM_EDGES
from springtide.laws.registry import LAWS
from springtide.laws.switchback import untreated_permille
from springtide.learn import slices
from springtide.learn.slices import Slice
from springtide.policy import Policy
from springtide.store import Store


@dataclass(frozen=True)
class Report:
    since: int
    until: int
    lines: list[BenefitLine]
    figures: list[Figure]
    tenants: list[Slice]
    systems: list[Slice]
    remedy: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON: instants as text, each figure's rows by its name."""
        span = {"since": instants.show(self.since), "until": instants.show(self.until)}
        return {
            **span,
            "lines": [asdict(line) | {"assumption": line.assumption} for line in self.lines],
            **{one.name: one.rows for one in self.figures},
            "tenants": [one.as_dict() for one in self.tenants],
            "autonomous_systems": [one.as_dict() for one in self.systems],
            "remedy": self.remedy,
        }


def make(store: Store, fleet: Fleet, policy: Policy, since_unix_s: int, until_unix_s: int, quantile: float) -> Report:
    """The rounds with since < round <= until.

    Each difference twice. Over what was decided: a hash chose the sides, so that nothing but the treatment differs;
    where edges did not apply it the difference shrinks towards none. Over what sockets show: the effect of the
    treatment itself, but whatever kept some units from it may be what makes them slow or fast.
    """
    span = {"since": max(0, since_unix_s), "until": until_unix_s}
    lines = [line for law in LAWS for line in law.benefit(store, fleet, policy, span, quantile)]
    lines.sort(key=lambda line: line.units == "seen")
    figures = [figure for law in LAWS for figure in law.figures(store, policy, span)]
    by_tenant, by_system = slices.tenants(store, span), slices.systems(store, span)
    return Report(since_unix_s, until_unix_s, lines, figures, by_tenant, by_system, remedy(fleet, policy, until_unix_s))


def remedy(fleet: Fleet, policy: Policy, now_unix_s: int) -> str:
    """What to write where this fleet holds out too few edges for any answer on windows; empty where it does not."""
    held_out = len(held_out_edges(fleet, policy.holdout))
    if policy.experiment.kind != "holdout" or held_out >= MINIMUM_EDGES:
        return ""
    write = "`experiment: {kind: switchback}`"
    if policy.paces(now_unix_s):
        untreated = untreated_permille(policy.experiment.shares[0])
        write = f"`experiment: {{kind: share}}`, and below `enforce` at least `max_trial_permille: {untreated}`"
    return (
        f"Windows stay too few to compare, as {held_out} edges are held out and {MINIMUM_EDGES} are needed: write "
        f"{write} in policy.yaml, and each pair is compared with itself."
    )

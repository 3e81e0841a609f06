"""The decisions' benefit: treated against held-out, by group, from the round tables of a span of time; and what
connections of each tenant and to each autonomous system show."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from springtide import instants
from springtide.fleet import Fleet
from springtide.laws.base import BenefitLine, Figure
from springtide.laws.registry import LAWS
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

    def as_dict(self) -> dict[str, Any]:
        """For JSON: instants as text, each figure's rows by its name."""
        span = {"since": instants.show(self.since), "until": instants.show(self.until)}
        return {
            **span,
            "lines": [asdict(line) | {"assumption": line.assumption} for line in self.lines],
            **{one.name: one.rows for one in self.figures},
            "tenants": [one.as_dict() for one in self.tenants],
            "autonomous_systems": [one.as_dict() for one in self.systems],
        }


def make(store: Store, fleet: Fleet, policy: Policy, since_unix_s: int, until_unix_s: int, quantile: float) -> Report:
    """The rounds with since < round <= until.

    Each difference twice. Over what was decided: a hash chose the sides, so that nothing but the treatment differs;
    where edges did not apply it the difference shrinks towards none. Over what sockets show: the effect of the
    treatment itself, but whatever kept some units from it may be what makes them slow or fast.
    """
    span = {"since": max(0, since_unix_s), "until": until_unix_s}
    found = [law.benefit(store, fleet, policy, span, quantile) for law in LAWS]
    lines = [line for side in zip(*found, strict=True) for own in side for line in own]
    figures = [figure for law in LAWS for figure in law.figures(store, policy, span)]
    by_tenant, by_system = slices.tenants(store, span), slices.systems(store, span)
    return Report(since_unix_s, until_unix_s, lines, figures, by_tenant, by_system)

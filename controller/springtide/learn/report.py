"""The decisions' benefit as it was measured, by group; and what connections of each tenant and to each autonomous
system show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from springtide import instants
from springtide.fleet import Fleet
from springtide.laws.base import Figure
from springtide.laws.effect import BenefitLine
from springtide.laws.registry import LAWS
from springtide.learn import slices
from springtide.learn.benefits import Measured, uncontrolled
from springtide.learn.slices import Slice
from springtide.policy import Policy
from springtide.store import Store


@dataclass(frozen=True)
class Report:
    since: int
    until: int
    lines: Sequence[BenefitLine]
    figures: list[Figure]
    tenants: list[Slice]
    systems: list[Slice]
    remedy: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON: instants as text, each figure's rows by its name."""
        span = {"since": instants.show(self.since), "until": instants.show(self.until)}
        return {
            **span,
            "lines": [asdict(line) | {"reading": line.reading, "assumption": line.assumption} for line in self.lines],
            **{one.name: one.rows for one in self.figures},
            "tenants": [one.as_dict() for one in self.tenants],
            "autonomous_systems": [one.as_dict() for one in self.systems],
            "remedy": self.remedy,
        }


def make(store: Store, fleet: Fleet, policy: Policy, measured: Measured) -> Report:
    """Makes the report of some rounds: what was measured of them, and what they show besides."""
    span = {"since": max(0, measured.since), "until": measured.until}
    figures = [figure for law in LAWS for figure in law.figures(store, policy, span)]
    by_tenant, by_system = slices.tenants(store, span), slices.systems(store, span)
    missing = " ".join(uncontrolled(fleet, policy, measured.until).values())
    return Report(measured.since, measured.until, measured.lines, figures, by_tenant, by_system, missing)

"""Gain of paths if connections started at the proved rate, and cost of loss on them. Nothing is decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from springtide import instants
from springtide.laws.columns import Table
from springtide.laws.units import keys
from springtide.learn.advise_path import EVIDENCE, SIZES, Basis, Interval, Path, Risk, path_of
from springtide.learn.losses import Losses, losses
from springtide.policy import Policy
from springtide.store import Store
from springtide.store.files import sql

# The paths on which connections that began had most round trips to save. Their rows, at most 128 connections each, take
# about 150 MB.
MAX_UNITS = 5000


@dataclass(frozen=True)
class Advice:
    """Paths with a rate, those first that save most; `unknown` have none. `local` connections that began are of hosts
    to themselves. Instants in seconds since the epoch."""

    since: int
    until: int
    paths: list[Path]
    unknown: int
    local: int
    is_cut: bool
    loss: Losses

    @property
    def fresh(self) -> int:
        return sum(path.fresh for path in self.paths)

    @property
    def total_ms(self) -> Interval:
        """The bounds are the sums of the bounds: as if all paths erred together."""
        return Interval(
            sum(path.total_ms.estimate for path in self.paths),
            sum(path.total_ms.low for path in self.paths),
            sum(path.total_ms.high for path in self.paths),
        )

    @property
    def averaged(self) -> list[Path]:
        """The paths that means are of: those whose rate is known. Where none is, all; means are lower bounds then."""
        return [path for path in self.paths if path.basis is not Basis.AT_LEAST] or self.paths

    def mean_ms(self, size_bytes: int) -> tuple[float, float]:
        """Time of a transfer by default, and the part of it that is saved; means over connections that began."""
        paths = self.averaged
        began = [path.fresh for path in paths]
        weights = began if any(began) else [1] * len(paths)
        count = max(sum(weights), 1)
        found = [path.saving(size_bytes) for path in paths]
        default = sum(weight * one.default_ms for weight, one in zip(weights, found, strict=True))
        saved = sum(weight * one.saved_ms.estimate for weight, one in zip(weights, found, strict=True))
        return default / count, saved / count

    def at_risk(self) -> dict[Risk, list[Path]]:
        return {risk: [path for path in self.paths if risk in path.risks] for risk in Risk}

    def as_dict(self, most: int) -> dict[str, Any]:
        """For JSON: the best `most` paths."""
        means = {size_bytes: self.mean_ms(size_bytes) for size_bytes in SIZES} if self.paths else {}
        return {
            "since": instants.show(self.since),
            "until": instants.show(self.until),
            "fresh_connections": self.fresh,
            "fresh_connections_local": self.local,
            "total_saved_ms": self.total_ms.as_dict(),
            "mean": [
                {"size_bytes": size_bytes, "default_ms": round(default, 3), "saved_ms": round(saved, 3)}
                for size_bytes, (default, saved) in means.items()
            ],
            "paths_averaged": len(self.averaged),
            "paths_known": len(self.paths),
            "paths_unknown": self.unknown,
            "is_cut": self.is_cut,
            "risks": {risk.value: len(paths) for risk, paths in self.at_risk().items()},
            "paths": [_for_machines(path) for path in self.paths[:most]],
            "loss": self.loss.as_dict(),
        }


def advise(store: Store, policy: Policy, since_unix_s: int, until_unix_s: int) -> Advice:
    """From samples with since < time <= until, of the fleet's edges. Raises StoreError."""
    law = policy.start
    table = store.columns(
        sql("advise/evidence"),
        EVIDENCE,
        {
            "since_us": since_unix_s * 1_000_000,
            "until_us": until_unix_s * 1_000_000,
            "min_met": law.min_connections,
            "max_units": MAX_UNITS,
        },
    )
    units = list(_units(table))
    named = [unit for unit in units if unit["destination"][0]]
    local = sum(int(unit["fresh"][0]) for unit in units if not unit["destination"][0])
    paths = [path_of(unit, law, paces=policy.paces(until_unix_s)) for unit in named if unit["rate"][0] > 0]
    paths.sort(key=lambda path: (-path.total_ms.estimate, -path.saving(SIZES[-1]).saved_ms.estimate, path.src_pop))
    unknown, is_cut = len(named) - len(paths), len(units) == MAX_UNITS
    return Advice(
        since_unix_s, until_unix_s, paths, unknown, local, is_cut, losses(store, policy, since_unix_s, until_unix_s)
    )


def _units(table: Table) -> Iterator[Table]:
    """Each unit's rows."""
    if not len(table):
        return
    own = keys(table)
    begins = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1]]))
    yield from np.split(table, begins[1:])


def _for_machines(path: Path) -> dict[str, Any]:
    return {
        "src_pop": path.src_pop,
        "destination": path.destination,
        "ip_version": path.ip_version,
        "kind": "pair" if path.is_pair else "prefix",
        "hosts": path.hosts,
        "basis": path.basis.value,
        "connections": path.connections,
        "rounds": path.rounds,
        "rtt_ms": path.rtt_ms.as_dict(),
        "rate_bytes_per_s": path.rate_bytes_per_s.as_dict(0),
        "window": path.window,
        "sizes": [
            {
                "size_bytes": one.size_bytes,
                "default_ms": round(one.default_ms, 3),
                "default_is_measured": one.is_measured,
                "start_ms": round(one.start_ms, 3),
                "saved_ms": one.saved_ms.as_dict(),
                "saved_round_trips": one.saved_round_trips.as_dict(),
            }
            for one in path.savings
        ],
        "fresh_connections": path.fresh,
        "fresh_connections_from": {str(size_bytes): count for size_bytes, count in path.fresh_from.items()},
        "total_saved_ms": path.total_ms.as_dict(),
        "lost_share": round(path.lost_share, 6),
        "risks": [risk.value for risk in path.risks],
    }

"""Estimates that borrow strength from their group: a normal model of normal means (empirical Bayes).

A unit's own estimate x has the sampling variance v; the means of a group's units are spread around its mean with the
variance between them, by the moments of DerSimonian and Laird (Controlled Clinical Trials 7, 1986). The shrunken
estimate is w x + (1 - w) mean with w = between / (between + v): much evidence keeps its own, little is drawn to the
group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from springtide.laws.columns import Bits

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Grouped:
    """Of each unit's group: how many units have an estimate of their own, their weighted mean, the variance between
    them, and a low quantile. NaN where none has."""

    units: NDArray[np.int64]
    mean: Floats
    between: Floats
    low: Floats


def grouped(group: NDArray[np.int64], own: Floats, variance: Floats, known: Bits, quantile: float) -> Grouped:
    """Rows of one group's number belong together; 0 is no group. Only `known` rows count, all are answered."""
    count = int(group.max(initial=0)) + 1
    counted = known & (group != 0)
    at, x, v = group[counted], own[counted], np.maximum(variance[counted], 1e-6)
    weight = 1.0 / v
    units = np.bincount(at, minlength=count)
    total = np.bincount(at, weight, count)
    squares = np.bincount(at, weight**2, count)
    with np.errstate(invalid="ignore", divide="ignore"):
        fixed = np.bincount(at, weight * x, count) / total
        spread = np.bincount(at, weight * (x - fixed[at]) ** 2, count)
        between = np.maximum(0.0, (spread - (units - 1)) / (total - squares / total))
        between[units < 2] = 0.0
        # The mean of units that differ by more than their own errors: nobody counts for many.
        weight = 1.0 / (v + between[at])
        mean = np.bincount(at, weight * x, count) / np.bincount(at, weight, count)
    low = np.full(count, np.nan)
    # By group, then by value: as lexsort, which sorts doubles several times as slowly.
    order = np.argsort(x)
    order = order[np.argsort(at[order].astype(np.min_scalar_type(count)), kind="stable")]
    begin = np.searchsorted(at[order], np.arange(count))
    has = units > 0
    low[has] = x[order][(begin + np.floor(quantile * (units - 1)).astype(np.int64))[has]]
    return Grouped(units[group], mean[group], between[group], low[group])


def shrunken(own: Floats, variance: Floats, of: Grouped, least_units: int) -> tuple[Floats, Floats]:
    """The estimate and the weight of its own evidence; never above its own by more than its standard error, because
    what was not seen here must not be spent here. Groups of fewer than `least_units` shrink nothing."""
    usable = of.units >= least_units
    with np.errstate(invalid="ignore", divide="ignore"):
        weight = np.where(usable, of.between / (of.between + variance), 1.0)
        drawn = weight * own + (1.0 - weight) * np.where(usable, of.mean, 0.0)
    return np.minimum(drawn, own), weight

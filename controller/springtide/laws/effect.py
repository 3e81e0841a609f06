"""The benefit of a treatment: the difference between treated and held-out units, with an interval.

The units are client prefixes (BBR or not) or edges (initial windows or not); a hash chose who is held out, so that both
sides are alike but for the treatment. Each unit is one number on a logarithmic scale (base 2): growth of a delivery
rate since the prefix was chosen, the median time that an edge's connections took. Numbers are taken against the median
of the treated ones in their stratum (the PoP): what differs between strata is not an effect.

    effect = Q(treated) - Q(held out), Q the quantile of interest

Its interval is the percentile bootstrap's over units (Efron and Tibshirani, An Introduction to the Bootstrap, chapter
13): both sides are drawn anew with replacement, each by itself. Units and not rounds or connections are drawn: those of
one unit share its path. With fewer than `minimum` units on a side there is no answer. What an interval cannot show is
interference: treated and held-out share bottlenecks, so that what one side takes the other lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Item = TypeVar("Item")

# The rounds of a report.
SPAN = "round > fromUnixTimestamp({since:UInt32}) and round <= fromUnixTimestamp({until:UInt32})"

# The interval's ends move by less than a tenth of its width between seeds.
RESAMPLES = 1000
# Beyond the usual 95 %: a percentile bootstrap is a little too short for small samples.
LEVEL = 0.975
# Fewest prefixes on a side. The median of 20 is known to a quarter of the spread.
MINIMUM = 20
# Most numbers drawn at once: 80 MB.
CHUNK = 10_000_000

_SHARED = "treated and held-out connections share bottlenecks"
# Ways of measuring a benefit, and what each assumes.
METHODS = {
    "held out": f"{_SHARED}: what one side uses the other may lack, so that the difference is right only as far as the "
    "two do not touch each other, and else mostly larger than what treating all would bring.",
    "switchback": f"{_SHARED}: here a pair's connections are all treated or all not, hour by hour, and it is assumed "
    "that nothing of a period is left after the wash-out, and that pairs with other turns fill no bottleneck of its.",
    "disable test": f"{_SHARED}: here all are treated before and after a test and none in it, and it is assumed that "
    "paths do not change by themselves between these hours other than evenly; nothing was drawn at random.",
    "untreated share": f"{_SHARED}: here a path leaves a part of its connections, drawn at random, as they were, so "
    "that the difference is right only as far as the two do not touch each other.",
    "randomised share": f"{_SHARED}: within one share that biases the difference, so that only an effect that is the "
    "same at every share is what treating all would bring; one that changes with the share is interference.",
}

# Beginnings of outcomes of which less is better: more is of the others.
LESS_IS_BETTER = ("busy time", "time of", "bytes sent again", "segments sent again")
NOWHERE = "", "", 0


@dataclass(frozen=True)
class Effect:
    """Shares, 0.05 is 5 % more; None: too few units for an answer."""

    treated: int
    held_out: int
    effect: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def shown(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class BenefitLine:
    """One row of the report: of which law, by what, which group."""

    law: str
    outcome: str
    by: str
    group: str
    effect: Effect
    # decided: every unit as it was decided, whatever its sockets show (intention to treat). seen: only units whose
    # sockets show what was decided for them.
    units: str = "decided"
    # One of METHODS.
    method: str = "held out"
    # Source PoP, destination and IP version, where it is of a path.
    path: tuple[str, str, int] = NOWHERE
    # A percentile's value for the treated and for the others, microseconds.
    sides: tuple[float | None, float | None] = (None, None)

    @property
    def assumption(self) -> str:
        """In one sentence what the number rests on."""
        return METHODS[self.method]

    @property
    def answers(self) -> bool:
        """Tells whether it is the law's one number: over all units, as they were decided."""
        return (self.by, self.units) == ("all", "decided")

    @property
    def reading(self) -> str:
        """The line in one or two words; nothing where there are too few units."""
        if self.effect.effect is None:
            return ""
        if not self.effect.shown:
            return "not shown"
        if self.outcome.endswith("interference"):
            return "interference"
        return "better" if (self.effect.effect < 0) == self.outcome.startswith(LESS_IS_BETTER) else "worse"


def difference(
    log2_values: ArrayLike,
    treated: ArrayLike,
    strata: ArrayLike | None = None,
    *,
    quantile: float = 0.5,
    minimum: int = MINIMUM,
    seed: int = 0,
) -> Effect:
    """The effect on the quantile of interest, of one value a unit; what is not finite is left out.

    The same whatever the order of the units: they are sorted before any is drawn.
    """
    values = np.asarray(log2_values, float)
    is_treated = np.asarray(treated, bool)
    labels = np.zeros(len(values), int) if strata is None else np.unique(np.asarray(strata), return_inverse=True)[1]
    finite = np.isfinite(values)
    values, is_treated, labels = values[finite], is_treated[finite], labels[finite]
    values = values - _medians(values, is_treated, labels)
    is_treated, values = is_treated[np.isfinite(values)], values[np.isfinite(values)]
    ours, theirs = np.sort(values[is_treated]), np.sort(values[~is_treated])
    if len(ours) < minimum or len(theirs) < minimum:
        return Effect(len(ours), len(theirs))
    draw = np.random.default_rng(seed)
    drawn = _resampled(ours, quantile, draw) - _resampled(theirs, quantile, draw)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    middle = float(np.quantile(ours, quantile) - np.quantile(theirs, quantile))
    return Effect(len(ours), len(theirs), _share(middle), _share(float(low)), _share(float(high)))


def grouped(rows: Iterable[Item], of: Callable[[Item], str]) -> list[tuple[str, list[Item]]]:
    """Rows by a text of each, sorted by it."""
    groups: dict[str, list[Item]] = {}
    for row in rows:
        groups.setdefault(of(row), []).append(row)
    return sorted(groups.items())


def by_size(rows: Iterable[Item], of: Callable[[Item], int]) -> list[tuple[str, list[Item]]]:
    """Rows by the class of their object's size, in words; the smallest first."""
    return [(f"from {int(size) // 1000:,} kB", own) for size, own in grouped(rows, lambda row: f"{of(row):012}")]


def _share(log2: float) -> float:
    return float(2.0**log2 - 1.0)


def _medians(values: NDArray[np.float64], treated: NDArray[np.bool_], labels: NDArray[np.intp]) -> NDArray[np.float64]:
    """The median of each value's stratum over those treated; NaN where none is."""
    medians = np.full(len(values), np.nan)
    for label in np.unique(labels[treated]):
        medians[labels == label] = np.median(values[treated & (labels == label)])
    return medians


def _resampled(values: NDArray[np.float64], quantile: float, draw: np.random.Generator) -> NDArray[np.float64]:
    """The quantile of each resample."""
    at_once = max(1, CHUNK // len(values))
    parts = []
    for start in range(0, RESAMPLES, at_once):
        rows = min(at_once, RESAMPLES - start)
        sample = values[draw.integers(0, len(values), (rows, len(values)))]
        parts.append(np.quantile(sample, quantile, axis=1, overwrite_input=True))
    return np.concatenate(parts)

"""The benefit of a treatment where the same unit is treated at one time and not at another: the middle of paired
differences, with an interval that the randomisation itself gives.

One difference a block: treated less untreated, of the same pair within hours. The hash that ordered the block might as
well have drawn the same order with both exchanged (laws/switchback.py). Every difference's sign, were there no effect,
would then be the other one. So Wilcoxon's signed-rank test holds by design, whatever the hours of the day do. The
effects that it does not refuse are an interval (Hodges and Lehmann 1963; Lehmann, Nonparametrics, chapter 4):

    W = the averages of every two differences, each with itself too; estimate = their median;
    interval = from the k-th smallest to the k-th largest, k by the test's distribution

Nothing is drawn here: the same rows give the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from springtide.laws.effect import Effect

Floats = NDArray[np.float64]

LEVEL = 0.95
_OUTSIDE = (1 - LEVEL) / 2
# The normal distribution's quantile of LEVEL.
_NORMAL = 1.959964
# No interval of fewer than six is as sure as LEVEL; with eight, one of them may be far off.
MINIMUM = 8
# From so many on the test's distribution is normal to a thousandth.
_EXACT = 50
# Beyond, neighbours are averaged: the averages of every two are n * n / 2 numbers.
_MOST = 2000


def middle(differences: ArrayLike, *, log2: bool, minimum: int = MINIMUM) -> Effect:
    """The effect of one difference a block, `treated` less untreated; what is not finite is left out. As a share of
    the untreated's where the differences are of logarithms (base 2), else as they are."""
    found = np.asarray(differences, np.float64)
    found = np.sort(found[np.isfinite(found)])
    count = len(found)
    if count < max(minimum, 6):
        return Effect(count, count)
    if count > _MOST:
        # Neighbours in a random order, so that each average is of any differences.
        order = np.random.default_rng(0).permutation(count)
        found = np.array([part.mean() for part in np.array_split(found[order], _MOST)])
    rows, columns = np.triu_indices(len(found))
    walsh = np.sort((found[rows] + found[columns]) / 2)
    place = _place(len(found))
    values = (float(np.median(walsh)), float(walsh[place]), float(walsh[-1 - place]))
    effect, low, high = (2.0**one - 1.0 if log2 else one for one in values)
    return Effect(count, count, effect, low, high)


def contrasts(cells: Iterable[tuple[object, object, bool, float, float]]) -> dict[object, float]:
    """One difference a block, in the blocks' order, of (block, cell, treated, value, weight): of each cell that has
    both, the treated's mean less the others'; over a block's cells by what both sides weigh."""
    sums: dict[object, dict[object, list[float]]] = {}
    for block, cell, treated, value, weight in cells:
        held = sums.setdefault(block, {}).setdefault(cell, [0.0, 0.0, 0.0, 0.0])
        held[2 * treated] += value * weight
        held[2 * treated + 1] += weight
    found = {}
    for block in sorted(sums, key=str):
        both = [
            ((on / of_on) - (off / of_off), of_on * of_off / (of_on + of_off))
            for off, of_off, on, of_on in sums[block].values()
            if of_on > 0 and of_off > 0
        ]
        if both:
            found[block] = sum(one * weight for one, weight in both) / sum(weight for _, weight in both)
    return found


@lru_cache
def _place(count: int) -> int:
    """The number of sorted averages below the interval; as many lie above it."""
    pairs = count * (count + 1) // 2
    if count >= _EXACT:
        return int(max(0.0, np.floor(pairs / 2 - _NORMAL * sqrt(pairs * (2 * count + 1) / 12) - 0.5)))
    # In how many of the 2^count draws of signs the positive ranks sum up to each value.
    ways = np.zeros(pairs + 1)
    ways[0] = 1.0
    for rank in range(1, count + 1):
        ways[rank:] = ways[rank:] + ways[:-rank]
    below = np.cumsum(ways) / 2.0**count
    return int(np.searchsorted(below, _OUTSIDE, side="right")) - 1

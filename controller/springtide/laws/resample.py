"""Quantiles of weighted values and their intervals, by bootstrap over clusters.

What connections of the same minutes show is one observation of the path more than many: whole slots of time are drawn,
as long as there are enough of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.laws.start.gain import Floats

DRAWS = 200
# Slots from which on they are drawn whole; with fewer, connections are drawn. Fewer connections give no interval.
LEAST_CLUSTERS = 5
LEVEL = 0.95
# The same samples give the same answer.
_SEED = 17


def quantiles(of: Sequence[tuple[NDArray[np.float64], float]], weight: NDArray[Any], slot: NDArray[Any]) -> Floats:
    """The quantile of each (values, level): the smallest value up to which at least that share of the weight lies.

    Shape (1 + DRAWS, len(of)): the first row is of the values as they are, the others of resamples, each the same for
    all columns. `values`, `weight` (positive) and `slot` are of one length, at least 1.
    """
    clusters, member = np.unique(slot, return_inverse=True)
    if len(clusters) < LEAST_CLUSTERS:
        member = np.arange(len(slot))
    count = int(member.max()) + 1
    times = np.random.default_rng(_SEED).multinomial(count, np.full(count, 1 / count), DRAWS)
    drawn = np.concatenate([np.ones((1, count), times.dtype), times])[:, member] * weight
    found = np.empty((1 + DRAWS, len(of)))
    for at, (values, level) in enumerate(of):
        order = np.argsort(values, kind="stable")
        passed = np.cumsum(drawn[:, order], axis=1)
        # The part of the share that floating point adds is not a connection.
        reached = np.argmax(passed >= passed[:, -1:] * level * (1 - 1e-12), axis=1)
        found[:, at] = values[order][reached]
    return found


def bounds(values: Floats) -> Floats:
    """Rows of estimate, low and high, of an interval of LEVEL that holds the estimate. A row of `values` has an
    estimate, then what it was in resamples."""
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    estimate = values[:, 0]
    return np.stack([estimate, np.minimum(low, estimate), np.maximum(high, estimate)], axis=1)

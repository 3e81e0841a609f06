"""Sizes of the objects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from lab.topology import Kind

# Probe objects: a KB is 1000 bytes here, so that 100 KB are 70 segments of 1448 bytes and fit a window of 100.
PROBES = (10_000, 50_000, 100_000)

# The paper's file sizes as far as it gives numbers (Riptide, section II-B and figure 2; the talk's slides 17 and 18):
# 46 % fit the default window of about 15 KB, 85 % stay under 200 KB, and the axis ends at 1000 KB. Between those points
# the logarithm is uniform, which is ours: 70 % fit 50 segments and 81 % fit 100, where the paper's model (figure 3) has
# 77 % and 85 %. Shares of requests that end in one round trip are therefore not to be held against the paper's.
PAPER: Sequence[tuple[float, int]] = ((0.0, 1_000), (0.46, 15_000), (0.85, 200_000), (1.0, 1_000_000))

# Enough for smooth quantiles, and 11 MB of objects in all.
_OBJECTS = 100


def quantile(share: float, curve: Sequence[tuple[float, int]] = PAPER) -> int:
    """The size in bytes below which this share (0 to 1) of the files lies."""
    for (left, small), (right, large) in pairwise(curve):
        if share <= right:
            return int(small * math.pow(large / small, (share - left) / (right - left)) + 0.5)
    raise ValueError(f"{share} is not a share from 0 to 1")


def load_objects() -> list[int]:
    """The sizes that the load requests, all equally often: the middle quantiles of the curve `PAPER`."""
    return [quantile((index + 0.5) / _OBJECTS) for index in range(_OBJECTS)]


# The load's objects, each size equally often, by the kind of its traffic: bulk is a transfer without end, whose
# next object is requested as soon as it is complete; chunks are a video's, one after another over a connection that
# stays; small are answers of one or two segments, ten times as often: twenty seconds of a lab represent minutes.
KINDS: Mapping[Kind, Sequence[int]] = {
    "mixed": load_objects(),
    "bulk": [100_000_000],
    "chunks": [250_000],
    "small": [2_000],
}
SMALL_PACE = 10

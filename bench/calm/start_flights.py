"""Computes quickly what fresh connections of many paths meet, from the flights' model.

The model knows a round trip's worth of data, the queue in packets, and rates beside the path's: times in round trips
depend on little else. So it is played once for each cell of a grid, at a round trip of 80 ms, and kept. The grid's
steps are half an octave of the pipe and of windows, an octave of queues, an eighth of an octave of rates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from bench.calm.flights import DEFAULT_WINDOW, SEGMENT, WIRE, Path, completions
from bench.calm.start_paths import Floats, Ints, Moment

SIZES = (10_000, 50_000, 100_000, 300_000, 1_000_000)
# The part of young connections that have each size. First flights have more than ten segments: all but the first.
PARTS = np.array([0.45, 0.2, 0.15, 0.12, 0.08])
SEGMENTS = np.ceil(np.array(SIZES) / SEGMENT)
# A segment's odds of being lost by chance.
LOSS_FLOOR = 0.0003
_RTT_MS = 80.0
_BURST = 127
_LARGEST_PIPE = 2.0**13
# 452 segments, in half octaves of ten.
_WIDEST = 11
LIFTS = (60_000, 1_000_000)


@dataclass(frozen=True)
class Given:
    """Start values of each path's connections; `window` 0 is the kernel's default. `rate` of each and `path` of all at
    once, bytes/s, 0 is none: a burst. `lift_bytes`: how long the rates stay."""

    window: Ints
    rate: Floats
    path: Floats
    lift_bytes: int = LIFTS[1]
    # First flights are those of the first round trip, as a law of windows sees them.
    is_young: bool = False

    @classmethod
    def default(cls, count: int) -> Given:
        return cls(np.zeros(count, np.int64), np.zeros(count), np.zeros(count))


@dataclass(frozen=True)
class Met:
    """By path and size: time in round trips, segments sent again, a flight's chance to lose anything, and the segments
    of first flights that are sent again."""

    trips: Floats
    resent: Floats
    lossy: Floats
    first: Floats

    def resent_share(self) -> Floats:
        again = self.resent @ PARTS
        share: Floats = again / (SEGMENTS @ PARTS + again)
        return share

    def lossy_share(self) -> Floats:
        """The share of first flights that lose anything."""
        share: Floats = self.lossy[:, 1:] @ (PARTS[1:] / PARTS[1:].sum())
        return share


def meet(moment: Moment, given: Given) -> Met:
    cell, queue, pipe = _cells(moment)
    window = np.where(given.window > 0, given.window, DEFAULT_WINDOW)
    # Beside the pipe of the cell, as it is beside the path's; the kernel's default is what it is.
    scaled = np.where(window > DEFAULT_WINDOW, np.maximum(DEFAULT_WINDOW, window * 2 ** (cell / 2) / pipe), window)
    width = np.clip(np.round(2 * np.log2(scaled / DEFAULT_WINDOW)), 0, 14)
    each = np.where(given.path > 0, np.minimum(given.rate, given.path / moment.at_once), given.rate)
    with np.errstate(divide="ignore"):
        ratio = np.round(8 * np.log2(np.maximum(each * moment.at_once, 1.0) / moment.together))
    # Far from the path's rate half octaves are enough.
    ratio = np.where((ratio < -8) | (ratio > 4), 4 * np.round(ratio / 4), ratio)
    pace = np.where(each > 0, np.clip(ratio, -40, 16), _BURST)
    keys = np.stack([cell, queue, width, pace, moment.at_once], axis=1).astype(np.int64)
    unique, which = np.unique(keys, axis=0, return_inverse=True)
    found = np.array([_played(*key, given.lift_bytes, given.is_young) for key in unique.tolist()])[which.reshape(-1)]
    by_chance = 1 - (1 - LOSS_FLOOR) ** np.minimum(SEGMENTS, 2 * window[:, None])
    lossy = found[:, 2] + (1 - found[:, 2]) * by_chance
    return Met(found[:, 0], found[:, 1] + LOSS_FLOOR * SEGMENTS, lossy, found[:, 3] + LOSS_FLOOR * SEGMENTS)


def _cells(moment: Moment) -> tuple[Floats, Floats, Floats]:
    """The pipe's and the queue's cells, and segments in a round trip; no larger pipe limits the windows in question."""
    pipe = np.minimum(moment.together * moment.rtt_ms / 1000 / SEGMENT, _LARGEST_PIPE)
    return np.clip(np.round(2 * np.log2(pipe)), 2, None), np.clip(np.round(np.log2(moment.queue)), 2, 13), pipe


@cache
def _played(
    cell: int, queue: int, width: int, pace: int, at_once: int, lift_bytes: int, is_young: bool = False
) -> NDArray[np.float64]:
    pipe = 2.0 ** (cell / 2)
    rate = pipe * WIRE / (_RTT_MS / 1000)
    path = Path(rate * 8 / 1e6, _RTT_MS, int(2**queue))
    window = round(DEFAULT_WINDOW * 2 ** (width / 2))
    paced = None if pace == _BURST else rate * SEGMENT / WIRE * 2 ** (pace / 8)
    rows = []
    for size in SIZES:
        found = completions.__wrapped__(path, size, window, paced, at_once, lift_bytes, is_young)
        times = sorted(ms for ms, *_ in found)
        middle = times[len(times) // 2]
        lossy = sum(first > 0 for *_, first in found) / len(found)
        resent, first = (sum(one[at] for one in found) / len(found) for at in (1, 2))
        rows.append((middle / _RTT_MS, resent, lossy, first))
    return np.array(rows).T


@cache
def _best(cell: int, queue: int, at_once: int, *lifts: int) -> NDArray[np.float64]:
    """Plays the values that lose no more than the default, and returns what objects meet with the fastest of them on
    average; whether the rate stays for 60 kB or for 1 MB is among them."""
    default = _played(cell, queue, 0, _BURST, at_once, lifts[0])
    limit = (default[1] @ PARTS) + 0.002 * (SEGMENTS @ PARTS)
    near = min(max(0, round(cell - 2 * np.log2(DEFAULT_WINDOW))), _WIDEST)
    found = [default]
    for width, pace, lift_bytes in product(sorted({near, min(near + 1, _WIDEST)}), (-1, 0), lifts):
        found.append(_played(cell, queue, width, pace, at_once, lift_bytes))
    allowed = [one for one in found if one[1] @ PARTS <= limit]
    return min(allowed, key=lambda one: float(np.mean(one[0] / default[0])))


def best(moment: Moment, lifts: tuple[int, ...] = LIFTS) -> Met:
    """Results of connections with the best values for the path; rates stay as long as one of `lifts`."""
    cell, queue, _ = _cells(moment)
    keys = np.stack([cell, queue, moment.at_once], axis=1).astype(np.int64)
    unique, which = np.unique(keys, axis=0, return_inverse=True)
    found = np.array([_best(*key, *lifts) for key in unique.tolist()])[which.reshape(-1)]
    return Met(found[:, 0], found[:, 1] + LOSS_FLOOR * SEGMENTS, found[:, 2], found[:, 3])


def gained(met: Met, default: Met) -> Floats:
    """Share of the default's time that objects save, mean over the sizes."""
    saved: Floats = 1.0 - (met.trips / default.trips).mean(axis=1)
    return saved

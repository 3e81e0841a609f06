"""What the trains of segments show with which connections start: what the path carries, whether that is sharp, and
whether others are on it.

The kernel sends the first ten segments at once; they come as fast as the path's slowest link sends them (packet train
dispersion: Dovrolis, Ramanathan, Moore, INFOCOM 2001; the edge's part is edge/bpf/train.h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide._core import MAX_RATE
from springtide.laws.columns import Bits, Columns
from springtide.laws.start.policy import StartPolicy
from springtide.laws.start.shrink import Floats

# Log2 of bytes/s, of how many trains (of those before so many times the last round's count, or as many as are enough),
# when the last ones were, and whether they were sharp.
TRAINS = [
    ("train_log2", "<f4"),
    ("train_weight", "<f4"),
    ("train_at", "<u4"),
    ("train_sharp", "u1"),
]
# They are sharp where nine of them are timed to a tenth: of segments of 1448 bytes, by clocks and interrupts that are
# some 50 us late.
_SHARPEST = 2e7
# And where the slowest quarter shows nearly as much as the middle: jitter makes trains longer and shorter. (A link that
# sends at random, each packet by itself, as cells do: 1.25.)
_BLURRED = 1.4
# Further away than that the path has become another.
MOVED = 1.4
# Those of the rounds before count for so many times the last round's at most, where that has enough: a path's rate
# differs by a tenth from round to round by itself, and what follows that changes for nothing.
_KEPT = 4
# What is as much above, or below, what trains show is no chance: medians of a dozen differ by less.
BEYOND = 1.15
# Of what they show this much or more was carried where nothing else is on the path: both are medians of few.
_OTHERS = 0.85


@dataclass(frozen=True)
class Trains:
    """Of each unit: log2 of the bytes/s that its path carries, NaN where too few trains say it; whether they are
    sharp, and whether the round had some. `left`: TRAINS for the next round."""

    carries: Floats
    sharp: Bits
    is_new: Bits
    left: dict[str, NDArray[Any]]


def read_trains(
    now: int, seen: Columns, before: Columns, reached: Floats, alive: Bits, is_frozen: Bits, law: StartPolicy
) -> Trains:
    """`seen` are OBSERVED and `before` PREVIOUS rows of the same units; `reached` is log2 of what single connections
    were delivered. Where a round has few trains, several rounds say it together."""
    newest = np.where(is_frozen | (seen["trains"] == 0), np.nan, log2_of(seen["train_rate"]))
    count = np.where(np.isfinite(newest), seen["trains"], 0).astype(np.float64)
    many = count >= law.min_connections
    # Only what a bundle names leaves records: what was withdrawn since shows no more.
    named = (before["window"] > 0) | (before["trial_permille"] > 0)
    lasts = alive & named & (now < before["train_at"].astype(np.int64) + law.ttl_s)
    weight = np.where(lasts, before["train_weight"], 0.0)
    with np.errstate(invalid="ignore"):
        is_near = np.abs(newest - before["train_log2"]) <= np.log2(np.where(many, MOVED, BEYOND))
        is_sharp = (seen["train_low_rate"] * _BLURRED >= seen["train_rate"]) & (seen["train_rate"] < _SHARPEST)
    # Few that contradict take their number from those before, and count where none of these are left.
    doubted = np.where(many, 0.0, np.maximum(weight - count, 0.0))
    near = np.minimum(weight, np.where(many, _KEPT * count, law.min_connections))
    weight = np.where(count == 0, weight, np.where(is_near, near, doubted))
    count = np.where(is_near | (weight == 0) | many, count, 0.0)
    total = weight + count
    sums = np.where(weight > 0, weight * before["train_log2"], 0.0) + np.where(count > 0, count * newest, 0.0)
    known = np.where(total > 0, sums / np.maximum(total, 1.0), np.nan)
    # How much few differ shows from round to round.
    sharp = np.where(many, is_sharp, np.where(weight > 0, before["train_sharp"] > 0, known < np.log2(_SHARPEST)))
    at = np.where(count > 0, now, np.where(total > 0, before["train_at"], 0))
    left = {"train_log2": known, "train_weight": total, "train_at": at, "train_sharp": sharp}
    enough = total >= law.min_connections
    with np.errstate(invalid="ignore"):
        # What was delivered was there.
        sharp = sharp & enough & ~(reached > known + np.log2(BEYOND))
    return Trains(np.where(enough, known, np.nan), sharp, enough & (count > 0), left)


def shown_before(before: Columns, law: StartPolicy) -> Floats:
    """Bytes/s that trains showed until now, NaN where too few did."""
    return np.where(before["train_weight"] >= law.min_connections, np.exp2(before["train_log2"]), np.nan)


def proves(now: int, before: Columns, law: StartPolicy) -> Bits:
    """Whether sharp trains showed what is on trial before it began, of a path that nobody else is on."""
    is_alone = now >= before["shared_at"].astype(np.int64) + law.ttl_s
    with np.errstate(invalid="ignore"):
        shown = before["trial_connection_rate"] <= BEYOND * shown_before(before, law)
    proved: Bits = (before["train_sharp"] > 0) & shown & is_alone
    return proved


def shows_less(part: Floats | float, rate: Floats, shown: Floats) -> Bits:
    """Where a part of a rate is clearly less than trains show that the path carries: something else is on it."""
    with np.errstate(invalid="ignore"):
        less: Bits = part * rate < _OTHERS * shown
    return less


def log2_of(rates: Floats, otherwise: float = np.nan) -> Floats:
    """Of what is positive and finite; what a broken row claims beyond any entry's rate is as much as that."""
    usable = np.isfinite(rates) & (rates > 0)
    return np.where(usable, np.log2(np.where(usable, np.minimum(rates, MAX_RATE), 1.0)), otherwise)

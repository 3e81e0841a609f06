"""Chosen prefixes that BBR does not help: by growth beyond the held-out ones', which were chosen by the same rule.

Growth is of the recent rate over the rate when a prefix was chosen, in powers of two: a difference in differences, so
that regression to the mean is in both.

*A PoP* is judged by its median growth until now: what paths do by themselves is in both medians.

*A prefix* is judged by its trial only: its growth by `2 x benefit_rounds` after it was chosen. Later its path has
changed by itself by more than BBR changes it, and no median takes that out. What the held-out ones show in their trials
says how much growth varies without BBR. Where it varies more under BBR, prefixes differ in what BBR does for them. Each
one's benefit is then estimated, drawn to the middle of all by what is chance (empirical Bayes).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.laws.columns import Bits
from springtide.laws.congestion.policy import CongestionPolicy
from springtide.laws.effect import LEVEL, difference

Floats = NDArray[np.float64]
Pops = NDArray[np.unsignedinteger[Any]]

# Held-out prefixes from which on their spread's end is known: beyond it lies one of them (2 / (1 - LEVEL)).
ALONE = 80
# The share of a normal distribution that lies more than a standard deviation below its middle. Spread is measured
# downwards, between quantiles: outages that end during a trial make some growths large, which says nothing of BBR nor
# of the others.
BELOW = 0.1587
# Standard errors of each of two quantiles by which one must be below the other: far less than 1 % by chance.
SURE = 1.96


@dataclass(frozen=True)
class Judged:
    """By prefix: growth beyond the held-out ones' (a share), growth in its own trial (powers of two), and the benefit
    to expect of BBR (a share). NaN is unknown. `not_helped`: the treated ones that BBR does not help."""

    benefit: Floats
    trial_growth: Floats
    expected_benefit: Floats
    not_helped: Bits


def judge(
    pops: Pops,
    recent_rate: Floats,
    before: Mapping[str, NDArray[Any]],
    age_rounds: NDArray[np.int64],
    law: CongestionPolicy,
) -> Judged:
    """`pops` are numbers of each prefix's PoP, `before` what is left of it, as PREVIOUS has it, `age_rounds` for how
    long it has been chosen, negative where it is not."""
    growth = np.log2(recent_rate) - np.log2(np.where(before["baseline_rate"] > 0, before["baseline_rate"], np.nan))
    known = (age_rounds >= law.benefit_rounds) & np.isfinite(growth)
    held = before["held_out"] > 0
    benefit, not_helped = _until_now(pops, growth, known, held, law)
    on_trial = known & (age_rounds <= 2 * law.benefit_rounds)
    trial_growth = np.where(on_trial, growth, before["trial_growth"])
    expected, too_little = _tried(pops, trial_growth, held, law)
    over = (age_rounds >= 2 * law.benefit_rounds) & ~held
    not_helped |= over & (too_little | (np.exp2(expected) - 1.0 <= law.min_benefit + 1e-9))
    return Judged(benefit, trial_growth, np.exp2(expected) - 1.0, not_helped)


def _until_now(pops: Pops, growth: Floats, known: Bits, held: Bits, law: CongestionPolicy) -> tuple[Floats, Bits]:
    """Each one's growth beyond the held-out ones'; and the treated ones of PoPs that an interval shows not helped."""
    control, treated = known & held, known & ~held
    of_fleet = growth[_even(pops, growth, control, law)]
    benefit = np.full(len(growth), np.nan)
    not_helped = np.zeros(len(growth), bool)
    for pop in np.unique(pops[known]):
        here = pops == pop
        own = growth[here & control]
        theirs = own if len(own) >= law.min_held_out else of_fleet
        if len(theirs) < law.min_held_out:
            continue
        benefit[here & known] = np.exp2(growth[here & known] - np.median(theirs)) - 1.0
        if _none_is_helped(growth[here & treated], theirs, law):
            not_helped |= here & treated
    return benefit, not_helped


def _none_is_helped(ours: Floats, theirs: Floats, law: CongestionPolicy) -> bool:
    """Whether the interval of the median difference lies at or below `min_benefit`, as the report's does."""
    # An interval contains its middle: where that is above there is no need to draw.
    if not len(ours) or np.exp2(np.median(ours) - np.median(theirs)) - 1.0 > law.min_benefit + 1e-9:
        return False
    if len(ours) < law.min_held_out:
        # Drawn anew, few seem to differ by less than they do.
        most = _middle_at_most(ours) + _middle_at_most(-theirs)
        return bool(np.exp2(most) - 1.0 <= law.min_benefit + 1e-9)
    is_treated = np.repeat([True, False], [len(ours), len(theirs)])
    found = difference(np.concatenate([ours, theirs]), is_treated, minimum=law.min_held_out)
    return found.high is not None and found.high <= law.min_benefit + 1e-9


def _middle_at_most(values: Floats) -> float:
    """An upper bound of the middle of what these were drawn from, as sure as an interval's end; infinite for fewer than
    seven. By order statistics: how many lie below the middle is binomial."""
    count, above = len(values), 0.0
    for rank in range(count, 0, -1):
        above += math.comb(count, rank) / 2**count
        if above > (1 - LEVEL) / 2:
            return float(np.sort(values)[rank]) if rank < count else math.inf
    return math.inf


def _even(pops: Pops, growth: Floats, control: Bits, law: CongestionPolicy) -> Bits:
    """The held-out prefixes that stand for the fleet: of a PoP at most as many as the middle PoP has, or its equal part
    of those that a comparison needs, evenly through what they grew. What one PoP's edges invent decides for no other.
    """
    found = np.zeros(len(pops), bool)
    names, counts = np.unique(pops[control], return_counts=True)
    if not len(names):
        return found
    most = max(int(np.sort(counts)[(len(counts) - 1) // 2]), -(-law.min_held_out // len(names)))
    for pop in names:
        own = np.flatnonzero(control & (pops == pop))
        own = own[np.argsort(growth[own], kind="stable")]
        kept = min(most, len(own))
        found[own[(2 * np.arange(kept) + 1) * len(own) // (2 * kept)]] = True
    return found


def _tried(pops: Pops, trial_growth: Floats, held: Bits, law: CongestionPolicy) -> tuple[Floats, Bits]:
    """The effect that BBR is expected to have on each treated prefix that had its trial, in powers of two, NaN where
    that is unknown; and those that grew too little, whichever held-out prefix they are compared with."""
    expected, too_little = np.full(len(pops), np.nan), np.zeros(len(pops), bool)
    done = np.isfinite(trial_growth)
    control, treated = _even(pops, trial_growth, done & held, law), done & ~held
    if min(control.sum(), treated.sum()) < law.min_held_out:
        return expected, too_little
    beyond = trial_growth - _centres(pops, trial_growth, control, done & held, law)
    (chance, _, most), (spread, least, _) = _below(beyond[control]), _below(beyond[treated])
    # The middle of all is enough where few are known, or where they differ by no more than chance.
    if least > most:
        weight = (spread**2 - chance**2) / spread**2
        expected[treated] = weight * beyond[treated] + (1.0 - weight) * np.median(beyond[treated])
    if control.sum() >= ALONE:
        lowest = np.quantile(beyond[control], (1 - LEVEL) / 2)
        too_little = treated & (np.exp2(beyond - lowest) - 1.0 <= law.min_benefit + 1e-9)
    return expected, too_little


def _centres(pops: Pops, growth: Floats, control: Bits, held: Bits, law: CongestionPolicy) -> Floats:
    """For each prefix the median of its PoP's held-out ones, or of those that stand for the fleet where it has few."""
    centres = np.full(len(pops), np.median(growth[control]))
    for pop in np.unique(pops[held]):
        own = held & (pops == pop)
        if own.sum() >= law.min_held_out:
            centres[pops == pop] = np.median(growth[own])
    return centres


def _below(values: Floats) -> tuple[float, float, float]:
    """Distance of values below their middle, one standard deviation of a normal distribution, and the interval of that.
    By order statistics, whatever the shape: a quantile's rank among n values is binomial."""
    error = SURE * np.sqrt(BELOW * (1.0 - BELOW) / len(values))
    low, at, high = np.quantile(values, np.clip([BELOW - error, BELOW, BELOW + error], 0.0, 0.5))
    middle = np.median(values)
    return float(middle - at), float(middle - high), float(middle - low)

"""The loss guard of the initial window: what loss has taught of a pair stays as a ceiling that is raised step by step.

A round's young connections judge the window that they started with. **Harm**: clearly more of them lost any of their
first flight than random loss explains. The window falls at once to the last one that was judged clean, else to the
kernel's default. **Clean**: enough of them, over rounds in which the window was in use, and no more lost than may.
From then on nothing rises but by a step beyond the last clean window. While the hold lasts steps end at the ceiling;
after it they go on halfway towards the harmful window, then beyond it. No time lifts a ceiling, only steps do.

Retransmission timeouts do not judge: what overflows a queue counts as lossy however it was recovered, and a timeout
without loss was spurious, or the acknowledgements' loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from springtide._core import KERNEL_DEFAULT
from springtide.laws.columns import Bits, Table
from springtide.laws.damping import Floats
from springtide.policy import MAX_TTL_S, InitcwndPolicy

Ints = NDArray[np.int64]

# The window that policy.initcwnd.loss_bound refers to, segments. Below twice the default the bound falls no further: a
# young connection that started with ten sends up to twenty.
_BOUND_AT, _BOUND_FROM = 100, 20
# One-sided 99.9 %: a pair is judged 288 times a day.
_Z = 3.09
# One or two lossy connections prove nothing, whatever the statistic gives for so few.
FEWEST_LOSSY = 3
# Connections that suffice for no judgement are remembered up to this many times loss_min_connections: what comes later
# must be able to change the share.
_MOST_TRIALS = 10

# What the guard remembers of a pair; windows in segments, 0 is none. `guard_until`: until when the ceiling is not
# tried, seconds since the epoch. `clean_initcwnd`: the window judged clean last or, below a ceiling, the largest one;
# `harmful_initcwnd`: the one last judged harmful; while it is 0 there is no ceiling. `default_*`: the young connections
# that last judged the kernel's default. `trial_rounds`: rounds that the window has been in use, `trial_*`: young
# connections since that are not yet judged.
GUARD = [
    ("guard_until", "<u4"),
    ("guard_hold_s", "<u4"),
    ("clean_initcwnd", "<u4"),
    ("harmful_initcwnd", "<u4"),
    ("default_connections", "<u8"),
    ("default_lossy", "<u8"),
    ("trial_rounds", "<u4"),
    ("trial_connections", "<u8"),
    ("trial_lossy", "<u8"),
]


class LossBounds(Protocol):
    """A policy that says which share of connections may lose anything, as `initcwnd` does."""

    @property
    def loss_bound(self) -> float: ...

    @property
    def loss_default_bound(self) -> float: ...


@dataclass(frozen=True)
class Judgement:
    """Of each pair: whether its window did harm or was clean in this round (neither: not known yet), and the
    largest window that may be set now, segments, where there is a `ceiling` at all."""

    harm: Bits
    clean: Bits
    ceiling: Ints
    bounded: Bits
    # GUARD columns for the next round, as if the window stayed in use.
    left: Table


def judge(now: int, seen: Table, before: Table, is_frozen: Bits, law: InitcwndPolicy) -> Judgement:
    """`seen` are OBSERVED rows and `before` the same pairs' PREVIOUS rows; what `is_frozen` is not judged."""
    in_use = _ints(before["initcwnd"])
    started = np.where(in_use > 0, in_use, KERNEL_DEFAULT)
    young = np.where(is_frozen, 0, _ints(seen["young_connections"]))
    lossy = np.minimum(np.where(is_frozen, 0, _ints(seen["young_lossy_connections"])), young)
    rounds = _ints(before["trial_rounds"]) + ~is_frozen
    trial = young + _ints(before["trial_connections"])
    trial_lossy = lossy + _ints(before["trial_lossy"])
    enough = ~is_frozen & (young > 0) & (trial >= law.loss_min_connections) & (rounds >= law.loss_step_rounds)

    default, default_lossy = _ints(before["default_connections"]), _ints(before["default_lossy"])
    harm_bound = allowed_share(started, lower_bound(default_lossy, default), law)
    harm = (lossy >= FEWEST_LOSSY) & (lower_bound(lossy, young) > harm_bound)
    harm |= (lossy > 0) & (trial_lossy >= FEWEST_LOSSY) & (lower_bound(trial_lossy, trial) > harm_bound)
    clean_bound = allowed_share(started, default_lossy / np.maximum(default, 1), law)
    clean = enough & ~harm & (trial_lossy <= clean_bound * trial) & (started >= law.cmin)

    known = _ints(before["clean_initcwnd"])
    held_s = _ints(before["guard_hold_s"])
    until = _ints(before["guard_until"])
    harmful = _ints(before["harmful_initcwnd"])
    # Another harm in the hold is the same one. One after it, within a day: the ceiling was tried without success.
    in_vain = (harmful > 0) & (until <= now) & (now < until + MAX_TTL_S)
    same = (harmful > 0) & (until > now)
    longer = np.where(in_vain, np.minimum(2 * held_s, MAX_TTL_S), np.where(same, held_s, 0))
    hold_s = np.where(harm, np.maximum(longer, law.loss_hold_s), np.where(clean & (started >= harmful), 0, held_s))
    until = np.where(harm, now + hold_s, until)
    # Below a ceiling a smaller clean window takes nothing away; without one the last counts, as the path is now.
    shown = np.where(harmful > 0, np.maximum(known, started), started)
    known = np.where(clean, shown, np.where(harm & (known >= started), 0, known))
    harmful = np.where(harm, np.maximum(started, law.cmin), harmful)
    # Steps have led up to cmax: there is nothing left to bound.
    harmful = np.where(clean & (started >= np.maximum(law.cmax, harmful)), 0, harmful)

    lowest = np.clip(known, law.cmin, law.cmax)
    highest = step(lowest, harmful, until > now, law)
    current = np.clip(in_use, law.cmin, law.cmax)
    ceiling = np.where(~harm & (current >= lowest) & (current <= highest), current, lowest)
    ceiling = np.where(clean & (started >= lowest), highest, ceiling)

    of_default = enough & (started <= KERNEL_DEFAULT)
    goes_on = ~harm & ~clean & (rounds >= law.loss_step_rounds) & (trial < _MOST_TRIALS * law.loss_min_connections)
    left = np.zeros(len(seen), GUARD)
    left["guard_until"] = until
    left["guard_hold_s"] = hold_s
    left["clean_initcwnd"] = known
    left["harmful_initcwnd"] = harmful
    left["default_connections"] = np.where(of_default, trial, default)
    left["default_lossy"] = np.where(of_default, trial_lossy, default_lossy)
    left["trial_rounds"] = rounds
    left["trial_connections"] = np.where(goes_on, trial, 0)
    left["trial_lossy"] = np.where(goes_on, trial_lossy, 0)
    return Judgement(harm, clean, ceiling, harmful > 0, left)


def step(clean: Ints, harmful: Ints, holds: Bits, law: InitcwndPolicy) -> Ints:
    """The window to try after `clean` was judged so; `harmful` 0 is none. Between the two it is at most the middle."""
    next_one = np.maximum(clean + 1, np.floor(clean * law.loss_step).astype(np.int64))
    next_one = np.where(harmful > clean, np.minimum(next_one, (clean + harmful + 1) // 2), next_one)
    carried = np.maximum(clean, np.floor(law.loss_cut * harmful).astype(np.int64))
    next_one = np.where(holds, np.minimum(next_one, carried), next_one)
    bounded: Ints = np.clip(next_one, law.cmin, law.cmax)
    return bounded


def allowed_share(started: Ints, default_share: Floats, law: LossBounds) -> Floats:
    """Share of connections that may lose something where they start with `started` segments: what random loss explains,
    the policy's or, where it is more, what the pair loses with the kernel's default."""
    by_default = 1.0 - (1.0 - law.loss_bound) ** (KERNEL_DEFAULT / _BOUND_AT)
    share = np.maximum(by_default, np.minimum(default_share, law.loss_default_bound))
    scaled = 1.0 - (1.0 - share) ** (np.maximum(started, _BOUND_FROM) / KERNEL_DEFAULT)
    allowed: Floats = np.where(started <= KERNEL_DEFAULT, np.maximum(by_default, law.loss_default_bound), scaled)
    return allowed


def lower_bound(lossy: Ints | Floats, connections: Ints | Floats) -> Floats:
    """Of the share lossy / connections: Wilson's score interval (J. Am. Stat. Assoc. 22, 1927); 0 of none."""
    count = np.maximum(connections, 1).astype(np.float64)
    share = np.minimum(lossy / count, 1.0)
    spread = _Z * np.sqrt(share * (1.0 - share) / count + _Z**2 / (4.0 * count**2))
    lower: Floats = np.maximum((share + _Z**2 / (2.0 * count) - spread) / (1.0 + _Z**2 / count), 0.0)
    return lower


def upper_bound(lossy: Ints | Floats, connections: Ints | Floats) -> Floats:
    """The same interval's other end; 1 of none."""
    upper: Floats = 1.0 - lower_bound(connections - lossy, connections)
    return upper


def _ints(column: NDArray[Any]) -> Ints:
    # What a broken row claims beyond this is as much as this: sums of two stay numbers.
    return np.minimum(column.astype(np.uint64), np.uint64(2**61)).astype(np.int64)

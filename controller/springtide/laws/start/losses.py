"""What first flights lose, beside what the kernel's default loses, what random loss explains, and what they lost
before: clearly more of them (Wilson's interval, initcwnd/loss_guard.py), and more segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.laws.columns import Bits, Columns, Picked
from springtide.laws.initcwnd.loss_guard import FEWEST_LOSSY, KERNEL_DEFAULT, allowed_share, lower_bound
from springtide.laws.start.policy import StartPolicy
from springtide.laws.start.shrink import Floats

Ints = NDArray[np.int64]

# So many standard errors are chance.
BY_CHANCE = 2.0
# Where the default loses something in nearly all of its flights, their share says nothing: only segments are compared.
BLIND = 0.9
# Of all segments this part sent again, and so many times the default's, is harm where more than half of the flights
# say so: where they are large, random loss may explain that each loses something; and one host's say it of one host.
_FLOOD, _FLOOD_OF_DEFAULT = 0.1, 2.0
# So many of these are no chance, where something else shows the contrary, or where it is asked in each round.
SURE = 3.0
# What is sent again has risen where it is this many times as much, and by this part of the segments: in fleets with
# thousands of flights a round anything is more than chance.
_RISEN, _RISE = 1.5, 0.005


@dataclass(frozen=True)
class Lost:
    """What flights lose: the share of them that lose any, and the segments that one of these sends again; of the
    default's, but where another is named."""

    share: Floats
    of_lossy: Floats

    @classmethod
    def nothing(cls, count: int) -> Lost:
        return cls(np.zeros(count), np.zeros(count))

    def at(self, rows: NDArray[np.intp]) -> Lost:
        return Lost(self.share[rows], self.of_lossy[rows])

    def most(self, flights: NDArray[Any], of: NDArray[Any] | None = None, errors: float = BY_CHANCE) -> Floats:
        """Segments that so many flights send again, with chance: whether one loses and how much one does vary; and so
        does what is known, where it is of so few others."""
        each = self.share * self.of_lossy
        known = 1.0 if of is None else 1.0 + flights / np.maximum(of, 1)
        by_chance = errors * np.sqrt(each * (1.0 + self.of_lossy) * flights * known)
        most: Floats = each * flights + by_chance
        return most


def allowed_lossy(window: NDArray[Any], default: Floats, others: Floats, law: StartPolicy) -> Floats:
    """Share of flights that may lose anything: what random loss explains, or what others lose who start with less and
    the policy's bound on top."""
    started = np.maximum(ints(window), KERNEL_DEFAULT)
    no_loss = np.zeros(len(started))
    more = np.minimum(others + allowed_share(started, no_loss, law), 1.0)
    allowed: Floats = np.maximum(allowed_share(started, default, law), more)
    return allowed


def _clearly(lossy: Ints, flights: Ints, bound: Floats) -> Bits:
    clearly: Bits = (lossy >= FEWEST_LOSSY) & (lower_bound(lossy, flights) > bound)
    return clearly


def too_many_lossy(lossy: Ints, flights: Ints, bound: Floats, segments: NDArray[Any]) -> Bits:
    """Whether clearly more flights lose anything than may; where the bound says nothing, their segments do."""
    blind: Bits = (bound >= BLIND) & (segments > 0) & (lossy >= FEWEST_LOSSY)
    return _clearly(lossy, flights, bound) | blind


def sends_much(
    resent: NDArray[Any], segments: NDArray[Any], flights: NDArray[Any], default: Lost, law: StartPolicy
) -> Bits:
    """Whether of the flights' segments more were sent again than does no harm, and more than as many flights with the
    kernel's default send again, and than chance adds; unknown is much."""
    harmless = np.maximum(law.loss_segments * ints(segments), default.most(flights))
    much: Bits = (ints(segments) == 0) | (ints(resent) > harmless)
    return much


def does_harm(
    before: Columns,
    left: Columns,
    lossy: Ints,
    flights: Ints,
    segments: Ints,
    resent: Ints,
    default: Lost,
    law: StartPolicy,
) -> tuple[Bits, Bits, Bits, Bits]:
    """Of the values in use: whether this round's flights, and all since they are, send much again; whether they do
    harm, beside what the default loses; and whether that is a flood."""
    now_much = sends_much(resent, segments, flights, default, law)
    all_much = sends_much(left["used_resent"], left["used_segments"], left["used_flights"], default, law)
    harm, flood = np.zeros((2, len(lossy)), bool)
    # Where none of the round's loses anything nothing does harm.
    at = np.flatnonzero((before["window"] > 0) & (lossy > 0) & (now_much | all_much))
    had, default = Picked(left, at), default.at(at)
    lossy, flights, segments, resent = (one[at] for one in (lossy, flights, segments, resent))
    bound = allowed_lossy(before["window"][at], default.share, default.share, law)
    flood[at] = now_much[at] & is_flood(lossy, flights, segments, resent, default)
    harm[at] = flood[at] | (now_much[at] & too_many_lossy(lossy, flights, bound, segments))
    harm[at] |= all_much[at] & too_many_lossy(had["used_lossy"], had["used_flights"], bound, had["used_segments"])
    return now_much, all_much, harm, flood


def has_risen(before: Columns, lossy: Ints, flights: Ints, segments: Ints, resent: Ints, law: StartPolicy) -> Bits:
    """Whether a round's flights with the values in use clearly send more again than those before them did, whatever the
    default loses: what that lost before says nothing of who else has come onto the path since."""
    had, had_lossy = (before[f"used_{name}"].astype(np.float64) for name in ("flights", "lossy"))
    # Of none the next one may lose, as much as one does now.
    of_lossy = np.where(
        had_lossy > 0, before["used_resent"] / np.maximum(had_lossy, 1.0), resent / np.maximum(lossy, 1)
    )
    own = Lost((had_lossy + 1.0) / (had + 1.0), of_lossy)
    expected = own.share * own.of_lossy * flights
    risen: Bits = (resent > _RISEN * expected) & (resent > expected + _RISE * segments)
    risen &= (resent > own.most(flights, had, SURE)) & (had >= law.trial_flights)
    # Most say so: one of several hosts does not, nor do episodes of random loss.
    risen &= (lossy >= FEWEST_LOSSY) & (2 * lossy > flights)
    return risen


def is_flood(lossy: Ints, flights: Ints, segments: Ints, resent: Ints, default: Lost) -> Bits:
    """Whether a round's flights lost so much that the path was full. One is enough: where few connections start others
    follow only rounds later, and each of them would lose as much."""
    flood: Bits = (2 * lossy > flights) & (resent > _FLOOD * segments)
    return flood & (resent > _FLOOD_OF_DEFAULT * default.share * default.of_lossy * flights)


def ints(column: NDArray[Any]) -> Ints:
    """Counters, which rows have in four bytes: sums of many are still numbers in eight."""
    return column.astype(np.int64, copy=False)

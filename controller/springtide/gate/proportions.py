"""The rise of a share, and how much of it is more than chance: intervals for proportions and their differences.

Wilson's score interval for one proportion (E. B. Wilson, JASA 22, 1927); Newcombe's hybrid of two of them for a
difference (R. G. Newcombe, Statistics in Medicine 17, 1998, method 10); and the same step once more for the difference
of two differences (G. Y. Zou and A. Donner, Statistics in Medicine 27, 2008, who call it the recovery of variance
estimates). They hold for small counts and for shares near zero, where the usual standard error is zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median, median_low


@dataclass(frozen=True)
class Share:
    """`hits` of `of` connections; both may be fractions where one edge's were scaled down."""

    hits: float = 0.0
    of: float = 0.0

    def value(self) -> float:
        return self.hits / self.of if self.of > 0 else 0.0

    def scaled(self, factor: float) -> Share:
        """The same share, of another number of connections."""
        return Share(self.hits * factor, self.of * factor)

    def __str__(self) -> str:
        return f"{self.hits:.0f} of {self.of:.0f}"


@dataclass(frozen=True)
class Interval:
    """A two-sided interval around an estimate; each side is missed with the chance that it was made for."""

    estimate: float
    low: float
    high: float

    def minus(self, other: Interval) -> Interval:
        """The difference of two independent estimates."""
        estimate = self.estimate - other.estimate
        below = math.hypot(self.estimate - self.low, other.high - other.estimate)
        above = math.hypot(self.high - self.estimate, other.estimate - other.low)
        return Interval(estimate, estimate - below, estimate + above)


NOTHING = Interval(0.0, 0.0, 0.0)


def wilson(share: Share, z: float) -> Interval:
    """Without connections the interval is 0 to 1."""
    n, p = share.of, share.value()
    if n <= 0:
        return Interval(0.0, 0.0, 1.0)
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Interval(p, max(0.0, middle - half), min(1.0, middle + half))


def spread(pairs: Sequence[tuple[Share, Share]]) -> float:
    """Likeness of the connections of one edge in one window: the part of a single connection's variance that they have
    in common, 0 where edges and windows differ by no more than chance. Uses pairs of shares, (before, after), of edges
    to which nothing was done.

    By moments, as of a beta-binomial (D. A. Williams, Applied Statistics 31, 1982): a share's variance is
    p (1 - p) (1 + common (n - 1)) / n, and what edges differ in for good is in both windows. The edge that differs most
    counts as the one after it: what one of them claims excuses nothing.
    """
    # Here too none counts for more than the middle one.
    share = pooled((one for pair in pairs for one in pair), 1.0, 0.0).value()
    variance = share * (1 - share)
    if len(pairs) < 2 or variance <= 0:
        return 0.0
    chances = [1 / before.of + 1 / after.of for before, after in pairs]
    moves = [after.value() - before.value() for before, after in pairs]
    middle = median(moves)
    unbiased = len(pairs) / (len(pairs) - 1)
    found = sorted(
        (unbiased * (move - middle) ** 2 / variance - chance) / max(2 - chance, 1e-9)
        for move, chance in zip(moves, chances, strict=True)
    )
    if len(found) > 2:
        found[-1] = found[-2]
    return min(1.0, max(0.0, math.fsum(found) / len(found)))


def deviate(chance: float) -> float:
    """The standard normal's value that is exceeded with this chance, as for a one-sided test."""
    return NormalDist().inv_cdf(1 - chance)


def rise(before: Share, after: Share, chance: float) -> Interval:
    """By how much the share is higher after than before; the lower bound is too high with `chance` at most.

    Where nothing was seen before, the whole of what is seen after is the rise.
    """
    z = deviate(chance)
    return wilson(after, z).minus(wilson(before, z) if before.of > 0 else NOTHING)


def effective(share: Share, common: float) -> Share:
    """The share of as many independent connections as show as much as these, which have so much in common."""
    return share.scaled(1 / (1 + common * max(0.0, share.of - 1)))


def pooled(shares: Iterable[Share], ratio: float, enough: float) -> Share:
    """The sum over edges, in which none counts for more than `ratio` times the middle edge, or than its equal part of
    `enough`, whatever it claims. Scaling counts down keeps an edge's share and can only widen the intervals."""
    counted = [share for share in shares if share.of > 0]
    if not counted:
        return Share()
    most = max(ratio * median_low(share.of for share in counted), enough / len(counted))
    scales = [min(1.0, most / share.of) for share in counted]
    hits = math.fsum(scale * share.hits for scale, share in zip(scales, counted, strict=True))
    return Share(hits, math.fsum(scale * share.of for scale, share in zip(scales, counted, strict=True)))

"""Benefit of a treatment where a path leaves a part of its connections as they were, by chance: connections of one path
and hour are compared with each other. No experiment is needed for that.

A path's hour is one difference of mean logarithms, of weight n m / (n + m) for n treated and m others: the inverse of
its variance where times spread alike. The estimate is the weighted mean of these, and its interval comes from how far
they are from it. An hour that has most of the weight is the mean, and tells nothing of how far it may be off: there is
no answer where the weights are worth fewer than _LEAST_HOURS equal ones. Medians of differences would mislead: a tenth
of few connections seldom has the one that lost.

A path's percentiles are of all its connections, each with the other side's part as its weight, so that both sides weigh
the same in every bundle of a host. Their intervals are by bootstrap over the path's hours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import sqrt

import numpy as np

from springtide.laws.effect import MINIMUM, SPAN, BenefitLine, Effect, grouped
from springtide.laws.resample import bounds, quantiles
from springtide.laws.start.gain import Floats
from springtide.store import Row, Store

METHOD = "untreated share"
# Student's t for MINIMUM differences, 95 %; a little less would do for more.
_T = 2.093
# Fewest hours of equal weight that the weighted ones are worth, (sum w)^2 / sum w^2 (Kish, Survey Sampling).
_LEAST_HOURS = 6
PERCENTILES = (50, 90, 95)
# Paths whose percentiles are shown: those with most to compare.
MOST_PATHS = 100
# Classes of times a factor of two, each half of a per cent wide.
_CLASSES = 128
# Fewest connections of a side beyond a percentile.
_BEYOND = 5

# More than an hour is no time that a connection can have: one such would hide all others.
_LONGEST_US = 3_600_000_000

# A value on trial beside the entry's, or a trial of nothing beside it: only what the edge drew is compared.
_CELLS = """
    select
        pop, if(dst_pop != '', toString(dst_pop), springtide_prefix_text(ip_version, client_prefix)) as destination,
        ip_version, intDiv(toUnixTimestamp(round), 3600) as hour, {columns}
    from round_flights
    where {span} and {time} between 1 and {longest} and {counted} and {among}
    group by pop, destination, ip_version, hour, round, host, started_round, {drawn}
    having own > 0 and others > 0
"""
_COUNTS = "countIf({treated}) as own, countIf(not ({treated})) as others"
_MEANS = f"""
    {_COUNTS}, own * others / (own + others) as weight,
    avgIf(log2({{time}}), {{treated}}) - avgIf(log2({{time}}), not ({{treated}})) as difference
"""
# Sums over a PoP's path-hours of their weight w and difference d: all that the mean and its interval need.
_SUMS = {
    "hours": "count()",
    "w": "sum(of_hour)",
    "wd": "sum(of_hour * log2_difference)",
    "ww": "sum(of_hour * of_hour)",
    "wwd": "sum(of_hour * of_hour * log2_difference)",
    "wwdd": "sum(of_hour * of_hour * log2_difference * log2_difference)",
}
_DIFFERENCES = f"""
select pop, {", ".join(f"{text} as {name}" for name, text in _SUMS.items())}
from (
    select pop, sum(weight) as of_hour, sum(weight * difference) / sum(weight) as log2_difference
    from ({{cells}})
    group by pop, destination, ip_version, hour
)
group by pop
order by pop
"""
_LARGEST = """
select pop, destination, ip_version
from ({cells})
group by pop, destination, ip_version
having uniqExact(hour) >= {least}
order by least(sum(own), sum(others)) desc, pop, destination, ip_version
limit {most}
"""
_CLASSED = f"""
    {_COUNTS},
    groupArrayIf(toInt32(floor({_CLASSES} * log2({{time}}))), {{treated}}) as own_times,
    groupArrayIf(toInt32(floor({_CLASSES} * log2({{time}}))), not ({{treated}})) as other_times
"""
_SPREADS = """
select
    pop, destination, ip_version, sum(treated) as treated, sum(untreated) as untreated,
    arraySort(groupArray((hour, own_classes, other_classes))) as hours
from (
    select
        pop, destination, ip_version, hour, sum(own) as treated, sum(others) as untreated,
        sumMap(own_times, arrayMap(one -> others / (own + others), own_times)) as own_classes,
        sumMap(other_times, arrayMap(one -> own / (own + others), other_times)) as other_classes
    from ({cells})
    group by pop, destination, ip_version, hour
)
group by pop, destination, ip_version
order by pop, destination, ip_version
"""


@dataclass(frozen=True)
class Compared:
    """A comparison: a law's outcome, and SQL over `round_flights`: the `time`, which are `treated`, which are `counted`
    at all, and by what several draws are kept apart (`drawn`)."""

    law: str
    outcome: str
    time: str
    treated: str
    counted: str = "true"
    drawn: str = "true"

    def lines(self, store: Store, span: Mapping[str, int]) -> list[BenefitLine]:
        """Lines for all paths, for each PoP's, and for each of the paths with most to compare. Raises StoreError."""
        largest = _LARGEST.format(cells=self._cells(_COUNTS), least=MINIMUM, most=MOST_PATHS)
        means = store.query(_DIFFERENCES.format(cells=self._cells(_MEANS)), span)
        # All that is kept of single connections is of these paths.
        cells = self._cells(_CLASSED, f"(pop, destination, ip_version) in ({largest})")
        spreads = store.query(_SPREADS.format(cells=cells), span) if means else []
        return [*self.of_means(means), *chain.from_iterable(map(self.of_path, spreads))]

    def _cells(self, columns: str, among: str = "true") -> str:
        columns = columns.format(time=self.time, treated=self.treated)
        own = {"time": self.time, "counted": self.counted, "drawn": self.drawn}
        return _CELLS.format(span=SPAN, columns=columns, among=among, longest=_LONGEST_US, **own)

    def of_means(self, rows: Sequence[Row]) -> Iterator[BenefitLine]:
        """Lines of means, from one row a PoP. Pure."""
        if rows:
            yield BenefitLine(self.law, self.outcome, "all", "all", mean(rows), method=METHOD)
        for pop, own in grouped(rows, lambda row: str(row["pop"])):
            yield BenefitLine(self.law, self.outcome, "PoP", pop, mean(own), method=METHOD)

    def of_path(self, row: Row) -> Iterator[BenefitLine]:
        """Lines of one path, from its row: the classes of times of each hour, and how much each weighs. Pure."""
        path = row["pop"], row["destination"], row["ip_version"]
        group = f"{path[0]} to {path[1]}, IPv{path[2]}"
        for percentile, (effect, sides) in percentiles(row).items():
            outcome = f"{self.outcome}, p{percentile}"
            yield BenefitLine(self.law, outcome, "path", group, effect, method=METHOD, path=path, sides=sides)


def mean(rows: Sequence[Row]) -> Effect:
    """The weighted mean of the differences behind these sums, as a share of the others' time."""
    hours, weight, weighted, ww, wwd, wwdd = (sum(row[name] for row in rows) for name in _SUMS)
    if hours < MINIMUM or weight * weight < _LEAST_HOURS * ww:
        return Effect(hours, hours)
    middle, equal = weighted / weight, weight * weight / ww
    # The mean lies nearer to the differences that it is of than what is estimated does: the more, the fewer there are.
    error = sqrt(max(0.0, wwdd - 2 * middle * wwd + middle * middle * ww)) / weight * equal / (equal - 1)
    effect, least, most = (2.0**one - 1.0 for one in (middle, middle - _T * error, middle + _T * error))
    return Effect(hours, hours, effect, least, most)


def percentiles(row: Row) -> dict[int, tuple[Effect, tuple[float | None, float | None]]]:
    """Each percentile's effect, and what it is of both sides in microseconds: known with enough beyond it."""
    levels = [percentile / 100 for percentile in PERCENTILES]
    own, others = (_log2([hour[side] for hour in row["hours"]], levels) for side in (1, 2))
    found: dict[int, tuple[Effect, tuple[float | None, float | None]]] = {}
    counts = row["treated"], row["untreated"]
    for at, (percentile, ends) in enumerate(zip(PERCENTILES, bounds((own - others).T), strict=True)):
        if min(counts) * (100 - percentile) < 100 * _BEYOND:
            found[percentile] = Effect(*counts), (None, None)
            continue
        effect = Effect(*counts, *(float(2.0**one - 1.0) for one in ends))
        found[percentile] = effect, (float(2.0 ** own[0, at]), float(2.0 ** others[0, at]))
    return found


def _log2(hours: Sequence[tuple[Sequence[int], Sequence[float]]], levels: Sequence[float]) -> Floats:
    """A side's percentiles, log2: as they are, and of resamples of its hours, which are the same of both sides."""
    values = np.concatenate([np.asarray(classes, float) for classes, _ in hours])
    weights = np.concatenate([np.asarray(weights, float) for _, weights in hours])
    hour = np.repeat(np.arange(len(hours)), [len(classes) for classes, _ in hours])
    return (quantiles([(values, level) for level in levels], weights, hour) + 0.5) / _CLASSES

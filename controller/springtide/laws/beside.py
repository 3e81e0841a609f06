"""Benefit of a treatment where a path leaves a part of its connections as they were, by chance: connections of one path
and hour are compared with each other. No experiment is needed for that.

A path's hour is one difference of mean logarithms, of weight n m / (n + m) for n treated and m others: the inverse of
its variance where times spread alike. The estimate is the weighted mean of these, and its interval comes from how far
they are from it. Medians of differences would mislead: a tenth of few connections seldom has the one that lost.

A path's percentiles are of all its connections, each with the other side's part as its weight, so that both sides weigh
the same in every bundle of a host. Their intervals are by bootstrap over the path's hours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from springtide.laws.base import BenefitLine
from springtide.laws.effect import MINIMUM, SPAN, Effect, grouped
from springtide.laws.resample import bounds, quantiles
from springtide.laws.start.gain import Floats
from springtide.store import Row, Store

METHOD = "untreated share"
# Student's t for MINIMUM differences, 95 %; a little less would do for more.
_T = 2.093
PERCENTILES = (50, 90, 95)
# Paths whose percentiles are shown: those with most to compare.
MOST_PATHS = 100
# Classes of times a factor of two, each half of a per cent wide.
_CLASSES = 128
# Fewest connections of a side beyond a percentile.
_BEYOND = 5

# A value on trial beside the entry's, or a trial of nothing beside it: only what the edge drew is compared.
_CELLS = """
    select
        pop, if(dst_pop != '', toString(dst_pop), springtide_prefix_text(ip_version, client_prefix)) as destination,
        ip_version, intDiv(toUnixTimestamp(round), 3600) as hour, {columns}
    from round_flights
    where {span} and {time} > 0 and handshake_resent = 0 and {counted}
    group by pop, destination, ip_version, hour, round, host, started_round, {drawn}
    having own > 0 and others > 0
"""
_MEANS = """
    countIf({treated}) as own, countIf(not ({treated})) as others, own * others / (own + others) as weight,
    avgIf(log2({time}), {treated}) - avgIf(log2({time}), not ({treated})) as difference
"""
_DIFFERENCES = """
select
    pop, destination, ip_version,
    sum(weight) as of_hour,
    sum(weight * difference) / sum(weight) as log2_difference
from ({cells})
group by pop, destination, ip_version, hour
order by pop, destination, ip_version, hour
"""
_CLASSED = """
    countIf({treated}) as own, countIf(not ({treated})) as others,
    groupArrayIf(toInt32(floor({classes} * log2({time}))), {treated}) as own_times,
    groupArrayIf(toInt32(floor({classes} * log2({time}))), not ({treated})) as other_times
"""
_SPREADS = """
select
    pop, destination, ip_version, sum(treated) as treated, sum(untreated) as untreated,
    groupArray(own_classes) as own_classes, groupArray(other_classes) as other_classes
from (
    select
        pop, destination, ip_version, hour, sum(own) as treated, sum(others) as untreated,
        sumMap(own_times, arrayMap(one -> others / (own + others), own_times)) as own_classes,
        sumMap(other_times, arrayMap(one -> own / (own + others), other_times)) as other_classes
    from ({cells})
    group by pop, destination, ip_version, hour
    order by hour
)
group by pop, destination, ip_version
having count() >= {least}
order by least(treated, untreated) desc, pop, destination, ip_version
limit {most}
"""


@dataclass(frozen=True)
class Compared:
    """What is compared: a law's outcome, and SQL over `round_flights`: the `time`, which are `treated`, which are
    `counted` at all, and by what several draws are kept apart (`drawn`)."""

    law: str
    outcome: str
    time: str
    treated: str
    counted: str = "true"
    drawn: str = "true"

    def lines(self, store: Store, span: Mapping[str, int]) -> list[BenefitLine]:
        """Lines for all paths, for each PoP's, and for each of the paths with most to compare. Raises StoreError."""
        means, spreads = (
            store.query(self._sql(query, columns), span)
            for query, columns in ((_DIFFERENCES, _MEANS), (_SPREADS, _CLASSED))
        )
        return [*self.of_means(means), *chain.from_iterable(map(self.of_path, spreads))]

    def _sql(self, query: str, columns: str) -> str:
        own = {"time": self.time, "treated": self.treated, "classes": _CLASSES}
        cells = _CELLS.format(
            span=SPAN, counted=self.counted, drawn=self.drawn, columns=columns.format(**own), time=self.time
        )
        return query.format(cells=cells, least=MINIMUM, most=MOST_PATHS)

    def of_means(self, rows: Sequence[Row]) -> Iterator[BenefitLine]:
        """Of rows with pop, log2_difference and its weight, one a path and hour. Pure."""
        if rows:
            yield BenefitLine(self.law, self.outcome, "all", "all", mean(rows), method=METHOD)
        for pop, own in grouped(rows, lambda row: str(row["pop"])):
            yield BenefitLine(self.law, self.outcome, "PoP", pop, mean(own), method=METHOD)

    def of_path(self, row: Row) -> Iterator[BenefitLine]:
        """Of a path's row, with the classes of times of each hour and how much each weighs. Pure."""
        path = row["pop"], row["destination"], row["ip_version"]
        group = f"{path[0]} to {path[1]}, IPv{path[2]}"
        for percentile, (effect, sides) in percentiles(row).items():
            outcome = f"{self.outcome}, p{percentile}"
            yield BenefitLine(self.law, outcome, "path", group, effect, method=METHOD, path=path, sides=sides)


def mean(rows: Sequence[Row]) -> Effect:
    """The weighted mean of the differences, as a share of the others' time."""
    found, weights = (np.array([row[name] for row in rows], float) for name in ("log2_difference", "of_hour"))
    count = len(found)
    if count < MINIMUM:
        return Effect(count, count)
    middle = float(np.average(found, weights=weights))
    error = float(np.sqrt(np.sum((weights * (found - middle)) ** 2)) / np.sum(weights))
    low, high = middle - _T * error, middle + _T * error
    effect, least, most = (2.0**one - 1.0 for one in (middle, low, high))
    return Effect(count, count, effect, least, most)


def percentiles(row: Row) -> dict[int, tuple[Effect, tuple[float | None, float | None]]]:
    """Each percentile's effect, and what it is of both sides in microseconds: known with enough beyond it."""
    levels = [percentile / 100 for percentile in PERCENTILES]
    own, others = (_log2(row[name], levels) for name in ("own_classes", "other_classes"))
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

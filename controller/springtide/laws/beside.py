"""Benefit of a treatment where a path leaves a part of its connections as they were, by chance: connections of one path
and hour are compared with each other. No experiment is needed for that.

A path's hour is one difference of mean logarithms, of weight n m / (n + m) for n treated and m others: the inverse of
its variance where times spread alike. The estimate is the weighted mean of these, and its interval comes from how far
they are from it. Medians of differences would mislead: a tenth of few connections seldom has the one that lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from springtide.laws.base import BenefitLine
from springtide.laws.effect import MINIMUM, SPAN, Effect, grouped
from springtide.store import Row, Store

METHOD = "untreated share"
# Student's t for MINIMUM differences, 95 %; a little less would do for more.
_T = 2.093

_DIFFERENCES = """
select
    pop,
    sum(weight) as of_hour,
    sum(weight * difference) / sum(weight) as log2_difference
from (
    select
        pop, dst_pop, client_prefix, ip_version,
        intDiv(toUnixTimestamp(round), 3600) as hour,
        countIf({treated}) as own,
        countIf(not ({treated})) as others,
        own * others / (own + others) as weight,
        avgIf(log2({time}), {treated}) - avgIf(log2({time}), not ({treated})) as difference
    from round_flights
    where {span} and {time} > 0 and handshake_resent = 0 and {counted}
    group by pop, dst_pop, client_prefix, ip_version, hour, round, host, started_round
    having own > 0 and others > 0
)
group by pop, dst_pop, client_prefix, ip_version, hour
order by pop, dst_pop, client_prefix, ip_version, hour
"""


def read(store: Store, span: Mapping[str, int], *, time: str, treated: str, counted: str) -> list[Row]:
    """A row a path and hour. SQL conditions over `round_flights`: which are `treated`, and which are `counted` at all.
    Raises StoreError."""
    return store.query(_DIFFERENCES.format(span=SPAN, time=time, treated=treated, counted=counted), span)


def lines(law: str, outcome: str, rows: Sequence[Row]) -> list[BenefitLine]:
    """Lines for all paths, and for each PoP's. Pure."""
    groups = [("all", "all", list(rows))] if rows else []
    groups += [("PoP", pop, own) for pop, own in grouped(rows, lambda row: str(row["pop"]))]
    return [BenefitLine(law, outcome, by, group, mean(own), method=METHOD) for by, group, own in groups]


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

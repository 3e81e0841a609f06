"""What copies are good for: connections with copies against those of the same bundle that have none, by chance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from springtide.laws.base import BenefitLine
from springtide.laws.effect import SPAN, grouped
from springtide.laws.paired import contrasts, middle
from springtide.store import Row, Store

METHOD = "untreated tenth"
OUTCOME = "time of 10 kB"
# Connections of one path and hour are compared with each other; the hours differ by themselves.
_BLOCK_S = 3600

_FLIGHTS = f"""
select
    toUnixTimestamp(round) as round_s, pop, host, toUnixTimestamp(started_round) as bundle_s,
    if(dst_pop != '', toString(dst_pop), springtide_prefix_text(ip_version, client_prefix)) as destination,
    ip_version,
    copied_bytes > 0 as treated,
    count() as timed,
    avg(log2(assumeNotNull(acked_10k_us))) as log2_time
from round_flights
where {SPAN} and acked_10k_us > 0 and handshake_resent = 0
    and (pop, host, started_round) in (
        select pop, host, started_round from round_flights where {SPAN} and copied_bytes > 0
    )
group by round_s, pop, host, bundle_s, destination, ip_version, started_prefix_length, treated
order by round_s, pop, host, bundle_s, destination, ip_version, started_prefix_length, treated
"""


def read(store: Store, span: Mapping[str, int]) -> list[Row]:
    """A row a round, host, bundle, path and side. Raises StoreError."""
    return store.query(_FLIGHTS, span)


def lines(rows: Iterable[Row]) -> list[BenefitLine]:
    """Pure. The time until 10 kB were acknowledged, of all paths and of each PoP's: one difference a path and hour."""
    differences = list(_differences(rows))
    groups = [("all", "all", differences)] if differences else []
    groups += [("PoP", pop, own) for pop, own in grouped(differences, lambda one: one[0])]
    return [
        BenefitLine("recovery", OUTCOME, by, group, middle([one for _, one in own], log2=True), method=METHOD)
        for by, group, own in groups
    ]


def _differences(rows: Iterable[Row]) -> Iterable[tuple[str, float]]:
    """PoP and difference."""

    def block(row: Row) -> tuple[str, str, int, int]:
        return row["pop"], row["destination"], row["ip_version"], row["round_s"] // _BLOCK_S

    for key, own in groupby(sorted(rows, key=block), block):
        cells = (
            (key, (row["round_s"], row["host"], row["bundle_s"]), bool(row["treated"]), row["log2_time"], row["timed"])
            for row in own
        )
        for one in contrasts(cells):
            yield key[0], one

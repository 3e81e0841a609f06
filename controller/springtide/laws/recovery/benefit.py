"""What copies are good for: first flights with copies, and those beside them without."""

from __future__ import annotations

from collections.abc import Mapping

from springtide.laws.effect import SPAN
from springtide.store import Row, Store

# Of bundles that gave copies. The time is without the handshake.
_FLIGHTS = f"""
select
    toUnixTimestamp(round) as round_s, toUnixTimestamp(started_round) as started_s, pop,
    if(dst_pop != '', toString(dst_pop), springtide_prefix_text(ip_version, client_prefix)) as destination,
    ip_version,
    copied_bytes > 0 as treated,
    count() as timed,
    sum(log2(assumeNotNull(acked_10k_us))) as log2_time_sum
from round_flights
where {SPAN} and acked_10k_us > 0 and handshake_resent = 0
    and (pop, host, started_round) in (
        select pop, host, started_round from round_flights where {SPAN} and copied_bytes > 0
    )
group by round_s, started_s, pop, destination, ip_version, treated
order by round_s, started_s, pop, destination, ip_version, treated
"""


def read(store: Store, span: Mapping[str, int]) -> list[Row]:
    """A row a round, round of the bundle, path and side. Raises StoreError."""
    return store.query(_FLIGHTS, span)

"""Panels of the edges' own probes: how long small objects take over fresh connections."""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders import table, timeseries

from dashboards.build import lines, rows

KILOBYTES = (10, 50, 100)
SHOWN = (
    "intDiv(time_unix_us, 300000000) >= intDiv(toUnixTimestamp($__fromTime), 300) "
    "and time_unix_us <= toUnixTimestamp($__toTime) * 1000000"
)
# The sender is the pair's source. Pairs are in the group of their median time to connect over the time shown.
PROBES = f"""(
                    select *, springtide_rtt_group(
                        quantileExact(0.5)(connect_us) over (partition by pop, server_pop, ip_version)
                    ) as rtt_group
                    from probes final
                    where {SHOWN} and server_pop in (${{src:singlequote}}) and pop in (${{dst:singlequote}})
                )"""


def panels() -> Iterator[timeseries.Panel | table.Panel]:
    """One for each size, and the percentiles beside what the senders began with."""
    for kilobytes in KILOBYTES:
        yield lines(
            f"Probes of {kilobytes} kB",
            "From the beginning of a fresh connection to the last byte: median and 95th percentile of each hour, by "
            "the pairs' round-trip time in the groups of the Riptide paper.",
            f"""
                select toStartOfHour(fromUnixTimestamp64Micro(time_unix_us, 'UTC')) as time,
                    concat(rtt_group, ', p', toString(level)) as series,
                    arrayElement(quantilesExactInclusive(0.5, 0.95)(total_us), if(level = 50, 1, 2)) / 1000 as total_ms
                from {PROBES} as grouped
                array join [50, 95] as level
                where bytes = {kilobytes * 1000} and result = 'ok'
                group by time, rtt_group, level
                order by time, series
            """,
            "ms",
            span=8,
        )
    percentiles = ",\n                    ".join(
        f"quantileExactInclusiveIf({level / 100})(total_us, result = 'ok') / 1000 as p{level}_ms"
        for level in (5, 25, 50, 75, 90, 95)
    )
    yield rows(
        "Probes by percentile",
        "By the pairs' round-trip time, the object, and the window that the sender says it began with: the kernel's "
        "ten segments, or more. Those that began with more are other pairs: compare a pair with itself over time.",
        f"""
                select rtt_group, intDiv(bytes, 1000) as kb,
                    multiIf(start_window is null, 'unknown', start_window <= 10, 'with 10', 'with more') as started,
                    uniqExact(pop, server_pop) as pairs, count() as probes, countIf(result != 'ok') / count() as failed,
                    {percentiles}
                from {PROBES} as grouped
                group by rtt_group, kb, started
                order by rtt_group, kb, started
        """,
        {"failed": "percentunit"} | {f"p{level}_ms": "ms" for level in (5, 25, 50, 75, 90, 95)},
    )

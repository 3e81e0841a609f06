-- The initial windows of the round's new connections between PoPs, beside those that were decided for their edge then,
-- and how many used BBR. Parameters: generation, round_s.
--
-- A close record does not name the algorithm, and BBR sets windows by itself: a connection whose algorithm is unknown
-- counts if those of the host's others are known and none is BBR.
insert into rollup_treatments
with windows as (
    select
        host,
        src_pop,
        dst_pop,
        ip_version,
        start_cwnd as decided,
        multiIf(
            congestion_algorithm = '', 'unknown', startsWith(congestion_algorithm, 'bbr'), 'bbr', 'other'
        ) as algorithm,
        first_cwnd_low as low,
        first_cwnd_high as high,
        count() as sockets,
        countIf(bytes_acked > 0) as active
    from rollup_sockets
    where
        round = fromUnixTimestamp({round_s:UInt32})
        and generation = {generation:UInt64}
        and counted
        -- The edge's program gave them theirs, as the law of starts decides.
        and not (recorded and started)
        -- Nothing was decided for them.
        and not opted_out
        and src_pop != ''
        and dst_pop != ''
        and src_pop != dst_pop
    group by host, src_pop, dst_pop, ip_version, decided, algorithm, low, high
),

judged as (
    select
        *,
        low > 0
        and (
            algorithm = 'other'
            or algorithm = 'unknown'
            and sumIf(sockets, algorithm = 'other') over (partition by host) > 0
            and sumIf(sockets, algorithm = 'bbr') over (partition by host) = 0
        ) as is_known
    from windows
),

treatments as (
    select
        host,
        src_pop,
        dst_pop,
        ip_version,
        decided,
        sum(active) as active_connections,
        sumIf(active, algorithm = 'bbr') as on_bbr,
        sumIf(sockets, is_known) as known,
        sumIf(sockets, is_known and low = high) as exact,
        sumIf(sockets, is_known and low = high and low = decided) as same,
        medianExactWeightedIf(low, sockets, is_known) as low_p50,
        medianExactWeightedIf(high, sockets, is_known) as high_p50,
        mapSort(
            (window, times) -> tuple(-toInt64(times), window),
            sumMapIf(map(low, sockets), is_known and low = high)
        ) as frequent
    from judged
    group by host, src_pop, dst_pop, ip_version, decided
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64} as generation,
    host,
    src_pop,
    dst_pop,
    ip_version,
    decided as decided_cwnd,
    -- A few may have begun just before the record of their wave. If too few are exactly known, half of them can exclude
    -- the decided window.
    multiIf(
        exact >= 5 and 5 * same >= 4 * exact, 'same',
        exact >= 5, 'differs',
        known >= 5 and (high_p50 < decided or low_p50 > decided), 'differs',
        'unknown'
    ) as seen,
    active_connections as connections,
    on_bbr as bbr_connections,
    known as told_connections,
    exact as exact_connections,
    -- A host's numbers are bounded.
    arraySlice(mapKeys(frequent), 1, 8) as first_cwnds,
    arraySlice(mapValues(frequent), 1, 8) as first_cwnd_counts,
    if(known = 0, null, low_p50) as first_cwnd_low_p50,
    if(known = 0, null, high_p50) as first_cwnd_high_p50
from treatments
settings prefer_column_name_to_alias = 1

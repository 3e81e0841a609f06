-- One round's closed connections that delivered something, per host, pair of PoPs and class of bytes. Parameters:
-- generation, round_s.
-- A value and its weight are one number, value * 65536 + weight: sorting these first makes the sketches independent of
-- the order of the sockets.
insert into rollup_outcomes
with outcomes as (
    select
        host,
        src_pop,
        dst_pop,
        ip_version,
        roundDown(life_bytes_acked, [0, 10000, 30000, 100000, 300000, 1000000, 10000000]) as size_class_bytes,
        count() as connections,
        countIf(life_bytes_retransmitted > 0) as retransmitting_connections,
        countIf(life_bytes_lost > 0) as lossy_connections,
        countIf(life_timeouts > 0) as timeout_connections,
        toUInt64(least(sum(toUInt128(life_bytes_acked)), 9223372036854775807)) as bytes_acked,
        toUInt64(least(sum(toUInt128(life_bytes_sent)), 9223372036854775807)) as bytes_sent,
        toUInt64(least(sum(toUInt128(life_bytes_retransmitted)), 9223372036854775807)) as bytes_retransmitted,
        toUInt64(least(sum(toUInt128(life_busy_us)), 9223372036854775807)) as busy_sum_us,
        arraySort(groupArrayIf(springtide_weighed(life_busy_us, sample_weight), life_busy_us > 0)) as times
    from rollup_sockets
    where
        round = fromUnixTimestamp({round_s:UInt32})
        and generation = {generation:UInt64}
        and counted
        and closed
        and life_bytes_acked > 0
    group by host, src_pop, dst_pop, ip_version, size_class_bytes
),

quantiles as (
    select
        *,
        springtide_reduced('quantilesExactWeighted(0.5, 0.9, 0.99)', times) as time_quantiles
    from outcomes
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64},
    host,
    src_pop,
    dst_pop,
    ip_version,
    size_class_bytes,
    connections,
    retransmitting_connections,
    bytes_acked,
    bytes_sent,
    bytes_retransmitted,
    busy_sum_us,
    if(empty(times), null, time_quantiles[1]) as busy_p50_us,
    if(empty(times), null, time_quantiles[2]) as busy_p90_us,
    if(empty(times), null, time_quantiles[3]) as busy_p99_us,
    springtide_sketch(times) as busy_state,
    lossy_connections,
    timeout_connections
from quantiles
settings prefer_column_name_to_alias = 1

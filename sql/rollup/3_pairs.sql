-- One round's sockets, per ordered pair of PoPs and IP version. Parameters: generation, round_s.
-- A value and its weight travel as one number, value * 65536 + weight: sorting these first makes the sketches the same
-- whatever the order of the sockets.
insert into rollup_pairs
with pairs as (
    select
        src_pop,
        dst_pop,
        ip_version,
        uniqExact(host) as hosts,
        countIf(live) as connections_seen,
        countIf(earned) as connections_earned,
        countIf(closed) as connections_closed,
        sumIf(toUInt64(snd_cwnd) * sample_weight, earned) as cwnd_sum,
        sumIf(toUInt64(sample_weight), earned) as cwnd_weight,
        minOrNullIf(snd_cwnd, earned) as min_cwnd,
        maxOrNullIf(snd_cwnd, earned) as max_cwnd,
        sumIf(toUInt128(snd_cwnd) * bytes_acked * sample_weight, earned) as traffic_cwnd_sum,
        sumIf(toUInt128(bytes_acked) * sample_weight, earned) as traffic_weight,
        arraySort(groupArrayIf(bitShiftLeft(toUInt64(snd_cwnd), 16) + sample_weight, earned)) as windows,
        arraySort(groupArrayIf(bitShiftLeft(toUInt64(rtt_us), 16) + sample_weight, rtt_us > 0 and bytes_acked > 0))
            as rtts,
        minOrNullIf(min_rtt_us, min_rtt_us > 0) as min_rtt_us,
        arraySort(groupArrayIf(bitShiftLeft(toUInt64(snd_wnd), 16) + sample_weight, live and snd_wnd > 0))
            as receiver_windows,
        sum(bytes_acked) as bytes_acked,
        sum(bytes_sent) as bytes_sent,
        sum(bytes_retransmitted) as bytes_retransmitted,
        sum(bytes_received) as bytes_received,
        sum(busy_us) as busy_us,
        sum(rwnd_limited_us) as rwnd_limited_us,
        sum(sndbuf_limited_us) as sndbuf_limited_us,
        countIf(young) as young_connections,
        sumIf(life_bytes_sent, young) as young_bytes_sent,
        sumIf(life_bytes_retransmitted, young) as young_bytes_retransmitted,
        arraySort(
            groupArrayIf(
                bitShiftLeft(toUInt64(intDiv(snd_wnd, greatest(snd_mss, 1))), 16) + sample_weight,
                young and snd_wnd > 0 and snd_mss > 0
            )
        ) as young_windows
    from rollup_sockets
    where
        round = fromUnixTimestamp({round_s:UInt32})
        and generation = {generation:UInt64}
        and src_pop != ''
        and dst_pop != ''
        and src_pop != dst_pop
    group by src_pop, dst_pop, ip_version
),

quantiles as (
    select
        *,
        arrayReduce(
            'quantilesExactWeighted(0.1, 0.25, 0.5, 0.75, 0.9)',
            arrayMap(x -> bitShiftRight(x, 16), windows),
            arrayMap(x -> toUInt32(bitAnd(x, 65535)), windows)
        ) as window_quantiles,
        arrayReduce(
            'quantilesExactWeighted(0.1, 0.5, 0.9)',
            arrayMap(x -> bitShiftRight(x, 16), rtts),
            arrayMap(x -> toUInt32(bitAnd(x, 65535)), rtts)
        ) as rtt_quantiles,
        arrayReduce(
            'quantilesExactWeighted(0.1, 0.5)',
            arrayMap(x -> bitShiftRight(x, 16), receiver_windows),
            arrayMap(x -> toUInt32(bitAnd(x, 65535)), receiver_windows)
        ) as receiver_quantiles,
        arrayReduce(
            'quantilesExactWeighted(0.5)',
            arrayMap(x -> bitShiftRight(x, 16), young_windows),
            arrayMap(x -> toUInt32(bitAnd(x, 65535)), young_windows)
        ) as young_window_quantiles
    from pairs
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64},
    src_pop,
    dst_pop,
    ip_version,
    hosts,
    connections_seen,
    connections_earned,
    connections_closed,
    cwnd_sum,
    cwnd_weight,
    if(cwnd_weight > 0, cwnd_sum / cwnd_weight, null) as mean_cwnd,
    min_cwnd,
    max_cwnd,
    if(traffic_weight > 0, toFloat64(traffic_cwnd_sum) / toFloat64(traffic_weight), null) as traffic_cwnd,
    if(empty(windows), null, window_quantiles[1]) as cwnd_p10,
    if(empty(windows), null, window_quantiles[2]) as cwnd_p25,
    if(empty(windows), null, window_quantiles[3]) as cwnd_p50,
    if(empty(windows), null, window_quantiles[4]) as cwnd_p75,
    if(empty(windows), null, window_quantiles[5]) as cwnd_p90,
    arrayReduce(
        'quantilesTDigestWeightedState(0.1, 0.25, 0.5, 0.75, 0.9)',
        arrayMap(x -> toFloat32(bitShiftRight(x, 16)), windows),
        arrayMap(x -> toUInt32(bitAnd(x, 65535)), windows)
    ) as cwnd_state,
    if(empty(rtts), null, rtt_quantiles[1]) as rtt_p10_us,
    if(empty(rtts), null, rtt_quantiles[2]) as rtt_p50_us,
    if(empty(rtts), null, rtt_quantiles[3]) as rtt_p90_us,
    min_rtt_us,
    arrayReduce(
        'quantilesTDigestWeightedState(0.1, 0.25, 0.5, 0.75, 0.9)',
        arrayMap(x -> toFloat32(bitShiftRight(x, 16)), rtts),
        arrayMap(x -> toUInt32(bitAnd(x, 65535)), rtts)
    ) as rtt_state,
    if(empty(receiver_windows), null, receiver_quantiles[1]) as rwnd_p10_bytes,
    if(empty(receiver_windows), null, receiver_quantiles[2]) as rwnd_p50_bytes,
    bytes_acked,
    bytes_sent,
    bytes_retransmitted,
    bytes_received,
    if(bytes_sent > 0, bytes_retransmitted / bytes_sent, null) as retransmit_ratio,
    busy_us,
    rwnd_limited_us,
    sndbuf_limited_us,
    young_connections,
    young_bytes_sent,
    young_bytes_retransmitted,
    if(empty(young_windows), null, young_window_quantiles[1]) as young_rwnd_p50
from quantiles
settings prefer_column_name_to_alias = 1

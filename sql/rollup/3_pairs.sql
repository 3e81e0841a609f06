-- One round's sockets, per ordered pair of PoPs and IP version. Parameters: generation, round_s.
-- Nothing depends on the order of the sockets (springtide_weighed).
--
-- The influence of one host on a pair is bounded (docs/explanation/initcwnd.md). Its mean window is bounded by half and
-- twice the median of the hosts' means, the lower of two; and among three hosts or more none has more weight than the
-- others together. Hosts with like means and like weights are not changed.
insert into rollup_pairs
with hosts as (
    select
        src_pop,
        dst_pop,
        ip_version,
        host,
        countIf(live) as connections_seen,
        countIf(earned) as connections_earned,
        countIf(closed) as connections_closed,
        sumIf(toUInt128(proved_cwnd) * sample_weight, earned) as cwnd_sum,
        sumIf(toUInt128(sample_weight), earned) as cwnd_weight,
        sumIf(toUInt128(proved_cwnd) * bytes_acked * sample_weight, earned) as traffic_cwnd_sum,
        sumIf(toUInt128(bytes_acked) * sample_weight, earned) as traffic_weight,
        arraySort(groupArrayIf(springtide_weighed(proved_cwnd, sample_weight), earned)) as windows,
        groupArrayIf(springtide_weighed(rtt_us, sample_weight), rtt_us > 0 and bytes_acked > 0) as rtts,
        minOrNullIf(min_rtt_us, min_rtt_us > 0) as min_rtt_us,
        groupArrayIf(springtide_weighed(snd_wnd, sample_weight), live and snd_wnd > 0) as receiver_windows,
        sum(toUInt128(bytes_acked)) as bytes_acked,
        sum(toUInt128(bytes_sent)) as bytes_sent,
        sum(toUInt128(bytes_retransmitted)) as bytes_retransmitted,
        sum(toUInt128(bytes_received)) as bytes_received,
        sum(toUInt128(busy_us)) as busy_us,
        sum(toUInt128(rwnd_limited_us)) as rwnd_limited_us,
        sum(toUInt128(sndbuf_limited_us)) as sndbuf_limited_us,
        countIf(young) as young_connections,
        countIf(young and life_bytes_lost > 0) as young_lossy,
        countIf(young and life_timeouts > 0) as young_timeouts,
        arraySort(
            groupArrayIf(
                springtide_weighed(intDiv(snd_wnd, greatest(snd_mss, 1)), sample_weight),
                young and snd_wnd > 0 and snd_mss > 0
            )
        ) as young_windows,
        arraySum(weight -> toUInt128(weight), springtide_weights(young_windows)) as young_window_weight
    from rollup_sockets
    where
        round = fromUnixTimestamp({round_s:UInt32})
        and generation = {generation:UInt64}
        and counted
        and src_pop != ''
        and dst_pop != ''
        and src_pop != dst_pop
    group by src_pop, dst_pop, ip_version, host
),

-- The bounds of a host's values. `held_*`: among three hosts or more that have any, at most as much as the others have.
-- 0 / 0 is NaN: a host without windows has no mean.
bounds as (
    select
        *,
        toFloat64(cwnd_sum) / toFloat64(cwnd_weight) as mean,
        toFloat64(traffic_cwnd_sum) / toFloat64(traffic_weight) as traffic_mean,
        quantileExactLowIf(0.5) (mean, cwnd_weight > 0) over pair as middle,
        quantileExactLowIf(0.5) (traffic_mean, traffic_weight > 0) over pair as traffic_middle,
        springtide_held_mean(mean, middle) as held_mean,
        springtide_held_mean(traffic_mean, traffic_middle) as held_traffic_mean,
        if(
            countIf(cwnd_weight > 0) over pair < 3,
            cwnd_weight,
            least(cwnd_weight, sum(cwnd_weight) over pair - cwnd_weight)
        ) as held_weight,
        if(
            countIf(traffic_weight > 0) over pair < 3,
            traffic_weight,
            least(traffic_weight, sum(traffic_weight) over pair - traffic_weight)
        ) as held_traffic_weight,
        if(
            countIf(young_connections > 0) over pair < 3,
            young_connections,
            toUInt64(least(young_connections, sum(young_connections) over pair - young_connections))
        ) as held_young,
        if(
            countIf(young_window_weight > 0) over pair < 3,
            young_window_weight,
            least(young_window_weight, sum(young_window_weight) over pair - young_window_weight)
        ) as held_young_window_weight
    from hosts
    window pair as (partition by src_pop, dst_pop, ip_version)
),

held as (
    select
        *,
        springtide_held(windows, cwnd_weight, held_weight, mean, held_mean) as held_windows,
        springtide_held(young_windows, young_window_weight, held_young_window_weight, 1., 1.) as held_young_windows,
        if(
            held_weight = cwnd_weight and held_mean = mean,
            cwnd_sum,
            toUInt128(round(ifNotFinite(held_mean, 0) * toFloat64(held_weight)))
        ) as held_sum,
        if(
            held_traffic_weight = traffic_weight and held_traffic_mean = traffic_mean,
            traffic_cwnd_sum,
            toUInt128(round(ifNotFinite(held_traffic_mean, 0) * toFloat64(held_traffic_weight)))
        ) as held_traffic_sum,
        springtide_in_proportion(young_lossy, young_connections, held_young) as held_young_lossy,
        springtide_in_proportion(young_timeouts, young_connections, held_young) as held_young_timeouts
    from bounds
),

pairs as (
    select
        src_pop,
        dst_pop,
        ip_version,
        count() as hosts,
        sum(connections_seen) as connections_seen,
        sum(connections_earned) as connections_earned,
        sum(connections_closed) as connections_closed,
        toUInt64(least(sum(held_sum), 9223372036854775807)) as cwnd_sum,
        toUInt64(least(sum(held_weight), 9223372036854775807)) as cwnd_weight,
        sum(held_traffic_sum) as traffic_cwnd_sum,
        sum(held_traffic_weight) as traffic_weight,
        arraySort(groupArrayArray(held_windows)) as windows,
        arraySort(groupArrayArray(rtts)) as rtts,
        min(min_rtt_us) as min_rtt_us,
        arraySort(groupArrayArray(receiver_windows)) as receiver_windows,
        toUInt64(least(sum(bytes_acked), 9223372036854775807)) as bytes_acked,
        toUInt64(least(sum(bytes_sent), 9223372036854775807)) as bytes_sent,
        toUInt64(least(sum(bytes_retransmitted), 9223372036854775807)) as bytes_retransmitted,
        toUInt64(least(sum(bytes_received), 9223372036854775807)) as bytes_received,
        toUInt64(least(sum(busy_us), 9223372036854775807)) as busy_us,
        toUInt64(least(sum(rwnd_limited_us), 9223372036854775807)) as rwnd_limited_us,
        toUInt64(least(sum(sndbuf_limited_us), 9223372036854775807)) as sndbuf_limited_us,
        sum(held_young) as young_connections,
        sum(held_young_lossy) as young_lossy_connections,
        sum(held_young_timeouts) as young_timeout_connections,
        arraySort(groupArrayArray(held_young_windows)) as young_windows
    from held
    group by src_pop, dst_pop, ip_version
),

quantiles as (
    select
        *,
        springtide_reduced('quantilesExactWeighted(0.1, 0.25, 0.5, 0.75, 0.9)', windows) as window_quantiles,
        springtide_reduced('quantilesExactWeighted(0.1, 0.5, 0.9)', rtts) as rtt_quantiles,
        springtide_reduced('quantilesExactWeighted(0.1, 0.5)', receiver_windows) as receiver_quantiles,
        springtide_reduced('quantilesExactWeighted(0.5)', young_windows) as young_window_quantiles
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
    if(empty(windows), null, bitShiftRight(windows[1], 16)) as min_cwnd,
    if(empty(windows), null, bitShiftRight(windows[-1], 16)) as max_cwnd,
    if(traffic_weight > 0, toFloat64(traffic_cwnd_sum) / toFloat64(traffic_weight), null) as traffic_cwnd,
    if(empty(windows), null, window_quantiles[1]) as cwnd_p10,
    if(empty(windows), null, window_quantiles[2]) as cwnd_p25,
    if(empty(windows), null, window_quantiles[3]) as cwnd_p50,
    if(empty(windows), null, window_quantiles[4]) as cwnd_p75,
    if(empty(windows), null, window_quantiles[5]) as cwnd_p90,
    springtide_sketch(windows) as cwnd_state,
    if(empty(rtts), null, rtt_quantiles[1]) as rtt_p10_us,
    if(empty(rtts), null, rtt_quantiles[2]) as rtt_p50_us,
    if(empty(rtts), null, rtt_quantiles[3]) as rtt_p90_us,
    min_rtt_us,
    springtide_sketch(rtts) as rtt_state,
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
    -- Not weighted by bytes: a few large connections without loss would hide many small ones with loss.
    0 as young_bytes_sent,
    0 as young_bytes_retransmitted,
    if(empty(young_windows), null, young_window_quantiles[1]) as young_rwnd_p50,
    young_lossy_connections,
    young_timeout_connections
from quantiles
settings prefer_column_name_to_alias = 1

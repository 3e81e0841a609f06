-- One round's sockets that had bytes acknowledged, per PoP, client prefix and algorithm. Parameters: generation,
-- round_s.
-- Nothing depends on the order of the sockets (springtide_weighed).
insert into rollup_prefixes
with prefixes as (
    select
        pop as at_pop,
        ip_version,
        client_prefix,
        congestion_algorithm,
        max(dst_pop) as peer_pop,
        count() as connections,
        sum(toUInt64(samples)) as sample_count,
        countIf(app_limited) as app_limited_connections,
        if(min(host) = max(host), any(host), '') as only_host,
        toUInt64(least(sum(toUInt128(bytes_acked)), 9223372036854775807)) as acked,
        toUInt64(least(sum(toUInt128(bytes_sent)), 9223372036854775807)) as sent,
        toUInt64(least(sum(toUInt128(bytes_retransmitted)), 9223372036854775807)) as retransmitted,
        arraySort(
            groupArrayIf(springtide_weighed(delivery_rate_bytes_per_s, sample_weight), delivery_rate_bytes_per_s > 0)
        ) as rates,
        arraySort(groupArrayIf(springtide_weighed(rtt_us, sample_weight), rtt_us > 0)) as rtts,
        -- Parts per million.
        arraySort(
            groupArrayIf(
                springtide_weighed(intDiv(bytes_retransmitted * 1000000, greatest(bytes_sent, 1)), sample_weight),
                bytes_sent > 0
            )
        ) as losses,
        arraySort(groupArray(springtide_weighed(bytes_acked, sample_weight))) as sizes
    from rollup_sockets
    where
        round = fromUnixTimestamp({round_s:UInt32})
        and generation = {generation:UInt64}
        and counted
        and bytes_acked > 0
    group by at_pop, ip_version, client_prefix, congestion_algorithm
),

quantiles as (
    select
        *,
        springtide_reduced('quantilesExactWeighted(0.1, 0.5, 0.9)', rates) as rate_quantiles,
        springtide_reduced('quantilesExactWeighted(0.1, 0.5, 0.9)', rtts) as rtt_quantiles,
        springtide_reduced('quantilesExactWeighted(0.5, 0.9)', losses) as loss_quantiles,
        springtide_reduced('quantilesExactWeighted(0.5, 0.9)', sizes) as size_quantiles
    from prefixes
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64},
    at_pop as pop,
    ip_version,
    client_prefix,
    congestion_algorithm,
    peer_pop as dst_pop,
    connections,
    sample_count as samples,
    app_limited_connections,
    acked as bytes_acked,
    sent as bytes_sent,
    retransmitted as bytes_retransmitted,
    if(sent > 0, retransmitted / sent, null) as retransmit_ratio,
    if(empty(rates), null, rate_quantiles[1]) as delivery_rate_p10_bytes_per_s,
    if(empty(rates), null, rate_quantiles[2]) as delivery_rate_p50_bytes_per_s,
    if(empty(rates), null, rate_quantiles[3]) as delivery_rate_p90_bytes_per_s,
    if(empty(rtts), null, rtt_quantiles[1]) as rtt_p10_us,
    if(empty(rtts), null, rtt_quantiles[2]) as rtt_p50_us,
    if(empty(rtts), null, rtt_quantiles[3]) as rtt_p90_us,
    if(empty(losses), null, loss_quantiles[1] / 1000000) as loss_p50,
    if(empty(losses), null, loss_quantiles[2] / 1000000) as loss_p90,
    if(empty(sizes), null, size_quantiles[1]) as bytes_p50,
    if(empty(sizes), null, size_quantiles[2]) as bytes_p90,
    springtide_sketch(rates) as delivery_rate_state,
    springtide_sketch(rtts) as rtt_state,
    springtide_sketch(losses) as loss_state,
    springtide_sketch(sizes) as bytes_state,
    only_host
from quantiles
-- Sketches are slow to write, and by default all rows are one block, which one thread writes.
settings prefer_column_name_to_alias = 1,
min_insert_block_size_rows = 100000, min_insert_block_size_bytes = 0

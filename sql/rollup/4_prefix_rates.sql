-- The round's rates on the path to each client prefix, from connections with `acting_bytes` acknowledged in their
-- life whose delivery rate the application did not limit. Parameters: generation, round_s, acting_bytes.
-- Nothing depends on the order of the sockets (springtide_weighed).
insert into rollup_prefix_rates
with sockets as (
    select
        pop,
        host,
        ip_version,
        client_prefix,
        dst_pop,
        samples,
        bytes_acked,
        bytes_sent,
        bytes_retransmitted,
        startsWith(congestion_algorithm, 'bbr') as is_bbr,
        congestion_algorithm = '' as is_unnamed,
        life_bytes_acked >= {acting_bytes:UInt64} as is_acting,
        is_acting and app_limited as is_limited,
        is_acting and not app_limited and delivery_rate_bytes_per_s > 0 as is_eligible,
        springtide_weighed(delivery_rate_bytes_per_s, sample_weight) as rate,
        if(rtt_us > 0, springtide_weighed(rtt_us, sample_weight), 0) as rtt
    from rollup_sockets
    where
        round = fromUnixTimestamp({round_s:UInt32})
        and generation = {generation:UInt64}
        and counted
        and bytes_acked > 0
),

prefixes as (
    select
        pop as at_pop,
        ip_version,
        client_prefix,
        max(dst_pop) as peer_pop,
        count() as connections,
        countIf(is_acting) as acting_connections,
        countIf(is_limited) as limited_connections,
        countIf(is_eligible) as eligible,
        groupArrayIf(rate, is_eligible and is_bbr) as named_bbr,
        groupArrayIf(rate, is_eligible and not is_bbr and not is_unnamed) as named_other,
        groupArrayIf(rate, is_eligible and is_unnamed) as unnamed,
        -- No record has the algorithm of these: assumed to be the one of most of the others.
        length(named_bbr) > length(named_other) as unnamed_bbr,
        arraySort(if(unnamed_bbr, arrayConcat(named_bbr, unnamed), named_bbr)) as bbr_rates,
        arraySort(if(unnamed_bbr, named_other, arrayConcat(named_other, unnamed))) as rates,
        arraySort(groupArrayIf(rtt, is_eligible and rtt > 0)) as rtts,
        sumIf(toUInt64(samples), is_eligible) as sample_count,
        toUInt64(least(sumIf(toUInt128(bytes_acked), is_eligible), 9223372036854775807)) as acked,
        toUInt64(least(sumIf(toUInt128(bytes_sent), is_eligible), 9223372036854775807)) as sent,
        toUInt64(least(sumIf(toUInt128(bytes_retransmitted), is_eligible), 9223372036854775807)) as retransmitted,
        if(minIf(host, is_eligible) = maxIf(host, is_eligible), anyIf(host, is_eligible), '') as the_host
    from sockets
    group by at_pop, ip_version, client_prefix
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64},
    at_pop as pop,
    ip_version,
    client_prefix,
    peer_pop as dst_pop,
    {acting_bytes:UInt64} as acting_bytes,
    connections,
    acting_connections,
    limited_connections as app_limited_connections,
    eligible as eligible_connections,
    length(bbr_rates) as eligible_bbr_connections,
    springtide_reduced('quantileExactWeighted(0.5)', rates) as delivery_rate_p50_bytes_per_s,
    springtide_reduced('quantileExactWeighted(0.5)', bbr_rates) as bbr_delivery_rate_p50_bytes_per_s,
    springtide_reduced('quantileExactWeighted(0.5)', rtts) as rtt_p50_us,
    sample_count as samples,
    acked as bytes_acked,
    sent as bytes_sent,
    retransmitted as bytes_retransmitted,
    the_host as only_host
from prefixes
settings prefer_column_name_to_alias = 1

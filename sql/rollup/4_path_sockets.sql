-- Evidence that each host's connections give of each path, from its PoP to another or to a client prefix. Parameters:
-- generation, round_s. Lists (springtide_weighed) and counts by the numbers of 5_paths.sql.
insert into rollup_path_hosts
with chosen as (
    select
        pop,
        client_prefix
    from rollup_units
    where round = fromUnixTimestamp({round_s:UInt32}) and generation = {generation:UInt64}
),

sockets as (
    select
        pop as at_pop,
        dst_pop,
        ip_version,
        if(dst_pop = '', client_prefix, toIPv6('::')) as network,
        host,
        sample_weight,
        springtide_has_met(snd_ssthresh, life_bytes_retransmitted, life_bytes_acked) as has_met,
        fresh_rate
        and not app_limited
        and bytes_acked > 0
        and delivery_rate_bytes_per_s > 0
        and springtide_is_window_full(delivery_rate_bytes_per_s, rtt_us, snd_cwnd, snd_mss) as is_full,
        springtide_mean_rate(bytes_acked, busy_us) as mean_rate,
        greatest(mean_rate, if(is_full, delivery_rate_bytes_per_s, 0)) as fastest,
        springtide_weighed(delivery_rate_bytes_per_s, sample_weight) as rate,
        springtide_weighed(fastest, sample_weight) as reached,
        springtide_weighed(min_rtt_us, sample_weight) as low_rtt,
        springtide_weighed(rtt_us, sample_weight) as rtt,
        springtide_weighed(snd_mss, sample_weight) as mss,
        springtide_weighed(snd_wnd, sample_weight) as receiver_window,
        bytes_acked > 0 as is_active,
        young,
        began,
        sample_weight * toUInt128(if(min_rtt_us > 0, min_rtt_us, rtt_us))
        * if(
            began and snd_mss > 0 and life_bytes_sent > 10 * toUInt64(snd_mss),
            toUInt64(least(floor(log2(intDiv(life_bytes_sent, greatest(10 * toUInt64(snd_mss), 1)))) + 1, 7)),
            0
        ) as gain
    from rollup_sockets
    where
        round = fromUnixTimestamp({round_s:UInt32})
        and generation = {generation:UInt64}
        and counted
        and if(
            dst_pop = '',
            (pop, client_prefix) in (
                select
                    chosen.pop,
                    chosen.client_prefix
                from chosen
            ),
            src_pop != '' and src_pop != dst_pop
        )
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64} as generation,
    at_pop as pop,
    dst_pop,
    ip_version,
    network as client_prefix,
    host,
    countIf(began) as connections,
    sumIf(toUInt64(sample_weight), began) as starts,
    toUInt64(least(sum(gain), 9223372036854775807)) as gain_us,
    [
        (1, arraySort(groupArrayIf(rate, is_full and has_met))),
        (2, arraySort(groupArrayIf(reached, fastest > 0))),
        (3, arraySort(groupArrayIf(low_rtt, is_active and low_rtt >= 65536))),
        (4, arraySort(groupArrayIf(rtt, is_active and rtt >= 65536))),
        (5, arraySort(groupArrayIf(mss, is_active and mss >= 65536))),
        (6, arraySort(groupArrayIf(receiver_window, young and receiver_window >= 65536)))
    ] as lists,
    [] as counts
from sockets
group by at_pop, dst_pop, ip_version, network, host
settings prefer_column_name_to_alias = 1

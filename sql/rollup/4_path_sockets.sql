-- What each host's connections show of each path, from its PoP to another or to a client prefix. Parameters:
-- generation, round_s. A value and its weight are one number, value * 65536 + weight, as in 3_pairs.sql; lists and
-- counts by the numbers of 5_paths.sql.
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
        toUInt64(least(fastest, 281474976710655)) as reached_rate,
        bitShiftLeft(least(delivery_rate_bytes_per_s, 281474976710655), 16) + sample_weight as rate,
        bitShiftLeft(reached_rate, 16) + sample_weight as reached,
        bitShiftLeft(toUInt64(min_rtt_us), 16) + sample_weight as low_rtt,
        bitShiftLeft(toUInt64(rtt_us), 16) + sample_weight as rtt,
        bitShiftLeft(toUInt64(snd_mss), 16) + sample_weight as mss,
        bitShiftLeft(toUInt64(snd_wnd), 16) + sample_weight as receiver_window,
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
        (2, arraySort(groupArrayIf(reached, reached_rate > 0))),
        (3, arraySort(groupArrayIf(low_rtt, is_active and low_rtt >= 65536))),
        (4, arraySort(groupArrayIf(rtt, is_active and rtt >= 65536))),
        (5, arraySort(groupArrayIf(mss, is_active and mss >= 65536))),
        (6, arraySort(groupArrayIf(receiver_window, young and receiver_window >= 65536)))
    ] as lists,
    [] as counts
from sockets
group by at_pop, dst_pop, ip_version, network, host
settings prefer_column_name_to_alias = 1

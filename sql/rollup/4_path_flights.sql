-- What each host's first flights show of each path, of the values that are in force. Parameters: generation, round_s.
-- As 4_path_sockets.sql.
insert into rollup_path_hosts
with chosen as (
    select
        pop,
        client_prefix
    from rollup_units
    where round = fromUnixTimestamp({round_s:UInt32}) and generation = {generation:UInt64}
),

flights as (
    select
        pop as at_pop,
        dst_pop,
        ip_version,
        client_prefix as network,
        host,
        in_force as is_judged,
        in_force and started_step = 0 and segments - least(segments, resent) > 10 as is_flight,
        started_arm = 1 as is_trial,
        started_step > 0 as is_braked,
        segments,
        first_flight_resent,
        bitShiftLeft(toUInt64(started_window), 16) + 1 as initial_window,
        bitShiftLeft(least(toUInt64(started_rate) * greatest(started_at_once, 1), 281474976710655), 16) + 1 as rate,
        bitShiftLeft(least(coalesce(acked_10k_us, 0), 281474976710655), 16) + 1 as time_10k,
        bitShiftLeft(least(coalesce(acked_50k_us, 0), 281474976710655), 16) + 1 as time_50k,
        bitShiftLeft(least(coalesce(acked_100k_us, 0), 281474976710655), 16) + 1 as time_100k,
        -- What a window covers is sent without a wait, from the first acknowledgement on to the last; of what was lost
        -- the time says nothing.
        multiIf(started_window >= 72, 100000, started_window >= 36, 50000, 0) as covered,
        coalesce(if(covered = 100000, acked_100k_us, acked_50k_us), 0) as covered_us,
        greatest(coalesce(first_acked_us, 0), min_rtt_us) as begun_us,
        if(
            covered > 0 and started_rate > 0 and first_flight_resent = 0 and covered_us > begun_us and min_rtt_us > 0,
            toUInt64(
                least(1000 * covered * 1000000. / (toFloat64(covered_us) - begun_us) / started_rate + 0.5, 4000.)
            ),
            0
        ) as carried_permille,
        bitShiftLeft(carried_permille, 16) + 1 as carried
    from rollup_flights
    where
        round = fromUnixTimestamp({round_s:UInt32})
        and generation = {generation:UInt64}
        and (
            dst_pop != ''
            or (pop, client_prefix) in (
                select
                    chosen.pop,
                    chosen.client_prefix
                from chosen
            )
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
    0 as connections,
    0 as starts,
    0 as gain_us,
    [
        (10, arraySort(groupArrayIf(initial_window, is_flight and not is_trial and initial_window >= 65536))),
        (11, arraySort(groupArrayIf(initial_window, is_flight and is_trial and initial_window >= 65536))),
        (12, arraySort(groupArrayIf(rate, is_flight and not is_trial and rate >= 65536))),
        (13, arraySort(groupArrayIf(rate, is_flight and is_trial and rate >= 65536))),
        (14, arraySort(groupArrayIf(time_10k, is_flight and not is_trial and time_10k >= 65536))),
        (15, arraySort(groupArrayIf(time_10k, is_flight and is_trial and time_10k >= 65536))),
        (16, arraySort(groupArrayIf(time_50k, is_flight and not is_trial and time_50k >= 65536))),
        (17, arraySort(groupArrayIf(time_50k, is_flight and is_trial and time_50k >= 65536))),
        (18, arraySort(groupArrayIf(time_100k, is_flight and not is_trial and time_100k >= 65536))),
        (19, arraySort(groupArrayIf(time_100k, is_flight and is_trial and time_100k >= 65536))),
        (20, arraySort(groupArrayIf(carried, is_flight and not is_trial and carried >= 65536))),
        (21, arraySort(groupArrayIf(carried, is_flight and is_trial and carried >= 65536)))
    ] as lists,
    [
        (
            31,
            [
                countIf(is_flight and not is_trial),
                countIf(is_flight and not is_trial and first_flight_resent > 0),
                sumIf(toUInt64(first_flight_resent), is_flight and not is_trial),
                sumIf(toUInt64(segments), is_flight and not is_trial)
            ]
        ),
        (
            32,
            [
                countIf(is_flight and is_trial),
                countIf(is_flight and is_trial and first_flight_resent > 0),
                sumIf(toUInt64(first_flight_resent), is_flight and is_trial),
                sumIf(toUInt64(segments), is_flight and is_trial)
            ]
        ),
        (33, [countIf(is_judged), countIf(is_judged and is_braked)])
    ] as counts
from flights
group by at_pop, dst_pop, ip_version, network, host
settings prefer_column_name_to_alias = 1

-- Evidence that each host's first flights give of each path, of the values that are in force. Parameters: generation,
-- round_s. As 4_path_sockets.sql.
insert into rollup_path_hosts
with chosen as (
    select
        pop,
        client_prefix
    from rollup_units
    where round = fromUnixTimestamp({round_s:UInt32}) and generation = {generation:UInt64}
),

recorded as (
    select
        pop as at_pop,
        dst_pop,
        ip_version,
        client_prefix as network,
        host,
        boot_id,
        netns,
        cookie,
        in_force as is_judged,
        -- A connection of ten segments or fewer shows nothing of larger windows.
        started_step = 0
        and first_flight_segments - least(first_flight_segments, first_flight_resent, resent) > 10 as is_long,
        in_force and is_long as is_flight,
        -- The edge's bundle does not name the path, though values are in use: the edge is held out, or has no part.
        -- A flight that began more than an hour ago shows the path of then.
        is_long
        and not in_force
        -- A flight with only a timeout of its handshake starts as the kernel's default. One whose handshake was sent
        -- again gets no start. Copies hide losses.
        and (started_prefix_length = 0 or (handshake_timeout_ms > 0 and handshake_resent = 0))
        and copied_bytes = 0
        and started_window = 0
        and started_rate = 0
        and started_arm = 0
        and began_us >= (toInt64({round_s:UInt32}) - 3600) * 1000000 as is_default,
        started_arm = 1 as is_trial,
        started_step > 0 as is_braked,
        first_flight_segments,
        first_flight_resent,
        started_window as opened,
        least(toUInt64(started_rate), 100000000000) as sent,
        least(greatest(toUInt64(started_at_once), 1), 1000000) as at_once,
        connection_rate,
        min_rtt_us,
        bytes_acked,
        springtide_weighed(train_bytes_per_s, 1) as train,
        least(coalesce(acked_10k_us, 0), 281474976710655) as at_10k,
        least(coalesce(acked_50k_us, 0), 281474976710655) as at_50k,
        least(coalesce(acked_100k_us, 0), 281474976710655) as at_100k,
        greatest(least(coalesce(first_acked_us, 0), 281474976710655), min_rtt_us) as begun_us,
        -- Edges look once a round trip, and divide the bytes acknowledged between two looks by the time. This is no
        -- rate of the path in three cases: the window was used up before, as neither a round trip at the rate nor the
        -- whole object fits it; the kernel paced less than the rate, which is at most two windows a round trip; or the
        -- object was over within the first round trip, as the second look is then some milliseconds late, at its close.
        1448 * opened >= least(toFloat64(sent) * min_rtt_us / 1000000, toFloat64(bytes_acked))
        and 2 * 1448 * opened >= 0.95 * sent * min_rtt_us / 1000000
        and (bytes_acked > toFloat64(sent) * min_rtt_us / 1000000 or 50 * bytes_acked >= sent) as is_steady,
        -- The largest of 10, 50 and 100 kB that was acknowledged, and its delivery rate after the first segment, which
        -- the first acknowledgement counts.
        multiIf(at_100k > begun_us, 100000, at_50k > begun_us, 50000, at_10k > begun_us, 10000, 0) as covered,
        multiIf(covered = 100000, at_100k, covered = 50000, at_50k, at_10k) as covered_us,
        if(
            covered > 0,
            least(intDiv((covered - 1448) * 1000000, greatest(covered_us, begun_us + 1) - begun_us), 100000000000),
            0
        ) as delivered,
        began_us + toInt64(begun_us) as from_us,
        began_us + toInt64(covered_us) as until_us
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
),

-- Bytes that the path delivered of all of a host's first flights up to each moment, and bytes that they were allowed:
-- the sum of rate x (moment - begin) of those that have begun, less that of those that have ended.
moments as (
    select
        at_pop,
        dst_pop,
        ip_version,
        network,
        host,
        boot_id,
        netns,
        cookie,
        tupleElement(change, 2) as sign,
        toInt128(tupleElement(change, 1)) as at_us,
        at_us * sum(toInt128(sign * toInt64(delivered))) over until_then
        - sum(sign * toInt128(delivered) * at_us) over until_then as all_delivered,
        at_us * sum(toInt128(sign * toInt64(if(sent > 0, sent, delivered)))) over until_then
        - sum(sign * toInt128(if(sent > 0, sent, delivered)) * at_us) over until_then as all_given
    from recorded
    array join [tuple(from_us, 1), tuple(until_us, -1)] as change
    where covered > 0
    window until_then as (
        partition by at_pop, dst_pop, ip_version, network, host
        order by tupleElement(change, 1) asc
        range between unbounded preceding and current row
    )
),

beside as (
    select
        at_pop,
        dst_pop,
        ip_version,
        network,
        host,
        boot_id,
        netns,
        cookie,
        toFloat64(sum(-sign * all_delivered)) / toFloat64(max(at_us) - min(at_us)) as together,
        toFloat64(sum(-sign * all_given)) / toFloat64(max(at_us) - min(at_us)) as given
    from moments
    group by at_pop, dst_pop, ip_version, network, host, boot_id, netns, cookie
),

known as (
    select
        recorded.*,
        beside.together as together,
        beside.given as given
    from recorded
    left join beside
        on
            recorded.at_pop = beside.at_pop
            and recorded.dst_pop = beside.dst_pop
            and recorded.ip_version = beside.ip_version
            and recorded.network = beside.network
            and recorded.host = beside.host
            and recorded.boot_id = beside.boot_id
            and recorded.netns = beside.netns
            and recorded.cookie = beside.cookie
),

-- Evidence of a flight without loss. A flight alone shows the share of a connection's rate that the path carried: it
-- was not slowed for others, and almost nothing was beside it. A flight beside others, while most of the host's part of
-- the path's rate was in use, shows the share of that part: bytes that come back as fast as they left were carried
-- whole. Where less was in use, as with some of the flights on trial, the flight counts only if its bytes come back
-- clearly slower, which is a limit of the path. For a trial the carried share and a tenth more counts too.
flights as (
    select
        *,
        is_flight and is_steady and covered >= 50000 and sent > 0 and first_flight_resent = 0 as shows,
        toFloat64(sent) * at_once as part,
        shows and (at_once = 1 or sent >= 0.95 * connection_rate) and given <= 1.2 * sent as is_alone,
        shows and not is_alone and at_once > 1 and given >= 0.7 * part as is_of_path,
        multiIf(
            is_alone, least(toFloat64(delivered) / sent, 1.),
            not is_of_path, 0.,
            given >= 0.95 * part or together < 0.85 * given, if(together >= given, 1., least(together / part, 1.)),
            is_trial, least(1.1 * least(together, given) / part, 1.),
            0.
        ) as carried_part,
        springtide_weighed(toUInt64(round(1000 * carried_part)), 1) as carried,
        springtide_weighed(opened, 1) as initial_window,
        springtide_weighed(sent * at_once, 1) as rate,
        springtide_weighed(at_10k, 1) as time_10k,
        springtide_weighed(at_50k, 1) as time_50k,
        springtide_weighed(at_100k, 1) as time_100k
    from known
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
        (9, arraySort(groupArrayIf(train, train >= 65536))),
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
        (20, arraySort(groupArrayIf(carried, not is_trial and not is_of_path and carried >= 65536))),
        (21, arraySort(groupArrayIf(carried, is_trial and not is_of_path and carried >= 65536))),
        (22, arraySort(groupArrayIf(carried, not is_trial and is_of_path and carried >= 65536))),
        (23, arraySort(groupArrayIf(carried, is_trial and is_of_path and carried >= 65536)))
    ] as lists,
    [
        (
            31,
            [
                countIf(is_flight and not is_trial),
                countIf(is_flight and not is_trial and first_flight_resent > 0),
                sumIf(toUInt64(first_flight_resent), is_flight and not is_trial),
                sumIf(toUInt64(first_flight_segments), is_flight and not is_trial)
            ]
        ),
        (
            32,
            [
                countIf(is_flight and is_trial),
                countIf(is_flight and is_trial and first_flight_resent > 0),
                sumIf(toUInt64(first_flight_resent), is_flight and is_trial),
                sumIf(toUInt64(first_flight_segments), is_flight and is_trial)
            ]
        ),
        (33, [countIf(is_judged), countIf(is_judged and is_braked)]),
        (30, [countIf(is_default), countIf(is_default and first_flight_resent > 0)])
    ] as counts
from flights
group by at_pop, dst_pop, ip_version, network, host
settings prefer_column_name_to_alias = 1

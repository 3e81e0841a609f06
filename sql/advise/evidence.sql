-- Evidence that samples alone give of each path, from a PoP to another or to a client prefix. The `max_units` paths on
-- which connections that began had most round trips to save have one row for each of at most 128 connections. Reads
-- tcp_samples of hosts that are edges in fleet.yaml, each in fleet.yaml's PoP, and which windows edges were given.
-- Connections of hosts to themselves are a unit without a name: only its `hosts` and `fresh` mean something.
-- Parameters: since_us, until_us (microseconds since the epoch, the first is not included); min_met: from how many
-- connections that met the path on only those are picked, and as many trains; max_units.
--
-- Copies of a record change nothing, nor does the order of records: counters only grow, and of connections those with
-- the smallest hashes are picked.
with namespaces as (
    select
        cityHash64(host, boot_id, netns) as space,
        argMin(poll_sequence, time_unix_us) as first_poll
    from tcp_samples
    where
        time_unix_us > {since_us:Int64}
        and time_unix_us <= {until_us:Int64}
        and kind = 'POLL'
        and host global in (select fleet_edges.edge from fleet_edges)
    group by space
),

-- The addresses of each of the hosts' network namespaces.
own as (
    select distinct
        cityHash64(host, boot_id, netns) as own_space,
        src_ip
    from tcp_samples
    where
        time_unix_us > {since_us:Int64}
        and time_unix_us <= {until_us:Int64}
        and host global in (select fleet_edges.edge from fleet_edges)
),

records as (
    select
        *,
        socket,
        time_unix_us * 2 + (kind = 'CLOSE') as moment,
        -- The kernel keeps a rate until the next valid one: this one was measured within the time that is looked at.
        time_unix_us - 1000 * toInt64(coalesce(last_data_sent, 0)) > {since_us:Int64} as is_recent,
        -- Limits as in sql/rollup/2_sockets.sql: what is beyond shows nothing.
        if(delivery_rate <= 100000000000, assumeNotNull(delivery_rate), 0) as rate,
        is_recent
        and rate > 0
        and snd_cwnd > 0
        and not coalesce(delivery_rate_app_limited, false)
        and springtide_is_window_full(rate, coalesce(rtt, 0), snd_cwnd, snd_mss) as is_full,
        -- The path, and nobody else, limits it: it has met it, the application gave enough, and the window was in
        -- flight. Neither the receiver's window nor the send buffer held it back, now or for most of its time.
        is_full
        and springtide_has_met(coalesce(snd_ssthresh, 0), coalesce(bytes_retrans, 0), coalesce(bytes_acked, 0))
        -- With less than that it may be a start that was ended early (HyStart).
        and bytes_acked >= 100000
        and (snd_wnd is null or snd_wnd > toUInt64(snd_cwnd) * snd_mss)
        and 2 * (coalesce(rwnd_limited, 0) + coalesce(sndbuf_limited, 0)) <= coalesce(busy_time, 0) as is_met
    from tcp_samples
    where
        time_unix_us > {since_us:Int64}
        and time_unix_us <= {until_us:Int64}
        and host global in (select fleet_edges.edge from fleet_edges)
        and (
            kind in ('POLL', 'CLOSE') and springtide_has_values(state, bytes_sent)
            or kind = 'FIRST_FLIGHT' and train_bytes > 0
        )
),

sockets as (
    select
        socket,
        -- Numbers in place of names: what is kept of each connection is what takes memory.
        any(cityHash64(host)) as at_host,
        any(cityHash64(host, boot_id, netns)) as at_space,
        argMinIf(poll_sequence, moment, kind != 'FIRST_FLIGHT') as known_poll,
        max(if(src_pop = '', 0, cityHash64(src_pop))) as from_pop,
        max(dst_pop) as to_pop,
        max(dst_ip) as peer,
        least(greatest(max(coalesce(sample_weight, 1)), 1), 65535) as weight,
        max(kind = 'CLOSE') as closed,
        max(coalesce(bytes_sent, 0)) as sent,
        max(coalesce(bytes_retrans, 0)) as retransmitted,
        max(springtide_spurious(dsack_dups, copied_segments)) as twice,
        argMaxIf(coalesce(snd_mss, 0), moment, kind != 'FIRST_FLIGHT') as mss,
        argMaxIf(coalesce(snd_wnd, 0), moment, kind != 'FIRST_FLIGHT') as receiver_window,
        argMaxIf(coalesce(rtt, 0), moment, kind != 'FIRST_FLIGHT') as last_rtt,
        -- The kernel's value for "not measured" is the greatest number.
        minIf(coalesce(min_rtt, 0), min_rtt between 1 and 600000000) as low_rtt,
        argMaxIf(rate, moment, coalesce(is_met, false)) as met_rate,
        -- As in sql/rollup/2_flights.sql.
        max(
            if(
                train_time > 0,
                least(intDiv(toUInt64(train_bytes) * 1000000, greatest(train_time, 500)), 100000000000),
                0
            )
        ) as train_rate,
        maxIf(coalesce(bytes_acked, 0), is_recent) as acked,
        -- As the laws have it: the mean over the time in which it had data in flight (sql/rollup/4_path_sockets.sql),
        -- or a higher rate that counts. Rates of full windows count, and of more in a round trip than the default
        -- window (sql/rollup/2_sockets.sql). Other rates may be of one segment.
        greatest(
            toUInt64(least(springtide_mean_rate(acked, maxIf(coalesce(busy_time, 0), is_recent)), 100000000000)),
            maxIf(
                rate,
                is_recent
                and (
                    coalesce(is_full, false)
                    or toUInt128(rate) * coalesce(min_rtt, 0) > toUInt128(10000000) * coalesce(snd_mss, 0)
                )
            )
        ) as reached_rate,
        -- One request came: its answer is all that was sent.
        maxIf(coalesce(data_segs_in, 2), kind != 'FIRST_FLIGHT') = 1 as is_single,
        -- The values of a poll that found all of it acknowledged, before a FIN.
        maxIf(
            coalesce(bytes_sent, 0), kind = 'POLL' and unacked = 0 and state in ('ESTABLISHED', 'CLOSE_WAIT')
        ) as settled_sent,
        maxIf(
            coalesce(busy_time, 0), kind = 'POLL' and unacked = 0 and state in ('ESTABLISHED', 'CLOSE_WAIT')
        ) as settled_us,
        maxIf(coalesce(busy_time, 0), kind = 'CLOSE') as busy_us,
        maxIf(coalesce(bytes_acked, 0), kind = 'CLOSE') as closed_acked,
        1000 * toInt64(maxIf(coalesce(last_data_sent, 0), kind = 'CLOSE')) as since_data_us,
        toInt64(maxIf(coalesce(rtt, 0), kind = 'CLOSE')) as close_rtt,
        -- A FIN is acknowledged as one byte more. One that follows its data is a round trip more, and as long as the
        -- peer delays its acknowledgement (40 ms on Linux): no longer than the smoothed round trip shows, of which it
        -- is an eighth, nor than from the data on.
        closed_acked > sent - least(sent, retransmitted) and 2 * since_data_us >= 3 * close_rtt as has_fin,
        least(8 * greatest(close_rtt - low_rtt, 0), greatest(since_data_us - 2 * low_rtt, 0)) as delayed_us,
        -- -1 where that may be more than an eighth, and where data was never acknowledged.
        multiIf(
            settled_sent = sent, toInt64(settled_us),
            closed_acked < sent - least(sent, retransmitted), -1,
            not has_fin, toInt64(busy_us),
            8 * delayed_us <= toInt64(busy_us) - low_rtt, toInt64(busy_us) - low_rtt,
            -1
        ) as took_us,
        -- Its edge's program gave it a start.
        max(coalesce(started_window, 0) > 0 or coalesce(started_rate, 0) > 0) as is_given,
        -- It shows a larger first window, as only connections without loss can: as in sql/rollup/2_sockets.sql.
        max(
            coalesce(
                snd_ssthresh = 2147483647 and total_retrans = 0 and snd_cwnd > toUInt64(data_segs_out) + 11, false
            )
        ) as is_raised,
        max(time_unix_us) as seen_us
    from records
    group by socket
    having mss between 1 and 65535 and sent <= 9007199254740992
),

-- Windows that edges' routes gave in each round.
treatments as (
    select
        cityHash64(host) as given_host,
        dst_pop as given_pop,
        ip_version as given_version,
        toInt64(toUnixTimestamp(round)) * 1000000 as given_us,
        max(decided_cwnd) as given_cwnd
    from round_treatments
    where round >= fromUnixTimestamp64Micro({since_us:Int64}, 'UTC') - interval 1 day
    group by given_host, given_pop, given_version, given_us
),

placed as (
    select
        springtide_is_local(
            sockets.peer,
            (sockets.at_space, sockets.peer) global in (
                select
                    own.own_space,
                    own.src_ip
                from own
            )
        ) as is_local,
        if(is_local, '', fleet_edges.pop) as src_pop,
        if(is_local, '', sockets.to_pop) as dst_pop,
        if(sockets.peer between toIPv6('::ffff:0.0.0.0') and toIPv6('::ffff:255.255.255.255'), 4, 6) as ip_version,
        multiIf(
            is_local, '',
            dst_pop = '',
            springtide_prefix_text(
                ip_version, tupleElement(IPv6CIDRToRange(sockets.peer, if(ip_version = 4, 120, 56)), 1)
            ),
            dst_pop
        ) as destination,
        sockets.at_host as host,
        sockets.weight as weight,
        sockets.mss as mss,
        sockets.low_rtt as low_rtt,
        sockets.sent - least(sockets.sent, sockets.retransmitted) as size,
        sockets.sent as sent,
        sockets.retransmitted - least(sockets.retransmitted, sockets.twice * toUInt64(sockets.mss)) as lost,
        -- Not in the first poll of its namespace, which shows connections of any age.
        namespaces.space != 0 and sockets.known_poll != namespaces.first_poll as is_fresh,
        -- It shows what the kernel's default start meets, and nothing of what comes after.
        is_fresh and sockets.closed and size > 10 * toUInt64(mss) and size <= 20 * toUInt64(mss) as is_young,
        is_fresh and sockets.closed and sockets.receiver_window > 0 as has_receiver,
        sockets.receiver_window as receiver_window,
        if(low_rtt > 0, sockets.last_rtt / low_rtt, 0) as stretch,
        sockets.met_rate as met_rate,
        sockets.reached_rate as reached_rate,
        coalesce(sockets.train_rate, 0) as train_rate,
        sockets.acked as acked,
        sockets.seen_us as seen_us,
        cityHash64(sockets.socket) as place,
        is_fresh
        and sockets.closed
        and sockets.is_single
        and not sockets.is_given
        and low_rtt > 0
        and sockets.took_us >= 0 as is_timed,
        sockets.is_raised as is_raised,
        sockets.took_us as took_us
    from sockets
    inner join fleet_edges on sockets.at_host = cityHash64(fleet_edges.edge)
    left join namespaces on sockets.at_space = namespaces.space
    where
        is_local
        or sockets.to_pop = ''
        or (sockets.from_pop = cityHash64(fleet_edges.pop) and sockets.to_pop != fleet_edges.pop)
),

given as (
    select
        placed.*,
        coalesce(treatments.given_cwnd, 0) as given_cwnd
    from placed
    asof left join treatments
        on
            placed.host = treatments.given_host
            and placed.dst_pop = treatments.given_pop
            and placed.ip_version = treatments.given_version
            and placed.seen_us >= treatments.given_us
),

connections as (
    select
        *,
        -- What slow start takes at its best, without a limit of rate. busy_time is in jiffies, of 4 ms at most: a time
        -- of fewer than three shows how it was rounded.
        low_rtt * greatest(ceil(log2(size / (10 * mss) + 1)), 1) as best,
        if(
            is_timed and given_cwnd <= 10 and mss > 0 and best >= 12000,
            arrayFirstIndex(
                answered -> size between 0.8 * answered and 1.25 * answered, [10000, 50000, 100000, 1000000]
            ),
            0
        ) as answer,
        if(answer > 0, took_us / best, 0) as slowness,
        -- It can have begun with the default.
        not is_raised and took_us + 4000 >= best as is_default
    from given
),

units as (
    select
        src_pop,
        destination,
        ip_version,
        dst_pop != '' as is_pair,
        uniqExact(host) as hosts,
        sumIf(toUInt64(weight), is_fresh) as fresh,
        sumIf(toUInt64(weight), is_fresh and size >= 10000) as fresh_10k,
        sumIf(toUInt64(weight), is_fresh and size >= 50000) as fresh_50k,
        sumIf(toUInt64(weight), is_fresh and size >= 100000) as fresh_100k,
        sumIf(toUInt64(weight), is_fresh and size >= 1000000) as fresh_1m,
        toFloat64(sumIf(sent, is_fresh)) as sent_bytes,
        toFloat64(sumIf(lost, is_fresh)) as lost_bytes,
        countIf(is_young) as young,
        countIf(is_young and lost > 0) as young_lossy,
        countIf(is_fresh and lost > 0 and stretch > 0) as lossy,
        medianTDigestIf(stretch, is_fresh and lost > 0 and stretch > 0) as lossy_stretch,
        medianTDigestIf(receiver_window, has_receiver) as window_bytes,
        countIf(has_receiver) as receivers,
        medianTDigest(mss) as segment,
        countIf(met_rate > 0 and low_rtt > 0) as met,
        countIf(reached_rate > 0 and low_rtt > 0) as reached,
        countIf(train_rate > 0 and low_rtt > 0) as trains,
        groupArraySortedIf(128)( -- noqa: LT01
            (place, seen_us, met_rate, low_rtt, weight), met_rate > 0 and low_rtt > 0
        ) as met_picks,
        groupArraySortedIf(128)( -- noqa: LT01
            (place, seen_us, toUInt64(train_rate), low_rtt, weight), train_rate > 0 and low_rtt > 0
        ) as train_picks,
        groupArraySortedIf(128)( -- noqa: LT01
            -- By the bytes that it is of: many short connections, which cannot show more, hide no long one.
            (
                place,
                seen_us,
                reached_rate,
                low_rtt,
                toUInt32(least(greatest(intDiv(acked * weight, 1000), 1), 4294967295))
            ),
            reached_rate > 0 and low_rtt > 0
        ) as reached_picks,
        -- Unrecorded answers that began otherwise may look like the default's only if they lost something: where more
        -- began otherwise than not, nothing is known of it.
        if(
            countIf(answer = 1 and is_default)
            >= greatest({min_met:UInt32}, countIf(answer = 1 and not is_default)),
            toFloat64(medianTDigestIf(slowness, answer = 1 and is_default)),
            nan
        ) as slow_10k,
        if(
            countIf(answer = 2 and is_default)
            >= greatest({min_met:UInt32}, countIf(answer = 2 and not is_default)),
            toFloat64(medianTDigestIf(slowness, answer = 2 and is_default)),
            nan
        ) as slow_50k,
        if(
            countIf(answer = 3 and is_default)
            >= greatest({min_met:UInt32}, countIf(answer = 3 and not is_default)),
            toFloat64(medianTDigestIf(slowness, answer = 3 and is_default)),
            nan
        ) as slow_100k,
        if(
            countIf(answer = 4 and is_default)
            >= greatest({min_met:UInt32}, countIf(answer = 4 and not is_default)),
            toFloat64(medianTDigestIf(slowness, answer = 4 and is_default)),
            nan
        ) as slow_1m,
        -- Round trips in which a window was doubled, at most seven, as in sql/rollup/3_units.sql: only for the choice.
        sumIf(
            toFloat64(weight) * low_rtt * least(floor(log2(size / (10 * mss))) + 1, 7), is_fresh and size > 10 * mss
        ) as to_save
    from connections
    where length(src_pop) <= 63 and length(destination) <= 63
    group by src_pop, destination, ip_version, is_pair
    order by src_pop = '' desc, to_save desc, fresh desc, src_pop asc, destination asc, ip_version asc
    limit {max_units:UInt32}
)

select
    toFixedString(src_pop, 64) as src_pop,
    toFixedString(destination, 64) as destination,
    ip_version,
    toUInt8(is_pair) as is_pair,
    toUInt32(hosts) as hosts,
    fresh,
    fresh_10k,
    fresh_50k,
    fresh_100k,
    fresh_1m,
    sent_bytes,
    lost_bytes,
    young,
    young_lossy,
    lossy,
    if(lossy > 0, toFloat64(lossy_stretch), nan) as lossy_stretch,
    if(receivers > 0, toFloat64(window_bytes), nan) as receiver_window,
    toFloat64(segment) as mss,
    slow_10k,
    slow_50k,
    slow_100k,
    slow_1m,
    met,
    reached,
    trains,
    toUInt32(intDiv(tupleElement(pick, 2), 1000000)) as seen_s,
    toFloat64(tupleElement(pick, 3)) as rate,
    toFloat64(tupleElement(pick, 4)) as rtt_us,
    toUInt32(tupleElement(pick, 5)) as weight
from units
left array join
    multiIf(
        trains >= {min_met:UInt32}, train_picks,
        met >= {min_met:UInt32}, met_picks,
        reached_picks
    ) as pick
order by src_pop, destination, ip_version, seen_s, rate, rtt_us, weight
-- Where connections or paths do not fit into memory, groups are on disk.
settings prefer_column_name_to_alias = 1, max_bytes_before_external_group_by = 2000000000,
max_bytes_before_external_sort = 2000000000

-- Each socket with a record in the round, and its changes within the round: the source of every round table.
-- Parameters: generation, round_s, interval_s, lookback_us <= round_start_us < round_us (microseconds since the epoch).
-- Nothing from round_us on is read.
--
-- A host counts as the edge of its name in fleet.yaml, in the PoP that fleet.yaml gives it: the PoP in its samples is
-- ignored, and a socket with an address of another PoP is in no pair. A socket of a host to itself has no prefix, and
-- does not count.
--
-- Two or three of a socket's records suffice for all but their number: the last one before the round (if there is
-- none, its first), the last poll's (if no poll shows it, its first) and the close's. Counters only grow: the minimum
-- is the baseline, the maximum the last value; a socket with one that decreased is not counted. Nothing depends on the
-- order, the splitting or the copies of what arrived: other values are the latest record's (within a microsecond, the
-- close's). A value that is constant in a socket's life, and changes only with fleet.yaml or a collector's
-- configuration, is the maximum of the round's.
insert into rollup_sockets
with records as (
    select
        socket,
        before_us,
        first_us,
        last_poll_us,
        close_us,
        samples
    from rollup_records
    where round = fromUnixTimestamp({round_s:UInt32}) and generation = {generation:UInt64}
),

deciding as (
    select
        socket,
        arrayJoin(
            [if(before_us > 0, before_us, first_us), if(last_poll_us > 0, last_poll_us, first_us), close_us]
        ) as moment_us
    from records
),

within as (
    select
        socket,
        any(host) as host,
        any(boot_id) as boot_id,
        any(netns) as netns,
        any(cookie) as cookie,
        argMinIf(poll_sequence, time_unix_us, kind = 'POLL') as first_poll,
        argMaxIf(state, time_unix_us, kind = 'POLL') as last_state,
        argMaxIf(coalesce(congestion_algorithm, ''), time_unix_us, congestion_algorithm is not null) as algorithm,
        maxIf(src_pop, time_unix_us >= {round_start_us:Int64}) as src_pop,
        maxIf(dst_pop, time_unix_us >= {round_start_us:Int64}) as dst_pop,
        max(dst_ip) as dst_ip,
        -- Packed, as below: the place of its tenant's rule (0 none), whether the edge's program gave it values, whether
        -- it wrote down its start at all, and how many it stands for.
        maxIf(
            bitShiftLeft(
                transform(
                    src_port,
                    (select fleet_tenancy.ports from fleet_tenancy),
                    (select fleet_tenancy.port_places from fleet_tenancy),
                    (select fleet_tenancy.rule_places from fleet_tenancy)[
                        arrayFirstIndex(
                            rule -> (rule.1 = 0 or rule.1 = src_port) and src_ip between rule.2 and rule.3,
                            (select fleet_tenancy.rules from fleet_tenancy)
                        ) + 1
                    ]
                ),
                34
            )
            + bitShiftLeft(toUInt64(coalesce(started_window, 0) > 0 or coalesce(started_rate, 0) > 0), 33)
            + bitShiftLeft(toUInt64(started_round is not null), 32)
            + coalesce(sample_weight, 1),
            time_unix_us >= {round_start_us:Int64}
        ) as recorded_weight,
        -- Last values. Two of 32 bits are packed into one of 64: each separate aggregate costs a tenth more.
        argMax(
            bitShiftLeft(toUInt64(coalesce(snd_cwnd, 0)), 32) + coalesce(snd_ssthresh, 0),
            time_unix_us * 2 + (kind = 'CLOSE')
        ) as cwnd_ssthresh,
        argMax(
            bitShiftLeft(toUInt64(coalesce(snd_mss, 0)), 32) + coalesce(snd_wnd, 0),
            time_unix_us * 2 + (kind = 'CLOSE')
        ) as mss_wnd,
        argMax(
            bitShiftLeft(toUInt64(coalesce(rtt, 0)), 32) + coalesce(min_rtt, 0),
            time_unix_us * 2 + (kind = 'CLOSE')
        ) as rtt_min_rtt,
        argMax(
            least(coalesce(delivery_rate, 0), 9223372036854775807) * 2 + coalesce(delivery_rate_app_limited, false),
            time_unix_us * 2 + (kind = 'CLOSE')
        ) as rate_app_limited,
        -- Whether the rate is of this round: the kernel keeps one until it has measured the next valid one.
        uniqUpTo(1)(coalesce(delivery_rate, 0)) as rates, -- noqa: LT01
        -- More counters, packed: segments that arrived twice, timeouts, and whether anything, the handshake included,
        -- was retransmitted.
        max(
            bitShiftLeft(toUInt64(springtide_spurious(dsack_dups, copied_segments)), 32)
            + least(coalesce(total_rto, 0), 2147483647) * 2
            + (coalesce(total_retrans, 0) > 0)
        ) as twice_timeouts_again,
        max(coalesce(bytes_acked, 0)) as acked,
        max(coalesce(bytes_sent, 0)) as sent,
        max(coalesce(bytes_retrans, 0)) as retransmitted,
        max(coalesce(bytes_received, 0)) as received,
        max(coalesce(busy_time, 0)) as busy,
        max(coalesce(rwnd_limited, 0)) as rwnd_limited,
        max(coalesce(sndbuf_limited, 0)) as sndbuf_limited,
        -- Bounds of its initial window: while nothing was lost, slow start has raised the window by no more segments
        -- than were sent, and the FIN; and not at all if it is three times those. It is raised while it is below twice
        -- the segments in flight, and one acknowledgement may be for all of them (the kernel's tcp_is_cwnd_limited).
        -- 0 and 4294967295 where a record shows nothing.
        max(
            if(
                snd_ssthresh = 2147483647 and total_retrans = 0 and snd_cwnd > 0 and data_segs_out is not null,
                if(
                    snd_cwnd >= 3 * (toUInt64(assumeNotNull(data_segs_out)) + 1),
                    toInt64(assumeNotNull(snd_cwnd)),
                    greatest(toInt64(assumeNotNull(snd_cwnd)) - assumeNotNull(data_segs_out) - 1, 1)
                ),
                0
            )
        ) as first_low,
        min(
            if(snd_ssthresh = 2147483647 and total_retrans = 0 and snd_cwnd > 0, assumeNotNull(snd_cwnd), 4294967295)
        ) as first_high,
        -- A record without the counter is not a baseline.
        min(coalesce(bytes_acked, 18446744073709551615)) as first_acked,
        min(coalesce(bytes_sent, 18446744073709551615)) as first_sent,
        min(coalesce(bytes_retrans, 18446744073709551615)) as first_retransmitted,
        min(coalesce(bytes_received, 18446744073709551615)) as first_received,
        min(coalesce(busy_time, 18446744073709551615)) as first_busy,
        min(coalesce(rwnd_limited, 18446744073709551615)) as first_rwnd_limited,
        min(coalesce(sndbuf_limited, 18446744073709551615)) as first_sndbuf_limited,
        -- The counters as the first and the last record have them.
        argMin(
            [
                coalesce(bytes_acked, 18446744073709551615),
                coalesce(bytes_sent, 18446744073709551615),
                coalesce(bytes_retrans, 18446744073709551615),
                coalesce(bytes_received, 18446744073709551615),
                coalesce(busy_time, 18446744073709551615),
                coalesce(rwnd_limited, 18446744073709551615),
                coalesce(sndbuf_limited, 18446744073709551615)
            ],
            time_unix_us * 2 + (kind = 'CLOSE')
        ) as begun_counters,
        argMax(
            [
                coalesce(bytes_acked, 18446744073709551615),
                coalesce(bytes_sent, 18446744073709551615),
                coalesce(bytes_retrans, 18446744073709551615),
                coalesce(bytes_received, 18446744073709551615),
                coalesce(busy_time, 18446744073709551615),
                coalesce(rwnd_limited, 18446744073709551615),
                coalesce(sndbuf_limited, 18446744073709551615)
            ],
            time_unix_us * 2 + (kind = 'CLOSE')
        ) as ended_counters
    from tcp_samples
    prewhere
        -- Each such record is identified by a hash of 64 bits: another with the same hash is read too and changes
        -- nothing. On a cluster the node with the records sends the hashes to the others (global).
        bitXor(socket, intHash64(time_unix_us)) global in (
            select bitXor(deciding.socket, intHash64(deciding.moment_us))
            from deciding
            where deciding.moment_us > 0
        )
    where
        time_unix_us >= {lookback_us:Int64}
        and time_unix_us < {round_us:Int64}
        and host global in (select fleet_edges.edge from fleet_edges)
        and springtide_has_values(state, bytes_sent)
    group by socket
),

-- The addresses of each of the hosts' network namespaces.
own as (
    select distinct
        host,
        netns,
        src_ip
    from tcp_samples
    where
        time_unix_us >= {round_start_us:Int64}
        and time_unix_us < {round_us:Int64}
        and host global in (select fleet_edges.edge from fleet_edges)
),

-- The polls of each namespace in the two rounds.
namespaces as (
    select
        host,
        boot_id,
        netns,
        argMin(poll_sequence, began_us) as poll,
        min(began_us) as first_us,
        countIf(began_us >= {round_start_us:Int64}) as polls,
        -- The last but one: the last may cross the round's end. 0 if there are not two.
        arraySort(groupArray(began_us))[-2] as late_us
    from rollup_polls
    where round = fromUnixTimestamp({round_s:UInt32}) and generation = {generation:UInt64}
    group by host, boot_id, netns
),

-- The publications that were lately in force on edges.
starts as (
    select
        edge as start_edge,
        since_us,
        decided,
        expires,
        held_out
    from rollup_starts
    where round = fromUnixTimestamp({round_s:UInt32}) and generation = {generation:UInt64}
),

bundles as (
    select distinct
        decided,
        expires
    from starts
),

-- A decision whose evidence would have expired before its bundle was not in the bundle.
decisions as (
    select
        windows.round as decided_round,
        bundles.expires as bundle_expires,
        windows.src_pop as decided_src,
        windows.destination as decided_dst,
        windows.ip_version as decided_version,
        windows.initcwnd as decided_cwnd
    from path_decisions as windows final
    inner join bundles on windows.round = bundles.decided
    where
        windows.part = 'initcwnd'
        and windows.round in (select starts.decided from starts)
        and windows.action = 'set'
        and (windows.reason = 'override' or windows.expires_at >= bundles.expires)
),

-- Operators' overrides for single edges: null is the kernel's default.
words as (
    select
        said.round as word_round,
        said.edge as word_edge,
        said.dst_pop as word_dst,
        said.ip_version as word_version,
        said.initcwnd as word_cwnd
    from initcwnd_edge_decisions as said final
    where said.round in (select bundles.decided from bundles)
),

-- A socket's changes within the round: its counters less their last value before it. A socket that an earlier poll of
-- its namespace did not show is new and began at zero; one that is in the first known poll counts from that poll.
changes as (
    select
        within.host as host,
        within.boot_id as boot_id,
        within.netns as netns,
        within.cookie as cookie,
        records.samples as samples,
        records.close_us > 0 as closed,
        records.last_poll_us > 0 and within.last_state = 'ESTABLISHED' as live,
        fleet_edges.pop as pop,
        if(within.src_pop = fleet_edges.pop, within.src_pop, '') as src_pop,
        within.dst_pop as dst_pop,
        within.dst_ip as dst_ip,
        springtide_is_local(
            within.dst_ip,
            (within.host, within.netns, within.dst_ip) global in (
                select
                    own.host,
                    own.netns,
                    own.src_ip
                from own
            )
        ) as is_local,
        bitAnd(within.recorded_weight, 4294967295) as sample_weight,
        bitTest(within.recorded_weight, 32) as recorded,
        bitTest(within.recorded_weight, 33) as given_values,
        (select fleet_tenancy.names from fleet_tenancy)[bitShiftRight(within.recorded_weight, 34) + 1] as tenant,
        (select fleet_tenancy.opted from fleet_tenancy)[bitShiftRight(within.recorded_weight, 34) + 1] as opted_out,
        bitAnd(within.rate_app_limited, 1) = 1 as app_limited,
        bitShiftRight(within.cwnd_ssthresh, 32) as snd_cwnd,
        bitShiftRight(within.mss_wnd, 32) as snd_mss,
        bitAnd(within.cwnd_ssthresh, 4294967295) as snd_ssthresh,
        bitAnd(within.mss_wnd, 4294967295) as snd_wnd,
        bitShiftRight(within.rtt_min_rtt, 32) as rtt,
        -- The kernel's value for "not measured" is the greatest number.
        bitAnd(within.rtt_min_rtt, 4294967295) % 4294967295 as min_rtt,
        bitShiftRight(within.rate_app_limited, 1) as delivery_rate,
        bitShiftRight(within.twice_timeouts_again, 32) as dsack_dups,
        bitShiftRight(bitAnd(within.twice_timeouts_again, 4294967295), 1) as timeouts,
        bitAnd(within.twice_timeouts_again, 1) = 1 as sent_again,
        if(records.before_us > 0, records.before_us, records.first_us) as known_us,
        within.acked as acked,
        within.sent as sent,
        within.retransmitted as retransmitted,
        within.busy as busy,
        -- The kernel's names are shorter than 16 characters.
        if(length(within.algorithm) < 16, within.algorithm, '') as known_algorithm,
        within.received as received,
        within.rwnd_limited as rwnd_limited,
        within.sndbuf_limited as sndbuf_limited,
        within.first_low as first_low,
        within.first_high as first_high,
        records.before_us > 0 and namespaces.late_us > 0 and records.last_poll_us >= namespaces.late_us as is_steady,
        multiIf(
            -- A poll across the round's beginning may show it before that.
            is_steady and records.samples - (records.close_us > 0) + 1 < namespaces.polls, 'skipped',
            is_steady, 'steady',
            records.last_poll_us > 0 and records.close_us = 0 and records.last_poll_us < namespaces.late_us, 'vanished',
            'brief'
        ) as presence,
        records.before_us = 0
        and namespaces.first_us > 0
        and namespaces.first_us < records.first_us
        and not (records.last_poll_us > 0 and within.first_poll = namespaces.poll) as is_new,
        delivery_rate > 0 and (is_new or within.rates > 1) as is_fresh,
        within.acked - if(is_new, 0, least(within.acked, within.first_acked)) as gained_acked,
        within.sent - if(is_new, 0, least(within.sent, within.first_sent)) as gained_sent,
        within.retransmitted
        - if(is_new, 0, least(within.retransmitted, within.first_retransmitted)) as gained_retransmitted,
        within.received - if(is_new, 0, least(within.received, within.first_received)) as gained_received,
        within.busy - if(is_new, 0, least(within.busy, within.first_busy)) as gained_busy,
        within.rwnd_limited
        - if(is_new, 0, least(within.rwnd_limited, within.first_rwnd_limited)) as gained_rwnd_limited,
        within.sndbuf_limited
        - if(is_new, 0, least(within.sndbuf_limited, within.first_sndbuf_limited)) as gained_sndbuf_limited,
        -- Counters of a connection only grow: what is less later is another's, or broken.
        arrayExists(
            (first, least, most, last) -> (first > least and first < 18446744073709551615) or last < most, -- noqa: RF02
            within.begun_counters,
            [
                within.first_acked,
                within.first_sent,
                within.first_retransmitted,
                within.first_received,
                within.first_busy,
                within.first_rwnd_limited,
                within.first_sndbuf_limited
            ],
            [
                within.acked,
                within.sent,
                within.retransmitted,
                within.received,
                within.busy,
                within.rwnd_limited,
                within.sndbuf_limited
            ],
            within.ended_counters
        ) as is_decreased
    from within
    inner join records on within.socket = records.socket
    inner join fleet_edges on within.host = fleet_edges.edge
    left join namespaces
        on
            within.host = namespaces.host
            and within.boot_id = namespaces.boot_id
            and within.netns = namespaces.netns
),

placed as (
    select
        changes.*,
        starts.decided as decided,
        starts.expires as expires,
        starts.held_out as held_out
    from changes
    asof left join starts on changes.host = starts.start_edge and changes.known_us >= starts.since_us
),

-- The window that a round trip has proved.
judged as (
    select
        *,
        if(dst_ip between toIPv6('::ffff:0.0.0.0') and toIPv6('::ffff:255.255.255.255'), 4, 6) as version,
        -- A rate is multiplied by the minimum round-trip time. An answer that is shorter than the window is a burst,
        -- whose acknowledgements the bottleneck spreads over the time that the smoothed one includes: at most as much
        -- again. The path is the limit only if the window is in flight.
        is_fresh
        and not app_limited
        and springtide_is_window_full(delivery_rate, rtt, snd_cwnd, snd_mss) as is_full,
        if(is_full, min_rtt, least(greatest(rtt, min_rtt), 2 * min_rtt)) as round_trip,
        -- Bytes: what the last rate carries in a round trip. An old rate proves nothing in this round; then the mean
        -- over the time in which data was outstanding is used. If that is far below the old rate it is a mixture with
        -- small answers. That proves nothing either, unless the path was so full that the round trips have doubled.
        multiIf(
            is_fresh, intDiv(toUInt128(delivery_rate) * round_trip, 1000000),
            gained_busy > 0
            and (rtt > 2 * min_rtt or toUInt128(gained_acked) * 2000000 >= toUInt128(delivery_rate) * gained_busy),
            intDiv(toUInt128(gained_acked) * round_trip, greatest(gained_busy, 1)),
            toUInt128(0)
        ) as proved_bytes,
        -- An idle time resets the window to that of the route, but not ssthresh, which without losses is greater than
        -- any window.
        if(
            live and snd_mss > 0,
            toUInt64(
                least(
                    greatest(snd_cwnd, snd_ssthresh),
                    intDiv(proved_bytes + snd_mss - 1, greatest(snd_mss, 1)),
                    intDiv(1073741824, greatest(snd_mss, 1))
                )
            ),
            0
        ) as proved_cwnd
    from placed
),

given as (
    select
        judged.*,
        decisions.decided_src as decided_src,
        decisions.decided_cwnd as decided_cwnd,
        words.word_edge as word_edge,
        words.word_cwnd as word_cwnd
    from judged
    left join decisions
        on
            judged.decided = decisions.decided_round
            and judged.expires = decisions.bundle_expires
            and judged.src_pop = decisions.decided_src
            and judged.dst_pop = decisions.decided_dst
            and judged.version = decisions.decided_version
    left join words
        on
            judged.decided = words.word_round
            and judged.host = words.word_edge
            and judged.dst_pop = words.word_dst
            and judged.version = words.word_version
),

begun as (
    select
        *,
        -- The kernel's default of 10 (RFC 6928) if nothing else was set.
        multiIf(
            opted_out, 10,
            word_edge != '', coalesce(word_cwnd, 10),
            decided_src != '' and not held_out, coalesce(decided_cwnd, 10),
            10
        ) as start_cwnd
    from given
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64},
    pop,
    host,
    boot_id,
    netns,
    cookie,
    src_pop,
    dst_pop,
    version as ip_version,
    if(is_local, toIPv6('::'), tupleElement(IPv6CIDRToRange(dst_ip, if(ip_version = 4, 120, 56)), 1)) as client_prefix,
    known_algorithm as congestion_algorithm,
    -- The bound keeps sums within 64 bits.
    least(greatest(sample_weight, 1), 65535) as sample_weight,
    samples,
    live,
    closed,
    -- An idle connection shows its initial window, and so does one of small answers: only the window counts that a
    -- round trip proved and the peer acknowledged in the round. Less than the kernel's default shows nothing about
    -- larger windows, unless the path was the limit.
    live
    and proved_cwnd > 0
    and gained_acked >= proved_cwnd * snd_mss
    and (proved_cwnd >= 10 or is_full) as earned,
    -- Loss does not matter, except of the handshake or the FIN: the kernel gives some such connections a window of 1.
    -- A larger window cannot harm a connection that fits into the kernel's default: many such would hide the others.
    closed
    and sent > 0
    and sent - least(sent, retransmitted) <= 2 * toUInt64(start_cwnd) * snd_mss
    and (start_cwnd <= 10 or sent - least(sent, retransmitted) > 10 * snd_mss)
    and not (sent_again and retransmitted = 0) as young,
    app_limited,
    snd_cwnd,
    snd_mss,
    snd_ssthresh,
    snd_wnd,
    rtt as rtt_us,
    min_rtt as min_rtt_us,
    delivery_rate as delivery_rate_bytes_per_s,
    gained_acked as bytes_acked,
    gained_sent as bytes_sent,
    gained_retransmitted as bytes_retransmitted,
    gained_received as bytes_received,
    gained_busy as busy_us,
    gained_rwnd_limited as rwnd_limited_us,
    gained_sndbuf_limited as sndbuf_limited_us,
    acked as life_bytes_acked,
    sent as life_bytes_sent,
    retransmitted as life_bytes_retransmitted,
    busy as life_busy_us,
    -- Limits: a window is at most what TCP can announce (RFC 7323: 2^30 bytes), a round trip takes less than ten
    -- minutes, a host sends at most 100 GB a second, and a connection at most 2^53 bytes in its life.
    not is_local
    and not is_decreased
    and snd_mss <= 65535
    and toUInt64(snd_cwnd) * greatest(snd_mss, 1) <= 1073741824
    and snd_wnd <= 1073741824
    and rtt <= 600000000
    and min_rtt <= 600000000
    and delivery_rate <= 100000000000
    and greatest(acked, sent, retransmitted, received, busy, rwnd_limited, sndbuf_limited) <= 9007199254740992
    and greatest(gained_acked, gained_sent, gained_received) <= 200000000000 * {interval_s:UInt64} as counted,
    presence,
    proved_cwnd,
    start_cwnd,
    retransmitted - least(retransmitted, dsack_dups * snd_mss) as life_bytes_lost,
    timeouts as life_timeouts,
    -- Not for a connection that began before the round: after idle time its window follows the route of that time. Nor
    -- for BBR, which sets windows by itself.
    if(
        is_new and first_low between 1 and first_high and not startsWith(known_algorithm, 'bbr'), first_low, 0
    ) as first_cwnd_low,
    if(first_cwnd_low > 0, first_high, 0) as first_cwnd_high,
    is_new as began,
    is_fresh as fresh_rate,
    recorded,
    tenant,
    opted_out,
    dictGetOrDefault('asns', 'asn', dst_ip, toUInt32(0)) as dst_asn,
    if(recorded, given_values, start_cwnd > 10) as started
from begun
-- In a round whose sockets do not fit into memory, groups are on disk. By default all rows are one block, and one
-- thread writes it.
settings prefer_column_name_to_alias = 1, max_bytes_before_external_group_by = 4000000000,
min_insert_block_size_rows = 250000, min_insert_block_size_bytes = 0

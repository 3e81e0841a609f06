-- The round's first-flight records, each connection's once. Parameters: generation, round_s, round_start_us < round_us
-- (microseconds since the epoch).
--
-- A record is judged by the values in force, which are those of the last decisions before the round. Its bundle may be
-- of an earlier round. It counts if the decisions of that round gave the same window and rates.
insert into rollup_flights
with records as (
    select
        any(host) as host,
        any(boot_id) as boot_id,
        any(netns) as netns,
        any(cookie) as cookie,
        max(src_pop) as src_pop,
        max(dst_pop) as dst_pop,
        max(ip_version) as ip_version,
        max(client_prefix) as client_prefix,
        max(time_unix_us) as last_us,
        argMax(
            tuple(
                toUInt32(least(coalesce(started_round, 0), 4294967295)),
                coalesce(started_window, 0),
                coalesce(started_rate, 0),
                coalesce(started_arm, 0),
                coalesce(started_step, 0),
                coalesce(started_at_once, 0),
                -- Unknown is not unnamed.
                coalesce(started_prefix_length, 128),
                coalesce(first_flight_retrans, 0),
                coalesce(total_retrans, 0),
                coalesce(data_segs_out, 0),
                coalesce(bytes_acked, 0),
                coalesce(min_rtt, 0) % 4294967295,
                coalesce(handshake_rtt, 0),
                -- For a record of a program without this counter: all, less what later flights sent again.
                coalesce(
                    first_flight_segs,
                    data_segs_out - least(
                        data_segs_out,
                        total_retrans - least(total_retrans, coalesce(first_flight_retrans, 0))
                    ),
                    0
                ),
                coalesce(handshake_timeout_ms, 0),
                coalesce(handshake_retrans, 0),
                coalesce(copied_bytes, 0),
                coalesce(copied_segments, 0),
                coalesce(dsack_dups, 0)
            ),
            time_unix_us
        ) as started,
        argMax(
            tuple(
                first_acked_time,
                acked_10k_time,
                acked_50k_time,
                acked_100k_time,
                cap_lifted_time,
                lived_time,
                coalesce(train_bytes, 0),
                coalesce(train_time, 0)
            ),
            time_unix_us
        ) as times
    from tcp_samples
    prewhere
        time_unix_us >= {round_start_us:Int64}
        and time_unix_us < {round_us:Int64}
        and kind = 'FIRST_FLIGHT'
    where
        host global in (select fleet_edges.edge from fleet_edges)
        -- A host's connections to itself show no path.
        and not springtide_is_local(dst_ip, dst_ip = src_ip)
    group by socket
),

placed as (
    select
        records.host as host,
        records.boot_id as boot_id,
        records.netns as netns,
        records.cookie as cookie,
        records.last_us - toInt64(least(coalesce(tupleElement(records.times, 6), 0), 9007199254740992)) as began_us,
        fleet_edges.pop as pop,
        records.dst_pop as dst_pop,
        records.ip_version as ip_version,
        if(records.dst_pop = '', records.client_prefix, toIPv6('::')) as client_prefix,
        if(
            records.dst_pop = '', springtide_prefix_text(records.ip_version, records.client_prefix), records.dst_pop
        ) as destination,
        records.started as started,
        records.times as times,
        1 as every
    from records
    inner join fleet_edges on records.host = fleet_edges.edge
    where records.dst_pop = '' or (records.src_pop = fleet_edges.pop and records.dst_pop != fleet_edges.pop)
),

-- An edge keeps a bundle for two days at most.
rounds as (
    select
        toUnixTimestamp(path_decisions.round) as decided_s,
        1 as every
    from path_decisions
    where
        path_decisions.part = 'start'
        and path_decisions.round < fromUnixTimestamp({round_s:UInt32})
        and path_decisions.round >= fromUnixTimestamp({round_s:UInt32}) - interval 2 day
    group by path_decisions.round
),

-- The newest of them, which is one place of the table.
last as (
    select path_decisions.round as newest
    from path_decisions
    where
        path_decisions.part = 'start'
        and path_decisions.round < fromUnixTimestamp({round_s:UInt32})
        and path_decisions.round >= fromUnixTimestamp({round_s:UInt32}) - interval 2 day
    order by path_decisions.round desc
    limit 1
),

dated as (
    select
        placed.* except (every),
        -- 0 is none.
        if(rounds.every = 1, rounds.decided_s, 0) as decided_s
    from placed
    asof left join rounds on placed.every = rounds.every and tupleElement(placed.started, 1) >= rounds.decided_s
),

-- Rounds of the bundles that records name. A query of its own, so that the source of `dated` is planned and read once.
named as (
    select distinct
        toUInt32(least(coalesce(started_round, 0), 4294967295)) as started_s,
        1 as every
    from tcp_samples
    prewhere
        time_unix_us >= {round_start_us:Int64}
        and time_unix_us < {round_us:Int64}
        and kind = 'FIRST_FLIGHT'
    where host global in (select fleet_edges.edge from fleet_edges)
),

decisions as (
    select
        toUnixTimestamp(said.round) as said_s,
        said.src_pop as said_pop,
        said.destination as said_destination,
        said.ip_version as said_version,
        tuple(said.window, said.connection_rate, said.path_rate, said.window > 0) as entry,
        tuple(said.trial_window, said.trial_connection_rate, said.trial_path_rate, said.trial_permille > 0) as trial
    from path_decisions as said final
    where
        said.part = 'start'
        and said.round in (
            select fromUnixTimestamp(rounds.decided_s)
            from named
            asof left join rounds on named.every = rounds.every and named.started_s >= rounds.decided_s
            where rounds.every = 1
            union distinct
            select last.newest from last
        )
),

current_decisions as (
    select *
    from decisions
    where said_s = (select toUnixTimestamp(last.newest) from last)
),

given as (
    select
        dated.*,
        if(tupleElement(dated.started, 4) = 0, own.entry, own.trial) as gave,
        if(tupleElement(dated.started, 4) = 0, newest.entry, newest.trial) as gives
    from dated
    left join decisions as own
        on
            dated.decided_s = own.said_s
            and dated.pop = own.said_pop
            and dated.destination = own.said_destination
            and dated.ip_version = own.said_version
    left join current_decisions as newest
        on
            dated.pop = newest.said_pop
            and dated.destination = newest.said_destination
            and dated.ip_version = newest.said_version
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64} as generation,
    pop,
    host,
    boot_id,
    netns,
    cookie,
    began_us,
    dst_pop,
    ip_version,
    client_prefix,
    fromUnixTimestamp(tupleElement(started, 1)) as started_round,
    tupleElement(started, 2) as started_window,
    tupleElement(started, 3) as started_rate,
    tupleElement(started, 4) as started_arm,
    tupleElement(started, 5) as started_step,
    tupleElement(started, 6) as started_at_once,
    tupleElement(started, 7) as started_prefix_length,
    -- Either the bundle has values and they were set, or neither. A trial without values is how the law asks for the
    -- default.
    gave = gives
    and (tupleElement(gives, 1) > 0) = (started_window > 0 or started_rate > 0)
    and (started_arm = 0 or tupleElement(gives, 4)) as in_force,
    tupleElement(gives, 2) as connection_rate,
    tupleElement(started, 10) as segments,
    toUInt32(tupleElement(started, 14)) as first_flight_segments,
    tupleElement(started, 8) as first_flight_resent,
    tupleElement(started, 9) as resent,
    tupleElement(started, 11) as bytes_acked,
    tupleElement(started, 12) as min_rtt_us,
    tupleElement(started, 13) as handshake_rtt_us,
    tupleElement(times, 1) as first_acked_us,
    tupleElement(times, 2) as acked_10k_us,
    tupleElement(times, 3) as acked_50k_us,
    tupleElement(times, 4) as acked_100k_us,
    tupleElement(times, 5) as cap_lifted_us,
    tupleElement(times, 6) as lived_us,
    -- A time below half a millisecond shows the hosts' clocks as much as the path.
    if(
        tupleElement(times, 8) > 0,
        intDiv(toUInt64(tupleElement(times, 7)) * 1000000, greatest(tupleElement(times, 8), 500)),
        0
    ) as train_bytes_per_s,
    tupleElement(started, 15) as handshake_timeout_ms,
    tupleElement(started, 16) as handshake_resent,
    tupleElement(started, 17) as copied_bytes,
    tupleElement(started, 18) as copied_segments,
    copied_segments - least(copied_segments, tupleElement(started, 19)) as repaired_segments
from given
settings prefer_column_name_to_alias = 1, max_bytes_before_external_group_by = 4000000000

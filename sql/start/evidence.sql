-- A round's evidence of each unit. `listed` are those that are decided on by it: every pair of PoPs, and at most
-- `max_prefixes` client prefixes of each PoP: those that the last decisions gave or tried something, then those with
-- most to gain. `covering` is the /16 or /40 of a client prefix as a number, without its zeros. Every column is of
-- fixed width. Nothing after the round is read. Parameters: round_s; share_quantile, path_quantile, max_prefixes as in
-- the policy; half_prefixes: half of them; crowded: the PoPs with more prefixes than places, and width: no destination
-- has more bytes (crowded.sql). The quantiles that the policy has by default are columns: no sketch is read for them.
with last as (
    select path_decisions.round as decided
    from path_decisions
    where path_decisions.part = 'start' and path_decisions.round < fromUnixTimestamp({round_s:UInt32})
    -- Reads one place of the table, where a maximum reads all of its history.
    order by path_decisions.round desc
    limit 1
),

-- In crowded PoPs what is in use comes first.
in_use as (
    select
        decisions.src_pop as used_pop,
        decisions.destination as used_destination,
        decisions.ip_version as used_version
    from path_decisions as decisions final
    where
        decisions.part = 'start'
        and decisions.round = (select last.decided from last)
        and decisions.round < fromUnixTimestamp({round_s:UInt32})
        and has({crowded:Array(String)}, decisions.src_pop)
        and (decisions.window > 0 or decisions.trial_permille > 0)
),

small_pops as (
    select pop
    from fleet_edges
    group by pop
    having count() < 3
),

-- Among three edges or more, at most half of the places for prefixes that only one of them shows: it may have invented
-- them.
clients as (
    select
        src_pop,
        client_prefix,
        (src_pop, destination, ip_version) in (
            select
                in_use.used_pop,
                in_use.used_destination,
                in_use.used_version
            from in_use
        ) as is_used,
        gain_us,
        only_host,
        if(
            is_used or only_host = '' or src_pop in (select small_pops.pop from small_pops),
            client_prefix,
            toIPv6('::')
        ) as place
    from round_paths
    where
        round = fromUnixTimestamp({round_s:UInt32})
        and length(src_pop) <= 63
        and dst_pop = ''
        and has({crowded:Array(String)}, src_pop)
),

bounded as (
    select *
    from clients
    order by is_used desc, gain_us desc, client_prefix asc
    limit {half_prefixes:UInt32} by src_pop, place, only_host
),

prefixes as (
    select
        src_pop,
        client_prefix
    from bounded
    order by is_used desc, gain_us desc, client_prefix asc
    limit {max_prefixes:UInt32} by src_pop
)

select
    toFixedString(toLowCardinality(src_pop), 64) as src_pop,
    toFixedString(destination, {width:UInt8}) as destination,
    ip_version,
    toUInt32(least(connections, 4294967295)) as connections,
    if(mss_p50 > 0, toFloat32(mss_p50), toFloat32(nan)) as mss,
    if(min_rtt_p10_us > 0, toFloat32(min_rtt_p10_us), toFloat32(nan)) as min_rtt_us,
    if(
        share_connections > 0,
        toFloat32(
            if(
                {share_quantile:Float64} = 0.5,
                share_sketch_p50_bytes_per_s,
                arrayReduce(
                    concat('quantileTDigestWeightedMerge(', toString({share_quantile:Float64}), ')'), [share_state]
                )
            )
        ),
        toFloat32(nan)
    ) as share_rate,
    toUInt32(least(share_connections, 4294967295)) as share_connections,
    if(reached_connections > 0, toFloat32(reached_p90_bytes_per_s), toFloat32(nan)) as reached_rate,
    toUInt32(least(reached_connections, 4294967295)) as reached_connections,
    if(
        path_buckets > 0,
        toFloat32(
            if(
                {path_quantile:Float64} = 0.9,
                path_sketch_p90_bytes_per_s,
                arrayReduce(
                    concat('quantileTDigestWeightedMerge(', toString({path_quantile:Float64}), ')'), [path_state]
                )
            )
        ),
        toFloat32(nan)
    ) as path_rate,
    toUInt32(least(path_buckets, 4294967295)) as path_buckets,
    if(path_buckets > 0, toFloat32(at_once_p90), toFloat32(nan)) as at_once,
    if(receiver_window_p50_bytes > 0, toFloat32(receiver_window_p50_bytes), toFloat32(nan)) as receiver_window,
    toUInt32(least(trains, 4294967295)) as trains,
    if(trains > 0, toFloat32(train_p25_bytes_per_s), toFloat32(nan)) as train_low_rate,
    if(trains > 0, toFloat32(train_p50_bytes_per_s), toFloat32(nan)) as train_rate,
    toUInt32(least(entry_flights, 4294967295)) as flights_0,
    toUInt32(least(entry_lossy, 4294967295)) as lossy_0,
    toUInt32(least(entry_resent, 4294967295)) as resent_0,
    toUInt32(least(entry_segments, 4294967295)) as segments_0,
    if(entry_50k_p50_us > 0, toFloat32(entry_50k_p50_us), toFloat32(nan)) as t50_0_us,
    if(entry_100k_p50_us > 0, toFloat32(entry_100k_p50_us), toFloat32(nan)) as t100_0_us,
    if(entry_carried_permille > 0, toFloat32(entry_carried_permille / 1000), toFloat32(nan)) as carried_0,
    if(
        entry_path_carried_permille > 0, toFloat32(entry_path_carried_permille / 1000), toFloat32(nan)
    ) as path_carried_0,
    toUInt32(least(trial_flights, 4294967295)) as flights_1,
    toUInt32(least(trial_lossy, 4294967295)) as lossy_1,
    toUInt32(least(trial_resent, 4294967295)) as resent_1,
    toUInt32(least(trial_segments, 4294967295)) as segments_1,
    if(trial_50k_p50_us > 0, toFloat32(trial_50k_p50_us), toFloat32(nan)) as t50_1_us,
    if(trial_100k_p50_us > 0, toFloat32(trial_100k_p50_us), toFloat32(nan)) as t100_1_us,
    if(trial_carried_permille > 0, toFloat32(trial_carried_permille / 1000), toFloat32(nan)) as carried_1,
    if(
        trial_path_carried_permille > 0, toFloat32(trial_path_carried_permille / 1000), toFloat32(nan)
    ) as path_carried_1,
    toUInt32(least(braked, 4294967295)) as braked,
    toUInt32(least(default_flights, 4294967295)) as default_flights,
    toUInt32(least(default_lossy, 4294967295)) as default_lossy,
    dst_pop = '' as is_prefix,
    if(is_prefix, toUInt64(bitShiftRight(toUInt128(client_prefix), if(ip_version = 4, 16, 88))), 0) as covering,
    if(is_prefix, dictGetOrDefault('asns', 'asn', client_prefix, 0), 0) as asn,
    dst_pop != ''
    -- Elsewhere every prefix has a place, and nothing is to be sorted.
    or empty({crowded:Array(String)})
    or not has({crowded:Array(String)}, src_pop)
    or (src_pop, client_prefix) in (
        select
            prefixes.src_pop,
            prefixes.client_prefix
        from prefixes
    ) as listed
from round_paths
where
    round = fromUnixTimestamp({round_s:UInt32})
    and length(src_pop) <= 63
    and length(destination) <= 63
order by src_pop, destination, ip_version
settings prefer_column_name_to_alias = 1, max_threads = 1

-- Samples of rounds that arrived after their tables were computed, which lack them. Parameters: since_s <= until_s, the
-- first and the last of the rounds; interval_s; now_s.
insert into late_samples
with computed as (
    select
        rollups.round as round,
        rollups.generation as generation
    from rollups final
    where
        rollups.round between fromUnixTimestamp({since_s:UInt32}) and fromUnixTimestamp({until_s:UInt32})
        and rollups.interval_s = {interval_s:UInt32} -- noqa: RF03
),

now as (
    select
        host,
        fromUnixTimestamp(
            toUInt32((intDiv(time_unix_us, toInt64({interval_s:UInt32}) * 1000000) + 1) * {interval_s:UInt32})
        ) as round,
        count() as samples
    from tcp_samples final
    where
        time_unix_us >= (toInt64({since_s:UInt32}) - {interval_s:UInt32}) * 1000000
        and time_unix_us < toInt64({until_s:UInt32}) * 1000000
        and host global in (select fleet_edges.edge from fleet_edges)
        and springtide_has_values(state, bytes_sent)
    group by
        host,
        round
),

rolled as (
    select
        round,
        generation,
        host,
        rows_seen as samples
    from rollup_hosts
    where round between fromUnixTimestamp({since_s:UInt32}) and fromUnixTimestamp({until_s:UInt32})
),

late as (
    select
        now.round as round,
        computed.generation as generation,
        now.host as host,
        now.samples - rolled.samples as samples
    from now
    inner join computed on now.round = computed.round
    left join rolled
        on computed.round = rolled.round and computed.generation = rolled.generation and now.host = rolled.host
    where now.samples > rolled.samples
)

select
    round,
    generation,
    host,
    samples,
    fromUnixTimestamp({now_s:UInt32}) as counted_at
from late
settings do_not_merge_across_partitions_select_final = 1, prefer_column_name_to_alias = 1

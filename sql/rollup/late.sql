-- Samples of a round that arrived after its tables were computed, which lack them. Parameters: generation,
-- round_s, now_s, round_start_us < round_us (microseconds since the epoch).
insert into late_samples
with now as (
    select
        host,
        count() as samples
    from tcp_samples final
    where
        time_unix_us >= {round_start_us:Int64}
        and time_unix_us < {round_us:Int64}
        and host global in (select fleet_edges.edge from fleet_edges)
        and springtide_has_values(state, bytes_sent)
    group by host
),

rolled as (
    select
        host,
        rows_seen as samples
    from rollup_hosts
    where round = fromUnixTimestamp({round_s:UInt32}) and generation = {generation:UInt64}
),

late as (
    select
        now.host as host,
        now.samples - rolled.samples as samples
    from now
    left join rolled on now.host = rolled.host
    where now.samples > rolled.samples
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64} as generation,
    host,
    samples,
    fromUnixTimestamp({now_s:UInt32}) as counted_at
from late
settings do_not_merge_across_partitions_select_final = 1, prefer_column_name_to_alias = 1

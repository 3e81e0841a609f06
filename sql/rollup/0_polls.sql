-- Each poll of a namespace in the round or the one before it, of the hosts of fleet.yaml: read once, for the sockets
-- and for the hosts. Parameters: generation, round_s, lookback_us < round_us (microseconds since the epoch).
insert into rollup_polls
with polls as (
    select
        any(host) as host,
        any(boot_id) as boot_id,
        any(netns) as netns,
        poll_sequence,
        min(time_unix_us) as began_us,
        max(time_unix_us) as ended_us
    from tcp_samples
    where
        time_unix_us >= {lookback_us:Int64}
        and time_unix_us < {round_us:Int64}
        and kind = 'POLL'
        and host global in (select fleet_edges.edge from fleet_edges)
    -- A hash of 64 bits for the names, as in the sockets' step: grouping by the names takes twice as long.
    group by
        bitXor(bitXor(cityHash64(host), bitRotateLeft(cityHash64(boot_id), 17)), intHash64(netns)),
        poll_sequence
),

placed as (
    select
        polls.host as host,
        polls.boot_id as boot_id,
        polls.netns as netns,
        polls.poll_sequence as poll_sequence,
        fleet_edges.pop as pop,
        polls.began_us as began_us,
        polls.ended_us as ended_us
    from polls
    inner join fleet_edges on polls.host = fleet_edges.edge
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64} as generation,
    host,
    boot_id,
    netns,
    poll_sequence,
    pop,
    began_us,
    ended_us
from placed
settings prefer_column_name_to_alias = 1

-- Each poll of a namespace that the round, or the one before it, shows: read once, for the sockets and for the hosts.
-- Parameters: generation, round_s, lookback_us < round_us (microseconds since the epoch).
insert into rollup_polls
select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64} as generation,
    any(host) as host,
    any(boot_id) as boot_id,
    any(netns) as netns,
    poll_sequence,
    max(pop) as pop,
    min(time_unix_us) as began_us,
    max(time_unix_us) as ended_us
from tcp_samples
where
    time_unix_us >= {lookback_us:Int64}
    and time_unix_us < {round_us:Int64}
    and kind = 'POLL'
-- 64 bits for the names, as in the sockets' step: grouping by the names takes twice as long.
group by
    bitXor(bitXor(cityHash64(host), bitRotateLeft(cityHash64(boot_id), 17)), intHash64(netns)),
    poll_sequence
settings prefer_column_name_to_alias = 1

-- The records of each socket that its changes in the round are computed from: the last one before the round, its first
-- one, its last poll's and its close's. Parameters: generation, round_s, lookback_us <= round_start_us < round_us
-- (microseconds since the epoch).
insert into rollup_records
with crowded as (
    -- Whether 64 bits cannot distinguish the polls of some namespace.
    select max(polls > numbers) as beyond_64
    from (
        select
            count() as polls,
            uniqExact(poll_sequence % 64) as numbers
        from rollup_polls
        where
            round = fromUnixTimestamp({round_s:UInt32})
            and generation = {generation:UInt64}
            and ended_us >= {round_start_us:Int64}
        group by host, boot_id, netns
    ) as namespaces
),

records as (
    select
        socket,
        maxIf(time_unix_us, time_unix_us < {round_start_us:Int64}) as before_us,
        minIf(time_unix_us, time_unix_us >= {round_start_us:Int64}) as first_us,
        maxIf(time_unix_us, time_unix_us >= {round_start_us:Int64} and kind = 'POLL') as last_poll_us,
        maxIf(time_unix_us, time_unix_us >= {round_start_us:Int64} and kind = 'CLOSE') as close_us,
        -- Copies of a record are counted once: one bit a poll costs a tenth of merging them first.
        bitCount(
            groupBitOr(
                if(
                    kind = 'CLOSE' or time_unix_us < {round_start_us:Int64},
                    0,
                    bitShiftLeft(toUInt64(1), poll_sequence % 64)
                )
            )
        ) as polls
    from tcp_samples
    where
        time_unix_us >= {lookback_us:Int64}
        and time_unix_us < {round_us:Int64}
        and host global in (select fleet_edges.edge from fleet_edges)
        and springtide_has_values(state, bytes_sent)
    group by socket
    having first_us > 0
),

-- Empty, and no sample is read for it, unless polls are crowded.
counted as (
    select
        socket,
        uniqExact(poll_sequence) as polls
    from tcp_samples
    where
        (select crowded.beyond_64 from crowded)
        and time_unix_us >= {round_start_us:Int64}
        and time_unix_us < {round_us:Int64}
        and kind != 'CLOSE'
        and springtide_has_values(state, bytes_sent)
    group by socket
),

joined as (
    select
        records.socket as socket,
        records.before_us as before_us,
        records.first_us as first_us,
        records.last_poll_us as last_poll_us,
        records.close_us as close_us,
        if((select crowded.beyond_64 from crowded), counted.polls, records.polls) + (records.close_us > 0) as samples
    from records
    left join counted on records.socket = counted.socket
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64} as generation,
    socket,
    before_us,
    first_us,
    last_poll_us,
    close_us,
    samples
from joined
-- In a round whose sockets do not fit into memory, groups are on disk.
settings prefer_column_name_to_alias = 1, max_bytes_before_external_group_by = 4000000000

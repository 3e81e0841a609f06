-- Of each socket that a record of the round shows, which of its records tell what it did: made and emptied within one
-- run of the round, so that no other place needs to read every record of a socket.
create table if not exists rollup_records (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    -- 64 bits for host, boot, namespace and cookie.
    socket UInt64,
    -- Microseconds since the epoch; 0 where there is no such record. The last one before the round:
    before_us Int64 codec (Delta, ZSTD(1)),
    -- In the round.
    first_us Int64 codec (Delta, ZSTD(1)),
    last_poll_us Int64 codec (Delta, ZSTD(1)),
    close_us Int64 codec (Delta, ZSTD(1)),
    -- Polls and closes in the round, copies counted once.
    samples UInt32 codec (ZSTD(1))
)
engine = MergeTree
partition by generation
order by round;

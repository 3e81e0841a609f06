-- Of each socket that a record of the round shows, which of its records tell what it did: made and emptied within one
-- run of the round, so that no other place needs to read every record of a socket.
create table if not exists rollup_records$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    -- As in tcp_samples.
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
engine = ${replicated}MergeTree$replica
partition by generation
order by round;

alter table tcp_samples$both$on_cluster
-- A socket by 64 bits for host, boot, namespace and cookie, which takes half the time of grouping by the names: of a
-- million some two share theirs with a chance of 1 in 40 million. Names are hashed one by one: the engine then hashes
-- each only once. Hashes are turned, so that numbers which are swapped or equal do not cancel each other.
add column if not exists socket UInt64 alias bitXor(
    intHash64(cookie),
    bitXor(bitXor(cityHash64(host), bitRotateLeft(cityHash64(boot_id), 17)), bitRotateLeft(intHash64(netns), 34))
);

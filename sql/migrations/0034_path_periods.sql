-- Hours and days of what the law of starts sees: `springtide downsample`, as pair_hours.
create table if not exists path_hours$on_cluster ( -- noqa: PRS
    src_pop LowCardinality(String),
    -- The other PoP's name, or a client prefix as text.
    destination String codec (ZSTD(1)),
    ip_version UInt8,
    -- The period's first instant; it covers the rounds that end after it, up to its end.
    since DateTime('UTC') codec (Delta, ZSTD(1)),
    made_at DateTime('UTC') codec (Delta, ZSTD(1)),
    -- Rounds that the path was seen in.
    rounds UInt16,
    dst_pop LowCardinality(String),
    client_prefix IPv6 codec (ZSTD(1)),
    -- The most that showed it in a round.
    hosts UInt32 codec (ZSTD(1)),
    connections UInt64 codec (ZSTD(1)),
    gain_us UInt64 codec (ZSTD(1)),
    -- The lowest of the rounds' low round trips; null where none was known.
    min_rtt_us Nullable(UInt32) codec (ZSTD(1)),
    -- Delivery rates, bytes/s: of single connections that met the path, of the others, and of all together.
    share_connections UInt64 codec (ZSTD(1)),
    share_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    reached_connections UInt64 codec (ZSTD(1)),
    reached_state AggregateFunction(
        quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32
    ) codec (ZSTD(1)),
    path_buckets UInt64 codec (ZSTD(1)),
    path_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    -- The most of the rounds.
    at_once_p90 UInt64 codec (ZSTD(1)),
    -- First flights as in rollup_paths, in sums; times are medians over the rounds' medians, by flights.
    entry_flights UInt64 codec (ZSTD(1)),
    entry_lossy UInt64 codec (ZSTD(1)),
    entry_resent UInt64 codec (ZSTD(1)),
    entry_segments UInt64 codec (ZSTD(1)),
    entry_100k_us Nullable(UInt64) codec (ZSTD(1)),
    trial_flights UInt64 codec (ZSTD(1)),
    trial_lossy UInt64 codec (ZSTD(1)),
    trial_resent UInt64 codec (ZSTD(1)),
    trial_segments UInt64 codec (ZSTD(1)),
    trial_100k_us Nullable(UInt64) codec (ZSTD(1)),
    braked UInt64 codec (ZSTD(1)),
    default_flights UInt64 codec (ZSTD(1)),
    default_lossy UInt64 codec (ZSTD(1))
)
engine = ${replicated}ReplacingMergeTree(${replica_and}made_at)
partition by toYYYYMM(since)
order by (since, src_pop, destination, ip_version)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create table if not exists path_days$on_cluster as path_hours -- noqa: PRS
engine = ${replicated}ReplacingMergeTree(${replica_and}made_at)
partition by toYear(since)
order by (since, src_pop, destination, ip_version)
settings fsync_after_insert = 1, fsync_part_directory = 1;

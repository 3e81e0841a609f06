-- The hours of rollup_pairs. `springtide downsample` makes hours and days from the sums and mergeable sketches of round
-- tables. They are kept for years where rounds are kept for months. A period is made again when one of its rounds was:
-- the later run counts.
create table if not exists pair_hours$on_cluster ( -- noqa: PRS
    src_pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    -- The period's first instant. The period covers the rounds that end after it, up to its own end.
    since DateTime('UTC') codec (Delta, ZSTD(1)),
    made_at DateTime('UTC') codec (Delta, ZSTD(1)),
    -- Rounds in which the pair was seen. A connection is counted in each round in which it lived, and closes once.
    rounds UInt16,
    connections_seen UInt64 codec (ZSTD(1)),
    connections_earned UInt64 codec (ZSTD(1)),
    connections_closed UInt64 codec (ZSTD(1)),
    cwnd_sum UInt64 codec (ZSTD(1)),
    cwnd_weight UInt64 codec (ZSTD(1)),
    min_cwnd Nullable(UInt32) codec (ZSTD(1)),
    max_cwnd Nullable(UInt32) codec (ZSTD(1)),
    cwnd_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    rtt_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    min_rtt_us Nullable(UInt32) codec (ZSTD(1)),
    bytes_acked UInt64 codec (ZSTD(1)),
    bytes_sent UInt64 codec (ZSTD(1)),
    bytes_retransmitted UInt64 codec (ZSTD(1)),
    bytes_received UInt64 codec (ZSTD(1)),
    busy_us UInt64 codec (ZSTD(1)),
    rwnd_limited_us UInt64 codec (ZSTD(1)),
    sndbuf_limited_us UInt64 codec (ZSTD(1))
)
engine = ${replicated}ReplacingMergeTree(${replica_and}made_at)
partition by toYYYYMM(since)
order by (since, src_pop, dst_pop, ip_version)
settings fsync_after_insert = 1, fsync_part_directory = 1;

-- The hours of rollup_prefixes.
create table if not exists prefix_hours$on_cluster ( -- noqa: PRS
    pop LowCardinality(String),
    ip_version UInt8,
    client_prefix IPv6 codec (ZSTD(1)),
    congestion_algorithm LowCardinality(String),
    since DateTime('UTC') codec (Delta, ZSTD(1)),
    made_at DateTime('UTC') codec (Delta, ZSTD(1)),
    rounds UInt16,
    connections UInt64 codec (ZSTD(1)),
    bytes_acked UInt64 codec (ZSTD(1)),
    bytes_sent UInt64 codec (ZSTD(1)),
    bytes_retransmitted UInt64 codec (ZSTD(1)),
    delivery_rate_state AggregateFunction(
        quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32
    ) codec (ZSTD(1)),
    rtt_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    loss_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1))
)
engine = ${replicated}ReplacingMergeTree(${replica_and}made_at)
partition by toYYYYMM(since)
order by (since, pop, ip_version, client_prefix, congestion_algorithm)
settings fsync_after_insert = 1, fsync_part_directory = 1;

-- The hours of rollup_paths: what the law of starts sees.
create table if not exists path_hours$on_cluster ( -- noqa: PRS
    src_pop LowCardinality(String),
    -- The other PoP's name, or a client prefix as text.
    destination String codec (ZSTD(1)),
    ip_version UInt8,
    -- As in pair_hours.
    since DateTime('UTC') codec (Delta, ZSTD(1)),
    made_at DateTime('UTC') codec (Delta, ZSTD(1)),
    -- Rounds in which the path was seen.
    rounds UInt16,
    dst_pop LowCardinality(String),
    client_prefix IPv6 codec (ZSTD(1)),
    -- The most hosts that showed it in a round.
    hosts UInt32 codec (ZSTD(1)),
    connections UInt64 codec (ZSTD(1)),
    gain_us UInt64 codec (ZSTD(1)),
    -- The lowest of the rounds' low round trips; null where none was known.
    min_rtt_us Nullable(UInt32) codec (ZSTD(1)),
    -- Delivery rates as in rollup_paths, bytes/s: of single connections that met the path, of the others, and of all
    -- together.
    share_connections UInt64 codec (ZSTD(1)),
    share_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    reached_connections UInt64 codec (ZSTD(1)),
    reached_state AggregateFunction(
        quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32
    ) codec (ZSTD(1)),
    path_buckets UInt64 codec (ZSTD(1)),
    path_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    -- The highest of the rounds.
    at_once_p90 UInt64 codec (ZSTD(1)),
    -- Sums of first flights as in rollup_paths. Times are medians over the rounds' medians, weighted by flights.
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

-- The days of rollup_pairs, with the columns of hours.
create table if not exists pair_days$on_cluster as pair_hours -- noqa: PRS
engine = ${replicated}ReplacingMergeTree(${replica_and}made_at)
partition by toYear(since)
order by (since, src_pop, dst_pop, ip_version)
settings fsync_after_insert = 1, fsync_part_directory = 1;

-- The days of rollup_prefixes.
create table if not exists prefix_days$on_cluster as prefix_hours -- noqa: PRS
engine = ${replicated}ReplacingMergeTree(${replica_and}made_at)
partition by toYear(since)
order by (since, pop, ip_version, client_prefix, congestion_algorithm)
settings fsync_after_insert = 1, fsync_part_directory = 1;

-- The days of rollup_paths.
create table if not exists path_days$on_cluster as path_hours -- noqa: PRS
engine = ${replicated}ReplacingMergeTree(${replica_and}made_at)
partition by toYear(since)
order by (since, src_pop, destination, ip_version)
settings fsync_after_insert = 1, fsync_part_directory = 1;

-- Periods that were made, and when. A period's row is written after its own rows.
create table if not exists downsampled_periods$on_cluster (
    period_s UInt32,
    since DateTime('UTC') codec (Delta, ZSTD(1)),
    made_at DateTime('UTC') codec (Delta, ZSTD(1)),
    rounds UInt16
)
engine = ${replicated}ReplacingMergeTree(${replica_and}made_at)
order by (period_s, since)
settings fsync_after_insert = 1, fsync_part_directory = 1;

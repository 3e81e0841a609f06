-- Rounds as hours and days: made by `springtide downsample` from the round tables' sums and mergeable sketches, kept
-- for years where rounds are kept for months. Made again when a round of the period was: the later run counts.
create table if not exists pair_hours$on_cluster ( -- noqa: PRS
    src_pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    -- The period's first instant; it covers the rounds that end after it, up to its end.
    since DateTime('UTC') codec (Delta, ZSTD(1)),
    made_at DateTime('UTC') codec (Delta, ZSTD(1)),
    -- Rounds that the pair was seen in. A connection is counted in each round that it lived in, and closes once.
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

-- Which periods were made, and when; written after their rows.
create table if not exists downsampled_periods$on_cluster (
    period_s UInt32,
    since DateTime('UTC') codec (Delta, ZSTD(1)),
    made_at DateTime('UTC') codec (Delta, ZSTD(1)),
    rounds UInt16
)
engine = ${replicated}ReplacingMergeTree(${replica_and}made_at)
order by (period_s, since)
settings fsync_after_insert = 1, fsync_part_directory = 1;

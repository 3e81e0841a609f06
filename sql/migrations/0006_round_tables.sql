-- The linter's dialect does not know types of aggregate states that have parameters.

-- One row a round, ordered pair of PoPs and IP version. `seen`: established at their last poll. Windows are over those
-- seen that earned theirs; everything else is over every connection of the pair, closed ones included. Counts are of
-- samples; where a collector samples sockets, means and quantiles are weighted by what each stands for.
create table if not exists rollup_pairs$on_cluster ( -- noqa: PRS
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    src_pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    hosts UInt32 codec (ZSTD(1)),
    connections_seen UInt64 codec (ZSTD(1)),
    connections_earned UInt64 codec (ZSTD(1)),
    connections_closed UInt64 codec (ZSTD(1)),
    -- Sum of window times weight, and of weights: mean_cwnd is their quotient, and rounds add up.
    cwnd_sum UInt64 codec (ZSTD(1)),
    cwnd_weight UInt64 codec (ZSTD(1)),
    mean_cwnd Nullable(Float64) codec (ZSTD(1)),
    min_cwnd Nullable(UInt32) codec (ZSTD(1)),
    max_cwnd Nullable(UInt32) codec (ZSTD(1)),
    -- Weighted by the bytes that each connection had acknowledged in the round.
    traffic_cwnd Nullable(Float64) codec (ZSTD(1)),
    cwnd_p10 Nullable(UInt32) codec (ZSTD(1)),
    cwnd_p25 Nullable(UInt32) codec (ZSTD(1)),
    cwnd_p50 Nullable(UInt32) codec (ZSTD(1)),
    cwnd_p75 Nullable(UInt32) codec (ZSTD(1)),
    cwnd_p90 Nullable(UInt32) codec (ZSTD(1)),
    cwnd_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    -- Smoothed round-trip times of connections that had bytes acknowledged in the round; the lowest ever measured.
    rtt_p10_us Nullable(UInt32) codec (ZSTD(1)),
    rtt_p50_us Nullable(UInt32) codec (ZSTD(1)),
    rtt_p90_us Nullable(UInt32) codec (ZSTD(1)),
    min_rtt_us Nullable(UInt32) codec (ZSTD(1)),
    rtt_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    -- The windows that receivers advertised to the connections seen, bytes.
    rwnd_p10_bytes Nullable(UInt32) codec (ZSTD(1)),
    rwnd_p50_bytes Nullable(UInt32) codec (ZSTD(1)),
    bytes_acked UInt64 codec (ZSTD(1)),
    bytes_sent UInt64 codec (ZSTD(1)),
    bytes_retransmitted UInt64 codec (ZSTD(1)),
    bytes_received UInt64 codec (ZSTD(1)),
    retransmit_ratio Nullable(Float64) codec (ZSTD(1)),
    -- Time with data outstanding, and those parts of it in which the receiver's window or the send buffer was the limit.
    busy_us UInt64 codec (ZSTD(1)),
    rwnd_limited_us UInt64 codec (ZSTD(1)),
    sndbuf_limited_us UInt64 codec (ZSTD(1)),
    -- Closed in the round having sent at most two windows in their life: what an initial window can have hurt.
    young_connections UInt64 codec (ZSTD(1)),
    young_bytes_sent UInt64 codec (ZSTD(1)),
    young_bytes_retransmitted UInt64 codec (ZSTD(1)),
    -- The window that their receivers advertised, in segments: how much of an initial window a receiver takes at all. Those
    -- of the connections seen tell nothing of that, they have grown.
    young_rwnd_p50 Nullable(UInt32) codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMM(round)
order by (round, src_pop, dst_pop, ip_version)
settings fsync_after_insert = 1, fsync_part_directory = 1;

-- One row a round, PoP, client prefix and congestion control algorithm, over connections that had bytes acknowledged.
create table if not exists rollup_prefixes$on_cluster ( -- noqa: PRS
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    ip_version UInt8,
    -- The first address of the client's /24 or /56, IPv4 mapped.
    client_prefix IPv6 codec (ZSTD(1)),
    congestion_algorithm LowCardinality(String),
    -- The PoP whose prefixes hold it: back-office traffic; empty for clients.
    dst_pop LowCardinality(String),
    connections UInt32 codec (ZSTD(1)),
    samples UInt64 codec (ZSTD(1)),
    app_limited_connections UInt32 codec (ZSTD(1)),
    bytes_acked UInt64 codec (ZSTD(1)),
    bytes_sent UInt64 codec (ZSTD(1)),
    bytes_retransmitted UInt64 codec (ZSTD(1)),
    retransmit_ratio Nullable(Float64) codec (ZSTD(1)),
    delivery_rate_p10_bytes_per_s Nullable(UInt64) codec (ZSTD(1)),
    delivery_rate_p50_bytes_per_s Nullable(UInt64) codec (ZSTD(1)),
    delivery_rate_p90_bytes_per_s Nullable(UInt64) codec (ZSTD(1)),
    rtt_p10_us Nullable(UInt32) codec (ZSTD(1)),
    rtt_p50_us Nullable(UInt32) codec (ZSTD(1)),
    rtt_p90_us Nullable(UInt32) codec (ZSTD(1)),
    -- Of each connection's retransmitted share of the bytes that it sent.
    loss_p50 Nullable(Float64) codec (ZSTD(1)),
    loss_p90 Nullable(Float64) codec (ZSTD(1)),
    bytes_p50 Nullable(UInt64) codec (ZSTD(1)),
    bytes_p90 Nullable(UInt64) codec (ZSTD(1)),
    delivery_rate_state AggregateFunction(
        quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32
    ) codec (ZSTD(1)),
    rtt_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    loss_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    bytes_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMMDD(round)
order by (round, pop, ip_version, client_prefix, congestion_algorithm)
settings fsync_after_insert = 1, fsync_part_directory = 1;

-- How long closed connections had data outstanding: one row a round, host, pair of PoPs (dst_pop is empty for clients),
-- IP version and class of the bytes that they delivered. `busy` approximates completion time without asking an
-- application.
create table if not exists rollup_outcomes$on_cluster ( -- noqa: PRS
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    host LowCardinality(String),
    src_pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    -- The least number of bytes of the class: 0, 10,000, 30,000, 100,000, 300,000, 1,000,000 or 10,000,000.
    size_class_bytes UInt32,
    connections UInt64 codec (ZSTD(1)),
    retransmitting_connections UInt64 codec (ZSTD(1)),
    bytes_acked UInt64 codec (ZSTD(1)),
    bytes_sent UInt64 codec (ZSTD(1)),
    bytes_retransmitted UInt64 codec (ZSTD(1)),
    busy_sum_us UInt64 codec (ZSTD(1)),
    busy_p50_us Nullable(UInt64) codec (ZSTD(1)),
    busy_p90_us Nullable(UInt64) codec (ZSTD(1)),
    busy_p99_us Nullable(UInt64) codec (ZSTD(1)),
    busy_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMM(round)
order by (round, src_pop, dst_pop, ip_version, size_class_bytes, host)
settings fsync_after_insert = 1, fsync_part_directory = 1;

-- What each host should have said and said: one row a round and host that was heard in it or in the round before.
create table if not exists rollup_hosts$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    host LowCardinality(String),
    pop LowCardinality(String),
    polls_seen UInt32 codec (ZSTD(1)),
    -- Gaps in the poll's numbers are polls that did not arrive; a host that fell silent is expected to poll as before.
    polls_expected UInt32 codec (ZSTD(1)),
    rows_seen UInt64 codec (ZSTD(1)),
    -- As many rows for each missing poll as for the polls that arrived.
    rows_expected UInt64 codec (ZSTD(1)),
    closes UInt64 codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMM(round)
order by (round, host)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_sockets$on_cluster as
select * except (generation) from rollup_sockets
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

create view if not exists round_pairs$on_cluster as
select * except (generation) from rollup_pairs
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

create view if not exists round_prefixes$on_cluster as
select * except (generation) from rollup_prefixes
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

create view if not exists round_outcomes$on_cluster as
select * except (generation) from rollup_outcomes
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

create view if not exists round_hosts$on_cluster as
select * except (generation) from rollup_hosts
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

create view if not exists round_late$on_cluster as
select * except (generation) from late_samples final
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

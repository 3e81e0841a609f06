-- The linter's dialect does not know types of aggregate states that have parameters: `noqa: PRS`.

-- One row a round, ordered pair of PoPs and IP version. Connections seen were established at their last poll. Windows
-- are those of seen connections that earned theirs. All other columns are of every connection of the pair, closed ones
-- included. Counts are of samples. Where a collector samples sockets, means and quantiles are weighted by how many each
-- stands for.
create table if not exists rollup_pairs$on_cluster ( -- noqa: PRS
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    src_pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    -- Hosts that showed the pair.
    hosts UInt32 codec (ZSTD(1)),
    -- Connections that were established at their last poll of the round.
    connections_seen UInt64 codec (ZSTD(1)),
    -- Established connections whose window was acknowledged within the round. The windows below are theirs.
    connections_earned UInt64 codec (ZSTD(1)),
    -- Connections that closed in the round.
    connections_closed UInt64 codec (ZSTD(1)),
    -- The sum of window times weight, and of weights: mean_cwnd is their quotient, and rounds add up.
    cwnd_sum UInt64 codec (ZSTD(1)),
    cwnd_weight UInt64 codec (ZSTD(1)),
    -- Mean of the earned windows, segments.
    mean_cwnd Nullable(Float64) codec (ZSTD(1)),
    min_cwnd Nullable(UInt32) codec (ZSTD(1)),
    max_cwnd Nullable(UInt32) codec (ZSTD(1)),
    -- The same mean, weighted by the bytes that each connection had acknowledged in the round.
    traffic_cwnd Nullable(Float64) codec (ZSTD(1)),
    cwnd_p10 Nullable(UInt32) codec (ZSTD(1)),
    cwnd_p25 Nullable(UInt32) codec (ZSTD(1)),
    cwnd_p50 Nullable(UInt32) codec (ZSTD(1)),
    cwnd_p75 Nullable(UInt32) codec (ZSTD(1)),
    cwnd_p90 Nullable(UInt32) codec (ZSTD(1)),
    cwnd_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    -- Smoothed round-trip times of connections that had bytes acknowledged in the round.
    rtt_p10_us Nullable(UInt32) codec (ZSTD(1)),
    rtt_p50_us Nullable(UInt32) codec (ZSTD(1)),
    rtt_p90_us Nullable(UInt32) codec (ZSTD(1)),
    -- The lowest round-trip time that any of them ever measured.
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
    -- Time with data outstanding, and the parts of it in which the receiver's window or the send buffer was the limit.
    busy_us UInt64 codec (ZSTD(1)),
    rwnd_limited_us UInt64 codec (ZSTD(1)),
    sndbuf_limited_us UInt64 codec (ZSTD(1)),
    -- Young connections closed in the round having sent at most two windows in their life: an initial window can have
    -- hurt these.
    young_connections UInt64 codec (ZSTD(1)),
    young_bytes_sent UInt64 codec (ZSTD(1)),
    young_bytes_retransmitted UInt64 codec (ZSTD(1)),
    -- The window that their receivers advertised, segments: how much of an initial window a receiver takes at all. The
    -- windows of the connections seen show nothing of that, since they have grown.
    young_rwnd_p50 Nullable(UInt32) codec (ZSTD(1)),
    -- Young connections that lost something, and those that waited for a retransmission timeout. Among three hosts or
    -- more none counts for more than the others together in these and in young_connections.
    young_lossy_connections UInt64 default 0 codec (ZSTD(1)),
    young_timeout_connections UInt64 default 0 codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMM(round)
order by (round, src_pop, dst_pop, ip_version)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_pairs$on_cluster as
select * except (generation) from rollup_pairs
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

-- One row a round, PoP, client prefix and congestion control algorithm, of connections that had bytes acknowledged.
create table if not exists rollup_prefixes$on_cluster ( -- noqa: PRS
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    ip_version UInt8,
    -- The first address of the client's /24 or /56, IPv4 mapped.
    client_prefix IPv6 codec (ZSTD(1)),
    congestion_algorithm LowCardinality(String),
    -- The PoP that owns the prefix (back-office traffic); empty for clients.
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
    -- The retransmitted share of the bytes that each connection sent.
    loss_p50 Nullable(Float64) codec (ZSTD(1)),
    loss_p90 Nullable(Float64) codec (ZSTD(1)),
    bytes_p50 Nullable(UInt64) codec (ZSTD(1)),
    bytes_p90 Nullable(UInt64) codec (ZSTD(1)),
    delivery_rate_state AggregateFunction(
        quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32
    ) codec (ZSTD(1)),
    rtt_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    loss_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    bytes_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    -- The only host that showed it; empty where several did.
    only_host LowCardinality(String) default '' codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMMDD(round)
order by (round, pop, ip_version, client_prefix, congestion_algorithm)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_prefixes$on_cluster as
select * except (generation) from rollup_prefixes
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

-- A round's evidence of the path to each client prefix: one row a round, PoP and prefix, of all algorithms. Only
-- connections count on which BBR would act and whose last delivery rate was the path's: those with `acting_bytes`
-- acknowledged in their life whose rate the application did not limit. Data that an application sends slowly, and an
-- object that ends in slow start, are slow on any path and under any algorithm.
create table if not exists rollup_prefix_rates$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    ip_version UInt8,
    -- The first address of the client's /24 or /56, IPv4 mapped.
    client_prefix IPv6 codec (ZSTD(1)),
    -- The PoP that owns the prefix (back-office traffic); empty for clients.
    dst_pop LowCardinality(String),
    -- The policy's congestion.min_object_bytes when the round was rolled up.
    acting_bytes UInt64 codec (ZSTD(1)),
    -- Connections with bytes acknowledged in the round.
    connections UInt32 codec (ZSTD(1)),
    -- Acting ones: those with `acting_bytes` acknowledged in their life.
    acting_connections UInt32 codec (ZSTD(1)),
    -- Acting connections whose last delivery rate the application limited.
    app_limited_connections UInt32 codec (ZSTD(1)),
    -- Acting connections whose rate the application did not limit. All following columns are of these. Those under BBR
    -- are counted apart, so that their rates can be discounted. A connection whose algorithm no record names counts
    -- with the more frequent kind of the named ones.
    eligible_connections UInt32 codec (ZSTD(1)),
    eligible_bbr_connections UInt32 codec (ZSTD(1)),
    -- Medians by sample weight; 0 where there are none.
    delivery_rate_p50_bytes_per_s UInt64 codec (ZSTD(1)),
    bbr_delivery_rate_p50_bytes_per_s UInt64 codec (ZSTD(1)),
    rtt_p50_us UInt32 codec (ZSTD(1)),
    samples UInt64 codec (ZSTD(1)),
    bytes_acked UInt64 codec (ZSTD(1)),
    bytes_sent UInt64 codec (ZSTD(1)),
    bytes_retransmitted UInt64 codec (ZSTD(1)),
    -- The only host that showed them; empty where several did, or none.
    only_host LowCardinality(String) codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMMDD(round)
order by (round, pop, ip_version, client_prefix)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_prefix_rates$on_cluster as
select * except (generation) from rollup_prefix_rates
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

-- Time for which closed connections had data outstanding: one row a round, host, pair of PoPs (dst_pop is empty for
-- clients), IP version and class of the bytes that they delivered. `busy` approximates completion time without asking
-- an application.
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
    busy_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    -- Connections that lost something, as far as is known, and those that waited for a retransmission timeout.
    lossy_connections UInt64 default 0 codec (ZSTD(1)),
    timeout_connections UInt64 default 0 codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMM(round)
order by (round, src_pop, dst_pop, ip_version, size_class_bytes, host)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_outcomes$on_cluster as
select * except (generation) from rollup_outcomes
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

-- The round's closed connections that delivered something to another PoP or to a client. Rows are by tenant, by where
-- they went, and by whether they began with other values than the kernel's. Laws read none of it.
create table if not exists rollup_slices$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    -- Empty for clients.
    dst_pop LowCardinality(String),
    ip_version UInt8,
    tenant LowCardinality(String),
    dst_asn UInt32,
    started Bool,
    connections UInt64 codec (ZSTD(1)),
    -- Connections that lost something.
    lossy_connections UInt64 codec (ZSTD(1)),
    bytes_acked UInt64 codec (ZSTD(1)),
    bytes_sent UInt64 codec (ZSTD(1)),
    bytes_retransmitted UInt64 codec (ZSTD(1)),
    -- Connections that delivered 100,000 to 299,999 bytes.
    timed_connections UInt64 codec (ZSTD(1)),
    -- Over those, the sum of the logarithms (base 2) of their microseconds with data outstanding, in thousandths: whole
    -- numbers add up to the same in any order.
    busy_log2_thousandths UInt64 codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMM(round)
order by (round, pop, dst_pop, ip_version, tenant, dst_asn, started)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_slices$on_cluster as
select * except (generation) from rollup_slices
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

-- Decisions and what sockets show of them: one row a round, host, pair of PoPs, IP version and decided window.
create table if not exists rollup_treatments$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    host LowCardinality(String),
    src_pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    -- The window that the publication in force on the edge gave connections as they began, segments; 10, the kernel's
    -- default, where none was in force.
    decided_cwnd UInt32 codec (ZSTD(1)),
    -- same: of five connections or more whose first window is exactly known, four in five began with what was decided.
    -- differs: fewer did. Or, where too few are exactly known, half of those of which something is known cannot have.
    seen Enum8('unknown' = 0, 'same' = 1, 'differs' = 2),
    -- Connections that had bytes acknowledged in the round, and those of them that are known to use BBR.
    connections UInt64 codec (ZSTD(1)),
    bbr_connections UInt64 codec (ZSTD(1)),
    -- Connections that are new in the round and of whose first window something is known, and those of which it is
    -- exactly known.
    told_connections UInt64 codec (ZSTD(1)),
    exact_connections UInt64 codec (ZSTD(1)),
    -- The eight most frequent first windows, segments, and how many connections began with each.
    first_cwnds Array(UInt32) codec (ZSTD(1)),
    first_cwnd_counts Array(UInt64) codec (ZSTD(1)),
    -- Medians of the least and of the greatest window with which each of told_connections can have begun.
    first_cwnd_low_p50 Nullable(UInt32) codec (ZSTD(1)),
    first_cwnd_high_p50 Nullable(UInt32) codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMM(round)
order by (round, host, dst_pop, ip_version, decided_cwnd)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_treatments$on_cluster as
select * except (generation) from rollup_treatments
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

-- Bytes of bodies per second of request time: one row a round, PoP, client prefix and class of the body's size, of
-- requests that were answered in full (status 200).
create table if not exists rollup_goodput$on_cluster ( -- noqa: PRS
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    ip_version UInt8,
    -- The first address of the client's /24 or /56, IPv4 mapped.
    client_prefix IPv6 codec (ZSTD(1)),
    -- As in rollup_outcomes.
    size_class_bytes UInt32,
    requests UInt64 codec (ZSTD(1)),
    bytes UInt64 codec (ZSTD(1)),
    duration_us UInt64 codec (ZSTD(1)),
    goodput_p10_bytes_per_s Nullable(UInt64) codec (ZSTD(1)),
    goodput_p50_bytes_per_s Nullable(UInt64) codec (ZSTD(1)),
    goodput_p90_bytes_per_s Nullable(UInt64) codec (ZSTD(1)),
    goodput_state AggregateFunction(quantilesTDigest(0.1, 0.25, 0.5, 0.75, 0.9), Float32) codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMMDD(round)
order by (round, pop, ip_version, client_prefix, size_class_bytes)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_goodput$on_cluster as
select * except (generation) from rollup_goodput
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

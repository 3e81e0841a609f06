-- Rates at which all connections of a path with data in flight were delivered together. A run of the round fills and
-- empties this table.
create table if not exists rollup_busy$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    client_prefix IPv6,
    host LowCardinality(String),
    -- The short time that it is about: how many of that length passed since 1970.
    bucket UInt64 codec (Delta, ZSTD(1)),
    -- Bytes per second of all of the host's connections together, and how many those were.
    rates UInt64,
    connections UInt64
)
engine = ${replicated}MergeTree$replica
partition by generation
order by (round, pop);

-- Client prefixes whose paths are rolled up. A run of the round fills and empties this table.
create table if not exists rollup_units$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    ip_version UInt8,
    client_prefix IPv6
)
engine = ${replicated}MergeTree$replica
partition by generation
order by (round, pop);

-- Each host's evidence of a path. A run of the round fills and empties this table.
create table if not exists rollup_path_hosts$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    client_prefix IPv6,
    host LowCardinality(String),
    -- Connections that began in the round, and these by how many each stands for.
    connections UInt64,
    starts UInt64,
    gain_us UInt64,
    -- The numbers are those of sql/rollup/5_paths.sql.
    lists Array(Tuple(UInt8, Array(UInt64))), -- noqa: CP01
    counts Array(Tuple(UInt8, Array(UInt64))) -- noqa: CP01
)
engine = ${replicated}MergeTree$replica
partition by generation
order by (round, pop);

-- A round's evidence of each path, from a PoP to another or to a client prefix; prefixes are those with most to gain.
-- One host has limited influence, as in round_pairs. 0 is unknown.
create table if not exists rollup_paths$on_cluster ( -- noqa: PRS
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    src_pop LowCardinality(String),
    -- The other PoP's name, or the client prefix as text.
    destination String codec (ZSTD(1)),
    ip_version UInt8,
    -- Empty for clients.
    dst_pop LowCardinality(String),
    -- `::` for PoPs.
    client_prefix IPv6 codec (ZSTD(1)),
    hosts UInt32 codec (ZSTD(1)),
    -- The only host that showed it; empty where several did.
    only_host LowCardinality(String) codec (ZSTD(1)),
    -- Connections that began in the round.
    connections UInt64 codec (ZSTD(1)),
    -- The time that a large enough window would have saved these: the round trips in which theirs was doubled, by
    -- sample weight.
    gain_us UInt64 codec (ZSTD(1)),
    mss_p50 UInt32 codec (ZSTD(1)),
    -- The lower tenth of the lowest round-trip times.
    min_rtt_p10_us UInt32 codec (ZSTD(1)),
    rtt_p50_us UInt32 codec (ZSTD(1)),
    -- share: delivery rates of single connections that met the path, measured in the round and not limited by the
    -- application. A connection met the path if it left slow start, had something retransmitted, or 1 MB acknowledged.
    share_connections UInt64 codec (ZSTD(1)),
    share_p25_bytes_per_s UInt64 codec (ZSTD(1)),
    share_p50_bytes_per_s UInt64 codec (ZSTD(1)),
    share_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    -- reached: the same of the other connections. The path gives at least that.
    reached_connections UInt64 codec (ZSTD(1)),
    reached_p90_bytes_per_s UInt64 codec (ZSTD(1)),
    reached_state AggregateFunction(
        quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32
    ) codec (ZSTD(1)),
    -- path: what all connections with data in flight were delivered together, over times as short as between two polls.
    path_buckets UInt64 codec (ZSTD(1)),
    path_p90_bytes_per_s UInt64 codec (ZSTD(1)),
    path_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    -- Number of these connections at once.
    at_once_p90 UInt64 codec (ZSTD(1)),
    -- Window that the receivers of young connections advertised.
    receiver_window_p50_bytes UInt32 codec (ZSTD(1)),
    -- Rate at which trains of first segments were delivered, which leave at once with any values: connections that show
    -- it, the lower quartile, and the median.
    trains UInt64 default 0 codec (ZSTD(1)),
    train_p25_bytes_per_s UInt64 default 0 codec (ZSTD(1)),
    train_p50_bytes_per_s UInt64 default 0 codec (ZSTD(1)),
    -- entry: first flights of more than ten segments that started with the entry's values in force.
    entry_flights UInt64 codec (ZSTD(1)),
    -- Flights that lost something.
    entry_lossy UInt64 codec (ZSTD(1)),
    -- Segments that were retransmitted, and all segments.
    entry_resent UInt64 codec (ZSTD(1)),
    entry_segments UInt64 codec (ZSTD(1)),
    -- Medians. The rate is that of all connections that were starting at once.
    entry_window_p50 UInt32 codec (ZSTD(1)),
    entry_rate_p50_bytes_per_s UInt64 codec (ZSTD(1)),
    entry_10k_p50_us UInt64 codec (ZSTD(1)),
    entry_50k_p50_us UInt64 codec (ZSTD(1)),
    entry_100k_p50_us UInt64 codec (ZSTD(1)),
    -- The part of the rate that the path carried, in thousandths: the median over first flights that lost nothing and
    -- that were limited by what a single connection is given. The bytes are the larger one of 50 and 100 kB that the
    -- window covers; the time is from its first acknowledgement to its last; the rate is the one that the connection
    -- started with.
    entry_carried_permille UInt32 default 0 codec (ZSTD(1)),
    -- The same over first flights that started while all of the host's part of the path's rate was in use: what all of
    -- the host's first flights were delivered meanwhile, over that part.
    entry_path_carried_permille UInt32 default 0 codec (ZSTD(1)),
    -- trial: the same of first flights that started with the values of the entry's trial in force.
    trial_flights UInt64 codec (ZSTD(1)),
    trial_lossy UInt64 codec (ZSTD(1)),
    trial_resent UInt64 codec (ZSTD(1)),
    trial_segments UInt64 codec (ZSTD(1)),
    trial_window_p50 UInt32 codec (ZSTD(1)),
    trial_rate_p50_bytes_per_s UInt64 codec (ZSTD(1)),
    trial_10k_p50_us UInt64 codec (ZSTD(1)),
    trial_50k_p50_us UInt64 codec (ZSTD(1)),
    trial_100k_p50_us UInt64 codec (ZSTD(1)),
    trial_carried_permille UInt32 default 0 codec (ZSTD(1)),
    trial_path_carried_permille UInt32 default 0 codec (ZSTD(1)),
    -- Starts with values in force that an edge's brake had cut.
    braked UInt64 codec (ZSTD(1)),
    -- First flights of more than ten segments that started with the kernel's default beside values in use, and those
    -- that lost something. Their edge's bundle does not name the path: it is held out, or has no part of it.
    default_flights UInt64 codec (ZSTD(1)),
    default_lossy UInt64 codec (ZSTD(1)),
    -- The quantiles of the sketches that the law of starts reads by its default policy, found once as a row is written.
    share_sketch_p50_bytes_per_s Float32 materialized finalizeAggregation(share_state)[3] codec (ZSTD(1)),
    path_sketch_p90_bytes_per_s Float32 materialized finalizeAggregation(path_state)[5] codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMMDD(round)
order by (round, src_pop, destination, ip_version)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_paths$on_cluster as
select
    * except (generation), -- noqa: AM04
    share_sketch_p50_bytes_per_s,
    path_sketch_p90_bytes_per_s
from rollup_paths
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

-- Number of connections of each path that began at each host, by how many each stands for.
create table if not exists rollup_path_starts$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    src_pop LowCardinality(String),
    destination String codec (ZSTD(1)),
    ip_version UInt8,
    host LowCardinality(String),
    starts UInt64 codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMMDD(round)
order by (round, src_pop, destination, ip_version, host)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_path_starts$on_cluster as
select * except (generation) from rollup_path_starts
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

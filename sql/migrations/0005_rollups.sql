-- Which rounds have their tables, and which generation of rows is each round's. A run writes its rows under a
-- generation of its own and adds its line here last: that line is what makes them the round's. Readers use the views
-- `round_*`, which show committed generations only: what a killed run left behind is never read, and is removed by the
-- next run.
create table if not exists rollups$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    -- Microseconds since the epoch and 12 random bits: the later run wins.
    generation UInt64 codec (Delta, ZSTD(1)),
    interval_s UInt32,
    -- Seconds that the round had been closed for when it was computed; what arrived later is not in its tables.
    waited_s UInt32,
    -- Samples that lay in the round then, each counted once.
    samples UInt64 codec (ZSTD(1)),
    sockets UInt64 codec (ZSTD(1)),
    requests UInt64 codec (ZSTD(1)),
    computed_at DateTime('UTC') codec (Delta, ZSTD(1))
)
engine = ${replicated}ReplacingMergeTree(${replica_and}generation)
order by round
settings fsync_after_insert = 1, fsync_part_directory = 1;

-- What came after a round's tables were computed and is not in them, by host, as last counted.
create table if not exists late_samples$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    host LowCardinality(String),
    samples UInt64 codec (ZSTD(1)),
    counted_at DateTime('UTC') codec (Delta, ZSTD(1))
)
engine = ${replicated}ReplacingMergeTree(${replica_and}counted_at)
order by (round, generation, host);

-- One row a socket that was seen in the round: what it did within it, and its last values. Short-lived: the other round
-- tables are made from it, and analysts look closely at the last days.
create table if not exists rollup_sockets$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    host LowCardinality(String),
    boot_id LowCardinality(String),
    netns UInt64 codec (Delta, ZSTD(1)),
    cookie UInt64 codec (Delta, ZSTD(1)),
    src_pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    -- The peer's /24 or /56: its first address, IPv4 mapped.
    client_prefix IPv6,
    -- As last known; empty when no record of the two rounds named it (close records do not).
    congestion_algorithm LowCardinality(String),
    -- Each sampled socket stands for this many, 1 to 65535.
    sample_weight UInt16,
    -- Records in the round.
    samples UInt32,
    -- Whether a poll of the round saw it, established at the last one; whether its close was reported in the round.
    live Bool,
    closed Bool,
    -- Whether a full window was acknowledged within the round.
    earned Bool,
    -- Closed having sent at most two windows: what an initial window can have hurt.
    young Bool,
    -- Whether the last delivery rate was limited by the application.
    app_limited Bool,
    -- Last values; 0 is unknown. Segments, bytes, microseconds, bytes per second.
    snd_cwnd UInt32,
    snd_mss UInt32,
    snd_ssthresh UInt32,
    snd_wnd UInt32,
    rtt_us UInt32,
    min_rtt_us UInt32,
    delivery_rate_bytes_per_s UInt64,
    -- Within the round.
    bytes_acked UInt64,
    bytes_sent UInt64,
    bytes_retransmitted UInt64,
    bytes_received UInt64,
    busy_us UInt64,
    rwnd_limited_us UInt64,
    sndbuf_limited_us UInt64,
    -- In the connection's life up to its last record.
    life_bytes_acked UInt64,
    life_bytes_sent UInt64,
    life_bytes_retransmitted UInt64,
    life_busy_us UInt64
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMMDD(round)
-- No further than questions go: sorting by socket would take longer than everything before it.
order by (round, pop, host);

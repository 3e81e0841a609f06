alter table rollup_sockets$on_cluster
-- Whether no record from before shows it, and its host was polled before: what it did in its life it did in the round.
add column if not exists began Bool default false,
-- Whether its last delivery rate was measured in the round.
add column if not exists fresh_rate Bool default false,
-- Whether the eBPF program of springtide-edge wrote down how it started.
add column if not exists recorded Bool default false;

drop view if exists round_sockets$on_cluster;

create view if not exists round_sockets$on_cluster as
select * except (generation, counted, presence) from rollup_sockets -- noqa: AM04
where
    counted
    and (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

-- Each PoP's region in fleet.yaml, each fleet that differs from the one before it under a revision of its own.
create table if not exists fleet_region_revisions$on_cluster (
    revision UInt64,
    pop LowCardinality(String),
    region LowCardinality(String)
)
engine = ${replicated}MergeTree$replica
order by (revision, pop);

create view if not exists fleet_regions$on_cluster as
select distinct
    pop,
    region
from fleet_region_revisions
where revision = (select max(newest.revision) from fleet_region_revisions as newest);

-- How connections of each unit start, round by round, with the inputs. A unit is an ordered pair of PoPs, or a PoP and
-- a client prefix, and an IP version. A row is a pure function of the history before its round and the policy. Rates
-- are bytes per second; 0 is none, null unknown.
create table if not exists start_decisions$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    src_pop LowCardinality(String),
    -- The other PoP's name, or a client prefix as text: 203.0.113.0/24, 2001:db8:1200::/56.
    destination String codec (ZSTD(1)),
    ip_version UInt8,

    -- try: only a share of the connections is given values. set: all are. withdraw: values died in this round.
    action Enum8('none' = 0, 'try' = 1, 'set' = 2, 'withdraw' = 3),
    -- The rule that made the decision what it is.
    reason LowCardinality(String),

    -- In use: segments, the most for a single connection, and for all together that start at once.
    window UInt32 codec (ZSTD(1)),
    connection_rate Float64 codec (ZSTD(1)),
    path_rate Float64 codec (ZSTD(1)),
    -- On trial, for so many of a thousand connections.
    trial_window UInt32 codec (ZSTD(1)),
    trial_connection_rate Float64 codec (ZSTD(1)),
    trial_path_rate Float64 codec (ZSTD(1)),
    trial_permille UInt16 codec (ZSTD(1)),
    -- Whether what is in use, or on trial, is the group's estimate; whether the trial is a step beyond what was
    -- reached.
    borrowed Bool,
    trial_borrowed Bool,
    trial_step Bool,

    -- First flights of more than ten segments, and those of them that lost anything: with the kernel's default
    -- (decayed), with the values in use and on trial since they are. The trial's time of 100 (or 50) kB over that of
    -- the others, log2, times its weight; and the weights.
    default_flights Float64 codec (ZSTD(1)),
    default_lossy Float64 codec (ZSTD(1)),
    used_flights UInt64 codec (ZSTD(1)),
    used_lossy UInt64 codec (ZSTD(1)),
    used_segments UInt64 codec (ZSTD(1)),
    used_resent UInt64 codec (ZSTD(1)),
    trial_rounds UInt32 codec (ZSTD(1)),
    trial_flights UInt64 codec (ZSTD(1)),
    trial_lossy UInt64 codec (ZSTD(1)),
    trial_segments UInt64 codec (ZSTD(1)),
    trial_resent UInt64 codec (ZSTD(1)),
    trial_log2_time Float64 codec (ZSTD(1)),
    trial_times Float64 codec (ZSTD(1)),

    -- What is known of a single connection's share of the path, log2 of bytes per second, with its variance and how
    -- many connections, decayed; and of the rate of all together.
    share_log2 Nullable(Float64) codec (ZSTD(1)),
    share_var Nullable(Float64) codec (ZSTD(1)),
    share_weight Nullable(Float64) codec (ZSTD(1)),
    path_log2 Nullable(Float64) codec (ZSTD(1)),
    -- The lowest connection rate that did harm or was tried in vain, until when nothing near it is tried, and how long
    -- that hold was.
    harmful_rate Float64 codec (ZSTD(1)),
    hold_until Nullable(DateTime('UTC')),
    hold_s UInt32 codec (ZSTD(1)),
    -- The lowest round trip when what is in use was proved.
    learnt_rtt_us Nullable(Float64) codec (ZSTD(1)),
    measured_rounds UInt8 codec (ZSTD(1)),
    -- Flap damping after this round.
    penalty Float64 codec (ZSTD(1)),
    suppressed Bool,
    overridden Bool,
    last_evidence Nullable(DateTime('UTC')),

    previous_window UInt32 codec (ZSTD(1)),
    previous_connection_rate Float64 codec (ZSTD(1)),
    -- What the evidence asks for before it was tried; how much of it is the unit's own.
    proved_share Nullable(Float64) codec (ZSTD(1)),
    proved_path Nullable(Float64) codec (ZSTD(1)),
    own_weight Nullable(Float64) codec (ZSTD(1)),
    -- Whose estimate the rest is, from how many units, and their low quantile.
    group LowCardinality(String),
    group_units UInt32 codec (ZSTD(1)),
    group_rate Nullable(Float64) codec (ZSTD(1)),

    -- What the round showed: as in round_paths. Arm 0 is the entry, 1 the trial.
    connections UInt64 codec (ZSTD(1)),
    min_rtt_us Nullable(Float64) codec (ZSTD(1)),
    mss Nullable(Float64) codec (ZSTD(1)),
    share_rate Nullable(Float64) codec (ZSTD(1)),
    share_connections UInt64 codec (ZSTD(1)),
    reached_rate Nullable(Float64) codec (ZSTD(1)),
    reached_connections UInt64 codec (ZSTD(1)),
    at_once Nullable(Float64) codec (ZSTD(1)),
    receiver_window Nullable(Float64) codec (ZSTD(1)),
    flights_0 UInt64 codec (ZSTD(1)),
    lossy_0 UInt64 codec (ZSTD(1)),
    resent_0 UInt64 codec (ZSTD(1)),
    segments_0 UInt64 codec (ZSTD(1)),
    flights_1 UInt64 codec (ZSTD(1)),
    lossy_1 UInt64 codec (ZSTD(1)),
    resent_1 UInt64 codec (ZSTD(1)),
    segments_1 UInt64 codec (ZSTD(1)),
    t50_0_us Nullable(Float64) codec (ZSTD(1)),
    t100_0_us Nullable(Float64) codec (ZSTD(1)),
    t50_1_us Nullable(Float64) codec (ZSTD(1)),
    t100_1_us Nullable(Float64) codec (ZSTD(1)),
    braked UInt64 codec (ZSTD(1)),
    seen_path_rate Nullable(Float64) codec (ZSTD(1)),

    expires_at Nullable(DateTime('UTC')),
    policy_version LowCardinality(String)
)
engine = ${replicated}ReplacingMergeTree$replica
partition by toYYYYMMDD(round)
order by (round, src_pop, destination, ip_version);

-- The round's first-flight records, each connection's once: how it started, and what became of it. Short-lived, as
-- rollup_sockets is.
create table if not exists rollup_flights$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    host LowCardinality(String),
    boot_id LowCardinality(String),
    netns UInt64 codec (Delta, ZSTD(1)),
    cookie UInt64 codec (Delta, ZSTD(1)),
    -- The PoP that it went to; empty for clients, whose prefix is the next but one (`::` for PoPs).
    dst_pop LowCardinality(String),
    ip_version UInt8,
    client_prefix IPv6 codec (ZSTD(1)),
    -- Round of the bundle; first window and rate that were set (segments, bytes per second; 0 is the kernel's default),
    -- 0 the entry's or 1 its trial's, 0 as the bundle says or how far the brake had cut it, how many were starting at
    -- once, and the length of the entry's prefix.
    started_round DateTime('UTC') codec (Delta, ZSTD(1)),
    started_window UInt32 codec (ZSTD(1)),
    started_rate UInt64 codec (ZSTD(1)),
    started_arm UInt8 codec (ZSTD(1)),
    started_step UInt8 codec (ZSTD(1)),
    started_at_once UInt32 codec (ZSTD(1)),
    started_prefix_length UInt8 codec (ZSTD(1)),
    -- Whether it started with what the last decisions before the round give its arm.
    in_force Bool,
    -- Segments of data, those of the first flights that were sent again, and all that were.
    segments UInt32 codec (ZSTD(1)),
    first_flight_resent UInt32 codec (ZSTD(1)),
    resent UInt32 codec (ZSTD(1)),
    bytes_acked UInt64 codec (ZSTD(1)),
    min_rtt_us UInt32 codec (ZSTD(1)),
    handshake_rtt_us UInt32 codec (ZSTD(1)),
    -- Since it was established; null: it did not come to that.
    first_acked_us Nullable(UInt64) codec (ZSTD(1)),
    acked_10k_us Nullable(UInt64) codec (ZSTD(1)),
    acked_50k_us Nullable(UInt64) codec (ZSTD(1)),
    acked_100k_us Nullable(UInt64) codec (ZSTD(1)),
    cap_lifted_us Nullable(UInt64) codec (ZSTD(1)),
    lived_us Nullable(UInt64) codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMMDD(round)
order by (round, pop, host);

create view if not exists round_flights$on_cluster as
select * except (generation) from rollup_flights -- noqa: AM04
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

-- What connections with data in flight were delivered together: made and emptied within one run of the round.
create table if not exists rollup_busy$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    client_prefix IPv6,
    host LowCardinality(String),
    -- As many of its length since 1970.
    bucket UInt64 codec (Delta, ZSTD(1)),
    -- Bytes per second of all of the host's, and how many those were.
    rates UInt64,
    connections UInt64
)
engine = ${replicated}MergeTree$replica
partition by generation
order by (round, pop);

-- Client prefixes whose paths are rolled up: made and emptied within one run of the round.
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

-- What each host shows of a path: made and emptied within one run of the round.
create table if not exists rollup_path_hosts$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    client_prefix IPv6,
    host LowCardinality(String),
    -- That began; and by what each stands for.
    connections UInt64,
    starts UInt64,
    gain_us UInt64,
    -- By the numbers in sql/rollup/5_paths.sql.
    lists Array(Tuple(UInt8, Array(UInt64))), -- noqa: CP01
    counts Array(Tuple(UInt8, Array(UInt64))) -- noqa: CP01
)
engine = ${replicated}MergeTree$replica
partition by generation
order by (round, pop);

-- What a round shows of each path, from a PoP to another or to a client prefix; of prefixes those with most to gain.
-- The influence of one host is bounded as in round_pairs. 0 is unknown.
create table if not exists rollup_paths$on_cluster ( -- noqa: PRS
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    src_pop LowCardinality(String),
    -- The other PoP's name, or the client prefix as text.
    destination String codec (ZSTD(1)),
    ip_version UInt8,
    -- Empty for clients; and their prefix, `::` for PoPs.
    dst_pop LowCardinality(String),
    client_prefix IPv6 codec (ZSTD(1)),
    hosts UInt32 codec (ZSTD(1)),
    -- The only host that showed it; empty where several did.
    only_host LowCardinality(String) codec (ZSTD(1)),
    -- That began in the round.
    connections UInt64 codec (ZSTD(1)),
    -- What these would have saved with a window large enough: the round trips in which theirs was doubled, by sample
    -- weight.
    gain_us UInt64 codec (ZSTD(1)),
    mss_p50 UInt32 codec (ZSTD(1)),
    min_rtt_p10_us UInt32 codec (ZSTD(1)),
    rtt_p50_us UInt32 codec (ZSTD(1)),
    -- Delivery rates of single connections that the application did not limit, measured in the round: of those that met
    -- the path (left slow start, had something sent again, or 1 MB acknowledged), with the variance of their log2;
    share_connections UInt64 codec (ZSTD(1)),
    share_p25_bytes_per_s UInt64 codec (ZSTD(1)),
    share_p50_bytes_per_s UInt64 codec (ZSTD(1)),
    share_log2_variance Float64 codec (ZSTD(1)),
    share_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    -- of the others, which the path gives at least that.
    reached_connections UInt64 codec (ZSTD(1)),
    reached_p90_bytes_per_s UInt64 codec (ZSTD(1)),
    reached_state AggregateFunction(
        quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32
    ) codec (ZSTD(1)),
    -- Over short times, as long as polls are apart: what those with data in flight were delivered together, and how
    -- many those were.
    path_buckets UInt64 codec (ZSTD(1)),
    path_p90_bytes_per_s UInt64 codec (ZSTD(1)),
    path_state AggregateFunction(quantilesTDigestWeighted(0.1, 0.25, 0.5, 0.75, 0.9), Float32, UInt32) codec (ZSTD(1)),
    at_once_p90 UInt64 codec (ZSTD(1)),
    -- Of young connections.
    receiver_window_p50_bytes UInt32 codec (ZSTD(1)),
    -- First flights of more than ten segments, with the entry's values that are in force: how many, how many lost
    -- anything, segments sent again, all segments, and medians. A rate is of all that were starting at once.
    entry_flights UInt64 codec (ZSTD(1)),
    entry_lossy UInt64 codec (ZSTD(1)),
    entry_resent UInt64 codec (ZSTD(1)),
    entry_segments UInt64 codec (ZSTD(1)),
    entry_window_p50 UInt32 codec (ZSTD(1)),
    entry_rate_p50_bytes_per_s UInt64 codec (ZSTD(1)),
    entry_10k_p50_us UInt64 codec (ZSTD(1)),
    entry_50k_p50_us UInt64 codec (ZSTD(1)),
    entry_100k_p50_us UInt64 codec (ZSTD(1)),
    -- The same with its trial's.
    trial_flights UInt64 codec (ZSTD(1)),
    trial_lossy UInt64 codec (ZSTD(1)),
    trial_resent UInt64 codec (ZSTD(1)),
    trial_segments UInt64 codec (ZSTD(1)),
    trial_window_p50 UInt32 codec (ZSTD(1)),
    trial_rate_p50_bytes_per_s UInt64 codec (ZSTD(1)),
    trial_10k_p50_us UInt64 codec (ZSTD(1)),
    trial_50k_p50_us UInt64 codec (ZSTD(1)),
    trial_100k_p50_us UInt64 codec (ZSTD(1)),
    -- Starts with values in force that an edge's brake had cut.
    braked UInt64 codec (ZSTD(1)),
    -- Young connections of more than ten segments that started with the kernel's default, and those that lost anything.
    default_flights UInt64 codec (ZSTD(1)),
    default_lossy UInt64 codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMMDD(round)
order by (round, src_pop, destination, ip_version)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_paths$on_cluster as
select * except (generation) from rollup_paths -- noqa: AM04
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

-- How many connections of each path began at each host, by what each stands for.
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
select * except (generation) from rollup_path_starts -- noqa: AM04
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

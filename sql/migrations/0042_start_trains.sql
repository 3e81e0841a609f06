-- What paths carry, as the trains of segments show it with which connections start.
alter table tcp_samples$both$on_cluster
-- Bytes of the first segments that were delivered after the first of them, and in how long, microseconds.
add column if not exists train_bytes Nullable(UInt32) codec (ZSTD(1)) after lived_time,
add column if not exists train_time Nullable(UInt32) codec (ZSTD(1)) after train_bytes;

alter table rollup_flights$on_cluster
-- As fast as its first segments were delivered; 0 is unknown.
add column if not exists train_bytes_per_s UInt64 default 0 codec (ZSTD(1)) after lived_us;

drop view if exists round_flights$on_cluster;

create view if not exists round_flights$on_cluster as
select * except (generation) from rollup_flights -- noqa: AM04
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

alter table rollup_paths$on_cluster
-- How fast first segments were delivered, which leave at once with any values: connections that show it, what a quarter
-- of them are below, and their median.
add column if not exists trains UInt64 default 0 codec (ZSTD(1)) after receiver_window_p50_bytes,
add column if not exists train_p25_bytes_per_s UInt64 default 0 codec (ZSTD(1)) after trains,
add column if not exists train_p50_bytes_per_s UInt64 default 0 codec (ZSTD(1)) after train_p25_bytes_per_s;

drop view if exists round_paths$on_cluster;

create view if not exists round_paths$on_cluster as
select
    * except (generation), -- noqa: AM04
    share_sketch_p50_bytes_per_s,
    path_sketch_p90_bytes_per_s
from rollup_paths
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

alter table start_decisions$on_cluster
-- The same of the round, as the decision saw it.
add column if not exists trains UInt64 default 0 codec (ZSTD(1)) after receiver_window,
add column if not exists train_low_rate Nullable(Float64) codec (ZSTD(1)) after trains,
add column if not exists train_rate Nullable(Float64) codec (ZSTD(1)) after train_low_rate,
-- What is remembered of them: log2 of bytes per second, of how many, when there last were some, and whether nothing
-- beyond is worth a try.
add column if not exists train_log2 Nullable(Float64) codec (ZSTD(1)) after path_log2,
add column if not exists train_weight Float64 default 0 codec (ZSTD(1)) after train_log2,
add column if not exists train_at Nullable(DateTime('UTC')) codec (ZSTD(1)) after train_weight,
add column if not exists train_sharp Bool default false after train_at,
-- When first flights were last carried clearly less than that.
add column if not exists shared_at Nullable(DateTime('UTC')) codec (ZSTD(1)) after harmful_share;

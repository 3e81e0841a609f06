-- How much of the rate that connections were given the path carried.
alter table rollup_paths$on_cluster
-- Medians over first flights that lost nothing, in thousandths: the largest of 50 and 100 kB that the window covers, in
-- the time from its first acknowledgement to its last, over the rate that the connection started with. 0 is unknown.
add column if not exists entry_carried_permille UInt32 default 0 codec (ZSTD(1)) after entry_100k_p50_us,
add column if not exists trial_carried_permille UInt32 default 0 codec (ZSTD(1)) after trial_100k_p50_us;

drop view if exists round_paths$on_cluster;

create view if not exists round_paths$on_cluster as
select * except (generation) from rollup_paths -- noqa: AM04
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

alter table start_decisions$on_cluster
-- Whether what is in use is what harm left of what was.
add column if not exists was_cut Bool default false after harmful_share,
-- Of the rate that connections were given, what the path carried: 1 is all of it. Of decisions from before unknown.
add column if not exists carried_0 Nullable(Float64) codec (ZSTD(1)) after t100_0_us,
add column if not exists carried_1 Nullable(Float64) codec (ZSTD(1)) after t100_1_us;

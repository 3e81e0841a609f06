-- How much of the rate that all who start at once are given the path carried, apart from what a single one is given.
alter table rollup_flights$on_cluster
-- When it was established, microseconds since the epoch. Of rounds from before unknown, which is 0.
add column if not exists began_us Int64 default 0 codec (Delta, ZSTD(1)) after cookie,
-- The most that the last decisions before the round give a single one of its arm, bytes/s; 0 is nothing.
add column if not exists connection_rate Float64 default 0 codec (ZSTD(1)) after in_force;

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
-- Medians over first flights that lost nothing, in thousandths; 0 is unknown. From here on `*_carried_permille` is of
-- those that were limited by what a single one is given, these are of those that started while all of the host's part
-- of the path's rate was in use: what all of its first flights were delivered meanwhile, over that part.
add column if not exists entry_path_carried_permille UInt32 default 0 codec (ZSTD(1)) after entry_carried_permille,
add column if not exists trial_path_carried_permille UInt32 default 0 codec (ZSTD(1)) after trial_carried_permille;

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
-- Of the rate that all who start at once were given, what the path carried: 1 is all of it.
add column if not exists path_carried_0 Nullable(Float64) codec (ZSTD(1)) after carried_0,
add column if not exists path_carried_1 Nullable(Float64) codec (ZSTD(1)) after carried_1;

-- What the kernel's default loses in the same minutes as a path's values: of first flights that a brake left at it.
alter table rollup_paths$on_cluster
-- Of more than ten segments; those that lost anything, and the segments that they sent again.
add column if not exists braked_flights UInt64 default 0 codec (ZSTD(1)) after default_lossy,
add column if not exists braked_lossy UInt64 default 0 codec (ZSTD(1)) after braked_flights,
add column if not exists braked_resent UInt64 default 0 codec (ZSTD(1)) after braked_lossy;

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

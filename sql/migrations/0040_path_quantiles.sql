-- Quantiles out of the sketches, found once as a row is written, and not at each decision.
alter table rollup_paths$on_cluster
-- What the law of starts asks for unless its policy says otherwise. Rows from before give theirs as they are read.
add column if not exists share_sketch_p50_bytes_per_s Float32
materialized finalizeAggregation(share_state)[3] codec (ZSTD(1)),
add column if not exists path_sketch_p90_bytes_per_s Float32
materialized finalizeAggregation(path_state)[5] codec (ZSTD(1));

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

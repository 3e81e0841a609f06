-- How much was sent in connections' first flights: what was sent again in them is of these, not of a whole life.
alter table tcp_samples$both$on_cluster
-- Segments with data that were sent in the first flights, those that were sent again among them.
add column if not exists first_flight_segs Nullable(UInt32) codec (ZSTD(1)) after train_time;

alter table rollup_flights$on_cluster
-- The same; of a record without it, all that the connection sent, less what later flights sent again.
add column if not exists first_flight_segments UInt32 default segments codec (ZSTD(1)) after segments;

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

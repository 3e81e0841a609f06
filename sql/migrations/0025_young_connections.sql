alter table rollup_pairs
-- Of the young connections those that lost any of their first flight, and those whose retransmission timer ran out.
add column if not exists young_lossy_connections UInt64 default 0 codec (ZSTD(1)),
add column if not exists young_timeout_connections UInt64 default 0 codec (ZSTD(1));

drop view if exists round_pairs;

create view if not exists round_pairs as
select * except (generation) from rollup_pairs -- noqa: AM04
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

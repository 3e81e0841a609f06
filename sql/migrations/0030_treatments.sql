alter table rollup_sockets
-- Between which windows a connection that is new in the round began, segments: equal where it is known, 0 where nothing
-- is.
add column if not exists first_cwnd_low UInt32 default 0 codec (ZSTD(1)),
add column if not exists first_cwnd_high UInt32 default 0 codec (ZSTD(1));

-- What sockets show of the treatment: one row a round, host, pair of PoPs and IP version.
create table if not exists rollup_treatments ( -- noqa: PRS
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    host LowCardinality(String),
    src_pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    -- That had bytes acknowledged in the round, and those of them known to use BBR.
    connections UInt64 codec (ZSTD(1)),
    bbr_connections UInt64 codec (ZSTD(1)),
    -- New in the round, and something is known of the window that they began with; those of which it is exactly known.
    told_connections UInt64 codec (ZSTD(1)),
    exact_connections UInt64 codec (ZSTD(1)),
    -- First windows, segments, the eight most frequent; and how many connections began with each.
    first_cwnds Array(UInt32) codec (ZSTD(1)),
    first_cwnd_counts Array(UInt64) codec (ZSTD(1)),
    -- Medians of the least and of the greatest window that each of those told of can have begun with.
    first_cwnd_low_p50 Nullable(UInt32) codec (ZSTD(1)),
    first_cwnd_high_p50 Nullable(UInt32) codec (ZSTD(1))
)
engine = MergeTree
partition by toYYYYMM(round)
order by (round, host, dst_pop, ip_version)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_treatments as
select * except (generation) from rollup_treatments -- noqa: AM04
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

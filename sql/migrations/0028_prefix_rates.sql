-- What a round says of the path to each client prefix: one row a round, PoP and prefix, whatever its algorithms. Only
-- connections count that BBR would act on and whose last delivery rate was the path's: those with `acting_bytes`
-- acknowledged in their life, whose rate the application did not limit. What an application sends slowly, and an object
-- that ends in slow start, is slow on any path and under any algorithm.
create table if not exists rollup_prefix_rates$on_cluster ( -- noqa: PRS
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    ip_version UInt8,
    -- The first address of the client's /24 or /56, IPv4 mapped.
    client_prefix IPv6 codec (ZSTD(1)),
    -- The PoP whose prefixes hold it: back-office traffic; empty for clients.
    dst_pop LowCardinality(String),
    -- The policy's congestion.min_object_bytes when the round was rolled up.
    acting_bytes UInt64 codec (ZSTD(1)),
    -- With bytes acknowledged in the round; of those, with `acting_bytes` acknowledged in their life; of these, with a
    -- last delivery rate that the application limited.
    connections UInt32 codec (ZSTD(1)),
    acting_connections UInt32 codec (ZSTD(1)),
    app_limited_connections UInt32 codec (ZSTD(1)),
    -- Of the acting ones, with a rate that it did not limit: from here on everything is of these. Those under BBR are
    -- told apart, so that their rates can be discounted. One whose algorithm no record names is counted with the more
    -- frequent kind of the named ones.
    eligible_connections UInt32 codec (ZSTD(1)),
    eligible_bbr_connections UInt32 codec (ZSTD(1)),
    -- Medians by sample weight; 0 where there are none.
    delivery_rate_p50_bytes_per_s UInt64 codec (ZSTD(1)),
    bbr_delivery_rate_p50_bytes_per_s UInt64 codec (ZSTD(1)),
    rtt_p50_us UInt32 codec (ZSTD(1)),
    samples UInt64 codec (ZSTD(1)),
    bytes_acked UInt64 codec (ZSTD(1)),
    bytes_sent UInt64 codec (ZSTD(1)),
    bytes_retransmitted UInt64 codec (ZSTD(1)),
    -- The only host that showed them; empty where several did, or none.
    only_host LowCardinality(String) codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMMDD(round)
order by (round, pop, ip_version, client_prefix)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_prefix_rates$on_cluster as
select * except (generation) from rollup_prefix_rates -- noqa: AM04
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

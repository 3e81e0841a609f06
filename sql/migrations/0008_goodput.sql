-- One HTTP request as the edge's access log tells it (docs/reference/access-log.md). `request_id` names it for ever:
-- lines may be read twice.
create table if not exists http_requests$local$on_cluster (
    time_unix_us Int64 codec (Delta, ZSTD(1)),
    host LowCardinality(String) codec (ZSTD(1)),
    request_id UInt128 codec (ZSTD(1)),
    client_ip IPv6 codec (ZSTD(1)),
    server_ip IPv6 codec (ZSTD(1)),
    method LowCardinality(String) codec (ZSTD(1)),
    status UInt16 codec (ZSTD(1)),
    -- Of the body.
    bytes UInt64 codec (ZSTD(1)),
    -- From the request's first byte until the last byte of the answer was handed to the kernel.
    duration_us UInt64 codec (ZSTD(1)),
    pop LowCardinality(String) default dictGetOrDefault('fleet_pops', 'pop', server_ip, '') codec (ZSTD(1))
)
engine = ${replicated}ReplacingMergeTree$http_requests_replica
partition by toYYYYMMDD(fromUnixTimestamp64Micro(time_unix_us, 'UTC'))
order by (intDiv(time_unix_us, 300000000), host, time_unix_us, request_id)
settings fsync_after_insert = 1, fsync_part_directory = 1;$http_requests_distributed

-- Bytes of bodies per second of request time: one row a round, PoP, client prefix and class of the body's size, over
-- requests that were answered in full (status 200).
create table if not exists rollup_goodput$on_cluster ( -- noqa: PRS
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    ip_version UInt8,
    -- The first address of the client's /24 or /56, IPv4 mapped.
    client_prefix IPv6 codec (ZSTD(1)),
    -- As in rollup_outcomes.
    size_class_bytes UInt32,
    requests UInt64 codec (ZSTD(1)),
    bytes UInt64 codec (ZSTD(1)),
    duration_us UInt64 codec (ZSTD(1)),
    goodput_p10_bytes_per_s Nullable(UInt64) codec (ZSTD(1)),
    goodput_p50_bytes_per_s Nullable(UInt64) codec (ZSTD(1)),
    goodput_p90_bytes_per_s Nullable(UInt64) codec (ZSTD(1)),
    goodput_state AggregateFunction(quantilesTDigest(0.1, 0.25, 0.5, 0.75, 0.9), Float32) codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMMDD(round)
order by (round, pop, ip_version, client_prefix, size_class_bytes)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_goodput$on_cluster as
select * except (generation) from rollup_goodput
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

create view if not exists goodput$on_cluster as
select
    round,
    pop,
    ip_version,
    if(
        ip_version = 4,
        concat(replaceOne(toString(client_prefix), '::ffff:', ''), '/24'),
        concat(toString(client_prefix), '/56')
    ) as prefix,
    size_class_bytes / 1000 as from_kb,
    requests,
    bytes / 1000000 as delivered_mb,
    goodput_p10_bytes_per_s * 8 / 1000000 as goodput_p10_mbit_per_s,
    goodput_p50_bytes_per_s * 8 / 1000000 as goodput_mbit_per_s,
    goodput_p90_bytes_per_s * 8 / 1000000 as goodput_p90_mbit_per_s,
    goodput_state
from round_goodput;

-- Probes between PoPs as edges' files have them (docs/reference/probes.md): `springtide ingest-probes`. A host has one
-- row in five minutes for each other PoP, IP version and size, the latest: neither a file that is read twice nor a host
-- that writes more weighs more.
create table if not exists probes$on_cluster (
    -- When the connection was begun.
    time_unix_us Int64 codec (Delta, ZSTD(1)),
    -- The edge that fetched, and its PoP by fleet.yaml.
    host LowCardinality(String) codec (ZSTD(1)),
    pop LowCardinality(String) codec (ZSTD(1)),
    ip_version UInt8 codec (ZSTD(1)),
    -- That sent: its side's initial window acts.
    server_ip IPv6 codec (ZSTD(1)),
    server_pop LowCardinality(String) default dictGetOrDefault('fleet_pops', 'pop', server_ip, '') codec (ZSTD(1)),
    -- Of the object.
    bytes UInt32 codec (ZSTD(1)),
    -- ok, unreachable, timeout, closed or answer.
    result LowCardinality(String) codec (ZSTD(1)),
    -- Since the connection was begun, as far as it came.
    connect_us Nullable(UInt32) codec (ZSTD(1)),
    first_byte_us Nullable(UInt32) codec (ZSTD(1)),
    total_us Nullable(UInt32) codec (ZSTD(1)),
    -- What the server's side started with by its own report, segments.
    start_window Nullable(UInt32) codec (ZSTD(1))
)
engine = ${replicated}ReplacingMergeTree(${replica_and}time_unix_us)
partition by toYYYYMM(fromUnixTimestamp64Micro(time_unix_us, 'UTC'))
order by (intDiv(time_unix_us, 300000000), host, server_pop, ip_version, bytes)
settings fsync_after_insert = 1, fsync_part_directory = 1;

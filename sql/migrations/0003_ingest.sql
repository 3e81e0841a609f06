-- Every file that `springtide ingest` has loaded or rejected. `digest` is that of its bytes: a spool file that was
-- renamed or copied is recognised.
create table if not exists ingest_ledger$on_cluster (
    digest FixedString(32),
    outcome Enum8('loaded' = 1, 'rejected' = 2),
    file String codec (ZSTD(1)),
    position UInt64 codec (Delta, ZSTD(1)),
    bytes UInt64 codec (ZSTD(1)),
    row_count UInt32 codec (ZSTD(1)),
    reason LowCardinality(String),
    recorded_at DateTime('UTC') default now() codec (Delta, ZSTD(1))
)
engine = ${replicated}ReplacingMergeTree$replica
order by digest
settings fsync_after_insert = 1, fsync_part_directory = 1;

-- Content of a topic that could not be read: whole messages that are not envelopes of samples, and single samples that
-- do not fit tcp_samples, whose neighbours are loaded. Delivery is at least once: a message that comes again is the
-- same row.
create table if not exists rejected_messages$on_cluster (
    topic LowCardinality(String),
    kafka_partition UInt64,
    kafka_offset UInt64 codec (Delta, ZSTD(1)),
    message_key String codec (ZSTD(1)),
    -- Why it could not be read.
    error String codec (ZSTD(1)),
    message String codec (ZSTD(1)),
    -- The sender chooses this time.
    message_time DateTime('UTC') codec (Delta, ZSTD(1)),
    -- 0: `message` is the whole message. Otherwise `message` is one of its samples, a JSON object with the contract's
    -- names and with addresses in hexadecimal, and this is its hash.
    sample_hash UInt64 codec (ZSTD(1)),
    -- The time for which the row is kept counts from here.
    kept_at DateTime('UTC') default now() codec (Delta, ZSTD(1))
)
engine = ${replicated}ReplacingMergeTree$replica
primary key (topic, kafka_partition, kafka_offset)
order by (topic, kafka_partition, kafka_offset, sample_hash)
-- A consumer commits its offsets once these rows are written, so they must survive a power cut, as samples do.
settings fsync_after_insert = 1, fsync_part_directory = 1;

-- The tables and views with which a server consumes Kafka by itself. `springtide consume` makes them, and refuses to
-- make others while they exist.
create table if not exists kafka_tables$on_cluster (
    -- samples or requests.
    name LowCardinality(String),
    -- SHA-256 of the statements, in hexadecimal; empty once they are removed.
    checksum String,
    changed_at DateTime64(6, 'UTC') default now64(6)
)
engine = ${replicated}ReplacingMergeTree(${replica_and}changed_at)
order by name;

-- One HTTP request, from the edge's access log (docs/reference/access-log.md). `request_id` identifies it: a line may
-- be read twice.
create table if not exists http_requests$local$on_cluster (
    time_unix_us Int64 codec (Delta, ZSTD(1)),
    host LowCardinality(String) codec (ZSTD(1)),
    request_id UInt128 codec (ZSTD(1)),
    client_ip IPv6 codec (ZSTD(1)),
    server_ip IPv6 codec (ZSTD(1)),
    method LowCardinality(String) codec (ZSTD(1)),
    status UInt16 codec (ZSTD(1)),
    -- Bytes of the body.
    bytes UInt64 codec (ZSTD(1)),
    -- From the request's first byte until the last byte of the answer was handed to the kernel.
    duration_us UInt64 codec (ZSTD(1)),
    pop LowCardinality(String) default dictGetOrDefault('fleet_pops', 'pop', server_ip, '') codec (ZSTD(1))
)
engine = ${replicated}ReplacingMergeTree$http_requests_replica
partition by toYYYYMMDD(fromUnixTimestamp64Micro(time_unix_us, 'UTC'))
order by (intDiv(time_unix_us, 300000000), host, time_unix_us, request_id)
settings fsync_after_insert = 1, fsync_part_directory = 1;$http_requests_distributed

-- Probes between PoPs, from the edges' files (docs/reference/probes.md): `springtide ingest-probes`. A host has one row
-- in five minutes for each other PoP, IP version and size, the latest. A file that is read twice therefore weighs no
-- more, nor does a host that writes more.
create table if not exists probes$on_cluster (
    -- When the connection was begun.
    time_unix_us Int64 codec (Delta, ZSTD(1)),
    -- The edge that fetched, and its PoP by fleet.yaml.
    host LowCardinality(String) codec (ZSTD(1)),
    pop LowCardinality(String) codec (ZSTD(1)),
    ip_version UInt8 codec (ZSTD(1)),
    -- The side that sent: its initial window acts.
    server_ip IPv6 codec (ZSTD(1)),
    server_pop LowCardinality(String) default dictGetOrDefault('fleet_pops', 'pop', server_ip, '') codec (ZSTD(1)),
    -- Bytes of the object.
    bytes UInt32 codec (ZSTD(1)),
    -- ok, unreachable, timeout, closed or answer.
    result LowCardinality(String) codec (ZSTD(1)),
    -- Times since the connection was begun; null where it did not come to that.
    connect_us Nullable(UInt32) codec (ZSTD(1)),
    first_byte_us Nullable(UInt32) codec (ZSTD(1)),
    total_us Nullable(UInt32) codec (ZSTD(1)),
    -- The window that the server's side started with, as it reported, segments.
    start_window Nullable(UInt32) codec (ZSTD(1))
)
engine = ${replicated}ReplacingMergeTree(${replica_and}time_unix_us)
partition by toYYYYMM(fromUnixTimestamp64Micro(time_unix_us, 'UTC'))
order by (intDiv(time_unix_us, 300000000), host, server_pop, ip_version, bytes)
settings fsync_after_insert = 1, fsync_part_directory = 1;

-- What `springtide ingest` has dealt with. `digest` names the bytes and not the place: a spool file that was renamed or
-- copied is known again.
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

-- What a server was given to consume from Kafka by itself: `springtide consume` makes its tables and views, and refuses
-- to make others while they stand.
create table if not exists kafka_tables$on_cluster (
    -- samples or requests.
    name LowCardinality(String),
    -- SHA-256 of the statements, in hexadecimal; empty once they are taken away.
    checksum String,
    changed_at DateTime64(6, 'UTC') default now64(6)
)
engine = ${replicated}ReplacingMergeTree(${replica_and}changed_at)
order by name;

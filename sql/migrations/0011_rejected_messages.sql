-- Messages of a topic that are no envelopes of samples: what the broker held, where, and why it could not be read.
create table if not exists rejected_messages$on_cluster (
    topic LowCardinality(String),
    kafka_partition UInt64,
    kafka_offset UInt64 codec (Delta, ZSTD(1)),
    message_key String codec (ZSTD(1)),
    error String codec (ZSTD(1)),
    message String codec (ZSTD(1)),
    message_time DateTime('UTC') codec (Delta, ZSTD(1))
)
-- Delivery is at least once: a message that comes again is the same row.
engine = ${replicated}ReplacingMergeTree$replica
order by (topic, kafka_partition, kafka_offset);

-- Who did what to the fleet, when and why; one row an event, sent as often as need be.
create table if not exists audit$on_cluster (
    at DateTime('UTC') codec (Delta, ZSTD(1)),
    id String codec (ZSTD(1)),
    who LowCardinality(String),
    -- publish, force, rollout, wave, gate, rollback, withdraw or drift.
    event LowCardinality(String),
    -- The publication's name: its round, and when it was made.
    publication String codec (ZSTD(1)),
    -- Over the digests of its bundles; empty where the event has none of its own.
    digest String codec (ZSTD(1)),
    edges Array(LowCardinality(String)) codec (ZSTD(1)),
    verdict LowCardinality(String),
    reason String codec (ZSTD(1)),
    -- JSON: a gate's inputs, what a cap said.
    details String codec (ZSTD(3))
)
engine = ${replicated}ReplacingMergeTree$replica
partition by toYYYYMM(at)
order by (at, id);

-- Operators' words for single edges, round by round: what these edges are given in place of their pair's decision.
create table if not exists initcwnd_edge_decisions$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    edge LowCardinality(String),
    src_pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    -- Segments; null: the kernel's default.
    initcwnd Nullable(UInt32),
    -- When the word ends, and why it was given.
    until DateTime('UTC'),
    why String codec (ZSTD(1)),
    policy_version LowCardinality(String)
)
engine = ${replicated}ReplacingMergeTree$replica
partition by toYYYYMM(round)
order by (round, edge, dst_pop, ip_version);

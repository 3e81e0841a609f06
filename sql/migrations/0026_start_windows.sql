-- Which publication held on each edge from when on, as the audit tells it: made and emptied within one run of the
-- round.
create table if not exists rollup_starts$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    edge LowCardinality(String),
    -- Microseconds since the epoch; until the edge's next row.
    since_us Int64 codec (Delta, ZSTD(1)),
    -- The round whose decisions it has; 1970 is none.
    decided DateTime('UTC') codec (Delta, ZSTD(1)),
    -- When its bundles expire: a decision that died before was left out of them.
    expires DateTime('UTC') codec (Delta, ZSTD(1)),
    -- Whether the edge was held out, with the kernel's default towards every PoP that no operator spoke of.
    held_out Bool
)
engine = ${replicated}MergeTree$replica
partition by generation
order by (round, edge, since_us);

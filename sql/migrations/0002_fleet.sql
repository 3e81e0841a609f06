-- fleet.yaml's prefixes, written anew by every ingest whose fleet differs, and the longest-prefix match over them.
create table if not exists fleet_prefixes$on_cluster (
    prefix String,
    pop LowCardinality(String)
)
engine = ${replicated}MergeTree$replica
order by prefix;

-- The linter's dialect has no statement for dictionaries.
create dictionary if not exists fleet_pops$on_cluster ( -- noqa: PRS
    prefix String,
    pop String
)
primary key prefix
source(clickhouse(table 'fleet_prefixes'))
layout(ip_trie)
lifetime(0);

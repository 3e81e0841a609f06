-- Which autonomous system originates a prefix: optional, written by `springtide asn`. Without it every number is 0.
create table if not exists asn_prefixes$on_cluster (
    prefix String,
    asn UInt32,
    name LowCardinality(String)
)
engine = ${replicated}MergeTree$replica
order by prefix;

-- The longest-prefix match over asn_prefixes, for any query: dictGetOrDefault('asns', 'name', client_prefix, '').
create dictionary if not exists asns$on_cluster ( -- noqa: PRS
    prefix String,
    asn UInt32,
    name String
)
primary key prefix
source(clickhouse(table 'asn_prefixes'))
layout(ip_trie)
lifetime(0);

-- Whoever inserts gets the same: Kafka's view, `springtide ingest`, a collector that writes here itself.
alter table tcp_samples$both$on_cluster
modify column if exists src_pop default dictGetOrDefault('fleet_pops', 'pop', src_ip, ''),
modify column if exists dst_pop default dictGetOrDefault('fleet_pops', 'pop', dst_ip, ''),
-- The peer's /24 or /56: its first address, IPv4 mapped.
add column if not exists client_prefix IPv6
default tupleElement(IPv6CIDRToRange(dst_ip, if(ip_version = 4, 120, 56)), 1) codec (ZSTD(1)),
-- The autonomous system that originates the peer's address; 0 when asn_prefixes has none.
add column if not exists dst_asn UInt32
default dictGetOrDefault('asns', 'asn', dst_ip, 0) codec (ZSTD(1));

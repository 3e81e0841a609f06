-- Every ingest whose fleet differs replaces these rows with the prefixes of fleet.yaml.
create table if not exists fleet_prefixes$on_cluster (
    prefix String,
    pop LowCardinality(String)
)
engine = ${replicated}MergeTree$replica
order by prefix;

-- The longest-prefix match over fleet_prefixes: which PoP has an address.
create dictionary if not exists fleet_pops$on_cluster ( -- noqa: PRS
    prefix String,
    pop String
)
primary key prefix
source(clickhouse(table 'fleet_prefixes'))
layout(ip_trie)
lifetime(0);

-- The edges of fleet.yaml. Each fleet that differs from the one before has a revision of its own. One insert writes one
-- revision, so that no reader sees half of a fleet.
create table if not exists fleet_edge_revisions$on_cluster (
    revision UInt64,
    -- Empty in a revision of a fleet without edges.
    edge String,
    pop LowCardinality(String)
)
engine = ${replicated}MergeTree$replica
order by (revision, edge);

-- The edges of the newest fleet.yaml, each with its PoP. Samples of other hosts do not count.
create view if not exists fleet_edges$on_cluster as
select distinct
    edge,
    pop
from fleet_edge_revisions
where edge != '' and revision = (select max(newest.revision) from fleet_edge_revisions as newest);

-- The regions of PoPs in fleet.yaml. Each fleet that differs from the one before has a revision of its own.
create table if not exists fleet_region_revisions$on_cluster (
    revision UInt64,
    pop LowCardinality(String),
    region LowCardinality(String)
)
engine = ${replicated}MergeTree$replica
order by (revision, pop);

-- The region of each PoP in the newest fleet.yaml.
create view if not exists fleet_regions$on_cluster as
select distinct
    pop,
    region
from fleet_region_revisions
where revision = (select max(newest.revision) from fleet_region_revisions as newest);

-- The tenants of fleet.yaml, one row for each pair of a port and a prefix. Each fleet that differs from the one before
-- has a revision of its own. One insert writes one revision.
create table if not exists fleet_tenant_revisions$on_cluster (
    revision UInt64,
    -- Empty in a revision of a fleet without tenants.
    tenant LowCardinality(String),
    -- The port on the edge's side; 0 is any.
    port UInt16,
    -- The first and the last of the edge's own addresses, IPv4 mapped.
    first_ip IPv6,
    last_ip IPv6,
    -- `start: off`: the tenant's connections keep the kernel's default start.
    opted_out Bool
)
engine = ${replicated}MergeTree$replica
order by (revision, tenant, port, first_ip);

-- The tenants of the newest fleet.yaml. A connection that matches no row has an empty tenant.
create view if not exists fleet_tenants$on_cluster as
select distinct
    tenant,
    port,
    first_ip,
    last_ip,
    opted_out
from fleet_tenant_revisions
where tenant != '' and revision = (select max(newest.revision) from fleet_tenant_revisions as newest);

-- fleet_tenants as one row, for the roll-up. Rows that are only a port are looked up by it; a socket is compared with
-- the others one by one. Both give a place in `names` and `opted`, whose first element is that of no tenant.
create view if not exists fleet_tenancy$on_cluster as
select
    groupArrayIf(port, is_port) as ports,
    groupArrayIf(place, is_port) as port_places,
    groupArrayIf((port, first_ip, last_ip), not is_port) as rules,
    arrayPushFront(groupArrayIf(place, not is_port), 0) as rule_places,
    arrayPushFront(groupArray(toString(tenant)), '') as names,
    arrayPushFront(groupArray(opted_out), false) as opted
from (
    select
        tenant,
        port,
        first_ip,
        last_ip,
        opted_out,
        port > 0 and first_ip = toIPv6('::') and last_ip = toIPv6('ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff') as is_port,
        row_number() over (order by tenant, port, first_ip) as place
    from fleet_tenants
    order by tenant, port, first_ip
) as listed;

-- The autonomous system that originates a prefix. `springtide asn` writes it; without it every number is 0.
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

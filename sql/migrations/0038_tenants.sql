-- fleet.yaml's tenants, each fleet that differs from the one before it under a revision of its own: one insert is one
-- revision. One row for each pair of a port and a prefix.
create table if not exists fleet_tenant_revisions$on_cluster (
    revision UInt64,
    -- Empty in a revision of a fleet without tenants.
    tenant LowCardinality(String),
    -- Of the edge's side; 0 is any.
    port UInt16,
    -- Of the edge's own addresses, IPv4 mapped.
    first_ip IPv6,
    last_ip IPv6,
    -- `start: off`: its connections keep the kernel's default start.
    opted_out Bool
)
engine = ${replicated}MergeTree$replica
order by (revision, tenant, port, first_ip);

-- Whose connections are whose: of a connection that matches no row the tenant is empty.
create view if not exists fleet_tenants$on_cluster as
select distinct
    tenant,
    port,
    first_ip,
    last_ip,
    opted_out
from fleet_tenant_revisions
where tenant != '' and revision = (select max(newest.revision) from fleet_tenant_revisions as newest);

-- The same as one row, for the roll-up: places in `names` and `opted`, which begin with nobody. Ports alone are looked
-- up; with the others a socket is compared one by one.
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

alter table rollup_sockets$on_cluster
-- By fleet.yaml, from the edge's port and address; empty where it names none.
add column if not exists tenant LowCardinality(String) default '',
-- Whether that tenant keeps the kernel's default start.
add column if not exists opted_out Bool default false,
-- The autonomous system that originates the peer's address (`springtide asn`); 0 is unknown.
add column if not exists dst_asn UInt32 default 0,
-- Whether it began with other values than the kernel's default: as the edge's program wrote down; of others, whether
-- the window that was decided for their edge is another.
add column if not exists started Bool default false;

drop view if exists round_sockets$on_cluster;

create view if not exists round_sockets$on_cluster as
select * except (generation, counted, presence) from rollup_sockets -- noqa: AM04
where
    counted
    and (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

-- The round's closed connections that delivered something to another PoP or to a client, by whose they were, where they
-- went, and whether they began with other values than the kernel's. Laws read none of it.
create table if not exists rollup_slices$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    -- Empty for clients.
    dst_pop LowCardinality(String),
    ip_version UInt8,
    tenant LowCardinality(String),
    dst_asn UInt32,
    started Bool,
    connections UInt64 codec (ZSTD(1)),
    -- That lost something.
    lossy_connections UInt64 codec (ZSTD(1)),
    bytes_acked UInt64 codec (ZSTD(1)),
    bytes_sent UInt64 codec (ZSTD(1)),
    bytes_retransmitted UInt64 codec (ZSTD(1)),
    -- Those that delivered 100,000 to 299,999 bytes, and the sum of thousandths of the logarithms (base 2) of their
    -- times with data outstanding, microseconds: whole numbers add up to the same in any order.
    timed_connections UInt64 codec (ZSTD(1)),
    busy_log2_thousandths UInt64 codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMM(round)
order by (round, pop, dst_pop, ip_version, tenant, dst_asn, started)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_slices$on_cluster as
select * except (generation) from rollup_slices -- noqa: AM04
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

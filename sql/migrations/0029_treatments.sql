alter table rollup_sockets$on_cluster
-- Between which windows a connection that is new in the round began, as far as its records tell, segments: equal where
-- it is exactly known, 0 where nothing is.
add column if not exists first_cwnd_low UInt32 default 0 codec (ZSTD(1)),
add column if not exists first_cwnd_high UInt32 default 0 codec (ZSTD(1));

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

-- What was decided and what sockets show of it: one row a round, host, pair of PoPs, IP version and decided window.
create table if not exists rollup_treatments$on_cluster ( -- noqa: PRS
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    host LowCardinality(String),
    src_pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    -- What the publication that held on the edge when connections began gave them, segments; 10, the kernel's default,
    -- where none did.
    decided_cwnd UInt32 codec (ZSTD(1)),
    -- same: of five connections or more whose first window is exactly known, four in five began with what was decided.
    -- differs: fewer did; or, where too few are exactly known, half of those told of cannot have.
    seen Enum8('unknown' = 0, 'same' = 1, 'differs' = 2),
    -- That had bytes acknowledged in the round, and those of them known to use BBR.
    connections UInt64 codec (ZSTD(1)),
    bbr_connections UInt64 codec (ZSTD(1)),
    -- New in the round, and something is known of the window that they began with; those of which it is exactly known.
    told_connections UInt64 codec (ZSTD(1)),
    exact_connections UInt64 codec (ZSTD(1)),
    -- First windows, segments, the eight most frequent; and how many connections began with each.
    first_cwnds Array(UInt32) codec (ZSTD(1)),
    first_cwnd_counts Array(UInt64) codec (ZSTD(1)),
    -- Medians of the least and of the greatest window that each of those told of can have begun with.
    first_cwnd_low_p50 Nullable(UInt32) codec (ZSTD(1)),
    first_cwnd_high_p50 Nullable(UInt32) codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMM(round)
order by (round, host, dst_pop, ip_version, decided_cwnd)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_treatments$on_cluster as
select * except (generation) from rollup_treatments -- noqa: AM04
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

-- Client prefixes that were decided for BBR, or held out of it, in an earlier round and are still, beside what their
-- connections use.
create view if not exists prefix_treatments$on_cluster as
with used as (
    select
        round,
        pop,
        client_prefix,
        sumIf(bytes_acked, startsWith(congestion_algorithm, 'bbr')) as bbr_bytes,
        sumIf(bytes_acked, congestion_algorithm != '') as known_bytes
    from round_prefixes
    group by round, pop, client_prefix
),

decided as (
    select
        round,
        pop,
        client_prefix,
        ip_version,
        algorithm,
        held_out
    from congestion_decisions final
    where (algorithm = 'bbr' or held_out) and selected_since < round
)

select
    decided.round as round,
    decided.pop as pop,
    decided.ip_version as ip_version,
    decided.client_prefix as client_prefix,
    if(
        decided.ip_version = 4,
        concat(replaceOne(toString(decided.client_prefix), '::ffff:', ''), '/24'),
        concat(toString(decided.client_prefix), '/56')
    ) as prefix,
    decided.algorithm as decided,
    decided.held_out as held_out,
    used.known_bytes as known_bytes,
    if(used.known_bytes > 0, used.bbr_bytes / used.known_bytes, null) as bbr_share,
    -- BBR is for connections that have delivered some: bytes tell, and not connections.
    multiIf(
        used.known_bytes = 0, 'unknown', (2 * used.bbr_bytes >= used.known_bytes) = (decided = 'bbr'), 'same', 'differs'
    ) as seen
from decided
left join used on decided.round = used.round and decided.pop = used.pop and decided.client_prefix = used.client_prefix;

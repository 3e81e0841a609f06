alter table rollup_sockets$on_cluster
-- Whether its values are possible: what no connection can have said is kept, and counts for nothing.
add column if not exists counted Bool default true,
-- What the polls of its namespace show: nothing (it is too young, or nothing of the sort is known); it from before the
-- round until its end; the same, but not at each poll; it at one, and then neither it nor its close.
add column if not exists presence Enum8('brief' = 0, 'steady' = 1, 'skipped' = 2, 'vanished' = 3) default 'brief';

alter table rollup_prefixes$on_cluster
-- The only host that showed it; empty where several did.
add column if not exists only_host LowCardinality(String) default '' codec (ZSTD(1));

alter table rollup_hosts$on_cluster
-- `closes`, and as many more as sockets vanished without theirs.
add column if not exists closes_expected UInt64 default closes codec (ZSTD(1));

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

drop view if exists round_prefixes$on_cluster;

create view if not exists round_prefixes$on_cluster as
select * except (generation) from rollup_prefixes -- noqa: AM04
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

drop view if exists round_hosts$on_cluster;

create view if not exists round_hosts$on_cluster as
select * except (generation) from rollup_hosts -- noqa: AM04
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

drop view if exists hosts$on_cluster;

create view if not exists hosts$on_cluster as
select
    round,
    host,
    pop,
    polls_seen,
    polls_expected,
    rows_seen,
    rows_expected,
    if(rows_expected > 0, 100 * rows_seen / rows_expected, 100) as complete_percent,
    closes,
    closes_expected
from round_hosts;

-- Who said in the round what does not count, one row a host and reason; of those that fleet.yaml does not name the 100
-- with the most samples, and the rest as one row without a name.
create table if not exists rollup_rogues$on_cluster ( -- noqa: PRS
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    -- As it called itself.
    host String,
    why Enum8(
        -- fleet.yaml names no such edge: `times` are its samples. None counts.
        'not_in_fleet' = 1,
        -- It names a PoP that is not the one that fleet.yaml has it in: samples. The fleet's PoP counts.
        'other_pop' = 2,
        -- Connections with values that no connection can have. They do not count, its others do.
        'impossible_values' = 3,
        -- Boots that ran at once: two machines say that they are this edge, or its clock went back.
        'several_boots' = 4,
        -- Numbers of polls that go back, or further on than a round has seconds. Gaps between them do not count.
        'poll_numbers' = 5
    ),
    times UInt64 codec (ZSTD(1)),
    -- 1, or how many are in the row without a name.
    hosts UInt64 codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMM(round)
order by (round, why, host);

create view if not exists round_rogues$on_cluster as
select * except (generation) from rollup_rogues -- noqa: AM04
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

-- One row a poll of a namespace that the round or the one before it shows: from these the sockets' and the hosts' rows
-- of the round are made. Short-lived, as rollup_sockets is.
create table if not exists rollup_polls$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    host LowCardinality(String),
    boot_id LowCardinality(String),
    netns UInt64 codec (Delta, ZSTD(1)),
    poll_sequence UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    -- Of its first and its last row in the two rounds, microseconds since the epoch.
    began_us Int64 codec (Delta, ZSTD(1)),
    ended_us Int64 codec (Delta, ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMMDD(round)
order by (round, host);

create view if not exists round_polls$on_cluster as
select
    rollup_polls.round as round,
    rollup_polls.host as host,
    rollup_polls.boot_id as boot_id,
    rollup_polls.netns as netns,
    rollup_polls.poll_sequence as poll_sequence,
    rollup_polls.pop as pop,
    rollup_polls.began_us as began_us,
    rollup_polls.ended_us as ended_us
from rollup_polls
inner join rollups final on rollup_polls.round = rollups.round and rollup_polls.generation = rollups.generation;

alter table tcp_samples$both$on_cluster
-- When the row came here: for a poll's rows, how long they took from the host.
add column if not exists inserted_at DateTime('UTC') materialized now() codec (DoubleDelta, ZSTD(1));

-- How long rows were on their way, by host and five minutes of their own time.
create view if not exists ingest_lag$on_cluster as
select
    toDateTime(intDiv(time_unix_us, 300000000) * 300, 'UTC') as since,
    host,
    count() as row_count,
    median(toUnixTimestamp(inserted_at) - time_unix_us / 1000000) as lag_p50_s,
    max(toUnixTimestamp(inserted_at) - time_unix_us / 1000000) as lag_max_s
from tcp_samples
group by since, host;

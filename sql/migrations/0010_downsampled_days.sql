-- Days have the columns of hours.
create table if not exists pair_days$on_cluster as pair_hours -- noqa: PRS
engine = ${replicated}ReplacingMergeTree(${replica_and}made_at)
partition by toYear(since)
order by (since, src_pop, dst_pop, ip_version)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create table if not exists prefix_days$on_cluster as prefix_hours -- noqa: PRS
engine = ${replicated}ReplacingMergeTree(${replica_and}made_at)
partition by toYear(since)
order by (since, pop, ip_version, client_prefix, congestion_algorithm)
settings fsync_after_insert = 1, fsync_part_directory = 1;

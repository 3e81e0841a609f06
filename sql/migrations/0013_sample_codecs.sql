-- Codecs by measurement, on replayed captures: `python -m bench.pipeline --codecs` prints what each column takes under
-- each. Ages and numbers of polls grow by steps (Delta); rates and times of a busy socket share their high bits and
-- nothing else (T64); counters whose steps are as random as they are large have ZSTD alone.
alter table tcp_samples$both$on_cluster
modify column if exists poll_sequence UInt64 codec (DoubleDelta, ZSTD(1)),
modify column if exists netns UInt64 codec (Delta, ZSTD(1)),
modify column if exists cgroup_id Nullable(UInt64) codec (Delta, ZSTD(1)),
modify column if exists last_data_sent Nullable(UInt32) codec (Delta, ZSTD(1)),
modify column if exists last_data_recv Nullable(UInt32) codec (Delta, ZSTD(1)),
modify column if exists last_ack_recv Nullable(UInt32) codec (Delta, ZSTD(1)),
modify column if exists last_ack_sent Nullable(UInt32) codec (Delta, ZSTD(1)),
modify column if exists rtt Nullable(UInt32) codec (T64, ZSTD(1)),
modify column if exists rttvar Nullable(UInt32) codec (T64, ZSTD(1)),
modify column if exists rto Nullable(UInt32) codec (T64, ZSTD(1)),
modify column if exists delivery_rate Nullable(UInt64) codec (T64, ZSTD(1)),
modify column if exists snd_cwnd Nullable(UInt32) codec (Delta, ZSTD(1)),
modify column if exists bytes_acked Nullable(UInt64) codec (ZSTD(1)),
modify column if exists bytes_sent Nullable(UInt64) codec (ZSTD(1)),
modify column if exists delivery_rate_app_limited Nullable(Bool) codec (T64, ZSTD(1));

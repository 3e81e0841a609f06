-- What a connection really started with, as the eBPF program of springtide-edge wrote it down: all five, or none where
-- that is not known.
alter table tcp_samples$both$on_cluster
-- Round of the bundle, seconds since the epoch.
add column if not exists started_round Nullable(UInt64) codec (ZSTD(1)) after dctcp_ab_tot,
-- First window that was set, segments; 0 is the kernel's default.
add column if not exists started_window Nullable(UInt32) codec (ZSTD(1)) after started_round,
-- Pacing rate that was set, bytes per second; 0 is none.
add column if not exists started_rate Nullable(UInt32) codec (ZSTD(1)) after started_window,
-- 0 the entry's values, 1 its trial's.
add column if not exists started_arm Nullable(UInt8) codec (ZSTD(1)) after started_rate,
-- 0 as the bundle says, 1 half of it, 2 the kernel's default.
add column if not exists started_step Nullable(UInt8) codec (ZSTD(1)) after started_arm;

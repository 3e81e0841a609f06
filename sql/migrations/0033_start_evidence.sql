-- Of decisions from before neither is known: 0.
alter table start_decisions$on_cluster
-- Segments that a first flight with the kernel's default sends again, where it sends any again.
add column if not exists default_resent Float64 default 0 codec (ZSTD(1)) after default_lossy,
-- The connection rate that the evidence asked for when harmful_rate did harm.
add column if not exists harmful_share Float64 default 0 codec (ZSTD(1)) after hold_s;

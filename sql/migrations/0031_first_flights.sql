-- How a connection's first flights went, as the eBPF program of springtide-edge saw it: rows of their own kind, whose
-- state is UNSPECIFIED. Times in microseconds since it was established, null where it did not happen.
alter table tcp_samples$both$on_cluster
modify column kind Enum8('UNSPECIFIED' = 0, 'POLL' = 1, 'CLOSE' = 2, 'FIRST_FLIGHT' = 3) codec (ZSTD(1)),
-- By how many its entry's rate was divided; 0 without a rate, or where nothing was sent.
add column if not exists started_at_once Nullable(UInt32) codec (ZSTD(1)) after started_step,
-- Length of the entry's prefix, in the socket's own IP version.
add column if not exists started_prefix_length Nullable(UInt8) codec (ZSTD(1)) after started_at_once,
-- Segments of the first flights that were sent again.
add column if not exists first_flight_retrans Nullable(UInt32) codec (ZSTD(1)) after started_prefix_length,
-- Round-trip time of the handshake.
add column if not exists handshake_rtt Nullable(UInt32) codec (ZSTD(1)) after first_flight_retrans,
-- First data acknowledged.
add column if not exists first_acked_time Nullable(UInt32) codec (ZSTD(1)) after handshake_rtt,
-- 10,000, 50,000 and 100,000 bytes acknowledged.
add column if not exists acked_10k_time Nullable(UInt32) codec (ZSTD(1)) after first_acked_time,
add column if not exists acked_50k_time Nullable(UInt32) codec (ZSTD(1)) after acked_10k_time,
add column if not exists acked_100k_time Nullable(UInt32) codec (ZSTD(1)) after acked_50k_time,
-- The cap of the pacing rate lifted.
add column if not exists cap_lifted_time Nullable(UInt32) codec (ZSTD(1)) after acked_100k_time,
-- Closed.
add column if not exists lived_time Nullable(UInt32) codec (ZSTD(1)) after cap_lifted_time;

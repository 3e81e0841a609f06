-- noqa: disable=CP02
alter table start_decisions$on_cluster
-- What 50 and 100 kB took of first flights with the kernel's default, beside a trial, and when that was last seen: no
-- values are given by which they would take longer.
add column if not exists default_t50_us Float32 default 0 codec (LZ4) after default_at,
add column if not exists default_t100_us Float32 default 0 codec (LZ4) after default_t50_us,
add column if not exists default_timed_at Nullable(DateTime('UTC')) codec (LZ4) after default_t100_us;
-- noqa: enable=CP02

-- What the loss guard saw and what it remembers of a pair. Decisions from before have no ceiling.
alter table initcwnd_decisions$on_cluster
-- Of young_connections: how many lost any of their first flight, and of how many a retransmission timer ran out.
-- young_retransmit_ratio is no longer written.
add column if not exists young_lossy_connections UInt64 default 0 codec (ZSTD(1)) after young_retransmit_ratio,
add column if not exists young_timeout_connections UInt64 default 0 codec (ZSTD(1)) after young_lossy_connections,
-- How long the guard holds after harm; it doubles where a step beyond a ceiling did harm again.
add column if not exists guard_hold_s UInt32 default 0 codec (ZSTD(1)) after guard_until,
-- Segments: the most that this round allowed (null: no harm was ever seen), the window that was judged clean last or,
-- below a ceiling, the largest one, and the one that last did harm.
add column if not exists ceiling_initcwnd Nullable(UInt32) codec (ZSTD(1)) after guard_hold_s,
add column if not exists clean_initcwnd Nullable(UInt32) codec (ZSTD(1)) after ceiling_initcwnd,
add column if not exists harmful_initcwnd Nullable(UInt32) codec (ZSTD(1)) after clean_initcwnd,
-- Young connections that last started with the kernel's default, and how many of them were lossy.
add column if not exists default_connections UInt64 default 0 codec (ZSTD(1)) after harmful_initcwnd,
add column if not exists default_lossy UInt64 default 0 codec (ZSTD(1)) after default_connections,
-- How many rounds the window has been in use, and the young connections since that do not yet suffice for a judgement.
add column if not exists trial_rounds UInt32 default 0 codec (ZSTD(1)) after default_lossy,
add column if not exists trial_connections UInt64 default 0 codec (ZSTD(1)) after trial_rounds,
add column if not exists trial_lossy UInt64 default 0 codec (ZSTD(1)) after trial_connections;

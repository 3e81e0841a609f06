-- Which pairs of PoPs are limited by the receiver's window?
-- There a larger initial window requires a larger tcp_rmem at the receiver first.
--
-- Parameters:
--   hours UInt32 = 24: how far back from the newest round
--   min_percent Float64 = 1: of the busy time
--   top UInt32 = 20: rows
select
    src_pop,
    dst_pop,
    ip_version,
    round(avg(receiver_limited_percent), 1) as limited_percent,
    round(avg(receiver_window_kb), 1) as window_kb,
    round(avg(rtt_ms), 1) as mean_rtt_ms,
    -- The most that a window of that size can carry at that round-trip time.
    round(window_kb * 8 / mean_rtt_ms, 1) as ceiling_mbit_per_s
from pairs
where
    round > (select maxIf(rollups.round, rollups.round <= now()) from rollups final) - interval {hours:UInt32} hour
    and round <= now()
group by src_pop, dst_pop, ip_version
having limited_percent >= {min_percent:Float64}
order by limited_percent desc, src_pop asc, dst_pop asc, ip_version asc
limit {top:UInt32}

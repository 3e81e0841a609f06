-- How do connections' first flights go, by the values that they started with?
-- By the records that springtide-edge's program leaves: a window of 0 is the kernel's default. What is lost is of those
-- that sent more than the kernel's own ten segments. Times are since the connection was established.
--
-- Parameters:
--   src String = '': one edge's host; all when empty
--   hours UInt32 = 1: how far back from the newest round
--   top UInt32 = 50: rows
select
    host,
    if(dst_pop = '', 'clients', toString(dst_pop)) as peer,
    started_window as initcwnd,
    if(started_arm = 1, 'trial', 'entry') as arm,
    transform(started_step, [0, 1, 2], ['none', 'half', 'default'], 'unknown') as brake,
    count() as connection_count,
    round(avg(started_at_once), 1) as at_once_mean,
    round(quantile(0.5)(started_rate) * 8 / 1000000, 1) as rate_p50_mbit_per_s, -- noqa: LT01
    round(
        100 * countIf(coalesce(first_flight_segs, data_segs_out) > 10 and first_flight_retrans > 0)
        / countIf(coalesce(first_flight_segs, data_segs_out) > 10),
        1
    ) as lost_percent,
    round(quantile(0.5)(acked_10k_time) / 1000, 1) as acked_10k_p50_ms, -- noqa: LT01
    round(quantile(0.5)(acked_50k_time) / 1000, 1) as acked_50k_p50_ms, -- noqa: LT01
    round(quantile(0.5)(acked_100k_time) / 1000, 1) as acked_100k_p50_ms, -- noqa: LT01
    round(quantile(0.9)(acked_100k_time) / 1000, 1) as acked_100k_p90_ms -- noqa: LT01
from tcp_samples final
where
    kind = 'FIRST_FLIGHT'
    and time_unix_us
    > toUnixTimestamp((select maxIf(rollups.round, rollups.round <= now()) from rollups final)) * toInt64(1000000)
    - {hours:UInt32} * toInt64(3600000000)
    and time_unix_us <= toUnixTimestamp(now()) * toInt64(1000000)
    and ({src:String} = '' or host = {src:String})
group by host, peer, initcwnd, arm, brake
order by connection_count desc, host asc, peer asc, initcwnd asc, arm asc, brake asc
limit {top:UInt32}

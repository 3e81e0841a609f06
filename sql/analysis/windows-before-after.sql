-- How did a push change windows, round-trip times and retransmissions?
--
-- Parameters:
--   push String = '': when, for instance 2026-01-02 02:30:00; a quarter of an hour before the newest round when empty
--   hours UInt32 = 24: how far back from the newest round
--   top UInt32 = 20: rows
with recent as (
    select
        *,
        toUnixTimestamp((select maxIf(rollups.round, rollups.round <= now()) from rollups final)) as newest_s,
        toUnixTimestamp(round) > if(
            {push:String} = '', newest_s - 900, toUnixTimestamp(parseDateTimeBestEffortOrZero({push:String}, 'UTC'))
        ) as after
    from pairs
    where toUnixTimestamp(round) > newest_s - {hours:UInt32} * 3600 and round <= now()
)

select
    src_pop,
    dst_pop,
    ip_version,
    round(sumIf(cwnd_mean * connections_earned, not after) / sumIf(connections_earned, not after), 1) as cwnd_before,
    round(sumIf(cwnd_mean * connections_earned, after) / sumIf(connections_earned, after), 1) as cwnd_after,
    round(avgIf(rtt_ms, not after), 1) as rtt_ms_before,
    round(avgIf(rtt_ms, after), 1) as rtt_ms_after,
    round(100 * sumIf(bytes_retransmitted, not after) / sumIf(bytes_sent, not after), 2) as retransmit_percent_before,
    round(100 * sumIf(bytes_retransmitted, after) / sumIf(bytes_sent, after), 2) as retransmit_percent_after
from recent
group by src_pop, dst_pop, ip_version
order by src_pop asc, dst_pop asc, ip_version asc
limit {top:UInt32}

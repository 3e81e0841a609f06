-- Is IPv6 as fast as IPv4?
--
-- Parameters:
--   pop String = '': one PoP; all when empty
--   hours UInt32 = 24: how far back from the newest round
select
    pop,
    ip_version,
    uniqExact(prefix) as prefix_count,
    round(quantilesTDigestWeightedMerge(0.1, 0.25, 0.5, 0.75, 0.9) (rtt_state)[3] / 1000, 1) as rtt_p50_ms,
    round(quantilesTDigestWeightedMerge(0.1, 0.25, 0.5, 0.75, 0.9) (delivery_rate_state)[3] * 8 / 1000000, 2)
        as delivery_p50_mbit_per_s,
    round(100 * sum(bytes_retransmitted) / sum(bytes_sent), 2) as retransmit_percent
from prefixes
where
    round > (select max(rollups.round) from rollups) - interval {hours:UInt32} hour
    and ({pop:String} = '' or pop = {pop:String})
group by pop, ip_version
order by pop asc, ip_version asc

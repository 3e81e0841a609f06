-- Is IPv6 as fast as IPv4?
--
-- Parameters:
--   pop String = '': one PoP; all when empty
--   hours UInt32 = 24: how far back from the newest round
select
    pop,
    ip_version,
    uniqExact(prefix) as prefix_count,
    round(springtide_quantiles(rtt_state)[3] / 1000, 1) as rtt_p50_ms,
    round(springtide_quantiles(delivery_rate_state)[3] * 8 / 1000000, 2)
        as delivery_p50_mbit_per_s,
    round(springtide_sent_again_percent(bytes_retransmitted, bytes_sent), 2) as retransmit_percent
from prefixes
where
    round > (select maxIf(rollups.round, rollups.round <= now()) from rollups final) - interval {hours:UInt32} hour
    and round <= now()
    and ({pop:String} = '' or pop = {pop:String})
group by pop, ip_version
order by pop asc, ip_version asc

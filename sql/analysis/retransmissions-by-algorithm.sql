-- Which congestion control algorithm retransmits how much, and how fast is it?
-- Caution: the algorithms do not serve the same prefixes. For one prefix use `algorithms-side-by-side`.
--
-- Parameters:
--   pop String = '': one PoP; all when empty
--   hours UInt32 = 24: how far back from the newest round
select
    algorithm,
    sum(connections) as connection_count,
    round(sum(delivered_mb), 1) as total_mb,
    round(springtide_sent_again_percent(bytes_retransmitted, bytes_sent), 3) as retransmit_percent,
    round(springtide_quantiles(delivery_rate_state)[3] * 8 / 1000000, 2)
        as delivery_p50_mbit_per_s,
    round(springtide_quantiles(rtt_state)[3] / 1000, 1) as rtt_p50_ms
from prefixes
where
    round > (select maxIf(rollups.round, rollups.round <= now()) from rollups final) - interval {hours:UInt32} hour
    and round <= now()
    and ({pop:String} = '' or pop = {pop:String})
group by algorithm
order by algorithm asc

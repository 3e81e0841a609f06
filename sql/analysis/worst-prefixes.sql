-- Which client prefixes are slowest, by PoP?
-- Merged over the rounds; only prefixes with enough connections.
--
-- Parameters:
--   pop String = '': one PoP; all when empty
--   hours UInt32 = 24: how far back from the newest round
--   min_connections UInt32 = 2: prefixes with fewer are left out
--   top UInt32 = 20: rows
select
    pop,
    prefix,
    sum(connections) as connection_count,
    round(springtide_quantiles(delivery_rate_state)[1] * 8 / 1000000, 2)
        as delivery_p10_mbit_per_s,
    round(springtide_quantiles(delivery_rate_state)[3] * 8 / 1000000, 2)
        as delivery_p50_mbit_per_s,
    round(springtide_sent_again_percent(bytes_retransmitted, bytes_sent), 2) as retransmit_percent
from prefixes
where
    round > (select maxIf(rollups.round, rollups.round <= now()) from rollups final) - interval {hours:UInt32} hour
    and round <= now()
    and not back_office
    and ({pop:String} = '' or pop = {pop:String})
group by pop, prefix
having connection_count >= {min_connections:UInt32}
order by delivery_p10_mbit_per_s asc, pop asc, prefix asc
limit {top:UInt32}

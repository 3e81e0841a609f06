-- Where is the network not the limit at all?
-- Connections whose last delivery rate the application limited: no algorithm makes these faster.
--
-- Parameters:
--   pop String = '': one PoP; all when empty
--   hours UInt32 = 24: how far back from the newest round
--   top UInt32 = 20: rows
select
    pop,
    prefix,
    sum(connections) as connection_count,
    -- Decimals: a sum of doubles depends on its order, and a mean between two tenths with it.
    round(avg(toDecimal64(app_limited_percent, 6)), 1) as limited_by_application_percent,
    round(avg(delivery_p50_mbit_per_s), 2) as mean_mbit_per_s
from prefixes
where
    round > (select maxIf(rollups.round, rollups.round <= now()) from rollups final) - interval {hours:UInt32} hour
    and round <= now()
    and ({pop:String} = '' or pop = {pop:String})
group by pop, prefix
order by limited_by_application_percent desc, pop asc, prefix asc
limit {top:UInt32}

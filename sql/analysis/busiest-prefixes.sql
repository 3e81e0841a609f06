-- Which client prefixes take most of the traffic?
--
-- Parameters:
--   pop String = '': one PoP; all when empty
--   hours UInt32 = 24: how far back from the newest round
--   top UInt32 = 20: rows
select
    pop,
    prefix,
    round(sum(delivered_mb), 2) as total_mb,
    round(100 * total_mb / sum(total_mb) over (), 1) as share_percent,
    sum(connections) as connection_count,
    round(avg(rtt_ms), 1) as mean_rtt_ms
from prefixes
where
    round > (select maxIf(rollups.round, rollups.round <= now()) from rollups final) - interval {hours:UInt32} hour
    and round <= now()
    and not back_office
    and ({pop:String} = '' or pop = {pop:String})
group by pop, prefix
order by total_mb desc, pop asc, prefix asc
limit {top:UInt32}

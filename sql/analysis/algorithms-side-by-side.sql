-- For prefixes that are served with BBR and with CUBIC, which is faster?
--
-- Parameters:
--   pop String = '': one PoP; all when empty
--   hours UInt32 = 24: how far back from the newest round
--   top UInt32 = 20: rows
select
    pop,
    prefix,
    sumIf(connections, algorithm = 'bbr') as bbr_connections,
    sumIf(connections, algorithm = 'cubic') as cubic_connections,
    round(avgIf(delivery_p50_mbit_per_s, algorithm = 'bbr'), 2) as bbr_mbit_per_s,
    round(avgIf(delivery_p50_mbit_per_s, algorithm = 'cubic'), 2) as cubic_mbit_per_s,
    round(bbr_mbit_per_s / cubic_mbit_per_s, 2) as bbr_to_cubic
from prefixes
where
    round > (select maxIf(rollups.round, rollups.round <= now()) from rollups final) - interval {hours:UInt32} hour
    and round <= now()
    and ({pop:String} = '' or pop = {pop:String})
group by pop, prefix
having bbr_connections > 0 and cubic_connections > 0
order by bbr_to_cubic desc, pop asc, prefix asc
limit {top:UInt32}

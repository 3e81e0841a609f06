-- Which connections closed without ever leaving slow start?
-- No loss set their threshold: a larger initial window would have saved them round trips.
--
-- Parameters:
--   pop String = '': one PoP; all when empty
--   hours UInt32 = 24: how far back from the newest round
--   min_kb Float64 = 15: smaller ones fit into ten segments anyway
--   top UInt32 = 20: rows
select
    pop,
    if(dst_pop = '', 'clients', toString(dst_pop)) as peer,
    count() as closed_connections,
    countIf(ssthresh is null) as never_left,
    round(100 * never_left / closed_connections, 1) as never_left_percent,
    round(avgIf(cwnd, ssthresh is null), 1) as mean_last_cwnd,
    round(quantileExactIf(0.5) (life_delivered_kb, ssthresh is null), 1) as p50_kb,
    round(quantileExactIf(0.5) (life_busy_ms, ssthresh is null), 1) as p50_busy_ms
from connections
where
    round > (select maxIf(rollups.round, rollups.round <= now()) from rollups final) - interval {hours:UInt32} hour
    and round <= now()
    and closed
    and life_delivered_kb >= {min_kb:Float64}
    and ({pop:String} = '' or pop = {pop:String})
group by pop, peer
order by never_left desc, pop asc, peer asc
limit {top:UInt32}

-- How long do objects take between PoPs, by size?
-- Time with data outstanding, of closed connections.
--
-- Parameters:
--   src String = '': one source PoP; all when empty
--   hours UInt32 = 24: how far back from the newest round
--   top UInt32 = 20: rows
select
    src_pop,
    if(dst_pop = '', 'clients', toString(dst_pop)) as peer,
    from_kb,
    sum(connections) as connection_count,
    round(springtide_quantiles(busy_state)[3] / 1000, 1) as p50_ms,
    round(springtide_quantiles(busy_state)[5] / 1000, 1) as p90_ms,
    round(avg(retransmitting_percent), 1) as with_retransmissions_percent
from completions
where
    round > (select maxIf(rollups.round, rollups.round <= now()) from rollups final) - interval {hours:UInt32} hour
    and round <= now()
    and ({src:String} = '' or src_pop = {src:String})
group by src_pop, peer, from_kb
order by src_pop asc, peer asc, from_kb asc
limit {top:UInt32}

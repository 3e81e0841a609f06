-- Does one edge of a PoP complete its connections slower than its neighbours?
-- Same pair and class of size: a difference is the edge's own.
--
-- Parameters:
--   from_kb Float64 = 30: the class of size, kilobytes
--   hours UInt32 = 24: how far back from the newest round
--   top UInt32 = 20: rows
select
    src_pop,
    dst_pop,
    host,
    sum(connections) as connection_count,
    round(springtide_quantiles(busy_state)[3] / 1000, 1) as p50_ms,
    round(springtide_sent_again_percent(bytes_retransmitted, bytes_sent), 2) as retransmit_percent
from completions
where
    round > (select maxIf(rollups.round, rollups.round <= now()) from rollups final) - interval {hours:UInt32} hour
    and round <= now()
    and from_kb = {from_kb:Float64}
    and dst_pop != ''
group by src_pop, dst_pop, host
order by src_pop asc, dst_pop asc, p50_ms desc, host asc
limit {top:UInt32}

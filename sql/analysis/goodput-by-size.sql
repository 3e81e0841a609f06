-- What goodput do users get, by size of object?
--
-- Parameters:
--   pop String = '': one PoP; all when empty
--   hours UInt32 = 24: how far back from the newest round
select
    pop,
    from_kb,
    sum(requests) as request_count,
    round(quantilesTDigestMerge(0.1, 0.25, 0.5, 0.75, 0.9) (goodput_state)[1] * 8 / 1000000, 2) as p10_mbit_per_s,
    round(quantilesTDigestMerge(0.1, 0.25, 0.5, 0.75, 0.9) (goodput_state)[3] * 8 / 1000000, 2) as p50_mbit_per_s
from goodput
where
    round > (select maxIf(rollups.round, rollups.round <= now()) from rollups final) - interval {hours:UInt32} hour
    and round <= now()
    and ({pop:String} = '' or pop = {pop:String})
group by pop, from_kb
order by pop asc, from_kb asc

-- How often has each pair's initial window changed?
-- Many changes on few rounds are flapping: raise initcwnd.history_weight.
--
-- Parameters:
--   hours UInt32 = 24: how far back from the newest round
--   top UInt32 = 20: rows
with steps as (
    select
        src_pop,
        destination as dst_pop,
        ip_version,
        initcwnd,
        lagInFrame(initcwnd, 1, initcwnd) over (
            partition by src_pop, destination, ip_version
            order by round asc rows between unbounded preceding and current row
        ) as previous
    from path_decisions final
    where
        part = 'initcwnd'
        and round > (
            select maxIf(rollups.round, rollups.round <= now()) from rollups final
        ) - interval {hours:UInt32} hour
        and round <= now()
        and action = 'set'
)

select
    src_pop,
    dst_pop,
    ip_version,
    count() as rounds_decided,
    countIf(initcwnd != previous) as changes,
    min(initcwnd) as lowest,
    max(initcwnd) as highest
from steps
group by src_pop, dst_pop, ip_version
order by changes desc, src_pop asc, dst_pop asc, ip_version asc
limit {top:UInt32}

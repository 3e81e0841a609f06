-- Which hosts sent less than they should have?
-- Missing polls are gaps in their numbers; missing closes are sockets that disappeared without a close record.
--
-- Parameters:
--   hours UInt32 = 24: how far back from the newest round
--   below_percent Float64 = 100: of the rows expected
--   top UInt32 = 20: rows
select
    round,
    host,
    pop,
    polls_seen,
    polls_expected,
    rows_seen,
    rows_expected,
    closes,
    closes_expected,
    round(complete_percent, 1) as percent
from hosts
where
    round > (select maxIf(rollups.round, rollups.round <= now()) from rollups final) - interval {hours:UInt32} hour
    and round <= now()
    and (complete_percent < {below_percent:Float64} or 100 * closes < {below_percent:Float64} * closes_expected)
order by percent asc, round desc, host asc
limit {top:UInt32}

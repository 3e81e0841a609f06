-- Who lost goodput since yesterday?
-- The last hours against the same hours a day before, objects of one class of size and up.
--
-- Parameters:
--   hours UInt32 = 1: how many hours are compared
--   from_kb Float64 = 100: the least class of size, kilobytes
--   top UInt32 = 20: rows
with aged as (
    select
        pop,
        prefix,
        requests,
        goodput_mbit_per_s,
        toUnixTimestamp((select maxIf(rollups.round, rollups.round <= now()) from rollups final))
        - toUnixTimestamp(round) as age_s
    from goodput
    where from_kb >= {from_kb:Float64} and round <= now()
)

select
    pop,
    prefix,
    sumIf(requests, age_s < 86400) as requests_now,
    sumIf(requests, age_s >= 86400) as requests_yesterday,
    round(avgIf(goodput_mbit_per_s, age_s < 86400), 2) as now_mbit_per_s,
    round(avgIf(goodput_mbit_per_s, age_s >= 86400), 2) as yesterday_mbit_per_s,
    round(100 * (now_mbit_per_s / yesterday_mbit_per_s - 1), 1) as change_percent
from aged
where age_s % 86400 < {hours:UInt32} * 3600 and age_s < 172800
group by pop, prefix
having requests_now > 0 and requests_yesterday > 0
order by change_percent asc, pop asc, prefix asc
limit {top:UInt32}

-- The hosts whose samples of the round do not count. Parameters: generation, round_s, interval_s, round_start_us <
-- round_us (microseconds since the epoch).
insert into rollup_rogues
with said as (
    select
        host,
        pop,
        count() as samples
    from tcp_samples
    where time_unix_us >= {round_start_us:Int64} and time_unix_us < {round_us:Int64}
    group by host, pop
),

placed as (
    select
        said.host as host,
        said.samples as samples,
        fleet_edges.pop = '' as is_stranger,
        said.pop != '' and said.pop != fleet_edges.pop as is_elsewhere
    from said
    left join fleet_edges on said.host = fleet_edges.edge
),

polls as (
    select
        host,
        boot_id,
        poll_sequence,
        min(began_us) as began_us
    from rollup_polls
    where
        round = fromUnixTimestamp({round_s:UInt32})
        and generation = {generation:UInt64}
        and ended_us >= {round_start_us:Int64}
    group by host, boot_id, poll_sequence
),

steps as (
    select
        host,
        boot_id,
        poll_sequence,
        began_us,
        lagInFrame(poll_sequence, 1, poll_sequence) over (
            partition by host, boot_id
            order by began_us, poll_sequence rows between unbounded preceding and current row
        ) as before
    from polls
),

-- The numbers may restart with the collector, once or twice.
numbered as (
    select
        host,
        countIf(poll_sequence < before) as jumps_back,
        -- The engine's difference of two unsigned 64-bit numbers is signed.
        countIf(poll_sequence > before and toUInt64(poll_sequence - before) > {interval_s:UInt32}) as jumps_on,
        sumIf(
            toUInt64(poll_sequence - before - 1),
            poll_sequence > before and toUInt64(poll_sequence - before) <= {interval_s:UInt32}
        ) as skipped,
        jumps_back + jumps_on > 2 or skipped > greatest({interval_s:UInt32}, count()) as is_odd
    from steps
    group by host
),

boots as (
    select
        host,
        boot_id,
        min(began_us) as first_us,
        max(began_us) as last_us
    from polls
    group by host, boot_id
),

overlapping as (
    select
        host,
        first_us,
        max(last_us) over (
            partition by host
            order by first_us asc, boot_id asc rows between unbounded preceding and 1 preceding
        ) as before_us
    from boots
),

found as (
    select
        host,
        if(is_stranger, 'not_in_fleet', 'other_pop') as why,
        sum(samples) as times
    from placed
    where is_stranger or is_elsewhere
    group by host, why
    union all
    select
        host,
        'impossible_values' as why,
        count() as times
    from rollup_sockets
    where
        round = fromUnixTimestamp({round_s:UInt32})
        and generation = {generation:UInt64}
        and not counted
        -- Leaves out what a host sends to itself.
        and client_prefix != toIPv6('::')
    group by host
    union all
    select
        host,
        'several_boots' as why,
        1 + countIf(first_us < before_us) as times
    from overlapping
    group by host
    having times > 1
    union all
    select
        host,
        'poll_numbers' as why,
        jumps_back + jumps_on + skipped as times
    from numbered
    where is_odd
),

-- The fleet's own are at most as many as its edges, so names that unknown hosts invent cannot displace them.
ordered as (
    select
        host,
        why,
        times,
        why != 'not_in_fleet' or row_number() over (partition by why order by times desc, host asc) <= 100 as is_named
    from found
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64} as generation,
    if(is_named, substring(toString(host), 1, 255), '') as name,
    why,
    sum(times) as times,
    count() as hosts
from ordered
group by is_named, if(is_named, host, ''), name, why
settings prefer_column_name_to_alias = 1

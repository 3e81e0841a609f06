-- The client prefixes of which paths are rolled up: of each PoP those with the most round trips to save; in a PoP of
-- three edges or more half of them at most that only one of these shows. Parameters: generation, round_s,
-- start_prefixes: how many of each PoP, half_prefixes: half of them.
--
-- A connection that began in the round with more to send than the kernel's default window could have saved round trips.
-- They are those in which its window was to be doubled, at most seven: to 1,280 segments.
insert into rollup_units
with gains as (
    select
        pop as at_pop,
        ip_version,
        client_prefix,
        if(min(host) = max(host), min(host), '') as only_host,
        toUInt64(
            least(
                sum(
                    toUInt128(sample_weight) * if(min_rtt_us > 0, min_rtt_us, rtt_us)
                    * toUInt64(least(floor(log2(intDiv(life_bytes_sent, 10 * toUInt64(snd_mss)))) + 1, 7))
                ),
                9223372036854775807
            )
        ) as gain_us
    from rollup_sockets
    where
        round = fromUnixTimestamp({round_s:UInt32})
        and generation = {generation:UInt64}
        and counted
        and began
        and dst_pop = ''
        and snd_mss > 0
        and life_bytes_sent > 10 * toUInt64(snd_mss)
    group by at_pop, ip_version, client_prefix
),

small_pops as (
    select pop
    from fleet_edges
    group by pop
    having count() < 3
),

-- A host that invents prefixes displaces half of the others'.
places as (
    select
        *,
        if(only_host = '' or at_pop in (select small_pops.pop from small_pops), client_prefix, toIPv6('::')) as place
    from gains
    where gain_us > 0
),

halves as (
    select *
    from places
    order by gain_us desc, client_prefix asc
    limit {half_prefixes:UInt32} by at_pop, place, only_host
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64},
    at_pop as pop,
    ip_version,
    client_prefix
from halves
order by gain_us desc, client_prefix asc
limit {start_prefixes:UInt32} by at_pop
settings prefer_column_name_to_alias = 1

-- Why one client prefix of a PoP was not ranked, and in how many rounds of a window: one row. Parameters: pop, prefix,
-- since_s (excluded), round_s; min_connections, min_samples, min_bytes, acting_bytes as in congestion/evidence. Only
-- the first that holds counts for a round.
with shown as (
    select round
    from round_prefixes
    where
        round > fromUnixTimestamp({since_s:UInt32})
        and round <= fromUnixTimestamp({round_s:UInt32})
        and pop = {pop:String}
        and client_prefix = toIPv6(splitByChar('/', {prefix:String})[1])
    group by round
),

rates as (
    select
        round,
        multiIf(
            acting_bytes < {acting_bytes:UInt64}, 'other_bytes',
            acting_connections < {min_connections:UInt32}, 'small',
            eligible_connections < greatest({min_connections:UInt32}, 1), 'app_limited',
            samples < {min_samples:UInt64} or bytes_acked < {min_bytes:UInt64}, 'thin',
            'ranked'
        ) as why
    from round_prefix_rates
    where
        round > fromUnixTimestamp({since_s:UInt32})
        and round <= fromUnixTimestamp({round_s:UInt32})
        and pop = {pop:String}
        and client_prefix = toIPv6(splitByChar('/', {prefix:String})[1])
)

select
    countIf(rates.why = 'app_limited') as app_limited,
    countIf(rates.why = 'small') as small,
    countIf(rates.why = 'thin') as thin,
    countIf(rates.why = 'other_bytes') as other_bytes,
    -- It has enough itself: if it was not ranked, its PoP had too few such prefixes.
    countIf(rates.why = 'ranked') as enough,
    -- Rolled up before rates of BBR and of others were separate.
    countIf(rates.why = '') as unknown
from shown
left join rates on shown.round = rates.round

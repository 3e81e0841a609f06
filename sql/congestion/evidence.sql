-- The evidence of the last rounds on each PoP's client prefixes: those that were low often enough to matter, and those
-- of the last decisions. One row a PoP and prefix, every column of fixed width. Nothing after the round is read.
-- Parameters: round_s, since_s (excluded), interval_s; low_share, min_connections, min_samples, min_bytes and
-- min_prefixes as in the policy; acting_bytes: from how many bytes on BBR acts; discount_percent: divisor of rates
-- under BBR; least_low: least number of low rounds of a candidate; recent_rounds; last_s: the round of the last
-- decisions.
--
-- Only rates that the path limits are ranked: round_prefix_rates, with one row a prefix, whatever its algorithms. Its
-- rate is the geometric mean of the two medians, under BBR and not, weighted by connections: rates differ by factors,
-- and few connections of one algorithm must not determine it. Rates are logarithms in parts of 2^20: integers, to a
-- millionth.
--
-- A round is a bit, the newest one the lowest of `*_0`, the 65th that of `*_1`: setting a bit twice changes nothing;
-- every sum is of integers: order and splitting change nothing either. Prefixes are grouped by a hash of 64 bits, in
-- half the time of grouping by PoP and prefix; among a million, two collide with a probability of 1 in 30 million.
with measured as (
    select
        round,
        pop,
        client_prefix,
        ip_version,
        only_host,
        dst_pop != '' as back_office,
        -- Bounds that no prefix reaches (64 TiB and a million connections a round): sums over the window stay within
        -- 64 bits.
        least(bytes_sent, 70368744177664) as bytes_sent,
        least(bytes_retransmitted, bytes_sent) as bytes_retransmitted,
        rtt_p50_us,
        intDiv({round_s:UInt32} - toUnixTimestamp(round), {interval_s:UInt32}) as age,
        least(toUInt64(eligible_connections), 1000000) as weight,
        least(toUInt64(eligible_bbr_connections), weight) as bbr_weight,
        toUInt64(round(log2(greatest(delivery_rate_p50_bytes_per_s, 1)) * 1048576)) * (weight - bbr_weight)
            as other_logs,
        toUInt64(round(log2(greatest(bbr_delivery_rate_p50_bytes_per_s, 1)) * 1048576)) as bbr_log,
        toUInt64(round(log2({discount_percent:UInt64} / 100) * 1048576)) as discount,
        intDiv(other_logs + bbr_log * bbr_weight, greatest(weight, 1)) as log_rate,
        toUInt32(intDiv(other_logs + (bbr_log - least(discount, bbr_log)) * bbr_weight, greatest(weight, 1))) as rate
    from round_prefix_rates
    where
        round > fromUnixTimestamp({since_s:UInt32})
        and round <= fromUnixTimestamp({round_s:UInt32})
        -- With a roll-up for a lower bound, connections would count that BBR does not act on.
        and acting_bytes >= {acting_bytes:UInt64}
        and eligible_connections >= greatest({min_connections:UInt32}, 1)
        and samples >= {min_samples:UInt64}
        and bytes_acked >= {min_bytes:UInt64}
        -- The host's own name of its PoP, from before only those of fleet.yaml counted.
        and length(pop) <= 63
),

-- Back-office traffic is not ranked among clients.
of_hosts as (
    select
        round,
        pop,
        only_host,
        arraySort(groupArray(rate)) as rates
    from measured
    where not back_office
    group by round, pop, only_host
),

-- In a PoP with three hosts or more, prefixes that only one of them shows are ranked only up to the number of all
-- others, taken at equal distances: invented prefixes must not determine which are the slowest.
ranked as (
    select
        round,
        pop,
        groupArray(rates) as lists,
        arraySum(x -> length(x), lists) as total,
        countIf(only_host != '') + 2 * countIf(only_host = '') as hosts,
        arraySort(
            arrayFlatten(
                arrayMap(
                    (list, name) -> if(
                        name = '' or hosts < 3 or 2 * length(list) <= total,
                        list,
                        arrayMap(
                            i -> list[1 + intDiv(i * length(list), greatest(total - length(list), 1))],
                            range(total - length(list))
                        )
                    ),
                    lists,
                    groupArray(only_host)
                )
            )
        ) as rates
    from of_hosts
    group by round, pop
),

bounds as (
    select
        round,
        pop,
        rates[1 + least(toUInt64(floor({low_share:Float64} * length(rates))), length(rates) - 1)] as bound
    from ranked
    where length(rates) >= {min_prefixes:UInt64}
),

flagged as (
    select
        measured.* except (round, rate, only_host, other_logs, bbr_log, bbr_weight, discount),
        measured.rate < bounds.bound as is_low,
        bitShiftLeft(toUInt64(1), measured.age % 64) as bit,
        cityHash64(measured.pop, measured.client_prefix) as prefix_key
    from measured
    inner join bounds
        on
            measured.round = bounds.round
            and measured.pop = bounds.pop
),

known as (
    select cityHash64(src_pop, toIPv6OrDefault(splitByChar('/', destination)[1])) as prefix_key
    from path_decisions
    where part = 'congestion' and round = fromUnixTimestamp({last_s:UInt32})
),

prefixes as (
    select
        prefix_key,
        any(pop) as at_pop,
        any(client_prefix) as network,
        max(ip_version) as version,
        max(back_office) as is_back_office,
        groupBitOrIf(bit, age < 64) as seen_0,
        groupBitOrIf(bit, age >= 64) as seen_1,
        groupBitOrIf(bit, age < 64 and is_low) as lows_0,
        groupBitOrIf(bit, age >= 64 and is_low) as lows_1,
        sumIf(weight, rtt_p50_us > 0) as timed_connections,
        sum(rtt_p50_us * weight) as rtt_sum,
        sum(bytes_sent) as sent,
        sum(bytes_retransmitted) as retransmitted,
        sum(weight) as weights,
        sum(weight * log_rate) as log_rates,
        sumIf(weight, age < {recent_rounds:UInt32}) as recent_weights,
        sumIf(weight * log_rate, age < {recent_rounds:UInt32}) as recent_log_rates
    from flagged
    group by prefix_key
    having
        bitCount(lows_0) + bitCount(lows_1) >= {least_low:UInt32}
        or prefix_key in (select known.prefix_key from known)
)

select
    toFixedString(at_pop, 64) as src_pop,
    -- As long as any client prefix.
    toFixedString(springtide_prefix_text(version, network), 24) as destination,
    toUInt8(version) as ip_version,
    toUInt64(bitShiftRight(toUInt128(network), 64)) as high,
    toUInt64(bitAnd(toUInt128(network), toUInt128(18446744073709551615))) as low,
    toUInt8(is_back_office) as back_office,
    toUInt64(seen_0) as measured_0,
    toUInt64(seen_1) as measured_1,
    toUInt64(lows_0) as low_0,
    toUInt64(lows_1) as low_1,
    if(timed_connections > 0, rtt_sum / timed_connections, -1) as rtt_us,
    if(sent > 0, retransmitted / sent, 0) as retransmit_ratio,
    log_rates / weights / 1048576 as log2_rate,
    if(recent_weights > 0, recent_log_rates / recent_weights / 1048576, -1) as recent_log2_rate
from prefixes
settings prefer_column_name_to_alias = 1

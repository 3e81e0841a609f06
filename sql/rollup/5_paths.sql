-- One round's evidence of each path, from a PoP to another or to a client prefix. Parameters: generation, round_s.
-- The order in which rows arrived changes nothing (springtide_weighed). All values of a path are rows of one kind,
-- (path, host, measure, list), so that the influence of one host is bounded in one place, as in 3_pairs.sql.
--
-- Bounds on one host. A path has three hosts or more where three have connections, even if fewer have first flights.
-- - Any list or count: with three hosts or more, one host has less than half of the weight. Otherwise it could veto
--   rules that ask for more than half of the flights.
-- - Share of a rate that the path carried (20 to 23): it lowers the rate in use, again each round, so one host alone
--   could lower it to nothing. Of two hosts that show it, the lower one counts as the higher. One host alone shows
--   nothing.
-- - Speed of first segments (9): it lowers the rate in use, too, and has the same bounds. Where fewer than three hosts
--   have flights, one train of a single host counts; the law asks for more than one. Two hosts that differ by more than
--   a factor of 1.4 show nothing, since nothing bounds the higher one.
-- - Rates that connections reached (2): they show that trains are too low. With three hosts or more, a host's rates
--   count up to the best of a second host, and a host that is alone counts as one connection.
-- - Lowest round trip (3): the middle one of the hosts' own, because few values decide a low quantile.
--
-- Lists: 1 delivery rates of connections that met the path; 2 rates that any connection reached; 3 minimum round trips;
-- 4 round trips; 5 segment sizes; 6 receivers' windows; 7 rates of all connections together; 8 their number; 9 speeds
-- of first segments. Lists of first flights, for the value in use and for the trial: 10 and 11 windows; 12 and 13
-- rates; 14 and 15, 16 and 17, 18 and 19 times of 10, 50 and 100 kB; 20 and 21 the share of a connection's rate that
-- the path carried; 22 and 23 the share of the rate of all that start at once.
-- Counts, each with its total first: 30 default starts, lossy ones; 31 and 32 first flights in use and on trial, lossy
-- ones, segments sent again, segments; 33 first flights, those with steps of the brake.
insert into rollup_paths
with hosts as (
    select
        pop as at_pop,
        dst_pop,
        ip_version,
        client_prefix as network,
        host,
        connections,
        gain_us,
        lists,
        counts
    from rollup_path_hosts
    where round = fromUnixTimestamp({round_s:UInt32}) and generation = {generation:UInt64}
),

seen as (
    select
        at_pop,
        dst_pop,
        ip_version,
        network,
        uniqExact(host) as host_count,
        if(min(host) = max(host), min(host), '') as the_host,
        sum(connections) as begun,
        toUInt64(least(sum(toUInt128(gain_us)), 9223372036854775807)) as gain
    from hosts
    group by at_pop, dst_pop, ip_version, network
),

of_three as (
    select
        at_pop,
        dst_pop,
        ip_version,
        network
    from seen
    where host_count >= 3
),

measured as (
    select
        at_pop,
        dst_pop,
        ip_version,
        network,
        measure,
        groupArray(list) as said,
        -- Rate that a second host's connections reached as well.
        if(
            measure = 2 and is_bounded and length(said) > 1,
            arrayReverseSort(
                arrayMap(one -> springtide_reduced('quantileExactWeighted(0.9)', one), said)
            )[2],
            281474976710655
        ) as most,
        arrayMap(
            one -> arrayMap(x -> springtide_weighed(least(bitShiftRight(x, 16), most), bitAnd(x, 65535)), one), said
        ) as lists,
        arrayMap(one -> arraySum(x -> bitAnd(x, 65535), one), lists) as weights,
        arrayMap(
            (one, weight) -> toFloat64(arraySum(x -> toUInt128(bitShiftRight(x, 16)) * bitAnd(x, 65535), one)) / weight,
            lists,
            weights
        ) as means,
        arraySort(means)[intDiv(length(means) + 1, 2)] as middle,
        arraySum(weights) as total,
        measure = 9 or measure >= 20 as lowers,
        if(
            measure < 9 and measure != 2,
            length(said) >= 3,
            (at_pop, dst_pop, ip_version, network) in (select of_three.* from of_three)
        ) as is_bounded,
        lowers and is_bounded and length(lists) = 2 as are_two,
        arraySort(
            arrayMap(one -> springtide_reduced('quantileExactWeighted(0.1)', one), if(measure = 3, lists, []))
        )[intDiv(length(lists) + 1, 2)] as lowest
    from (
        select
            at_pop,
            dst_pop,
            ip_version,
            network,
            tupleElement(measure_list, 1) as measure,
            tupleElement(measure_list, 2) as list
        from hosts
        array join lists as measure_list
        where notEmpty(tupleElement(measure_list, 2))
    ) as listed
    group by at_pop, dst_pop, ip_version, network, measure
),

held as (
    select
        at_pop,
        dst_pop,
        ip_version,
        network,
        measure,
        multiIf(
            measure = 3 and is_bounded,
            [springtide_weighed(lowest, 1)],
            measure = 9 and are_two and arrayMax(means) > 1.4 * arrayMin(means),
            [],
            length(lists) = 1 and (not is_bounded or weights[1] = 1),
            lists[1],
            arraySort(
                arrayFlatten(
                    arrayMap(
                        (one, weight, mean, held_mean, held_weight) -> springtide_held(
                            one, weight, held_weight, mean, held_mean
                        ),
                        lists,
                        weights,
                        means,
                        arrayMap(
                            mean -> if(are_two, arrayMax(means), springtide_held_mean(mean, middle)), means
                        ),
                        arrayMap(
                            weight -> if(
                                is_bounded,
                                toUInt64(
                                    least(
                                        weight, greatest(total - weight - (length(weights) >= 3), 1)
                                    )
                                ),
                                weight
                            ),
                            weights
                        )
                    )
                )
            )
        ) as list,
        length(lists) as shown_by
    from measured
),

chosen as (
    select
        pop,
        client_prefix
    from rollup_units
    where round = fromUnixTimestamp({round_s:UInt32}) and generation = {generation:UInt64}
),

-- Rates of all connections together, bounded in the same way. A host's rate per connection is at any moment at most
-- twice the highest of the middle host. Its peak number of connections is at most the sum of the others'. Factors are
-- in units of 2^-20, so that every sum is one of integers.
busy_hosts as (
    select
        pop,
        dst_pop,
        ip_version,
        client_prefix,
        host,
        groupArray(tuple(bucket, rates, connections)) as moments,
        toFloat64(sum(toUInt128(rates))) / toFloat64(sum(toUInt128(connections))) as mean,
        max(rates / connections) as highest,
        max(connections) as peak
    from rollup_busy
    where
        round = fromUnixTimestamp({round_s:UInt32})
        and generation = {generation:UInt64}
        and (
            dst_pop != ''
            or (pop, client_prefix) in (
                select
                    chosen.pop,
                    chosen.client_prefix
                from chosen
            )
        )
    group by pop, dst_pop, ip_version, client_prefix, host
),

busy as (
    select
        pop as at_pop,
        dst_pop,
        ip_version,
        client_prefix as network,
        groupArray(tuple(moments, mean, peak)) as parts,
        2 * arraySort(groupArray(highest))[intDiv(length(parts) + 1, 2)] as most,
        arraySort(arrayMap(one -> tupleElement(one, 2), parts))[intDiv(length(parts) + 1, 2)] as middle,
        arraySum(one -> tupleElement(one, 3), parts) as total,
        arrayJoin(
            arrayMap(
                one -> tuple(
                    tupleElement(one, 1),
                    toUInt64(
                        round(
                            1048576 * springtide_held_mean(tupleElement(one, 2), middle) / tupleElement(one, 2)
                        )
                    ),
                    if(
                        length(parts) < 3,
                        1048576,
                        toUInt64(
                            floor(
                                1048576 * least(tupleElement(one, 3), total - tupleElement(one, 3))
                                / tupleElement(one, 3)
                            )
                        )
                    )
                ),
                parts
            )
        ) as part
    from busy_hosts
    group by pop, dst_pop, ip_version, client_prefix
),

together as (
    select
        at_pop,
        dst_pop,
        ip_version,
        network,
        tupleElement(moment, 1) as bucket,
        sum(
            bitShiftRight(
                if(
                    length(parts) < 3,
                    bitShiftRight(toUInt128(tupleElement(moment, 2)) * tupleElement(part, 2), 20),
                    least(
                        bitShiftRight(toUInt128(tupleElement(moment, 2)) * tupleElement(part, 2), 20),
                        toUInt128(most * tupleElement(moment, 3))
                    )
                )
                * tupleElement(part, 3),
                20
            )
        ) as rates,
        sum(bitShiftRight(toUInt128(tupleElement(moment, 3)) * tupleElement(part, 3) + 1048575, 20)) as connections
    from busy
    array join tupleElement(part, 1) as moment
    group by at_pop, dst_pop, ip_version, network, bucket
),

listed as (
    select
        at_pop,
        dst_pop,
        ip_version,
        network,
        measure,
        list,
        shown_by
    from held
    union all
    select
        at_pop,
        dst_pop,
        ip_version,
        network,
        tupleElement(measure_list, 1) as measure,
        tupleElement(measure_list, 2) as list,
        0 as shown_by
    from (
        select
            at_pop,
            dst_pop,
            ip_version,
            network,
            arraySort(groupArray(springtide_weighed(rates, 1))) as sums,
            arraySort(groupArray(springtide_weighed(connections, 1))) as numbers
        from together
        group by at_pop, dst_pop, ip_version, network
    ) as summed
    array join [(7, sums), (8, numbers)] as measure_list
),

sized as (
    select
        at_pop,
        dst_pop,
        ip_version,
        network,
        measure,
        shown_by,
        springtide_reduced('quantilesExactWeighted(0.1, 0.25, 0.5, 0.75, 0.9)', list) as quantiles,
        length(list) as size,
        springtide_sketch(if(measure in (1, 2, 7), list, [])) as state
    from listed
),

valued as (
    select
        at_pop,
        dst_pop,
        ip_version,
        network,
        arrayMap(n -> toUInt64(n), groupArray(measure)) as measures,
        groupArray(quantiles) as each,
        groupArray(shown_by) as shown_by_hosts,
        groupArray(size) as sizes,
        sumIf(size, measure = 1) as share_size,
        sumIf(size, measure = 2) as reached_size,
        sumIf(size, measure = 7) as path_size,
        sumIf(size, measure = 9) as train_size,
        quantilesTDigestWeightedMergeStateIf(0.1, 0.25, 0.5, 0.75, 0.9)(state, measure = 1) as share, -- noqa: LT01
        quantilesTDigestWeightedMergeStateIf(0.1, 0.25, 0.5, 0.75, 0.9)(state, measure = 2) as reached, -- noqa: LT01
        quantilesTDigestWeightedMergeStateIf(0.1, 0.25, 0.5, 0.75, 0.9)(state, measure = 7) as combined -- noqa: LT01
    from sized
    group by at_pop, dst_pop, ip_version, network
),

-- A host's segments per flight are held within half and twice those of the middle host, as for lists. So a host that
-- claims millions of segments hides no losses of others. Segments sent again are held by the same factor.
claimed as (
    select
        at_pop,
        dst_pop,
        ip_version,
        network,
        measure,
        groupArray(numbers) as claims_of_hosts,
        (at_pop, dst_pop, ip_version, network) in (select of_three.* from of_three) as is_bounded,
        arrayMap(one -> toFloat64(one[4]) / greatest(one[1], 1), claims_of_hosts) as lengths,
        arraySort(arrayFilter((length, one) -> one[1] > 0, lengths, claims_of_hosts)) as sorted,
        sorted[intDiv(length(sorted) + 1, 2)] as middle,
        arrayMap(
            (one, length) -> [
                one[1],
                one[2],
                toUInt64(
                    ceil(
                        least(one[3], one[4]) * if(length > 0, springtide_held_mean(length, middle) / length, 1) - 1e-6
                    )
                ),
                toUInt64(ceil(one[4] * if(length > 0, springtide_held_mean(length, middle) / length, 1) - 1e-6))
            ],
            claims_of_hosts,
            lengths
        ) as of_hosts
    from (
        select
            at_pop,
            dst_pop,
            ip_version,
            network,
            tupleElement(measure_numbers, 1) as measure,
            tupleElement(measure_numbers, 2) as numbers
        from hosts
        array join counts as measure_numbers
    ) as listed_counts
    group by at_pop, dst_pop, ip_version, network, measure
),

-- Counts are scaled by the share of a host that counts, rounded up, so that few losses do not become zero. With three
-- hosts or more, one host loses at most three times as much as the others, and one flight and one segment more: a host
-- that claims that the default loses everything would otherwise excuse any loss of a trial. The brake of a single host
-- acts there, and shows nothing of the other hosts.
counted as (
    select
        at_pop,
        dst_pop,
        ip_version,
        network,
        measure,
        of_hosts,
        arrayMap(one -> one[1], of_hosts) as all,
        arraySum(all) as total,
        arrayMap(n -> if(is_bounded, toUInt64(least(n, greatest(toInt64(total - n) - 1, 1))), n), all) as kept,
        arrayMap(
            (one, n, k) -> arrayMap(x -> springtide_in_proportion(x, n, k), one),
            of_hosts, all, kept
        ) as parts,
        arrayMap(at -> arraySum(one -> one[at], parts), [1, 2, 3, 4]) as claims,
        if(
            not is_bounded or measure = 33,
            parts,
            arrayMap(
                one -> [
                    one[1],
                    least(
                        one[2],
                        1 + toUInt64(ceil(3. * one[1] * (claims[2] - one[2]) / greatest(claims[1] - one[1], 1)))
                    ),
                    least(
                        one[3],
                        1 + toUInt64(ceil(3. * one[4] * (claims[3] - one[3]) / greatest(claims[4] - one[4], 1)))
                    ),
                    one[4]
                ],
                parts
            )
        ) as bounded,
        arrayMap(at -> arraySum(one -> one[at], bounded), [1, 2, 3, 4]) as sums,
        not is_bounded or arrayCount(one -> one[2] > 0, of_hosts) > 1 as is_shared
    from claimed
),

summed as (
    select
        at_pop,
        dst_pop,
        ip_version,
        network,
        sumIf(sums[1], measure = 30) as default_flights,
        sumIf(sums[2], measure = 30) as default_lossy,
        sumForEachIf(sums, measure = 31) as entry,
        maxIf(arrayCount(x -> x > 0, all), measure in (31, 32)) as starting_hosts,
        sumForEachIf(sums, measure = 32) as trial,
        sumIf(sums[2], measure = 33 and is_shared) as braked
    from counted
    group by at_pop, dst_pop, ip_version, network
),

joined as (
    with
    -- One or two flights of three or more do not lower the rate in use: their senders may have waited for data. Where
    -- a path has no more flights, the law uses them only beside other evidence.
    (measure, hosts) -> if(
        (hosts >= 3 and valued.shown_by_hosts[indexOf(valued.measures, measure)] = 1)
        or (
            measure in (20, 22) and summed.entry[1] >= 3 and valued.sizes[indexOf(valued.measures, measure)] < 3
        ),
        0,
        valued.each[indexOf(valued.measures, measure)][3]
    ) as carried
    select
        carried(9, summed.starting_hosts) as train_middle,
        seen.at_pop as src_pop,
        if(seen.dst_pop = '', springtide_prefix_text(seen.ip_version, seen.network), seen.dst_pop) as destination,
        seen.ip_version as ip_version,
        seen.dst_pop as dst_pop,
        seen.network as client_prefix,
        seen.host_count as hosts,
        seen.the_host as only_host,
        seen.begun as connections,
        seen.gain as gain_us,
        valued.each[indexOf(valued.measures, 5)][3] as mss_p50,
        valued.each[indexOf(valued.measures, 3)][1] as min_rtt_p10_us,
        valued.each[indexOf(valued.measures, 4)][3] as rtt_p50_us,
        valued.share_size as share_connections,
        valued.each[indexOf(valued.measures, 1)][2] as share_p25_bytes_per_s,
        valued.each[indexOf(valued.measures, 1)][3] as share_p50_bytes_per_s,
        valued.share as share_state,
        valued.reached_size as reached_connections,
        valued.each[indexOf(valued.measures, 2)][5] as reached_p90_bytes_per_s,
        valued.reached as reached_state,
        valued.path_size as path_buckets,
        valued.each[indexOf(valued.measures, 7)][5] as path_p90_bytes_per_s,
        valued.combined as path_state,
        valued.each[indexOf(valued.measures, 8)][5] as at_once_p90,
        valued.each[indexOf(valued.measures, 6)][3] as receiver_window_p50_bytes,
        if(train_middle > 0, valued.train_size, 0) as trains,
        if(train_middle > 0, valued.each[indexOf(valued.measures, 9)][2], 0) as train_p25_bytes_per_s,
        train_middle as train_p50_bytes_per_s,
        summed.entry[1] as entry_flights,
        summed.entry[2] as entry_lossy,
        summed.entry[3] as entry_resent,
        summed.entry[4] as entry_segments,
        valued.each[indexOf(valued.measures, 10)][3] as entry_window_p50,
        valued.each[indexOf(valued.measures, 12)][3] as entry_rate_p50_bytes_per_s,
        valued.each[indexOf(valued.measures, 14)][3] as entry_10k_p50_us,
        valued.each[indexOf(valued.measures, 16)][3] as entry_50k_p50_us,
        valued.each[indexOf(valued.measures, 18)][3] as entry_100k_p50_us,
        carried(20, seen.host_count) as entry_carried_permille,
        carried(22, seen.host_count) as entry_path_carried_permille,
        summed.trial[1] as trial_flights,
        summed.trial[2] as trial_lossy,
        summed.trial[3] as trial_resent,
        summed.trial[4] as trial_segments,
        valued.each[indexOf(valued.measures, 11)][3] as trial_window_p50,
        valued.each[indexOf(valued.measures, 13)][3] as trial_rate_p50_bytes_per_s,
        valued.each[indexOf(valued.measures, 15)][3] as trial_10k_p50_us,
        valued.each[indexOf(valued.measures, 17)][3] as trial_50k_p50_us,
        valued.each[indexOf(valued.measures, 19)][3] as trial_100k_p50_us,
        carried(21, seen.host_count) as trial_carried_permille,
        carried(23, seen.host_count) as trial_path_carried_permille,
        summed.braked as braked,
        summed.default_flights as default_flights,
        summed.default_lossy as default_lossy
    from seen
    left join valued
        on
            seen.at_pop = valued.at_pop
            and seen.dst_pop = valued.dst_pop
            and seen.ip_version = valued.ip_version
            and seen.network = valued.network
    left join summed
        on
            seen.at_pop = summed.at_pop
            and seen.dst_pop = summed.dst_pop
            and seen.ip_version = summed.ip_version
            and seen.network = summed.network
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64} as generation,
    joined.* except (train_middle)
from joined
settings prefer_column_name_to_alias = 1,
min_insert_block_size_rows = 100000, min_insert_block_size_bytes = 0

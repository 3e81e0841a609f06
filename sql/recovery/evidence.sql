-- Evidence that first-flight records of the last rounds give of each path's handshakes and first flights: one row a
-- path with enough handshakes, every column of fixed width. Nothing after the round is read. Parameters: since_s
-- (excluded), round_s, min_connections.
--
-- Bounds on one host. All edges of a PoP share a timeout, so the host with the longest round trips decides it, among
-- those with enough handshakes. With three hosts or more the second longest decides, since one host may be lying, and
-- the host that sent most handshakes again is left out of the comparison. In first flights no host counts for more than
-- the second largest. The host that speaks most for copies, for harm by them or for a full path is left out
-- (springtide_agreed).
--
-- First flights are of connections with two segments of data or more whose handshake was not sent again, so that a
-- timeout of handshakes does not change how copies are judged.
with of_bundles as (
    select
        pop,
        dst_pop,
        client_prefix,
        ip_version,
        host,
        max(handshake_timeout_ms) as own_ms,
        max(began_us) as newest_us,
        -- The kernel measures no handshake that was sent again, where the peer sends no timestamps.
        groupArrayIf(handshake_rtt_us, handshake_rtt_us > 0) as rtts,
        countIf(handshake_timeout_ms > 0) as own,
        countIf(handshake_timeout_ms > 0 and handshake_resent > 0) as own_resent,
        -- Connections of the same bundle that kept the kernel's timeout by chance.
        if(own > 0, countIf(handshake_timeout_ms = 0), 0) as kernels,
        if(own > 0, countIf(handshake_timeout_ms = 0 and handshake_resent > 0), 0) as kernels_resent
    from round_flights
    where
        round > fromUnixTimestamp({since_s:UInt32})
        and round <= fromUnixTimestamp({round_s:UInt32})
        and length(pop) <= 63
    group by pop, dst_pop, client_prefix, ip_version, host, started_round, started_prefix_length
),

-- Only bundles with the newest timeout compare.
of_paths as (
    select
        pop,
        dst_pop,
        client_prefix,
        ip_version,
        argMaxIf(own_ms, newest_us, own > 0) as treated_ms,
        groupArray(tuple(host, own_ms, rtts, own, own_resent, kernels, kernels_resent)) as bundles
    from of_bundles
    group by pop, dst_pop, client_prefix, ip_version
),

of_hosts as (
    select
        pop as at_pop,
        dst_pop as to_pop,
        client_prefix as network,
        ip_version as version,
        bundle.1 as at_host,
        any(treated_ms) as newest_ms,
        sum(length(bundle.3)) as of_host,
        arrayFlatten(groupArray(bundle.3)) as all_rtts,
        arrayReduce('quantileExactHigh(0.99)', all_rtts) as high_us,
        sumIf(bundle.4, bundle.2 = treated_ms) as treated,
        sumIf(bundle.5, bundle.2 = treated_ms) as treated_resent,
        sumIf(bundle.6, bundle.2 = treated_ms) as control,
        sumIf(bundle.7, bundle.2 = treated_ms) as control_resent
    from of_paths
    array join bundles as bundle
    group by at_pop, to_pop, network, version, at_host
),

paths as (
    select
        at_pop,
        to_pop,
        network,
        if(to_pop != '', toString(to_pop), springtide_prefix_text(version, network)) as to_destination,
        version,
        sum(of_host) as handshakes,
        arrayReverseSort(groupArrayIf(high_us, of_host >= {min_connections:UInt32})) as highest,
        -- Where no host has enough, all together.
        if(
            empty(highest),
            arrayReduce('quantileExactHigh(0.99)', arrayFlatten(groupArray(all_rtts))),
            highest[if(length(highest) > 2, 2, 1)]
        ) as handshake_rtt_us,
        any(newest_ms) as treated_ms,
        argMax(tuple(treated, treated_resent, control, control_resent), tuple(treated_resent, at_host)) as most,
        if(count() > 2, most, tuple(0, 0, 0, 0)) as beside,
        sum(treated) - beside.1 as own,
        sum(treated_resent) - beside.2 as own_resent,
        sum(control) - beside.3 as kernels,
        sum(control_resent) - beside.4 as kernels_resent
    from of_hosts
    group by at_pop, to_pop, network, version
    having handshakes >= {min_connections:UInt32}
),

flights_of_bundles as (
    select
        pop,
        dst_pop,
        client_prefix,
        ip_version,
        host,
        countIf(copied_bytes > 0) > 0 as copies,
        groupArrayIf(tuple(first_flight_resent, handshake_rtt_us), copied_bytes = 0) as plain,
        countIf(copied_bytes > 0) as treated,
        countIf(copied_bytes > 0 and first_flight_resent > 0) as treated_lossy,
        -- If no segment was reported twice, the other end does not report duplicates.
        sumIf(copied_segments, copied_bytes > 0 and repaired_segments < copied_segments) as twice,
        sumIf(repaired_segments, copied_bytes > 0 and repaired_segments < copied_segments) as missed,
        sumForEachIf(
            springtide_moments(assumeNotNull(acked_10k_us)),
            acked_10k_us is not null and copied_bytes > 0
        ) as treated_took,
        sumForEachIf(
            springtide_moments(assumeNotNull(acked_10k_us)),
            acked_10k_us is not null and copied_bytes = 0
        ) as plain_took
    from round_flights
    where
        round > fromUnixTimestamp({since_s:UInt32})
        and round <= fromUnixTimestamp({round_s:UInt32})
        and length(pop) <= 63
        and segments > 1
        and handshake_resent = 0
    group by pop, dst_pop, client_prefix, ip_version, host, started_round, started_prefix_length
),

flights_of_hosts as (
    select
        pop,
        dst_pop,
        client_prefix,
        ip_version,
        host,
        groupArrayArrayIf(plain, copies) as beside,
        -- Connections that got no copies by chance, where copies are in use.
        if(max(copies), beside, groupArrayArray(plain)) as untreated,
        arrayFilter(us -> us > 0, tupleElement(untreated, 2)) as rtts,
        arrayReduce('quantileExact(0.5)', rtts) as middle_us,
        arrayFilter(flight -> flight.2 > 0 and flight.2 < middle_us, untreated) as calm,
        arrayFilter(flight -> flight.2 > middle_us, untreated) as busy,
        [toFloat64(length(untreated)), springtide_lossy(untreated)] as of_flights,
        [of_flights[2], toFloat64(arraySum(tupleElement(untreated, 1)))] as of_lossy,
        [toFloat64(length(calm)), springtide_lossy(calm)] as of_calm,
        [toFloat64(length(busy)), springtide_lossy(busy)] as of_busy,
        [toFloat64(sum(treated)), toFloat64(sum(treated_lossy))] as of_treated,
        [toFloat64(sum(twice)), toFloat64(sum(missed))] as of_copies,
        [toFloat64(length(beside)), springtide_lossy(beside)] as of_beside,
        arrayMap(number -> toFloat64(number), sumForEach(treated_took)) as times,
        arrayMap(number -> toFloat64(number), sumForEachIf(plain_took, copies)) as times_beside
    from flights_of_bundles
    group by pop, dst_pop, client_prefix, ip_version, host
),

flights_of_paths as (
    select
        pop,
        dst_pop,
        client_prefix,
        ip_version,
        springtide_agreed(groupArrayIf(of_flights, of_flights[1] > 0), 1) as every,
        springtide_agreed(groupArrayIf(of_lossy, of_lossy[1] > 0), 1) as lossy,
        springtide_agreed(groupArrayIf(of_calm, of_calm[1] > 0), -1) as calm,
        springtide_agreed(groupArrayIf(of_busy, of_busy[1] > 0), 1) as busy,
        springtide_agreed(groupArrayIf(of_treated, of_treated[1] > 0), 1) as treated,
        springtide_agreed(groupArrayIf(of_beside, of_beside[1] > 0), -1) as beside,
        springtide_agreed(groupArrayIf(of_copies, of_copies[1] > 0), 1) as copies,
        springtide_agreed(groupArrayIf(times, times[1] > 0), 1) as took,
        springtide_agreed(groupArrayIf(times_beside, times_beside[1] > 0), -1) as took_beside,
        -- The spread of few connections may be small by chance, so both groups get the larger one.
        greatest(
            took[3] / took[1] - pow(took[2] / took[1], 2),
            took_beside[3] / took_beside[1] - pow(took_beside[2] / took_beside[1], 2)
        ) as variance
    from flights_of_hosts
    group by pop, dst_pop, client_prefix, ip_version
    having sum(of_flights[1] + of_treated[1]) >= {min_connections:UInt32}
)

select
    toFixedString(paths.at_pop, 64) as src_pop,
    toFixedString(paths.to_destination, 64) as destination,
    paths.version as ip_version,
    toUInt32(least(paths.handshakes, 4294967295)) as handshakes,
    toFloat64(paths.handshake_rtt_us) as handshake_rtt_us,
    paths.treated_ms as treated_ms,
    toUInt32(least(paths.own, 4294967295)) as treated,
    toUInt32(least(paths.own_resent, 4294967295)) as treated_resent,
    toUInt32(least(paths.kernels, 4294967295)) as control,
    toUInt32(least(paths.kernels_resent, 4294967295)) as control_resent,
    toUInt32(least(seen.every[1], 4294967295)) as flights,
    toUInt32(least(seen.every[2], 4294967295)) as flights_lossy,
    seen.lossy[2] / seen.lossy[1] as resent_each,
    toUInt32(least(seen.calm[1], 4294967295)) as calm_flights,
    toUInt32(least(seen.calm[2], 4294967295)) as calm_lossy,
    toUInt32(least(seen.busy[1], 4294967295)) as busy_flights,
    toUInt32(least(seen.busy[2], 4294967295)) as busy_lossy,
    toUInt32(least(seen.treated[1], 4294967295)) as copied,
    toUInt32(least(seen.treated[2], 4294967295)) as copied_lossy,
    toUInt32(least(seen.beside[1], 4294967295)) as uncopied,
    toUInt32(least(seen.beside[2], 4294967295)) as uncopied_lossy,
    toUInt32(least(seen.copies[1], 4294967295)) as copied_segments,
    toUInt32(least(seen.copies[2], 4294967295)) as repaired_segments,
    seen.took[2] / seen.took[1] as copied_10k_us,
    seen.took_beside[2] / seen.took_beside[1] as uncopied_10k_us,
    sqrt(greatest(seen.variance, 0) * (1 / seen.took[1] + 1 / seen.took_beside[1])) as error_10k_us
from paths
left join flights_of_paths as seen
    on
        paths.at_pop = seen.pop
        and paths.to_pop = seen.dst_pop
        and paths.network = seen.client_prefix
        and paths.version = seen.ip_version
where length(paths.to_destination) <= 63
order by src_pop, destination, ip_version
settings max_bytes_before_external_group_by = 4000000000

-- What first-flight records of the last rounds show of each path's handshakes: one row a path with enough of them,
-- every column of fixed width. Nothing after the round is read. Parameters: since_s (excluded), round_s,
-- min_connections.
--
-- The timeout is of all edges of a PoP, so of the hosts with enough handshakes the one with the longest round trips
-- counts: of three and more the second longest, since one may have invented them. Likewise of three hosts and more the
-- one that sent most again does not count in the comparison.
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
        -- Beside them, by chance: of the same bundle.
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
newest as (
    select
        pop,
        dst_pop,
        client_prefix,
        ip_version,
        argMaxIf(own_ms, newest_us, own > 0) as treated_ms
    from of_bundles
    group by pop, dst_pop, client_prefix, ip_version
),

of_hosts as (
    select
        of_bundles.pop as at_pop,
        of_bundles.dst_pop as to_pop,
        of_bundles.client_prefix as network,
        of_bundles.ip_version as version,
        of_bundles.host as at_host,
        any(newest.treated_ms) as newest_ms,
        sum(length(of_bundles.rtts)) as of_host,
        arrayFlatten(groupArray(of_bundles.rtts)) as all_rtts,
        arrayReduce('quantileExactHigh(0.99)', all_rtts) as high_us,
        sumIf(of_bundles.own, of_bundles.own_ms = newest.treated_ms) as treated,
        sumIf(of_bundles.own_resent, of_bundles.own_ms = newest.treated_ms) as treated_resent,
        sumIf(of_bundles.kernels, of_bundles.own_ms = newest.treated_ms) as control,
        sumIf(of_bundles.kernels_resent, of_bundles.own_ms = newest.treated_ms) as control_resent
    from of_bundles
    inner join newest
        on
            of_bundles.pop = newest.pop
            and of_bundles.dst_pop = newest.dst_pop
            and of_bundles.client_prefix = newest.client_prefix
            and of_bundles.ip_version = newest.ip_version
    group by at_pop, to_pop, network, version, at_host
),

paths as (
    select
        at_pop,
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
)

select
    toFixedString(at_pop, 64) as src_pop,
    toFixedString(to_destination, 64) as destination,
    version as ip_version,
    toUInt32(least(handshakes, 4294967295)) as handshakes,
    toFloat64(handshake_rtt_us) as handshake_rtt_us,
    treated_ms,
    toUInt32(least(own, 4294967295)) as treated,
    toUInt32(least(own_resent, 4294967295)) as treated_resent,
    toUInt32(least(kernels, 4294967295)) as control,
    toUInt32(least(kernels_resent, 4294967295)) as control_resent
from paths
where length(to_destination) <= 63
order by src_pop, destination, ip_version
settings max_bytes_before_external_group_by = 4000000000

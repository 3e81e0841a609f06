-- What first-flight records of the last rounds show of each path's handshakes: one row a path with enough of them, every
-- column of fixed width. Nothing after the round is read. Parameters: since_s (excluded), round_s, min_connections.
--
-- The timeout is of all edges of a PoP, so the edge with the longest round trips counts: what one of them invents makes
-- others no faster.
with of_hosts as (
    select
        pop,
        if(dst_pop != '', toString(dst_pop), springtide_prefix_text(ip_version, client_prefix)) as destination,
        ip_version,
        host,
        count() as handshakes,
        -- The kernel measures no handshake that was sent again, where the peer sends no timestamps.
        quantileExactHigh(0.99)(if(handshake_rtt_us > 0, handshake_rtt_us, min_rtt_us)) as high_us,
        countIf(handshake_timeout_ms > 0) as own,
        countIf(handshake_timeout_ms > 0 and handshake_resent > 0) as own_resent,
        -- Beside them in the same bundles.
        countIf(handshake_timeout_ms = 0 and started_prefix_length > 0) as kernels,
        countIf(handshake_timeout_ms = 0 and started_prefix_length > 0 and handshake_resent > 0) as kernels_resent
    from round_flights
    where
        round > fromUnixTimestamp({since_s:UInt32})
        and round <= fromUnixTimestamp({round_s:UInt32})
        and length(pop) <= 63
        and (handshake_rtt_us > 0 or min_rtt_us > 0)
    group by pop, destination, ip_version, host
)

select
    toFixedString(of_hosts.pop, 64) as src_pop,
    toFixedString(of_hosts.destination, 64) as destination,
    of_hosts.ip_version as ip_version,
    toUInt32(least(sum(handshakes), 4294967295)) as connections,
    toFloat64(max(high_us)) as handshake_rtt_us,
    toUInt32(least(sum(own), 4294967295)) as treated,
    toUInt32(least(sum(own_resent), 4294967295)) as treated_resent,
    toUInt32(least(sum(kernels), 4294967295)) as control,
    toUInt32(least(sum(kernels_resent), 4294967295)) as control_resent
from of_hosts
where length(of_hosts.destination) <= 63
group by of_hosts.pop, of_hosts.destination, of_hosts.ip_version
having sum(handshakes) >= {min_connections:UInt32}
order by src_pop, destination, ip_version
settings prefer_column_name_to_alias = 1

-- One round's requests that the fleet's edges report, per PoP, client prefix and class of the body's size. Parameters:
-- generation, round_s, round_start_us < round_us (microseconds since the epoch).
insert into rollup_goodput
with answered as (
    select
        host,
        client_ip,
        bytes,
        duration_us
    from http_requests final
    where
        time_unix_us >= {round_start_us:Int64}
        and time_unix_us < {round_us:Int64}
        and status = 200
        and bytes > 0
        -- Over a UNIX socket: nobody whose network this is.
        and client_ip != toIPv6('::')
),

placed as (
    select
        fleet_edges.pop as pop,
        answered.client_ip as client_ip,
        answered.bytes as bytes,
        answered.duration_us as duration_us
    from answered
    inner join fleet_edges on answered.host = fleet_edges.edge
),

requests as (
    select
        pop,
        if(client_ip between toIPv6('::ffff:0.0.0.0') and toIPv6('::ffff:255.255.255.255'), 4, 6) as ip_version,
        tupleElement(IPv6CIDRToRange(client_ip, if(ip_version = 4, 120, 56)), 1) as client_prefix,
        roundDown(bytes, [0, 10000, 30000, 100000, 300000, 1000000, 10000000]) as size_class_bytes,
        count() as request_count,
        toUInt64(least(sum(toUInt128(bytes)), 9223372036854775807)) as byte_count,
        toUInt64(least(sum(toUInt128(duration_us)), 9223372036854775807)) as duration,
        -- nginx counts milliseconds: an answer within the first is taken as half of one.
        arraySort(groupArray(intDiv(least(bytes, 18000000000000) * 1000000, greatest(duration_us, 500)))) as rates
    from placed
    group by pop, ip_version, client_prefix, size_class_bytes
),

quantiles as (
    select
        *,
        arrayReduce('quantilesExactWeighted(0.1, 0.5, 0.9)', rates, arrayMap(x -> 1, rates)) as rate_quantiles
    from requests
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64} as generation,
    pop,
    ip_version,
    client_prefix,
    size_class_bytes,
    request_count as requests,
    byte_count as bytes,
    duration as duration_us,
    rate_quantiles[1] as goodput_p10_bytes_per_s,
    rate_quantiles[2] as goodput_p50_bytes_per_s,
    rate_quantiles[3] as goodput_p90_bytes_per_s,
    arrayReduce(
        'quantilesTDigestState(0.1, 0.25, 0.5, 0.75, 0.9)', arrayMap(x -> toFloat32(x), rates)
    ) as goodput_state
from quantiles
settings do_not_merge_across_partitions_select_final = 1, prefer_column_name_to_alias = 1

-- Rates at which connections with data in flight were delivered together: sums of delivery rates that the application
-- did not limit, by path, host and short time. Parameters: generation, round_s, interval_s, round_start_us < round_us
-- (microseconds since the epoch).
--
-- A short time is as long as the middle one of the hosts' polls are apart. A host that polls more often counts with the
-- mean of its polls within it; one that polls more rarely is missing in some, which makes sums smaller.
insert into rollup_busy
with lengths as (
    select
        host,
        uniqExact(boot_id, poll_sequence) as polls
    from rollup_polls
    where
        round = fromUnixTimestamp({round_s:UInt32})
        and generation = {generation:UInt64}
        and began_us >= {round_start_us:Int64}
    group by host
),

-- Never less than a second.
span as (
    select
        toUInt64(
            intDiv(
                {interval_s:UInt32} * 1000000,
                least(greatest(arraySort(groupArray(polls))[intDiv(count() + 1, 2)], 1), {interval_s:UInt32})
            )
        ) as bucket_us
    from lengths
),

chosen as (
    select client_prefix
    from rollup_units
    where round = fromUnixTimestamp({round_s:UInt32}) and generation = {generation:UInt64}
),

-- A connection with data in flight is being measured: its last rate is not from before an idle time. A host sends at
-- most 100 GB a second. Copies of a sample are one: each is its socket's number, above what is summed, and the sum's
-- upper half is dropped. That takes half the time of merging copies first (final).
polls as (
    select
        any(host) as host,
        any(src_pop) as src_pop,
        any(dst_pop) as dst_pop,
        any(ip_version) as ip_version,
        any(network) as network,
        min(time_unix_us) as at_us,
        toUInt64(bitAnd(sumDistinct(numbered + rate), toUInt128(18446744073709551615))) as rates,
        toUInt64(bitAnd(sumDistinct(numbered + weight), toUInt128(18446744073709551615))) as connections
    from (
        select
            time_unix_us,
            host,
            boot_id,
            poll_sequence,
            src_pop,
            dst_pop,
            ip_version,
            if(dst_pop = '', client_prefix, toIPv6('::')) as network,
            bitShiftLeft(toUInt128(socket), 64) as numbered,
            toUInt64(least(greatest(coalesce(sample_weight, 1), 1), 65535)) as weight,
            toUInt64(
                least(least(assumeNotNull(delivery_rate), 100000000000) * weight, 100000000000)
            ) as rate
        from tcp_samples
        prewhere
            time_unix_us >= {round_start_us:Int64}
            and time_unix_us < {round_us:Int64}
            and kind = 'POLL'
            and unacked > 0
            and delivery_rate > 0
            and not coalesce(delivery_rate_app_limited, false)
        where
            host global in (select fleet_edges.edge from fleet_edges)
            and springtide_has_values(state, bytes_sent)
            and (
                dst_pop != ''
                or client_prefix global in (
                    select chosen.client_prefix from chosen
                )
            )
    ) as busy
    group by
        bitXor(
            bitXor(cityHash64(host), bitRotateLeft(cityHash64(boot_id), 17)),
            bitXor(
                bitXor(bitRotateLeft(cityHash64(src_pop), 29), bitRotateLeft(cityHash64(dst_pop), 41)),
                bitRotateLeft(cityHash64(network, ip_version), 53)
            )
        ),
        poll_sequence
),

placed as (
    select
        polls.host as host,
        fleet_edges.pop as pop,
        polls.src_pop as src_pop,
        polls.dst_pop as dst_pop,
        polls.ip_version as ip_version,
        polls.network as network,
        intDiv(polls.at_us, (select span.bucket_us from span)) as bucket,
        least(polls.rates, 100000000000) as rates,
        polls.connections as connections
    from polls
    inner join fleet_edges on polls.host = fleet_edges.edge
    where polls.dst_pop = '' or (polls.src_pop = fleet_edges.pop and polls.dst_pop != fleet_edges.pop)
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64} as generation,
    pop,
    dst_pop,
    ip_version,
    network as client_prefix,
    host,
    bucket,
    toUInt64(intDiv(sum(rates), count())) as rates,
    toUInt64(intDiv(sum(connections) + count() - 1, count())) as connections
from placed
group by pop, dst_pop, ip_version, network, host, bucket
settings prefer_column_name_to_alias = 1

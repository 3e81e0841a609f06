-- Which group each unit belongs to, of those that the round shows or the last decisions remember. A pair of PoPs: the
-- pair of their regions. A client prefix: those under one covering prefix (/16, /40) from its PoP, the same from its
-- PoP's region, those of one autonomous system from the region: the first in which at least `group_units` units have
-- evidence of their own; else the widest. Parameters: round_s, group_units as in the policy.
with last as (
    select start_decisions.round as decided
    from start_decisions
    where start_decisions.round < fromUnixTimestamp({round_s:UInt32})
    -- Reads one place of the table, where a maximum reads all of its history.
    order by start_decisions.round desc
    limit 1
),

known as (
    select
        src_pop,
        destination,
        ip_version,
        share_connections > 0 as has_own
    from round_paths
    where round = fromUnixTimestamp({round_s:UInt32})
    union all
    select
        remembered.src_pop as src_pop,
        remembered.destination as destination,
        remembered.ip_version as ip_version,
        coalesce(remembered.share_weight, 0) > 0 as has_own
    from start_decisions as remembered final
    where
        remembered.round = (select last.decided from last)
        and remembered.round < fromUnixTimestamp({round_s:UInt32})
),

units as (
    select
        src_pop,
        destination,
        ip_version,
        max(has_own) as has_own,
        position(destination, '/') > 0 as is_prefix,
        toIPv6OrDefault(substring(destination, 1, position(destination, '/') - is_prefix)) as network
    from known
    where length(src_pop) <= 63 and length(destination) <= 63
    group by src_pop, destination, ip_version
),

-- Those whose groups are the same: names are made once for all of them.
places as (
    select
        src_pop,
        ip_version,
        is_prefix,
        if(is_prefix, '', destination) as dst_pop,
        tupleElement(IPv6CIDRToRange(network, if(ip_version = 4, 112, 40)), 1) as covering_network,
        if(is_prefix, dictGetOrDefault('asns', 'asn', network, 0), 0) as asn,
        sum(has_own) as with_own,
        groupArray(destination) as destinations
    from units
    group by src_pop, ip_version, is_prefix, dst_pop, covering_network, asn
),

placed as (
    select
        places.*,
        if(sources.region = '', 'default', sources.region) as src_region,
        if(peers.region = '', 'default', peers.region) as dst_region,
        if(
            places.ip_version = 4,
            concat(replaceOne(toString(places.covering_network), '::ffff:', ''), '/16'),
            concat(toString(places.covering_network), '/40')
        ) as covering
    from places
    left join fleet_regions as sources on places.src_pop = sources.pop
    left join fleet_regions as peers on places.dst_pop = peers.pop
),

named as (
    select
        src_pop,
        ip_version,
        destinations,
        with_own,
        -- The narrowest first.
        arrayMap(
            name -> if(length(name) <= 63, name, concat(substring(name, 1, 46), ' ', hex(cityHash64(name)))),
            multiIf(
                not is_prefix,
                [concat(src_region, ' to ', dst_region, ', IPv', toString(ip_version))],
                asn = 0,
                [concat(src_pop, ' to ', covering), concat('region ', src_region, ' to ', covering)],
                [
                    concat(src_pop, ' to ', covering),
                    concat('region ', src_region, ' to ', covering),
                    concat('region ', src_region, ' to AS', toString(asn), ', IPv', toString(ip_version))
                ]
            )
        ) as names,
        -- The empty name is no group.
        names[1] as first_name,
        names[2] as second_name
    from placed
),

sized as (
    select
        *,
        sum(with_own) over (partition by first_name) as first_own,
        sum(with_own) over (partition by second_name) as second_own
    from named
),

-- Each place's, before its units are listed again.
grouped as (
    select
        src_pop,
        ip_version,
        destinations,
        multiIf(
            first_own >= {group_units:UInt32}, first_name,
            second_own >= {group_units:UInt32} and second_name != '', second_name,
            names[-1]
        ) as group
    from sized
)

select
    toFixedString(toLowCardinality(src_pop), 64) as src_pop,
    toFixedString(destination, 64) as destination,
    ip_version,
    toFixedString(toLowCardinality(group), 64) as group
from grouped
array join destinations as destination
order by src_pop, destination, ip_version
settings prefer_column_name_to_alias = 1

-- Which group each unit belongs to, of those that the round shows or the last decisions remember. A pair of PoPs: the
-- pair of their regions. A client prefix: those under one covering prefix (/16, /40) from its PoP, the same from its
-- PoP's region, those of one autonomous system from the region: the first in which at least `group_units` units have
-- evidence of their own; else the widest. Parameters: round_s, group_units as in the policy.
with last as (
    select max(start_decisions.round) as decided
    from start_decisions
    where start_decisions.round < fromUnixTimestamp({round_s:UInt32})
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
        toIPv6OrDefault(splitByChar('/', destination)[1]) as network
    from known
    where length(src_pop) <= 63 and length(destination) <= 63
    group by src_pop, destination, ip_version
),

placed as (
    select
        units.src_pop as src_pop,
        units.destination as destination,
        units.ip_version as ip_version,
        units.has_own as has_own,
        units.is_prefix as is_prefix,
        units.network as network,
        if(sources.region = '', 'default', sources.region) as src_region,
        if(peers.region = '', 'default', peers.region) as dst_region,
        if(
            units.ip_version = 4,
            concat(
                replaceOne(toString(tupleElement(IPv6CIDRToRange(units.network, 112), 1)), '::ffff:', ''), '/16'
            ),
            concat(toString(tupleElement(IPv6CIDRToRange(units.network, 40), 1)), '/40')
        ) as covering,
        dictGetOrDefault('asns', 'asn', units.network, 0) as asn
    from units
    left join fleet_regions as sources on units.src_pop = sources.pop
    left join fleet_regions as peers on units.destination = peers.pop
),

named as (
    select
        src_pop,
        destination,
        ip_version,
        has_own,
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
        ) as names
    from placed
),

sizes as (
    select
        name,
        countIf(has_own) as with_own
    from named
    array join names as name
    group by name
),

members as (
    select
        named.src_pop as src_pop,
        named.destination as destination,
        named.ip_version as ip_version,
        named.names as names,
        sizes.name as name,
        sizes.with_own as with_own
    from (
        select
            src_pop,
            destination,
            ip_version,
            names,
            arrayJoin(names) as name
        from named
    ) as named
    inner join sizes on named.name = sizes.name
),

leveled as (
    select
        src_pop,
        destination,
        ip_version,
        names,
        min(if(with_own >= {group_units:UInt32}, indexOf(names, name), length(names))) as level
    from members
    group by src_pop, destination, ip_version, names
)

select
    toFixedString(src_pop, 64) as src_pop,
    toFixedString(destination, 64) as destination,
    ip_version,
    toFixedString(names[level], 64) as group
from leveled
order by src_pop, destination, ip_version
settings prefer_column_name_to_alias = 1

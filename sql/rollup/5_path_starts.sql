-- Number of connections of each path that began at each host in the round. Parameters: generation, round_s.
insert into rollup_path_starts
with hosts as (
    select
        pop as at_pop,
        if(dst_pop = '', springtide_prefix_text(ip_version, client_prefix), dst_pop) as destination,
        ip_version,
        host,
        starts
    from rollup_path_hosts
    where round = fromUnixTimestamp({round_s:UInt32}) and generation = {generation:UInt64} and starts > 0
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64} as generation,
    at_pop as src_pop,
    destination,
    ip_version,
    host,
    starts
from hosts
settings prefer_column_name_to_alias = 1

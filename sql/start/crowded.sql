-- The PoPs with more client prefixes in a round than places. Parameters: round_s; max_prefixes as in the policy;
-- half_prefixes: half of them.
select src_pop
from (
    select
        src_pop,
        only_host,
        count() as shown
    from round_paths
    where round = fromUnixTimestamp({round_s:UInt32}) and length(src_pop) <= 63 and dst_pop = ''
    group by src_pop, only_host
) as hosts
group by src_pop
having sum(shown) > {max_prefixes:UInt32} or maxIf(shown, only_host != '') > {half_prefixes:UInt32}

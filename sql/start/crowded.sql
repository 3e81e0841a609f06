-- Number of rows that a round has of each PoP, the bytes of their longest destination, and whether it has more client
-- prefixes than places. Parameters: round_s; max_prefixes as in the policy; half_prefixes: half of them.
select
    src_pop,
    sum(shown) as units,
    max(bytes) as longest,
    sum(clients) > {max_prefixes:UInt32} or maxIf(clients, only_host != '') > {half_prefixes:UInt32} as is_crowded
from (
    select
        src_pop,
        only_host,
        count() as shown,
        max(length(destination)) as bytes,
        countIf(dst_pop = '') as clients
    from round_paths
    where round = fromUnixTimestamp({round_s:UInt32}) and length(src_pop) <= 63 and length(destination) <= 63
    group by src_pop, only_host
) as hosts
group by src_pop

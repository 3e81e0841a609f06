-- Which window does each pair of PoPs earn now, and which one is decided?
-- The newest round, beside its decision.
--
-- Parameters:
--   src String = '': one source PoP; all when empty
--   top UInt32 = 20: rows
select
    pairs.src_pop as src_pop,
    pairs.dst_pop as dst_pop,
    pairs.ip_version as ip_version,
    pairs.connections_earned as earned,
    round(pairs.cwnd_mean, 1) as cwnd_mean,
    pairs.cwnd_p10 as cwnd_p10,
    pairs.cwnd_p90 as cwnd_p90,
    nullIf(decided.initcwnd, 0) as initcwnd,
    decided.reason as reason
from pairs
left join path_decisions as decided final
    on
        decided.part = 'initcwnd'
        and pairs.round = decided.round
        and pairs.src_pop = decided.src_pop
        and pairs.dst_pop = decided.destination
        and pairs.ip_version = decided.ip_version
where
    pairs.round = (select maxIf(rollups.round, rollups.round <= now()) from rollups final)
    and pairs.src_pop like if({src:String} = '', '%', {src:String}) -- noqa: RF02
order by src_pop asc, dst_pop asc, ip_version asc
limit {top:UInt32}

-- How long do probes between PoPs take, by round-trip time and size?
-- Pairs of PoPs in the groups of the Riptide paper, by the median time that a pair's connections took to be made; times
-- are from the beginning of the connection to the last byte. `started` is what the sender says that it began with: the
-- kernel's ten segments, or more. Pairs that begin with more are other pairs: compare the same ones over time.
--
-- Parameters:
--   src String = '': one PoP that sends; all when empty
--   dst String = '': one PoP that fetches; all when empty
--   hours UInt32 = 24: how far back from the newest probe
select
    springtide_rtt_group(pair_connect_us) as rtt_group,
    intDiv(bytes, 1000) as kb,
    multiIf(start_window is null, 'unknown', start_window <= 10, 'with 10', 'with more') as started,
    uniqExact(pop, server_pop) as pair_count,
    count() as probe_count,
    round(100 * countIf(result != 'ok') / count(), 2) as failed_percent,
    round(quantileExactInclusiveIf(0.05)(total_us, result = 'ok') / 1000, 1) as p5_ms, -- noqa: LT01
    round(quantileExactInclusiveIf(0.25)(total_us, result = 'ok') / 1000, 1) as p25_ms, -- noqa: LT01
    round(quantileExactInclusiveIf(0.5)(total_us, result = 'ok') / 1000, 1) as p50_ms, -- noqa: LT01
    round(quantileExactInclusiveIf(0.75)(total_us, result = 'ok') / 1000, 1) as p75_ms, -- noqa: LT01
    round(quantileExactInclusiveIf(0.95)(total_us, result = 'ok') / 1000, 1) as p95_ms -- noqa: LT01
from (
    select
        *,
        quantileExact(0.5)(connect_us) over (partition by pop, server_pop, ip_version) as pair_connect_us -- noqa: LT01
    from probes final
    where
        time_unix_us > (select max(newest.time_unix_us) from probes as newest) - {hours:UInt32} * toInt64(3600000000)
        and server_pop != ''
        and ({src:String} = '' or server_pop = {src:String})
        and ({dst:String} = '' or pop = {dst:String})
) as of_pairs
group by rtt_group, kb, started
order by rtt_group asc, kb asc, started asc

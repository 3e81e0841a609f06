-- How does delivery depend on the round-trip time?
-- Client prefixes in bands of their median round-trip time.
--
-- Parameters:
--   pop String = '': one PoP; all when empty
--   hours UInt32 = 24: how far back from the newest round
select
    multiIf(
        rtt_ms < 20, '1: under 20 ms', rtt_ms < 50, '2: 20-50 ms', rtt_ms < 100, '3: 50-100 ms',
        rtt_ms < 200, '4: 100-200 ms', '5: 200 ms and more'
    ) as band,
    uniqExact(prefix) as prefix_count,
    sum(connections) as connection_count,
    round(springtide_quantiles(delivery_rate_state)[3] * 8 / 1000000, 2)
        as delivery_p50_mbit_per_s,
    round(springtide_sent_again_percent(bytes_retransmitted, bytes_sent), 2) as retransmit_percent,
    round(sum(delivered_mb), 1) as total_mb
from prefixes
where
    round > (select maxIf(rollups.round, rollups.round <= now()) from rollups final) - interval {hours:UInt32} hour
    and round <= now()
    and rtt_ms is not null
    and not back_office
    and ({pop:String} = '' or pop = {pop:String})
group by band
order by band asc

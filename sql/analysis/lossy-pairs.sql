-- Which pairs of PoPs lose most, and do young connections lose more?
-- Young ones have sent at most two of the windows that they began with: their loss is what an initial window can cause.
-- The shares of them that lost anything, and that waited for a retransmission timeout.
--
-- Parameters:
--   hours UInt32 = 24: how far back from the newest round
--   top UInt32 = 20: rows
select
    src_pop,
    dst_pop,
    ip_version,
    round(springtide_sent_again_percent(bytes_retransmitted, bytes_sent), 2) as retransmitted_percent,
    sum(young_connections) as young,
    round(100 * sum(young_lossy_connections) / nullIf(sum(young_connections), 0), 2) as young_lossy_percent,
    round(100 * sum(young_timeout_connections) / nullIf(sum(young_connections), 0), 2) as young_timeout_percent
from pairs
where
    round > (select maxIf(rollups.round, rollups.round <= now()) from rollups final) - interval {hours:UInt32} hour
    and round <= now()
    and bytes_sent > 0
group by src_pop, dst_pop, ip_version
order by retransmitted_percent desc, src_pop asc, dst_pop asc, ip_version asc
limit {top:UInt32}

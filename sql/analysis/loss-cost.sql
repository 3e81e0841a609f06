-- What does loss cost?
-- Closed connections that lost something beside those that lost nothing, to the same prefix and of the same size: how
-- many times longer data was outstanding, and which part of all time is beyond what it had been without loss. How many
-- of them waited for a retransmission timeout. Duplicates that the receiver reported are no loss.
--
-- Parameters:
--   src String = '': one source PoP; all when empty
--   hours UInt32 = 24: how far back from the newest round
--   top UInt32 = 20: rows
with alike as (
    select
        src_pop,
        if(dst_pop = '', 'clients', toString(dst_pop)) as peer,
        roundDown(life_delivered_kb, [0, 10, 30, 100, 300, 1000, 10000]) as from_kb,
        count() as ended,
        countIf(life_bytes_lost > 0) as lossy,
        countIf(life_bytes_lost > 0 and life_timeouts > 0) as timed_out,
        sum(life_busy_ms) as busy_ms,
        sumIf(life_busy_ms, life_bytes_lost > 0) as lossy_ms,
        lossy * (busy_ms - lossy_ms) / nullIf(ended - lossy, 0) as without_loss_ms
    from connections
    where
        round > (select maxIf(rollups.round, rollups.round <= now()) from rollups final) - interval {hours:UInt32} hour
        and round <= now()
        and ({src:String} = '' or src_pop = {src:String})
        and closed
        and life_busy_ms > 0
    group by src_pop, peer, prefix, from_kb
)

select
    src_pop,
    peer,
    from_kb,
    sum(ended) as connection_count,
    round(100 * sum(lossy) / connection_count, 2) as lossy_percent,
    round(sumIf(lossy_ms, without_loss_ms > 0) / nullIf(sum(without_loss_ms), 0), 2) as times_slower,
    if(
        sum(lossy) = 0,
        0,
        round(100 * sumIf(lossy_ms - without_loss_ms, without_loss_ms > 0) / sum(busy_ms), 2)
    ) as cost_percent,
    round(100 * sum(timed_out) / nullIf(sum(lossy), 0), 1) as timeout_percent
from alike
group by src_pop, peer, from_kb
order by sumIf(lossy_ms - without_loss_ms, without_loss_ms > 0) desc, src_pop asc, peer asc, from_kb asc
limit {top:UInt32}

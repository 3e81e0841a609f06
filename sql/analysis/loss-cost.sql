-- What does loss cost?
-- All paths together (no src_pop), then each, the worst first. Closed connections that lost something beside those that
-- lost nothing, to the same prefix and of the same size: how many times longer data was outstanding, how much time is
-- beyond what it had been without loss, and which part of all that is. How many of them waited for a retransmission
-- timeout, and the time from the first to the end of the repair (Linux 6.7). Duplicates that the receiver reported are
-- not losses: these segments were sent again in vain. Handshakes that edges recorded, those that an edge sent again,
-- how often after a second, and how long they waited at least: a second, or the path's timeout.
--
-- Parameters:
--   src String = '': one source PoP; all when empty
--   hours Float64 = 24: how far back from until_s
--   until_s UInt32 = 0: up to when, seconds since the epoch; the newest round when 0
--   least UInt32 = 30: closed connections, or handshakes, of a path with a row of its own
--   top UInt32 = 20: rows
with span as (
    select
        toInt64(1000000) * if(
            {until_s:UInt32} > 0,
            {until_s:UInt32},
            toUnixTimestamp((select maxIf(rollups.round, rollups.round <= now()) from rollups final))
        ) as until_us,
        until_us - toInt64({hours:Float64} * 3600000000) as since_us
),

edges as (
    select
        edge,
        pop
    from fleet_edges
    where {src:String} = '' or pop = {src:String}
),

records as (
    select
        kind,
        host as at_host,
        src_pop as from_pop,
        dst_pop as to_pop,
        ip_version as version,
        client_prefix as network,
        least(greatest(coalesce(sample_weight, 1), 1), 65535) as weight,
        coalesce(bytes_acked, 0) as acked,
        if(kind = 'CLOSE', coalesce(busy_time, 0), 0) as busy_us,
        busy_us > 0 as is_ended,
        coalesce(total_retrans, 0) as again,
        least(springtide_spurious(dsack_dups, copied_segments), again) as in_vain,
        is_ended and coalesce(bytes_retrans, 0) > in_vain * toUInt64(coalesce(snd_mss, 0)) as is_lossy,
        total_rto as timeouts,
        coalesce(total_rto_time, 0) as repaired_ms,
        coalesce(handshake_timeout_ms, 0) as own_ms,
        coalesce(handshake_retrans, 0) as handshake_again
    from tcp_samples final
    where
        time_unix_us > (select span.since_us from span)
        and time_unix_us <= (select span.until_us from span)
        and host global in (select edges.edge from edges)
        and (
            kind = 'CLOSE' and springtide_has_values(state, bytes_sent)
            or kind = 'FIRST_FLIGHT' and handshake_retrans is not null
        )
        -- A host's connections to itself show no path.
        and not springtide_is_local(dst_ip, dst_ip = src_ip)
        and greatest(acked, busy_us) <= 9007199254740992
),

alike as (
    select
        edges.pop as pop,
        if(records.to_pop != '', records.to_pop, springtide_prefix_text(records.version, records.network)) as peer,
        records.version as version,
        roundDown(records.acked / 1000, [0, 10, 30, 100, 300, 1000, 10000]) as from_kb,
        countIf(records.is_ended) as seen,
        sumIf(records.weight, records.is_ended) as ended,
        sumIf(records.weight, records.is_lossy) as lossy,
        sumIf(records.weight, records.is_lossy and records.timeouts is not null) as known,
        sumIf(records.weight, records.is_lossy and records.timeouts > 0) as timed_out,
        sumIf(records.weight * records.repaired_ms, records.is_lossy) as repaired_ms,
        sum(records.weight * toFloat64(records.busy_us)) / 1000 as busy_ms,
        sumIf(records.weight * toFloat64(records.busy_us), records.is_lossy) / 1000 as lossy_ms,
        sumIf(records.weight * toUInt64(records.again), records.is_ended) as again,
        sumIf(records.weight * toUInt64(records.in_vain), records.is_ended) as in_vain,
        lossy * (busy_ms - lossy_ms) / nullIf(ended - lossy, 0) as without_loss_ms,
        countIf(records.kind = 'FIRST_FLIGHT') as handshakes,
        countIf(records.handshake_again > 0) as handshakes_again,
        sumIf(records.handshake_again, records.own_ms = 0) as after_a_second,
        sum(records.handshake_again * toUInt64(records.own_ms)) as after_own_ms
    from records
    inner join edges on records.at_host = edges.edge
    where records.to_pop = '' or (records.from_pop = edges.pop and records.to_pop != edges.pop)
    group by pop, peer, version, records.network, from_kb
)

select
    pop as src_pop,
    peer as destination,
    version as ip_version,
    sum(ended) as connection_count,
    round(100 * sum(lossy) / nullIf(sum(ended), 0), 2) as lossy_percent,
    round(sumIf(lossy_ms, without_loss_ms > 0) / nullIf(sum(without_loss_ms), 0), 2) as times_slower,
    round(sumIf(lossy_ms - without_loss_ms, without_loss_ms > 0) / 1000, 3) as cost_s,
    round(100 * sumIf(lossy_ms - without_loss_ms, without_loss_ms > 0) / nullIf(sum(busy_ms), 0), 2) as cost_percent,
    round(100 * sum(timed_out) / nullIf(sum(known), 0), 1) as timeout_percent,
    round(sum(repaired_ms) / 1000, 3) as timeout_s,
    round(100 * sum(in_vain) / nullIf(sum(again), 0), 1) as in_vain_percent,
    sum(handshakes) as handshake_count,
    sum(handshakes_again) as handshake_again_count,
    sum(after_a_second) as second_count,
    round(second_count + sum(after_own_ms) / 1000, 3) as handshake_wait_s
from alike
group by grouping sets ((pop, peer, version), ())
having src_pop = '' or greatest(sum(seen), handshake_count) >= {least:UInt32}
order by src_pop = '' desc, coalesce(cost_s, 0) + handshake_wait_s desc, src_pop asc, destination asc, ip_version asc
limit {top:UInt32}

-- What one round's live connections say about each ordered pair of PoPs and IP version.
-- Parameters: lookback_us <= round_start_us < round_us, microseconds since the epoch. Nothing from round_us on is read.
-- All sums are of integers: the answer does not depend on the order in which rows lie.
with polls as (
    select
        host,
        boot_id,
        netns,
        cookie,
        poll_sequence,
        -- The order of a socket's samples. Not of poll_sequence alone: a single dump by hand numbers itself far ahead.
        tuple(time_unix_us, poll_sequence) as moment,
        time_unix_us >= {round_start_us:Int64} as in_round,
        -- argMax passes over nulls; a tuple keeps the columns of one sample together, nulls and all.
        tuple(state, src_pop, dst_pop, ip_version, snd_cwnd, snd_mss, sample_weight) as facts,
        tuple(coalesce(bytes_acked, 0), coalesce(bytes_sent, 0), coalesce(bytes_retrans, 0)) as counters
    from tcp_samples final
    where
        time_unix_us >= {lookback_us:Int64}
        and time_unix_us < {round_us:Int64}
        and kind = 'POLL'
),

hosts as (
    select
        host,
        boot_id,
        netns,
        argMin(poll_sequence, moment) as first_poll
    from polls
    group by host, boot_id, netns
),

sockets as (
    select
        host,
        boot_id,
        netns,
        cookie,
        argMin(poll_sequence, moment) as first_poll,
        countIf(not in_round) > 0 as seen_before,
        argMaxIf(facts, moment, in_round) as last_facts,
        argMaxIf(counters, moment, in_round) as last_counters,
        argMinIf(counters, moment, in_round) as first_counters,
        argMaxIf(counters, moment, not in_round) as counters_before
    from polls
    group by host, boot_id, netns, cookie
    having countIf(in_round) > 0
),

-- What a socket did within the round: its counters against their last value before it. A socket that an earlier poll of
-- its host did not show is new and began at zero; of one that the host's first poll already showed nothing is known
-- from before that poll, so it counts from there.
differences as (
    select
        sockets.last_facts,
        sockets.last_counters,
        multiIf(
            sockets.seen_before, sockets.counters_before,
            sockets.first_poll != hosts.first_poll, tuple(toUInt64(0), toUInt64(0), toUInt64(0)),
            sockets.first_counters
        ) as baseline
    from sockets
    inner join hosts
        on
            sockets.host = hosts.host
            and sockets.boot_id = hosts.boot_id
            and sockets.netns = hosts.netns
),

connections as (
    select
        last_facts.2 as src_pop,
        last_facts.3 as dst_pop,
        last_facts.4 as ip_version,
        toUInt64(coalesce(last_facts.5, 0)) as snd_cwnd,
        toUInt64(coalesce(last_facts.6, 0)) as snd_mss,
        -- Each sample of a collector that samples stands for this many sockets; the bound keeps sums within 64 bits.
        toUInt64(least(greatest(coalesce(last_facts.7, 1), 1), 65535)) as sample_weight,
        last_counters.1 - least(last_counters.1, baseline.1) as acked,
        last_counters.2 - least(last_counters.2, baseline.2) as sent,
        last_counters.3 - least(last_counters.3, baseline.3) as retransmitted,
        -- An idle connection still shows the window that it was given: one that did not fill it in this round says
        -- nothing, and counting it would learn our own echo.
        snd_cwnd > 0 and snd_mss > 0 and acked >= snd_cwnd * snd_mss as earned
    from differences
    where
        last_facts.1 = 'ESTABLISHED'
        and src_pop != ''
        and dst_pop != ''
        and src_pop != dst_pop
)

select
    src_pop,
    dst_pop,
    ip_version,
    count() as connections_seen,
    countIf(earned) as connections_earned,
    sumIf(snd_cwnd * sample_weight, earned) as weighted_cwnd,
    sumIf(sample_weight, earned) as weight,
    minOrNullIf(snd_cwnd, earned) as min_cwnd,
    maxOrNullIf(snd_cwnd, earned) as max_cwnd,
    sum(sent) as bytes_sent,
    sum(retransmitted) as bytes_retransmitted
from connections
group by src_pop, dst_pop, ip_version
order by src_pop, dst_pop, ip_version
-- A sample and its duplicates carry the same time and so lie in the same partition.
settings do_not_merge_across_partitions_select_final = 1

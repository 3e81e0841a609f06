-- The rounds of one period, per ordered pair of PoPs and IP version. Parameters: start_s, period_s, made_at_s.
select
    rounds.src_pop,
    rounds.dst_pop,
    rounds.ip_version,
    toDateTime({start_s:UInt32}, 'UTC') as since,
    toDateTime({made_at_s:UInt32}, 'UTC') as made_at,
    toUInt16(uniqExact(rounds.round)) as rounds,
    sum(rounds.connections_seen) as connections_seen,
    sum(rounds.connections_earned) as connections_earned,
    sum(rounds.connections_closed) as connections_closed,
    sum(rounds.cwnd_sum) as cwnd_sum,
    sum(rounds.cwnd_weight) as cwnd_weight,
    min(rounds.min_cwnd) as min_cwnd,
    max(rounds.max_cwnd) as max_cwnd,
    quantilesTDigestWeightedMergeState(0.1, 0.25, 0.5, 0.75, 0.9)(rounds.cwnd_state) as cwnd_state, -- noqa: LT01
    quantilesTDigestWeightedMergeState(0.1, 0.25, 0.5, 0.75, 0.9)(rounds.rtt_state) as rtt_state, -- noqa: LT01
    min(rounds.min_rtt_us) as min_rtt_us,
    sum(rounds.bytes_acked) as bytes_acked,
    sum(rounds.bytes_sent) as bytes_sent,
    sum(rounds.bytes_retransmitted) as bytes_retransmitted,
    sum(rounds.bytes_received) as bytes_received,
    sum(rounds.busy_us) as busy_us,
    sum(rounds.rwnd_limited_us) as rwnd_limited_us,
    sum(rounds.sndbuf_limited_us) as sndbuf_limited_us
from round_pairs as rounds
where
    rounds.round > toDateTime({start_s:UInt32}, 'UTC')
    and rounds.round <= toDateTime({start_s:UInt32} + {period_s:UInt32}, 'UTC')
group by rounds.src_pop, rounds.dst_pop, rounds.ip_version

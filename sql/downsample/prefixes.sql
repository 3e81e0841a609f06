-- The rounds of one period, per PoP, client prefix and congestion control algorithm. Parameters: start_s, period_s,
-- made_at_s.
select
    rounds.pop,
    rounds.ip_version,
    rounds.client_prefix,
    rounds.congestion_algorithm,
    toDateTime({start_s:UInt32}, 'UTC') as since,
    toDateTime({made_at_s:UInt32}, 'UTC') as made_at,
    toUInt16(uniqExact(rounds.round)) as rounds,
    sum(rounds.connections) as connections,
    sum(rounds.bytes_acked) as bytes_acked,
    sum(rounds.bytes_sent) as bytes_sent,
    sum(rounds.bytes_retransmitted) as bytes_retransmitted,
    quantilesTDigestWeightedMergeState(0.1, 0.25, 0.5, 0.75, 0.9)(rounds.delivery_rate_state) -- noqa: LT01
        as delivery_rate_state,
    quantilesTDigestWeightedMergeState(0.1, 0.25, 0.5, 0.75, 0.9)(rounds.rtt_state) as rtt_state, -- noqa: LT01
    quantilesTDigestWeightedMergeState(0.1, 0.25, 0.5, 0.75, 0.9)(rounds.loss_state) as loss_state -- noqa: LT01
from round_prefixes as rounds
where
    rounds.round > toDateTime({start_s:UInt32}, 'UTC')
    and rounds.round <= toDateTime({start_s:UInt32} + {period_s:UInt32}, 'UTC')
group by rounds.pop, rounds.ip_version, rounds.client_prefix, rounds.congestion_algorithm
